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
from vta_byoc.strategies.conv.filled import Pieces, filled_of, pieces_of
from vta_byoc.strategies.conv.pooled import PooledTiles
from vta_byoc.strategies.conv.schedule import (
    INPUT_STATIONARY,
    WEIGHT_STATIONARY,
    ConvVariant,
    has_taps,
)
from vta_byoc.strategies.conv.taps import Boxes, LeftOut, Skips, boxes_by_size, left_out_of
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


def chosen_left_out(
    work: Conv2dWorkload,
    grouping: Grouping,
    config: VTAConfig,
    choice: Choice,
    pool: PooledTiles | None = None,
    sorted_by: tuple[int, int] | None = None,
) -> LeftOut:
    """Which products with zero a tile leaves out: what its estimate counts on."""
    tile = {name: np.int64(size) for name, size in choice.tile.items()}
    variant = ConvVariant.parse(choice.variant)
    usage = GemmUsage(work, grouping, config, variant, tile, pool, sorted_by)
    return usage.choices[int(usage.left_out())]


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
        self.filled = filled_of(work, grouping, config)
        self.choices = left_out_of(work, self.filled)
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

    def left_out(self) -> Array:
        """The number in `choices` of what each tile leaves out: where that costs least."""
        if len(self.choices) == 1:
            return np.int64(0)
        time = self.config.timing
        start = time.compute_start + INSN_BYTES / time.port_bytes
        copies = np.minimum(MOST_SLOTS**2, self.tiles * self.steps)
        costs = []
        for choice in self.choices:
            rows, cols = self.boxes(choice.padding)
            pieces = self.pieces(choice.blocks)
            count, _ = self.instructions(*self.box(pieces, rows, cols))
            different = pieces.different * rows.different * cols.different
            work = self.each(pieces) * rows.products * cols.products
            nests = self.nests(pieces) * rows.boxes * cols.boxes
            costs.append(work + count * (nests * start + copies * different * time.read_latency))
        return np.argmin(np.stack(np.broadcast_arrays(*costs)), axis=0)

    def pieces(self, apart: bool) -> Pieces:
        """The blocks that tiles multiply: all, or ``apart`` those that are not zero."""
        rows, cols = self.tile["co"], self.tile["ci"]
        if apart:
            return pieces_of(self.filled, rows, cols)
        count = self.n_co * ceil_div(self.ci, cols)
        return Pieces(self.co * self.ci, count, 1, rows, cols)

    def each(self, pieces: Pieces) -> float:
        """Micro-ops of the layer for each pair of an output position and a tap."""
        return float(self.images * self.groups * self.digits * pieces.pairs)

    def nests(self, pieces: Pieces) -> Array:
        """GEMM nests of the layer, were its planes and kernel in one tile."""
        return self.n_g * self.n_n * pieces.count

    def boxes(self, skips: Skips) -> tuple[Boxes, Boxes]:
        """Of the rows and of the columns."""
        tile, (rows, cols), (high, wide) = self.tile, skips, self.windows()
        return (
            boxes_by_size(self.rows, tile["oh"], tile["kh"], rows, high),
            boxes_by_size(self.cols, tile["ow"], tile["kw"], cols, wide),
        )

    def products(self) -> Products:
        """The GEMM of all steps."""
        if not self.taps:
            return Products(0, 0, *self.instructions(self.tile, 1))
        found = [self._products(each) for each in self.choices]
        if len(found) == 1:
            return found[0]
        chosen = self.left_out()
        columns = zip(*(dataclasses.astuple(each) for each in found), strict=True)
        return Products(*(_picked(chosen, column) for column in columns))

    def _products(self, left_out: LeftOut) -> Products:
        rows, cols = self.boxes(left_out.padding)
        pieces = self.pieces(left_out.blocks)
        instructions, kernel = self.instructions(*self.box(pieces, rows, cols))
        shapes = self.shapes(left_out.padding) * pieces.different
        return Products(
            self.each(pieces) * rows.products * cols.products,
            self.nests(pieces) * rows.boxes * cols.boxes * instructions,
            instructions * shapes * rows.different * cols.different,
            kernel * shapes * rows.kinds * cols.kinds,
        )

    def box(self, pieces: Pieces, rows: Boxes, cols: Boxes) -> tuple[Tile, Array]:
        """A piece of a tile, and the part of its accumulators that its smallest box has."""
        share = (rows.shortest / self.tile["oh"]) * (cols.shortest / self.tile["ow"])
        return {**self.tile, "co": pieces.rows, "ci": pieces.cols}, share

    def instructions(self, tile: Tile, share: Array) -> tuple[Array, Array]:
        """GEMM instructions of a box and micro-ops of the kernels of a step.

        ``share``: the part of the accumulators of ``tile`` that its smallest box has.
        """
        distance = self.config.capabilities.dst_distance
        pixels = self.digits * math.prod(tile[name] for name in DESTINATIONS)
        least = pixels * share
        reduction = tile["ci"] * tile["kh"] * tile["kw"]
        spatial = _two_largest([self.digits, *self.loops(tile)])
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

    def loops(self, tile: Tile) -> list[Array]:
        """The loops over the accumulators of a tile, or of a piece of it."""
        *others, rows, cols = (tile[name] for name in DESTINATIONS)
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
