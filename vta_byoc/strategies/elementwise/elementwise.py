"""elementwise: chains of ALU steps on one or two int8 tensors, in one pass over SRAM.

Operands are widened by the GEMM core: ``acc += scale * x`` with a diagonal weight costs a cycle a
vector, adds while it widens, and its loads run in the load queue, beside the computation (an
ACC_8BIT load costs two cycles of the compute queue and the port).  All steps are then in place:

    for tiles:  load x, y;  acc = 0;  acc += s0 * x;  acc += s1 * y;  store int8(steps(acc))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from vta_byoc.base.int8_digits import DIGIT_SHIFT
from vta_byoc.cost.dma import alu_cost, tile_copies
from vta_byoc.cost.search import Choice, Demand, Space, Staged, ceil_div, sizes
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.base import LayerSchedule, LayerWork, SingleKernelStrategy
from vta_byoc.strategies.fused.consumer import FusedConsumer, operand_kinds
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
from vta_byoc.strategies.te.prologue import Plan, Term, passes, plan_of
from vta_byoc.strategies.te.tile_grid import Grid, Operands, staged_operand
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests, Tensor
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.packing import blocks, diagonal_weights
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, ElementwiseWorkload

AXES = ("n", "c", "p")
SPACE = ("c", "p")


@dataclass(frozen=True)
class Shape:
    """The tensor as images, channel blocks and positions; one axis where operands do not care."""

    n: int
    c: int
    p: int

    @classmethod
    def of(
        cls, work: ElementwiseWorkload, config: VTAConfig, fused: Sequence[FusedConsumer] = ()
    ) -> Shape:
        """The fewest axes that let every tensor operand differ by those that it differs by."""
        n, c = blocks(work.batch, config.batch), blocks(work.channels, config.block)
        plane, kinds = work.height * work.width, set(tensors(work))
        kinds.update(kind for consumer in fused for kind in operand_kinds(consumer))
        if not kinds:
            return cls(1, 1, n * c * plane)
        if kinds == {MAP}:
            return cls(1, n * c, plane)
        return cls(n, 1, c * plane) if kinds == {FULL} else cls(n, c, plane)

    @property
    def sizes(self) -> dict[str, int]:
        """Extents by axis."""
        return {"n": self.n, "c": self.c, "p": self.p}


def tensors(work: ElementwiseWorkload) -> tuple[str, ...]:
    """Kinds of all tensor operands: those of the prologues, then those of the epilogue."""
    steps = [step for prologue in work.prologues for step in prologue.steps]
    return tuple(str(s.operand) for s in [*steps, *work.epilogue.steps] if s.is_tensor)


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
        count = len(plan_of(work, config).scales)
        scales = te.placeholder((count, 1, 1, 1, k, k), "int8", name="scales")
        operands = epilogue_operands(tensors(work), work.out_shape, config)
        values, first = [], 0
        for number, each in enumerate(work.prologues):
            wide = elementwise(f"wide{number}", lambda v: v.astype("int32"), data[each.operand])
            values.append(apply_steps(wide, each.steps, operands[first:], f"prologue{number}_"))
            first += sum(step.is_tensor for step in each.steps)
        value = values[0]
        if work.op is not None:
            value = elementwise("joined", _binary(work.op), *values)
        value = apply_steps(value, work.epilogue.steps, operands[first:], "step")
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
        """Diagonal weights (scales, 1, 1, 1, k, k)."""
        return [diagonal_weights(plan_of(schedule.work, config).scales, config)]

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


# ---------------------------------------------------------------- tiles
def tile_space(
    work: ElementwiseWorkload, config: VTAConfig, fused: tuple[FusedConsumer, ...] = ()
) -> Space:
    """All tilings; VTAError where the machine cannot do the steps."""
    plan, shape = plan_of(work, config), Shape.of(work, config, fused)
    axes = {name: sizes(size) for name, size in shape.sizes.items()}

    def usage(tile: Mapping[str, np.ndarray], variant: str) -> Demand:
        size = TileSize([tile[axis] for axis in AXES], tile["c"], tile["p"])
        own = _usage(work, plan, shape, config, tile, variant)
        return fused_usage(own, fused, size, config)

    return Space("an elementwise operator", axes, ("tiles",), usage)


def _usage(
    work: ElementwiseWorkload,
    plan: Plan,
    shape: Shape,
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    _variant: str,
) -> Demand:
    tiles = math.prod(ceil_div(size, tile[axis]) for axis, size in shape.sizes.items())
    size, total = tile["n"] * tile["c"] * tile["p"], float(shape.n * shape.c * shape.p)
    extents, cut = list(shape.sizes.values()), [tile[axis] for axis in AXES]
    dmas = tile_copies(extents, cut)
    nbytes = total * config.inp_elem_bytes
    used = len({term.operand for term in plan.terms})
    results = 2 if plan.other else 1
    staged = [Staged(INP, size, tiles, nbytes, dmas)] * used
    staged += [Staged(ACC, size, tiles)] * results
    staged += [staged_operand(k, shape.sizes, tile, SPACE, config) for k in tensors(work)]
    scales = len(plan.scales)
    staged.append(Staged(WGT, scales, 1, float(scales * config.wgt_elem_bytes), 1))
    steps = [step for term in plan.terms for step in term.steps] + list(plan.steps)
    cycles, count = alu_cost(steps, config)
    joins = 1 if plan.other else 0
    cycles, count = cycles + joins * config.timing.alu_tensor_cycles, count + joins
    sums, shifts = _sums(plan)
    cycles, count = cycles + shifts * config.timing.alu_imm_cycles, count + shifts
    gemms = results + sums
    kernels = np.minimum(tiles, MOST_SLOTS) * (_kernels(plan) + len(tensors(work))) - 1
    return Demand(
        staged=tuple(staged),
        tiles=tiles,
        gemm=total * gemms,
        gemm_starts=tiles * gemms,
        alu=total * cycles,
        alu_starts=tiles * count,
        uops=kernels,
        kernels=kernels,
        stored=total * config.out_elem_bytes,
        stores=tile_copies(extents, cut, store=True),
    )


def _kernels(plan: Plan) -> int:
    """Different micro-op kernels of a tile without those of tensor operands.

    Each accumulator is cleared, summed into and changed by immediates.
    """
    changed = [bool(plan.steps) or bool(plan.head.steps)]
    changed += [bool(plan.other.steps), True] if plan.other else []
    gemms, shifts = _sums(plan)
    return gemms + shifts + (2 if plan.other else 1) + sum(changed)


def _sums(plan: Plan) -> tuple[int, int]:
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
        shape = Shape.of(work, config, fused)
        self.grid = Grid(shape.sizes, choice.tile)
        self.tile = self.grid.shape
        self.nests = nests = Nests(config)
        extents = tuple(shape.sizes.values())
        self.data = [nests.param(f"data{i}", extents) for i in range(work.operands)]
        self.scales = nests.weights("scales", len(self.plan.scales))
        self.operands = Operands(nests, tensors(work), self.grid, SPACE)
        self.out = nests.param("out", extents)
        self.weights = nests.sram(WGT, "weights", (len(self.plan.scales),))
        used = dict.fromkeys(term.operand for term in self.plan.terms)
        self.inputs = {i: nests.sram(INP, f"tile{i}", self.tile) for i in used}
        self.acc = nests.sram(ACC, "acc", self.tile)

    def func(self) -> tirx.PrimFunc:
        nests, grid, count = self.nests, self.grid, len(self.plan.scales)
        nests.load("load_scales", (count,), lambda i: (self.weights[i], self.scales[i]))
        with nests.loop("co", grid.count("c")) as grid.outer["c"]:
            self.operands.load(CHANNEL)
            with nests.loop("po", grid.count("p")) as grid.outer["p"]:
                self.operands.load(MAP, FULL)
                with nests.loop("no", grid.count("n")) as grid.outer["n"]:
                    self._tile()
        return nests.func(self.choice.slots_attr())

    def _tile(self) -> None:
        plan, nests, grid = self.plan, self.nests, self.grid
        for number, tile in self.inputs.items():
            nests.load(
                f"load_data{number}",
                self.tile,
                lambda *i, tile=tile, data=self.data[number]: (tile[i], data[grid.positions(*i)]),
                grid.where,
            )
        own, *others = plan.sums
        self._widen("head", self.acc, own)
        for number, term in enumerate(plan.late):
            self._gemm(f"sum{number}", self.acc, term, term.scale)
        other = self.acc
        if plan.other:
            other = nests.sram(ACC, "acc_other", self.tile)
            self._widen("other", other, others[0])

        def result(*i: Expr) -> tuple[Load, Expr]:
            value = self.acc[i]
            if plan.op is not None:
                value = OPERATORS[plan.op](value, other[i])
            value = self.operands.applied(value, plan.steps, self._index(i), plan.first)
            return self.out[grid.positions(*i)], value

        nests.store("out", self.tile, result, grid.where)

    def _index(self, i: Sequence[Expr]) -> dict[str, Expr]:
        return dict(zip(AXES, i, strict=True))

    def _widen(self, name: str, acc: Tensor, terms: Sequence[Term]) -> None:
        """``acc = steps(scale * operand)``; the sum of several terms, which have no steps."""
        term = terms[0]

        def changed(*i: Expr) -> tuple[Load, Expr]:
            value = self.operands.applied(acc[i], term.steps, self._index(i), term.first)
            return acc[i], value

        self.nests.reset(f"{name}_clear", self.tile, lambda *i: acc[i], self.grid.where)
        for level, digits in enumerate(passes(terms)):
            if level:
                self._raise(f"{name}_raise{level}", acc)
            for number, digit in digits:
                stage = f"sum{number - 1}" if number else f"{name}_widen"
                self._gemm(f"{stage}_digit{level}" if level else stage, acc, terms[number], digit)
        if term.steps:
            self.nests.alu(f"{name}_steps", self.tile, changed, self.grid.where)

    def _raise(self, name: str, acc: Tensor) -> None:
        """Make room for a digit."""
        self.nests.alu(name, self.tile, lambda *i: (acc[i], acc[i] << DIGIT_SHIFT), self.grid.where)

    def _gemm(self, name: str, acc: Tensor, term: Term, digit: int) -> None:
        """``acc += digit * operand``."""
        data, scale = self.inputs[term.operand], self.plan.scales.index(digit)
        self.nests.gemm(
            name, self.tile, lambda *i: (acc[i], data[i], self.weights[scale]), self.grid.where
        )


ELEMENTWISE = Elementwise()
