"""elementwise: chains of ALU steps on one or two int8 tensors, in one pass over SRAM.

Operands are widened by the GEMM core: ``acc += scale * x`` with a diagonal weight costs a cycle a
vector, adds while it widens, and its loads run in the load queue, beside the computation (an
ACC_8BIT load costs two cycles of the compute queue and the port).  All steps are then in place:

    for tiles:  load x, y;  acc = 0;  acc += s0 * x;  acc += s1 * y;  store int8(steps(acc))
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from vta_byoc.base.int8_digits import DIGIT_SHIFT
from vta_byoc.cost.dma import alu_cost, tile_copies
from vta_byoc.cost.search import Choice, Demand, Space, Staged, best, ceil_div, sizes
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.elementwise.operands import Plan, Term, passes, plan_of
from vta_byoc.strategies.fused.consumer import Tail, refuse_pools, tail_tensors
from vta_byoc.strategies.fused.schedule import Roles, with_tails
from vta_byoc.strategies.fused.usage import TileSize, tail_demand
from vta_byoc.strategies.te.base import (
    OPERATORS,
    Part,
    Shared,
    Strategy,
    apply_steps,
    elementwise,
    epilogue_constants,
    epilogue_operands,
    stored,
)
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.strategies.te.tile_grid import Grid, Operands, staged_operand
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests, Tensor
from vta_byoc.workload.memory import ACC, DRAM_ACC, DRAM_INP, DRAM_WGT, INP, WGT
from vta_byoc.workload.packing import blocks, packed_shape
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
        cls, work: ElementwiseWorkload, config: VTAConfig, tails: Sequence[Tail] = ()
    ) -> Shape:
        n, c = blocks(work.batch, config.batch), blocks(work.channels, config.block)
        plane, kinds = work.height * work.width, set(tensors(work))
        kinds.update(kind for tail in tails for kind in tail_tensors(tail))
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
    """Kinds of all tensor operands: those of the sides, then those of the epilogue."""
    steps = [step for side in work.sides for step in side.steps]
    return tuple(str(s.operand) for s in [*steps, *work.epilogue.steps] if s.is_tensor)


# ---------------------------------------------------------------- definition
def compute(
    work: ElementwiseWorkload, config: VTAConfig, _kernels: Kernels | None = None
) -> tirx.PrimFunc:
    """The operator on packed tensors: operands, diagonal weights (unused here), tensor operands."""
    shape = packed_shape(work.out_shape, config)
    data = [te.placeholder(shape, "int8", name=f"data{i}") for i in range(work.operands)]
    count, k = len(plan_of(work, config).scales), config.block
    scales = te.placeholder((count, 1, 1, 1, k, k), "int8", name="scales")
    operands = epilogue_operands(tensors(work), work.out_shape, config)
    values, first = [], 0
    for number, side in enumerate(work.sides):
        wide = elementwise(f"wide{number}", lambda v: v.astype("int32"), data[side.operand])
        value, _ = apply_steps(wide, side.steps, operands[first:], f"side{number}_")
        values.append(value)
        first += sum(step.is_tensor for step in side.steps)
    value = values[0]
    if work.op is not None:
        value = elementwise("joined", _binary(work.op), *values)
    value, _ = apply_steps(value, work.epilogue.steps, operands[first:], "step")
    return te.create_prim_func([*data, scales, *operands, stored(value, work.epilogue)])


def _binary(op: str) -> Callable[[tirx.Expr, tirx.Expr], tirx.Expr]:
    return OPERATORS[op]


# ---------------------------------------------------------------- tiles
@functools.lru_cache(maxsize=4096)
def choose(
    work: ElementwiseWorkload, config: VTAConfig, tails: tuple[Tail, ...] = ()
) -> Choice:
    """The best tile by estimate; VTAError where the machine cannot do the steps."""
    return best(tile_space(work, config, tails), config)


def tile_space(
    work: ElementwiseWorkload, config: VTAConfig, tails: tuple[Tail, ...] = ()
) -> Space:
    """All tilings; VTAError where the machine cannot do the steps."""
    refuse_pools(tails, "elementwise")
    plan, shape = plan_of(work, config), Shape.of(work, config, tails)
    axes = {name: sizes(size) for name, size in shape.sizes.items()}

    def demand(tile: Mapping[str, np.ndarray], variant: str) -> Demand:
        size = TileSize([tile[axis] for axis in AXES], tile["c"], tile["p"])
        own = _demand(work, plan, shape, config, tile, variant)
        return tail_demand(own, tails, size, config)

    return Space("an elementwise operator", axes, ("tiles",), demand)


def chosen(
    work: ElementwiseWorkload,
    config: VTAConfig,
    tails: tuple[Tail, ...] = (),
    _calls: int = 1,
) -> Kernels:
    """The only kernel, by estimate."""
    return (Kernel(choose(work, config, tails)),)


def spaces(
    work: ElementwiseWorkload,
    config: VTAConfig,
    tails: tuple[Tail, ...] = (),
    _calls: int = 1,
) -> tuple[KernelSpace, ...]:
    """What the kernel could be."""
    return (KernelSpace(((None, tile_space(work, config, tails)),)),)


def _demand(
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
def scheduled(
    work: ElementwiseWorkload, config: VTAConfig, choice: Choice, tails: Sequence[Tail] = ()
) -> tirx.PrimFunc:
    """The nests for tiles of ``choice``."""
    func = _Elementwise(work, config, choice, tails).func()
    return with_tails(func, tails, Roles((1,), (2,)), config) if tails else func


class _Elementwise:
    def __init__(
        self, work: ElementwiseWorkload, config: VTAConfig, choice: Choice, tails: Sequence[Tail]
    ):
        self.plan, self.choice = plan_of(work, config), choice
        shape = Shape.of(work, config, tails)
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
                lambda *i, tile=tile, data=self.data[number]: (tile[i], data[grid.places(*i)]),
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
            return self.out[grid.places(*i)], value

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
        self.nests.alu(
            name, self.tile, lambda *i: (acc[i], acc[i] << DIGIT_SHIFT), self.grid.where
        )

    def _gemm(self, name: str, acc: Tensor, term: Term, digit: int) -> None:
        """``acc += digit * operand``."""
        data, scale = self.inputs[term.operand], self.plan.scales.index(digit)
        self.nests.gemm(
            name, self.tile, lambda *i: (acc[i], data[i], self.weights[scale]), self.grid.where
        )


# ---------------------------------------------------------------- strategy
def parts(
    work: ElementwiseWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> list[Part]:
    """One PrimFunc."""
    (kernel,) = kernels or chosen(work, config)
    func = scheduled(work, config, kernel.choice)
    return [Part(func, (*range(len(func.params) - 1), -1))]


def scopes(work: ElementwiseWorkload) -> tuple[str, ...]:
    """The operands, the diagonal weights, the tensor operands."""
    return (DRAM_INP,) * work.operands + (DRAM_WGT,) + (DRAM_ACC,) * len(tensors(work))


def constants(
    work: ElementwiseWorkload,
    given: Mapping[str, np.ndarray],
    config: VTAConfig,
    _kernels: Kernels | None = None,
) -> list[np.ndarray]:
    """Diagonal weights (scales, 1, 1, 1, k, k) and "operand0", "operand1", ... of all steps."""
    return [
        diagonals(plan_of(work, config).scales, config),
        *epilogue_constants(tensors(work), given, config),
    ]


def diagonals(scales: Sequence[int], config: VTAConfig) -> np.ndarray:
    """Weight elements that multiply by each of ``scales``: (scales, 1, 1, 1, k, k) int8."""
    k = config.block
    unit = np.eye(k, dtype=np.int64) * np.reshape(scales, (-1, 1, 1))
    return np.ascontiguousarray(unit.reshape(-1, 1, 1, 1, k, k), np.int8)


def estimate(
    work: ElementwiseWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> float:
    """Cycles of the chosen tile; VTAError where the machine cannot do the steps."""
    return (kernels or chosen(work, config))[0].choice.cycles


def shared(
    work: ElementwiseWorkload,
    tails: tuple[Tail, ...],
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> Shared:
    """With consumers in its tiles."""
    choice = (kernels or chosen(work, config, tails))[0].choice

    def parts() -> list[Part]:
        func = scheduled(work, config, choice, tails)
        return [Part(func, (*range(len(func.params) - 1), -1))]

    return Shared(choice.cycles, parts)


ELEMENTWISE = Strategy(
    "elementwise",
    ElementwiseWorkload,
    compute,
    parts,
    scopes,
    constants,
    estimate,
    chosen,
    spaces,
    shared=shared,
)
