"""Sum pooling on the GEMM core: ``acc += x`` by one identity weight, a cycle a tap.

Equal destinations must be some micro-ops apart.  Where a tile has fewer vectors than that (a global
pool of few channels), each row or column of taps gets an accumulator of its own and the ALU adds
them up in halves.

A factor, which machines without MUL cannot apply, is two weights: the taps are summed up times the
upper digit, shifted left, and summed up again times the lower digit.  Where padding does not count,
each box of positions that see the same taps has a factor, and a nest, of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from tvm import tirx

from vta_byoc.cost.dma import alu_cost, copies_of, halves, kernel_size
from vta_byoc.cost.search import Array, Choice, Mask, ResourceUsage, Space, Staged, ceil_div
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.pooling.tile_space import sliding_of
from vta_byoc.strategies.te.tir_builder import Expr, Load
from vta_byoc.strategies.te.window import SPACE, Sliding, SlidingNests
from vta_byoc.workload.borders import Box, boxes, runs
from vta_byoc.workload.memory import ACC, WGT
from vta_byoc.workload.workloads import PoolWorkload

INT8_LOW, INT8_HIGH = -128, 127
WHOLE, ROWS, COLUMNS = "whole", "rows", "columns"
"""One accumulator for each output, or one for each output and row (column) of taps."""
APART = {ROWS: "kh", COLUMNS: "kw"}


@dataclasses.dataclass(frozen=True)
class Digit:
    """A digit of each factor, and the left shift before its sums."""

    values: tuple[int, ...]
    shift: int = 0


def digits_of(factors: Sequence[int]) -> list[Digit] | None:
    """Horner's scheme for ``factors`` from 1 to 32767; None where no shift serves all of them."""
    if max(factors) <= INT8_HIGH:
        return [Digit(tuple(factors))]
    for shift in (8, 9):
        high = [(factor + (1 << (shift - 1))) >> shift for factor in factors]
        low = [factor - (upper << shift) for factor, upper in zip(factors, high, strict=True)]
        if max(high) <= INT8_HIGH and all(INT8_LOW <= lower <= INT8_HIGH for lower in low):
            return [Digit(tuple(high)), Digit(tuple(low), shift)]
    return None


def digits_for(work: PoolWorkload) -> list[Digit]:
    """The digits of the factors of a sum."""
    found = digits_of(work.factors or (work.factor,))
    assert found is not None, "the partition table takes factors that digits serve"
    return found


def sum_space(work: PoolWorkload, config: VTAConfig) -> Space:
    """All tilings."""
    sliding = sliding_of(work, config)
    usage = functools.partial(_usage, work, sliding, config)
    legal = functools.partial(_legal, sliding, config)
    return Space("a sum pool", sliding.axes, (WHOLE, *APART), usage, legal)


def _legal(
    sliding: Sliding, config: VTAConfig, tile: Mapping[str, np.ndarray], variant: str
) -> Mask:
    """Whether the smallest tile keeps equal destinations apart, or taps are where it cannot."""
    near = _smallest(sliding, tile) < config.capabilities.dst_distance
    near = near & (tile["kh"] * tile["kw"] > 1)
    return near == (variant != WHOLE)


def _smallest(sliding: Sliding, tile: Mapping[str, np.ndarray]) -> Array:
    """Vectors of the smallest tile."""
    count: Array = 1
    for axis in SPACE:
        size = sliding.sizes[axis]
        count = count * (size - (ceil_div(size, tile[axis]) - 1) * tile[axis])
    return count


def _usage(
    work: PoolWorkload,
    sliding: Sliding,
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    variant: str,
) -> ResourceUsage:
    tiles, steps = sliding.tiles(tile), sliding.steps(tile)
    pixels, vectors = tile["c"] * tile["h"] * tile["w"], sliding.vectors
    columns: Array = tile[APART[variant]] if variant in APART else 1
    passes, weights = len(digits_for(work)), len(digits_for(work)) * max(1, len(work.factors))
    taps = float(passes * sliding.rows.taps * sliding.cols.taps)
    operands = sliding.operands(work.epilogue, tile, config)
    staged = (
        _passed(sliding.staged(tile, config), passes),
        Staged(ACC, pixels * (columns + copies_of(work.epilogue.steps)), tiles),
        Staged(WGT, weights, 1, float(weights * config.wgt_elem_bytes), 1),
        *operands,
    )
    cycles, count = alu_cost(work.epilogue.steps, config)
    shifts = (passes - 1) * config.timing.alu_imm_cycles
    halvings = np.ceil(np.log2(columns))
    tensor = config.timing.alu_tensor_cycles
    stores = sliding.stores(tile) if variant == WHOLE else vectors
    kernel = kernel_size([tile[axis] for axis in ("kh", "kw", *SPACE)])
    near = _smallest(sliding, tile) * columns < config.capabilities.dst_distance
    sums = np.where(near, tile["kh"] * tile["kw"] / columns, ceil_div(kernel, config.uop_depth))
    return ResourceUsage(
        staged=staged,
        tiles=tiles,
        gemm=vectors * (taps + columns + copies_of(work.epilogue.steps)),
        gemm_starts=tiles + passes * steps * sums * _nests(work, sliding, tile),
        alu=vectors * (cycles + (columns - 1) * tensor + shifts * columns),
        alu_starts=tiles * (count + halvings + passes - 1),
        uops=np.minimum(tiles * steps, MOST_SLOTS) * kernel * weights,
        kernels=np.minimum(tiles, MOST_SLOTS) * (weights * (1 + sums) + halvings + len(operands)),
        stored=vectors * config.out_elem_bytes,
        stores=stores,
    )


def _nests(work: PoolWorkload, sliding: Sliding, tile: Mapping[str, np.ndarray]) -> Array:
    """Nests of one digit over all tiles: those of each box that a tile has a part of."""
    if not work.factors:
        return sliding.tiles(tile)
    pieces: Array = sliding.images * ceil_div(sliding.planes, tile["c"])
    for axis, name in enumerate("hw"):
        ends = [last for _, last in runs(work.window, axis)[:-1]]
        cuts = [np.asarray(end % tile[name] != 0, int) for end in ends]
        pieces = pieces * (ceil_div(sliding.sizes[name], tile[name]) + sum(cuts))
    return pieces


def _passed(staged: Staged, passes: int) -> Staged:
    """``staged`` loaded that many times."""
    return dataclasses.replace(
        staged,
        fills=staged.fills * passes,
        nbytes=staged.nbytes * passes,
        dmas=staged.dmas * passes,
        zeros=staged.zeros * passes,
    )


def scheduled_sum(work: PoolWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """The nests for tiles of ``choice``."""
    return _SumNests(work, config, choice).func()


class _SumNests(SlidingNests):
    def __init__(self, work: PoolWorkload, config: VTAConfig, choice: Choice):
        self.taps = (choice.tile["kh"], choice.tile["kw"])
        super().__init__(work.epilogue, sliding_of(work, config), choice, self.taps, config)
        self.apart = APART.get(choice.variant)
        self.columns = choice.tile[self.apart] if self.apart else 1
        self.digits, nests = digits_for(work), self.nests
        self.boxes = boxes(work.window) if work.factors else [None]
        count = len(self.digits) * len(self.boxes)
        identity = nests.weights("identity", count)
        self.declare_rest()
        self.weight = nests.sram(WGT, "weight", (count,))
        self.acc = nests.sram(ACC, "acc", (*self.extents, self.columns))
        nests.load("load_identity", (count,), lambda i: (self.weight[i], identity[i]))

    def func(self) -> tirx.PrimFunc:
        self.tiled(self._tile)
        return self.finished()

    def _tile(self) -> None:
        self.nests.reset(
            "clear",
            (*self.extents, self.columns),
            lambda c, h, w, q: self.acc[c, h, w, q],
            lambda c, h, w, _q: self.where(c, h, w),
        )
        for number, digit in enumerate(self.digits):
            if digit.shift:
                self._shift(digit.shift)
            self._sum(number)
        self._halve()
        self.store(lambda c, h, w: self.acc[c, h, w, 0])

    def _shift(self, by: int) -> None:
        """Make room for a digit."""
        acc = self.acc
        self.nests.alu(
            "digit",
            (*self.extents, self.columns),
            lambda c, h, w, q: (acc[c, h, w, q], acc[c, h, w, q] << by),
            lambda c, h, w, _q: self.where(c, h, w),
        )

    def _sum(self, digit: int) -> None:
        """All taps times one digit."""
        nests, sliding = self.nests, self.sliding
        kh, kw = self.taps
        with (
            nests.loop("kho", sliding.rows.taps // kh) as row,
            nests.loop("kwo", sliding.cols.taps // kw) as col,
        ):
            self.input.step = (row, col)
            self.input.load()
            # what is summed up goes outside, so that equal destinations are far apart
            taps = (kw, kh) if self.apart == "kh" else (kh, kw)
            extents = (*taps, *self.extents)
            for number, box in enumerate(self.boxes):
                add = functools.partial(self._add, digit * len(self.boxes) + number)
                nests.gemm(f"sum{digit}", extents, add, functools.partial(self._in_box, box))

    def _in_box(self, box: Box | None, _i: Expr, _j: Expr, c: Expr, h: Expr, w: Expr) -> list[Expr]:
        """Conditions that keep an output inside a smaller last tile, and inside of ``box``."""
        conditions = self.where(c, h, w)
        for axis, local, (first, last) in zip("hw", (h, w), box or (), strict=False):
            position, size = self.grid.at(axis, local), self.grid.sizes[axis]
            conditions += [position >= first] * (first > 0) + [position < last] * (last < size)
        return conditions

    def _add(
        self, weight: int, i: Expr, j: Expr, c: Expr, h: Expr, w: Expr
    ) -> tuple[Load, Load, Load]:
        rows, cols = self.sliding.rows, self.sliding.cols
        if self.apart == "kh":
            i, j = j, i
        y, x = h * rows.step + i * rows.dilation, w * cols.step + j * cols.dilation
        column = {"kh": i, "kw": j}[self.apart] if self.apart else 0
        return self.acc[c, h, w, column], self.input[c, y, x], self.weight[weight]

    def _halve(self) -> None:
        """Add the upper half of the columns to the lower one until one is left."""
        acc = self.acc
        for count, distance in halves(self.columns):
            self.nests.alu(
                f"add{count}",
                (*self.extents, count),
                lambda c, h, w, q, d=distance: (
                    acc[c, h, w, q],
                    acc[c, h, w, q] + acc[c, h, w, q + d],
                ),
                lambda c, h, w, _q: self.where(c, h, w),
            )
