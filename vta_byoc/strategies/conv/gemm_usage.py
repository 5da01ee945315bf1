"""What the GEMM core does for a convolution: the products of all steps, and those left out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from vta_byoc.cost.search import Array, Choice, ceil_div
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import INSN_BYTES
from vta_byoc.strategies.conv.pooled import PooledTiles
from vta_byoc.strategies.conv.schedule import (
    INPUT_STATIONARY,
    WEIGHT_STATIONARY,
    ConvVariant,
    has_taps,
)
from vta_byoc.strategies.conv.taps import Boxes, Skips, boxes_by_size, skips_of
from vta_byoc.strategies.conv.window import windows
from vta_byoc.strategies.fused.planes import whole
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import Conv2dWorkload

Tile = Mapping[str, Array]
DESTINATIONS = ("n", "g", "co", "oh", "ow")
"""Axes of the accumulator."""
Known: TypeAlias = dict[Hashable, Any]
"""What was counted for other variants of a space, by name and tiles."""
Counted = TypeVar("Counted")


@dataclass(frozen=True)
class Products:
    """The GEMM of all steps: micro-ops, instructions; kernels, and micro-ops in them, of a step."""

    micro_ops: Array
    instructions: Array
    kernels: Array
    uops: Array


def chosen_skips(
    work: Conv2dWorkload,
    grouping: Grouping,
    config: VTAConfig,
    choice: Choice,
    pool: PooledTiles | None = None,
    sorted_by: tuple[int, int] | None = None,
) -> Skips:
    """Which products with padding a tile leaves out: what its estimate counts on."""
    tile = {name: np.int64(size) for name, size in choice.tile.items()}
    variant = ConvVariant.parse(choice.variant)
    usage = GemmUsage(work, grouping, config, variant, tile, pool, sorted_by)
    return skips_of(usage.work)[int(usage.skips())]


class GemmUsage:
    """Tiles and steps of one variant, and what the GEMM core does, for all tiles at once.

    With ``pool`` the tiles are those of what the pool leaves (``out_tile`` of ``out_size``), and
    ``tile`` has the outputs of the convolution that they see.  With ``sorted_by`` their rows and
    columns are sorted by positions within such windows (`fused.planes`).
    """

    _known: Known
    _tiles: Hashable

    def __init__(
        self,
        work: Conv2dWorkload,
        grouping: Grouping,
        config: VTAConfig,
        variant: ConvVariant,
        tile: Tile,
        pool: PooledTiles | None = None,
        sorted_by: tuple[int, int] | None = None,
    ):
        self.sorted_by = sorted_by
        self.out_tile, self.out_size = tile, (work.out_height, work.out_width)
        self.pool = pool
        if pool is not None:
            self.out_size, tile = pool.size, pool.computed(tile)
            work = pool.convolution
        self.work, self.config, self.variant, self.tile = work, config, variant, tile
        self.groups, self.ci, self.co = grouping.count, grouping.ci, grouping.co
        self.grouping = grouping
        self.images = blocks(work.batch, config.batch)
        self.rows, self.cols = windows(work, variant.gather)
        if pool is not None:
            self.rows, self.cols = pool.with_halos(self.rows, self.cols)
        self.n_g = ceil_div(self.groups, tile["g"])
        self.n_co = ceil_div(self.co, tile["co"])
        self.n_n = ceil_div(self.images, tile["n"])
        self.n_h, self.n_w = self.rows.count(tile["oh"]), self.cols.count(tile["ow"])
        self.positions = self.n_n * self.n_h * self.n_w
        self.tiles = self.n_g * self.n_co * self.positions
        self.taps = work.kernel[0] * work.kernel[1] if has_taps(work) else 0
        taps = (work.kernel[0] // tile["kh"]) * (work.kernel[1] // tile["kw"])
        self.steps = ceil_div(self.ci, tile["ci"]) * taps if self.taps else 1
        self.digits = work.digits if self.taps else 1
        self.area = self.out_size[0] * self.out_size[1]
        self.planes = self.images * self.groups * self.co
        self.results = float(self.planes * self.area)
        self.vectors: Array = self.results
        if pool is not None:
            area = self.rows.computed(tile["oh"]) * self.cols.computed(tile["ow"])
            self.vectors = self.planes * area
        self.keeps_wgt = variant.resident and variant.order == WEIGHT_STATIONARY
        self.keeps_inp = variant.resident and variant.order == INPUT_STATIONARY

    def share(self, known: Known) -> None:
        """Take from `known`, and keep there, what is the same for all orders of the loops."""
        sizes = (np.asarray(size) for size in self.out_tile.values())
        self._known = known
        self._tiles = (self.variant.gather, *((size.shape, size.tobytes()) for size in sizes))

    def once(self, name: str, count: Callable[[], Counted]) -> Counted:
        """What `count` gives, which depends on the tiles and on neither order nor residence."""
        key = (name, self._tiles)
        if key not in self._known:
            self._known[key] = count()
        found: Counted = self._known[key]
        return found

    def skips(self) -> Array:
        """The number in `skips_of` of what each tile leaves out: where that costs least."""
        choices = skips_of(self.work)
        if len(choices) == 1:
            return np.int64(0)
        time, each = self.config.timing, self.images * self.groups * self.co * self.digits * self.ci
        nests = self.n_g * self.n_co * self.n_n * ceil_div(self.ci, self.tile["ci"])
        start = time.compute_start + INSN_BYTES / time.port_bytes
        copies = np.minimum(MOST_SLOTS**2, self.tiles * self.steps)
        pixels = self.digits * math.prod(self.tile[name] for name in DESTINATIONS)
        costs = []
        for skips in choices:
            rows, cols = self.boxes(skips)
            count, _ = self.instructions(pixels, self.smallest(pixels, rows, cols))
            loads = copies * rows.different * cols.different * time.read_latency
            work = each * rows.products * cols.products
            costs.append(work + count * (nests * rows.boxes * cols.boxes * start + loads))
        return np.argmin(np.stack(np.broadcast_arrays(*costs)), axis=0)

    def boxes(self, skips: Skips) -> tuple[Boxes, Boxes]:
        """Of the rows and of the columns."""
        tile, (rows, cols), (high, wide) = self.tile, skips, self.windows()
        return (
            boxes_by_size(self.rows, tile["oh"], tile["kh"], rows, high),
            boxes_by_size(self.cols, tile["ow"], tile["kw"], cols, wide),
        )

    def products(self, pixels: Array) -> Products:
        """The GEMM of all steps."""
        if not self.taps:
            return Products(0, 0, *self.instructions(pixels, pixels))
        found = [self._products(pixels, skips) for skips in skips_of(self.work)]
        if len(found) == 1:
            return found[0]
        chosen = self.skips()
        columns = zip(*(dataclasses.astuple(each) for each in found), strict=True)
        return Products(*(_picked(chosen, column) for column in columns))

    def _products(self, pixels: Array, skips: Skips) -> Products:
        tile, (rows, cols) = self.tile, self.boxes(skips)
        instructions, kernel = self.instructions(pixels, self.smallest(pixels, rows, cols))
        each = float(self.images * self.groups * self.co * self.digits * self.ci)
        nests = self.n_g * self.n_co * self.n_n * ceil_div(self.ci, tile["ci"])
        shapes = self.shapes(skips)
        return Products(
            each * rows.products * cols.products,
            nests * rows.boxes * cols.boxes * instructions,
            instructions * shapes * rows.different * cols.different,
            kernel * shapes * rows.kinds * cols.kinds,
        )

    def smallest(self, pixels: Array, rows: Boxes, cols: Boxes) -> Array:
        """Of the accumulators of a tile, ``pixels``, those of its smallest box."""
        return pixels * (rows.shortest / self.tile["oh"]) * (cols.shortest / self.tile["ow"])

    def instructions(self, pixels: Array, least: Array) -> tuple[Array, Array]:
        """GEMM instructions of a box and micro-ops of the kernels of a step.

        ``pixels`` and ``least``: accumulators of a tile, and of its smallest box.
        """
        tile, distance = self.tile, self.config.capabilities.dst_distance
        reduction = tile["ci"] * tile["kh"] * tile["kw"]
        spatial = _two_largest([self.digits, *self.loops()])
        reduced = _two_largest([tile[name] for name in ("ci", "kh", "kw")])
        # two loops run in hardware; what is left must keep equal destinations apart
        one = (reduction == reduced[0]) | (pixels >= distance * spatial[0])
        two = (reduction == 1) | (pixels >= distance * spatial[0] * spatial[1])
        looped = np.maximum(reduced[0] * reduced[1], np.where(one, spatial[0] * reduced[0], 1))
        looped = np.maximum(looped, np.where(two, spatial[0] * spatial[1], 1))
        kernel = pixels * reduction / looped
        few = (least < distance) & (reduction > 1)
        count = np.where(few, reduction, ceil_div(kernel, self.config.uop_depth))
        return count, np.where(few, pixels * reduction, kernel)

    def loops(self) -> list[Array]:
        """The loops over the accumulators of a tile."""
        *others, rows, cols = (self.tile[name] for name in DESTINATIONS)
        if self.sorted_by is None:
            return [*others, rows, cols]
        high, wide = self.windows()
        return [*others, rows // high, cols // wide, high, wide]

    def windows(self) -> tuple[Array, Array]:
        """Rows and columns of the windows by whose positions accumulators are sorted."""
        if self.sorted_by is None:
            return 1, 1
        there = whole(self.sorted_by, self.tile["oh"], self.tile["ow"])
        high, wide = self.sorted_by
        return np.where(there, high, 1), np.where(there, wide, 1)

    def shapes(self, skips: Skips) -> Array:
        """Kernels of different shape that partial last tiles make, about, but for boxes."""
        tile = self.tile
        boxed = {name for name, skip in zip(("oh", "ow"), skips, strict=True) if skip}
        count: Array = np.float64(1)
        totals = (self.images, self.groups, self.co, *self.out_size)
        largest = _two_largest([tile[name] for name in DESTINATIONS])[0]
        for name, total in zip(DESTINATIONS, totals, strict=True):
            if name in boxed:
                continue
            # a partial loop in hardware changes no kernel
            partial = (total % self.out_tile[name] != 0) & (tile[name] < largest)
            count = count * np.where(partial, 2, 1)
        return np.minimum(count, self.tiles)


def _picked(numbers: Array, values: Sequence[Array]) -> Array:
    """Of ``values`` the one of each number, elementwise."""
    same = all(np.ndim(value) == 0 and value == values[0] for value in values)
    if same:
        return values[0]
    return np.choose(np.asarray(numbers), [np.asarray(value) for value in values])


def _two_largest(loops: Sequence[Array]) -> tuple[Array, Array]:
    """The two largest of ``loops``, elementwise."""
    first: Array = np.int64(1)
    second: Array = np.int64(1)
    for loop in loops:
        second = np.maximum(second, np.minimum(first, loop))
        first = np.maximum(first, loop)
    return first, second
