"""elementwise: chains of ALU steps on one or two int8 tensors, in one pass over SRAM.

Operands are widened by the GEMM core: ``acc += scale * x`` with a diagonal weight costs a cycle a
vector, adds while it widens, and its loads run in the load queue, beside the computation (an
ACC_8BIT load costs two cycles of the compute queue and the port).  All steps are then in place:

    for tiles:  load x, y;  acc = 0;  acc += s0 * x;  acc += s1 * y;  store int8(steps(acc))

An operand that is repeated is loaded, and widened where it has an accumulator of its own, in the
loops that move it: a gate per channel costs a vector per channel block, and each of its vectors
meets all positions.  One channel for all is written to every lane by its weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from vta_byoc.base.int8_digits import DIGIT_SHIFT
from vta_byoc.cost.dma import alu_cost, tile_copies
from vta_byoc.cost.search import Array, Choice, ResourceUsage, Space, Staged, ceil_div, sizes
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.base import LayerSchedule, LayerWork, SingleKernelStrategy
from vta_byoc.strategies.elementwise.axes import LOOPS, Moved, Shape, tensors
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.fused.implied import without_implied_clamps
from vta_byoc.strategies.fused.tile import Roles
from vta_byoc.strategies.fused.usage import TileSize, fused_usage
from vta_byoc.strategies.te.definition import (
    OPERATORS,
    apply_steps,
    elementwise,
    epilogue_operands,
    packed_operands,
    stored,
)
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.strategies.te.prologue import ProloguePlan, Term, passes, plan_of
from vta_byoc.strategies.te.tile_grid import Grid, Operands, staged_operand
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests, NestTensor, Where
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.packing import diagonal_weights, packed_shape, spread_weights
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, ElementwiseWorkload


class Elementwise(SingleKernelStrategy[ElementwiseWorkload]):
    """A chain of ALU steps on one or two int8 tensors."""

    name = "elementwise"
    workload = ElementwiseWorkload
    fuses = True
    roles = Roles((1,), (2,))

    def kernel_spaces(
        self, layer: LayerWork[ElementwiseWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel; VTAError where the machine cannot do the steps."""
        return (
            KernelSpace.of_tiles(
                tile_space(without_implied_clamps(layer.work, layer.fused), config, layer.fused)
            ),
        )

    def definition(
        self, schedule: LayerSchedule[ElementwiseWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """Operands, diagonal weights (unused here), tensor operands, result."""
        work, k = schedule.work, config.block
        data = packed_operands(work, config)
        count = _weights_of(plan_of(work, config))
        scales = te.placeholder((count, 1, 1, 1, k, k), "int8", name="scales")
        operands = epilogue_operands(tensors(work), work.out_shape, config)
        values, first = [], 0
        for number, each in enumerate(work.prologues):
            wide = _widened(f"wide{number}", data[each.operand], work, each.operand, config)
            values.append(apply_steps(wide, each.steps, operands[first:], f"prologue{number}_"))
            first += sum(step.is_tensor for step in each.steps)
        value = values[0]
        if work.op is not None:
            value = elementwise("joined", _binary(work.op), *values)
        steps = work.epilogue.steps
        value = apply_steps(value, steps, operands[first:], "step", values[-1])
        return te.create_prim_func([*data, scales, *operands, stored(value, work.epilogue)])

    def tensors(self, work: ElementwiseWorkload) -> tuple[str, ...]:
        """Those of the operand prologues, then those of the epilogue."""
        return tensors(work)

    def weights(
        self,
        schedule: LayerSchedule[ElementwiseWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """Diagonal weights, then those that spread a lane: (scales, 1, 1, 1, k, k)."""
        plan = plan_of(schedule.work, config)
        diagonal = diagonal_weights(plan.scales, config)
        return [np.concatenate([diagonal, spread_weights(plan.spread_scales, config)])]

    def scheduled(
        self, schedule: LayerSchedule[ElementwiseWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """Operands, diagonal weights, tensor operands, result.

        The result's axes depend on what the operands of fused consumers differ by.
        """
        (kernel,) = schedule.kernels
        return _Nests(schedule.work, config, kernel.choice, schedule.fused).func()


def _binary(op: str) -> Callable[[tirx.Expr, tirx.Expr], tirx.Expr]:
    return OPERATORS[op]


def _widened(
    name: str, data: te.Tensor, work: ElementwiseWorkload, operand: int, config: VTAConfig
) -> te.Tensor:
    """``data`` as int32 in the result's packed shape, repeated where it is shorter."""
    repeated = work.repeated(operand)
    if not repeated:
        return elementwise(name, lambda v: v.astype("int32"), data)
    held = [axis in repeated for axis in ("n", "c", "h", "w", "n", "c")]

    def at(*index: tirx.Var) -> tirx.Expr:
        return data[tuple(0 if h else i for h, i in zip(held, index, strict=True))].astype("int32")

    return te.compute(packed_shape(work.out_shape, config), at, name=name)


def _weights_of(plan: ProloguePlan) -> int:
    """Weights that the plan needs."""
    return len(plan.scales) + len(plan.spread_scales)


# ---------------------------------------------------------------- tiles
def tile_space(
    work: ElementwiseWorkload, config: VTAConfig, fused: tuple[FusedConsumer, ...] = ()
) -> Space:
    """All tilings; VTAError where the machine cannot do the steps."""
    plan, shape = plan_of(work, config), Shape.of(work, config, fused)
    axes = {name: sizes(size) for name, size in shape.sizes.items()}

    if shape.q and fused:
        raise VTAError("need operands repeated along whole planes to go on in the tile, have rows")

    def usage(tile: Mapping[str, np.ndarray], variant: str) -> ResourceUsage:
        size = TileSize([tile[axis] for axis in axes], tile["c"], tile["p"])
        own = _usage(work, plan, shape, config, tile, variant)
        return fused_usage(own, fused, size, config)

    return Space("an elementwise operator", axes, ("tiles",), usage)


def _usage(
    work: ElementwiseWorkload,
    plan: ProloguePlan,
    shape: Shape,
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    _variant: str,
) -> ResourceUsage:
    axes = shape.sizes
    tiles = math.prod(ceil_div(size, tile[axis]) for axis, size in axes.items())
    size, total = math.prod(tile[axis] for axis in axes), float(math.prod(axes.values()))
    extents, cut = list(axes.values()), [tile[axis] for axis in axes]
    staged = []
    for operand in dict.fromkeys(term.operand for term in plan.terms):
        moved = Moved.of(work, operand, shape)
        fills, nbytes = moved.fills(tile), moved.vectors(tile) * config.inp_elem_bytes
        staged.append(Staged(INP, moved.tile_size(tile), fills, nbytes, moved.copies(tile)))
    staged.append(Staged(ACC, size, tiles))
    apart: Array = total
    widened: Array = tiles
    if plan.other:
        other = Moved.of(work, plan.other.operand, shape).with_steps(plan.other.steps)
        apart, widened = other.vectors(tile), other.fills(tile)
        staged.append(Staged(ACC, other.tile_size(tile), widened))
    staged += [staged_operand(k, axes, tile, shape.space, config) for k in tensors(work)]
    scales = _weights_of(plan)
    staged.append(Staged(WGT, scales, 1, float(scales * config.wgt_elem_bytes), 1))
    own, rest = _work_of(plan, config)
    kernels = np.minimum(tiles, MOST_SLOTS) * (_kernels(plan) + len(tensors(work))) - 1
    return ResourceUsage(
        staged=tuple(staged),
        tiles=tiles,
        gemm=total * own.gemms + apart * rest.gemms,
        gemm_starts=tiles * own.gemms + widened * rest.gemms,
        alu=total * own.cycles + apart * rest.cycles,
        alu_starts=tiles * own.count + widened * rest.count,
        uops=kernels,
        kernels=kernels,
        stored=total * config.out_elem_bytes,
        stores=tile_copies(extents, cut, store=True),
    )


@dataclass(frozen=True)
class _Work:
    """What an accumulator costs: instructions of both cores a tile, ALU cycles a vector."""

    gemms: int = 0
    cycles: float = 0
    count: int = 0


def _work_of(plan: ProloguePlan, config: VTAConfig) -> tuple[_Work, _Work]:
    """What the result's accumulators cost, and those of the other operand."""
    levels = [passes(terms) for terms in plan.sums]
    steps = [[s for term in (plan.head, *plan.summed) for s in term.steps] + list(plan.steps)]
    steps += [list(plan.other.steps)] if plan.other else []
    found = []
    for digits, own in zip(levels, steps, strict=True):
        cycles, count = alu_cost(own, config)
        shifts = len(digits) - 1
        cycles, count = cycles + shifts * config.timing.alu_imm_cycles, count + shifts
        found.append(_Work(1 + sum(map(len, digits)), cycles, count))
    head = found[0]
    joins = 1 if plan.other else 0
    found[0] = _Work(
        head.gemms + len(plan.late),
        head.cycles + joins * config.timing.alu_tensor_cycles,
        head.count + joins,
    )
    return found[0], found[1] if plan.other else _Work()


def _kernels(plan: ProloguePlan) -> int:
    """Different micro-op kernels of a tile without those of tensor operands.

    Each accumulator is cleared, summed into and changed by immediates.
    """
    changed = [bool(plan.steps) or bool(plan.head.steps)]
    changed += [bool(plan.other.steps), True] if plan.other else []
    gemms, shifts = _sums(plan)
    return gemms + shifts + (2 if plan.other else 1) + sum(changed)


def _sums(plan: ProloguePlan) -> tuple[int, int]:
    """GEMM instructions of a tile that sum up, and shifts between digits."""
    levels = [passes(terms) for terms in plan.sums]
    gemms = sum(len(digits) for each in levels for digits in each)
    return len(plan.late) + gemms, sum(len(each) - 1 for each in levels)


# ---------------------------------------------------------------- nests
class _Nests:
    def __init__(
        self,
        work: ElementwiseWorkload,
        config: VTAConfig,
        choice: Choice,
        fused: Sequence[FusedConsumer],
    ):
        self.plan, self.choice = plan_of(work, config), choice
        self.shape = shape = Shape.of(work, config, fused)
        self.grid = Grid(shape.sizes, choice.tile)
        self.tile = self.grid.shape
        self.nests = nests = Nests(config)
        sizes = shape.sizes
        self.moved = [Moved.of(work, i, shape) for i in range(work.operands)]
        self.data = [nests.param(f"data{i}", m.extents(sizes)) for i, m in enumerate(self.moved)]
        self.count = _weights_of(self.plan)
        self.scales = nests.weights("scales", self.count)
        self.operands = Operands(nests, tensors(work), self.grid, shape.space)
        self.out = nests.param("out", tuple(sizes.values()))
        self.weights = nests.sram(WGT, "weights", (self.count,))
        used = dict.fromkeys(term.operand for term in self.plan.terms)
        self.inputs = {i: nests.sram(INP, f"tile{i}", self._extents(i)) for i in used}
        self.acc = nests.sram(ACC, "acc", self.tile)
        self.other, self.apart = self.acc, None
        if (term := self.plan.other) is not None:
            self.apart = self.moved[term.operand].with_steps(term.steps)
            self.other = nests.sram(ACC, "acc_other", self.apart.extents(self.grid.tile))

    def func(self) -> tirx.PrimFunc:
        nests = self.nests
        nests.load("load_scales", (self.count,), lambda i: (self.weights[i], self.scales[i]))
        self._repeated("")
        self._loops([axis for axis in LOOPS if axis in self.grid.sizes])
        return nests.func(self.choice.slots_attr())

    def _loops(self, axes: Sequence[str]) -> None:
        """The loops over tiles, and in each what moves with it and no inner one."""
        axis, *inner = axes
        with self.nests.loop(f"{axis}o", self.grid.count(axis)) as self.grid.outer[axis]:
            if axis == "c":
                self.operands.load(CHANNEL)
            if inner == ["n"]:
                self.operands.load(MAP, FULL)
            if not inner:
                self._tile()
                return
            self._repeated(axis)
            self._loops(inner)

    def _extents(self, operand: int) -> list[int]:
        """The tile of an int8 operand."""
        return self.moved[operand].extents(self.grid.tile)

    def _repeated(self, loop: str) -> None:
        """Load, and widen, the operands that are repeated inside of ``loop``."""
        for number in self.inputs:
            moved = self.moved[number]
            if not moved.whole and moved.loop == loop:
                self._load(number)
        if self.apart is not None and not self.apart.whole and self.apart.loop == loop:
            self._widen("other", self.other, self.plan.sums[1], self.apart)

    def _load(self, number: int) -> None:
        tile, data, moved = self.inputs[number], self.data[number], self.moved[number]

        def copied(*i: Expr) -> tuple[Load, Load]:
            at = [self.grid.at(axis, v) for axis, v in zip(moved.axes, i, strict=False)]
            return tile[i], data[tuple(at) or i]

        self.nests.load(f"load_data{number}", self._extents(number), copied, self._where(moved))

    def _where(self, moved: Moved) -> Where:
        """Conditions inside a smaller last tile of an operand."""
        return lambda *i: self.grid.inside(dict(zip(moved.axes, i, strict=False)))

    def _tile(self) -> None:
        plan, nests, grid = self.plan, self.nests, self.grid
        innermost = LOOPS[-1]
        for number in self.inputs:
            if self.moved[number].whole:
                self._load(number)
        self._repeated(innermost)
        whole = Moved(tuple(grid.sizes), innermost, LOOPS, grid.sizes, True)
        self._widen("head", self.acc, plan.sums[0], whole)
        for number, term in enumerate(plan.late):
            self._gemm(f"sum{number}", self.acc, term, term.scale, whole)
        if self.apart is not None and self.apart.whole:
            self._widen("other", self.other, plan.sums[1], self.apart)

        def result(*i: Expr) -> tuple[Load, Expr]:
            value, other, index = self.acc[i], None, self._index(i)
            if plan.op is not None and self.apart is not None:
                other = self.other[self.apart.index(index)]
                value = OPERATORS[plan.op](value, other)
            value = self.operands.applied(value, plan.steps, index, plan.first, other=other)
            return self.out[grid.positions(*i)], value

        nests.store("out", self.tile, result, grid.where)

    def _index(self, i: Sequence[Expr]) -> dict[str, Expr]:
        return dict(zip(self.grid.sizes, i, strict=True))

    def _widen(self, name: str, acc: NestTensor, terms: Sequence[Term], moved: Moved) -> None:
        """``acc = steps(scale * operand)``; the sum of several terms, which have no steps."""
        term, extents, where = terms[0], moved.extents(self.grid.tile), self._where(moved)

        def changed(*i: Expr) -> tuple[Load, Expr]:
            index = dict(zip(moved.axes, i, strict=False))
            value = self.operands.applied(acc[i], term.steps, index, term.first)
            return acc[i], value

        self.nests.reset(f"{name}_clear", extents, lambda *i: acc[i], where)
        for level, digits in enumerate(passes(terms)):
            if level:
                self._raise(f"{name}_raise{level}", acc, moved)
            for number, digit in digits:
                stage = f"sum{number - 1}" if number else f"{name}_widen"
                stage = f"{stage}_digit{level}" if level else stage
                self._gemm(stage, acc, terms[number], digit, moved)
        if term.steps:
            self.nests.alu(f"{name}_steps", extents, changed, where)

    def _raise(self, name: str, acc: NestTensor, moved: Moved) -> None:
        """Make room for a digit."""
        extents, where = moved.extents(self.grid.tile), self._where(moved)
        self.nests.alu(name, extents, lambda *i: (acc[i], acc[i] << DIGIT_SHIFT), where)

    def _gemm(self, name: str, acc: NestTensor, term: Term, digit: int, moved: Moved) -> None:
        """``acc += digit * operand`` in accumulators that move as ``moved`` says."""
        data, own, plan = self.inputs[term.operand], self.moved[term.operand], self.plan
        scale = plan.scales.index(digit) if not term.spread else 0
        if term.spread:
            scale = len(plan.scales) + plan.spread_scales.index(digit)

        def product(*i: Expr) -> tuple[Load, Load, Load]:
            at = own.index(dict(zip(moved.axes, i, strict=False)))
            return acc[i], data[at], self.weights[scale]

        self.nests.gemm(name, moved.extents(self.grid.tile), product, self._where(moved))


ELEMENTWISE = Elementwise()
