"""What the GEMM core does for a convolution: the products of all steps, and those left out."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from vta_byoc.cost.dma import two_largest
from vta_byoc.cost.search import Array, Choice, ceil_div, integer
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
Counted = TypeVar("Counted")
Usage = TypeVar("Usage", bound="GemmUsage")


@dataclass(frozen=True)
class Products:
    """The GEMM of all steps: micro-ops, instructions; kernels, and micro-ops in them, of a step."""

    micro_ops: Array
    instructions: Array
    kernels: Array
    uops: Array


@dataclass(frozen=True)
class Nests:
    """The GEMM nests of all steps, where something is left out.

    Attributes:
        micro_ops: of all of them.
        count: how many.
        different: nests that no other is like.
        pieces: rectangles of blocks that no other is like.
        instructions: of a nest.
        kernel: micro-ops of the kernels of a step.
    """

    micro_ops: Array
    count: Array
    different: Array
    pieces: Array
    instructions: Array
    kernel: Array


@dataclass(frozen=True)
class Loops:
    """The loops of a tile: accumulators, products of each, micro-ops of its kernel and kernels."""

    pixels: Array
    reduction: Array
    kernel: Array
    kernels: Array


def chosen_left_out(
    work: Conv2dWorkload,
    grouping: Grouping,
    config: VTAConfig,
    choice: Choice,
    pool: PooledTiles | None = None,
    sorted_by: tuple[int, int] | None = None,
) -> LeftOut:
    """Which products with zero a tile leaves out: what its estimate counts on."""
    tile = {name: integer(size) for name, size in choice.tile.items()}
    variant = ConvVariant.parse(choice.variant)
    usage = GemmUsage(work, grouping, config, variant, tile, pool, sorted_by)
    return usage.choices[int(usage.left_out())]


class GemmUsage:
    """Tiles and steps of one variant, and what the GEMM core does, for all tiles at once.

    With ``pool`` the tiles are those of what the pool leaves (``out_tile`` of ``out_size``), and
    ``tile`` has the outputs of the convolution that they see.  With ``sorted_by`` their rows and
    columns are sorted by positions within such windows (`fused.planes`).
    """

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
        self._known: dict[Hashable, Any] = {}

    @property
    def keeps_wgt(self) -> bool:
        """Whether a tile's weights stay for all steps of the reduction."""
        return self.variant.resident and self.variant.order == WEIGHT_STATIONARY

    @property
    def keeps_inp(self) -> bool:
        """Whether a tile's input stays for all steps of the reduction."""
        return self.variant.resident and self.variant.order == INPUT_STATIONARY

    def of(self: Usage, variant: ConvVariant) -> Usage:
        """The same tiles in another order: what depends on neither is counted once for both."""
        assert variant.gather == self.variant.gather
        other = copy.copy(self)
        other.variant = variant
        return other

    def once(self, name: Hashable, count: Callable[[], Counted]) -> Counted:
        """What `count` gives, which depends on the tiles and on neither order nor residence."""
        if name not in self._known:
            self._known[name] = count()
        found: Counted = self._known[name]
        return found

    def left_out(self) -> Array:
        """The number in `choices` of what each tile leaves out: where that costs least."""
        if len(self.choices) == 1:
            return integer(0)
        return self.once("left out", self._cheapest_to_leave_out)

    def _cheapest_to_leave_out(self) -> Array:
        time = self.config.timing
        start = time.compute_start + INSN_BYTES / time.port_bytes
        copies = np.minimum(MOST_SLOTS**2, self.tiles * self.steps)
        costs = []
        for nests in map(self.nests, self.choices):
            wait = copies * nests.different * time.read_latency
            costs.append(nests.micro_ops + nests.instructions * (nests.count * start + wait))
        return np.argmin(np.stack(np.broadcast_arrays(*costs)), axis=0)

    def pieces(self, apart: bool) -> Pieces:
        """The blocks that tiles multiply: all, or ``apart`` those that are not zero."""
        rows, cols = self.tile["co"], self.tile["ci"]
        if apart:
            return pieces_of(self.filled, rows, cols)
        count = self.n_co * ceil_div(self.ci, cols)
        return Pieces(self.co * self.ci, count, 1, rows, cols)

    def boxes(self, skips: Skips) -> tuple[Boxes, Boxes]:
        """Of the rows and of the columns."""
        tile, (rows, cols), (high, wide) = self.tile, skips, self.windows()
        return (
            self.once(
                ("rows", rows),
                lambda: boxes_by_size(self.rows, tile["oh"], tile["kh"], rows, high),
            ),
            self.once(
                ("columns", cols),
                lambda: boxes_by_size(self.cols, tile["ow"], tile["kw"], cols, wide),
            ),
        )

    def products(self) -> Products:
        """The GEMM of all steps."""
        if not self.taps:
            return Products(0, 0, *self.instructions(self.loops_in_hardware(self.tile), 1))
        found = [self._products(each) for each in self.choices]
        if len(found) == 1:
            return found[0]
        chosen = self.left_out()
        columns = zip(*(dataclasses.astuple(each) for each in found), strict=True)
        return Products(*(_picked(chosen, column) for column in columns))

    def _products(self, left_out: LeftOut) -> Products:
        rows, cols = self.boxes(left_out.padding)
        nests = self.nests(left_out)
        shapes = self.shapes(left_out.padding) * nests.pieces
        return Products(
            nests.micro_ops,
            nests.count * nests.instructions,
            nests.instructions * shapes * rows.different * cols.different,
            nests.kernel * shapes * rows.kinds * cols.kinds,
        )

    def nests(self, left_out: LeftOut) -> Nests:
        """The GEMM nests of all steps that leave ``left_out`` out."""
        return self.once(("nests", left_out), lambda: self._nests(left_out))

    def _nests(self, left_out: LeftOut) -> Nests:
        rows, cols = self.boxes(left_out.padding)
        pieces = self.once(("pieces", left_out.blocks), lambda: self.pieces(left_out.blocks))
        loops = self.once(
            ("loops", left_out.blocks),
            lambda: self.loops_in_hardware({**self.tile, "co": pieces.rows, "ci": pieces.cols}),
        )
        share = (rows.shortest / self.tile["oh"]) * (cols.shortest / self.tile["ow"])
        each = float(self.images * self.groups * self.digits * pieces.pairs)
        return Nests(
            each * rows.products * cols.products,
            self.n_g * self.n_n * pieces.count * rows.boxes * cols.boxes,
            pieces.different * rows.different * cols.different,
            pieces.different,
            *self.instructions(loops, share),
        )

    def loops_in_hardware(self, tile: Tile) -> Loops:
        """What two loops that run in hardware make of the products of ``tile``."""
        distance = self.config.capabilities.dst_distance
        pixels = self.digits * math.prod(tile[name] for name in DESTINATIONS)
        reduction = tile["ci"] * tile["kh"] * tile["kw"]
        spatial = two_largest([self.digits, *self.loops(tile)])
        reduced = two_largest([tile[name] for name in ("ci", "kh", "kw")])
        # two loops run in hardware; what is left must keep equal destinations apart
        one = (reduction == reduced[0]) | (pixels >= distance * spatial[0])
        two = (reduction == 1) | (pixels >= distance * spatial[0] * spatial[1])
        looped = np.maximum(reduced[0] * reduced[1], np.where(one, spatial[0] * reduced[0], 1))
        looped = np.maximum(looped, np.where(two, spatial[0] * spatial[1], 1))
        kernel = pixels * reduction / looped
        return Loops(pixels, reduction, kernel, ceil_div(kernel, self.config.uop_depth))

    def instructions(self, loops: Loops, share: Array) -> tuple[Array, Array]:
        """GEMM instructions of a box and micro-ops of the kernels of a step.

        ``share``: the part of the accumulators of a tile that its smallest box has.
        """
        least = loops.pixels * share
        few = (least < self.config.capabilities.dst_distance) & (loops.reduction > 1)
        count = np.where(few, loops.reduction, loops.kernels)
        return count, np.where(few, loops.pixels * loops.reduction, loops.kernel)

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
        boxed = {name for name, skip in zip(("oh", "ow"), skips, strict=True) if skip}
        count: Array = np.float64(1)
        for name, each in self.once("shapes by axis", self._shapes_by_axis).items():
            if name not in boxed:
                count = count * each
        return np.minimum(count, self.tiles)

    def _shapes_by_axis(self) -> dict[str, Array]:
        totals = (self.images, self.groups, self.co, *self.out_size)
        largest = two_largest([self.tile[name] for name in DESTINATIONS])[0]
        # a partial loop in hardware changes no kernel
        return {
            name: np.where((total % self.out_tile[name] != 0) & (self.tile[name] < largest), 2, 1)
            for name, total in zip(DESTINATIONS, totals, strict=True)
        }


def _picked(numbers: Array, values: Sequence[Array]) -> Array:
    """Of ``values`` the one of each number, elementwise."""
    same = all(np.ndim(value) == 0 and value == values[0] for value in values)
    if same:
        return values[0]
    return np.choose(np.asarray(numbers), [np.asarray(value) for value in values])
