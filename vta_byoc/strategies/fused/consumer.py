"""Operators of which one operand is in the accumulators already: elementwise ones and pools.

The producer has left an int8 value in every accumulator of a tile; the other operand of an
elementwise operator comes from DRAM, or is the same value again.  What the GEMM core would have
multiplied while it widened (:mod:`vta_byoc.strategies.te.prologue`), the ALU does in
place; sums with the other operand stay GEMMs.  A pool is taken where its windows do not overlap:
tiles are then cut between windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.te.int8_function import is_rising, results_of, slope_of
from vta_byoc.strategies.te.prologue import ProloguePlan, Term, plain_plan_of, plan_of
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.workloads import (
    CHANNEL,
    ElementwiseWorkload,
    PoolWorkload,
    Step,
    Workload,
)

INT8_LOW, INT8_HIGH = -(1 << 7), (1 << 7) - 1
INT32_LOW, INT32_HIGH = -(1 << 31), (1 << 31) - 1


ConsumerWork: TypeAlias = ElementwiseWorkload | PoolWorkload
MOST_TAPS = 16
"""Windows of a pool in the tile are unrolled."""


@dataclass(frozen=True)
class FusedConsumer:
    """The elementwise operator or pool ``work``, fused into its producer.

    ``operand`` is the number of its fused operand: the one that it takes from the tile.
    """

    work: ConsumerWork
    operand: int = 0

    @property
    def strategy(self) -> str:
        """The name of the strategy that has workloads of this kind."""
        return "pool" if isinstance(self.work, PoolWorkload) else "elementwise"

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of the tile that become one; tiles of pools that overlap are theirs."""
        if not isinstance(self.work, PoolWorkload) or overlaps(self.work):
            return (1, 1)
        return self.work.kernel

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the int8 operands that come from DRAM."""
        return tuple(i for i in range(len(self.work.in_shapes)) if i != self.operand)


@dataclass(frozen=True)
class FusedPlan:
    """What is computed: ``after(before(value) + summed ... op other)``.

    Attributes:
        before: steps on the fused operand, their tensor operands from number ``first`` on.
        summed: operands from DRAM, added by GEMM.
        other: the other operand where it has an accumulator of its own, joined by ``op``.
        copied: ``other`` is the fused operand again.
        after: steps on the result, their tensor operands from number ``last`` on.
        scales: the weights that the operator's constant holds, in order.
    """

    before: tuple[Step, ...]
    first: int
    summed: tuple[Term, ...]
    other: Term | None
    copied: bool
    op: str | None
    after: tuple[Step, ...]
    last: int
    scales: tuple[int, ...]

    @property
    def loaded(self) -> tuple[Term, ...]:
        """Terms whose operand comes from DRAM."""
        own = (self.other,) if self.other and not self.copied else ()
        return (*self.summed, *own)

    @property
    def weights(self) -> range:
        """Which of ``scales`` the loaded terms need, from the first to the last."""
        used = [self.scales.index(term.scale) for term in self.loaded]
        return range(min(used), max(used) + 1) if used else range(0)

    @property
    def with_other(self) -> tuple[Step, ...]:
        """Those of `after` up to the last that adds the other operand once more."""
        places = [place for place, step in enumerate(self.after) if step.is_other]
        return self.after[: places[-1] + 1] if places else ()

    @property
    def other_steps(self) -> tuple[Step, ...]:
        """What the ALU does to the other operand."""
        if self.other is None:
            return ()
        scale = scaling(self.other.scale) if self.copied else ()
        return (*scale, *self.other.steps)


def overlaps(work: ConsumerWork) -> bool:
    """Whether a producer's tiles cannot be cut between the windows of a pool."""
    if not isinstance(work, PoolWorkload):
        return False
    return work.kernel != work.strides or any(work.padding) or work.dilation != (1, 1)


def check_pool(work: PoolWorkload) -> None:
    """VTAError where a pool cannot be fused into its producer."""
    what = f"windows of {work.kernel[0]}x{work.kernel[1]} every {work.strides[0]}x{work.strides[1]}"
    if work.kernel != work.strides:
        raise VTAError(f"need windows that neither overlap nor leave gaps, have {what}")
    if work.dilation != (1, 1):
        raise VTAError(
            f"need windows of neighbours, have {what}, dilated by "
            f"{work.dilation[0]}x{work.dilation[1]}"
        )
    if any(work.padding):
        raise VTAError(f"need windows inside of the tensor, have {what} with padding")
    if math.prod(work.kernel) > MOST_TAPS:
        raise VTAError(f"need windows of at most {MOST_TAPS} positions, have {what}")
    if work.factor != 1:  # windows with a factor each have padding, which was refused
        raise VTAError(
            f"need a divisor that the ALU multiplies by, have {work.factor} in the GEMM core's "
            "weights (no MUL)"
        )


def pooled_by(fused: Sequence[FusedConsumer]) -> tuple[int, int]:
    """Rows and columns of the producer's tile that become one of the result."""
    rows, cols = 1, 1
    for consumer in fused:
        rows, cols = rows * consumer.window[0], cols * consumer.window[1]
    return rows, cols


RISING = ("add", "shr", "shl", "max", "min")
"""Operations whose result does not fall where their first operand rises."""


def rises(steps: Sequence[Step]) -> bool:
    """Whether ``steps`` never fall where their value rises, alike at all positions.

    The largest result of a window is then what they make of the largest value.  No step wraps:
    partitioning proves it.
    """

    def each(step: Step) -> bool:
        if isinstance(step.operand, str):
            return step.op in RISING and step.operand == CHANNEL
        return step.op in RISING or (step.op == "mul" and int(step.operand) >= 0)

    return all(each(step) for step in steps)


def pools_first(work: ConsumerWork) -> bool:
    """Whether the operator may be computed before elementwise ones that rise: a plain maximum."""
    return isinstance(work, PoolWorkload) and work.kind == "max" and not work.epilogue.steps


def computed_order(fused: Sequence[FusedConsumer]) -> list[int]:
    """The numbers of ``fused`` in the order in which they are computed.

    A pool of maxima comes before the operators of one operand that rise (rewrite `pool_first`).
    """
    order: list[int] = []
    for number, consumer in enumerate(fused):
        place = len(order)
        while is_on("pool_first") and pools_first(consumer.work) and place:
            before = fused[order[place - 1]].work
            if isinstance(before, PoolWorkload) or not is_rising(before):
                break
            place -= 1
        order.insert(place, number)
    return order


def refuse_pools(fused: Sequence[FusedConsumer], producer: str) -> None:
    """VTAError where ``fused`` pool tiles that are not rows and columns, be it windows of 1x1."""
    if any(isinstance(consumer.work, PoolWorkload) for consumer in fused):
        raise VTAError(f"need tiles of rows and columns (conv2d) to pool in, have {producer}")


def fused_plan(consumer: FusedConsumer, config: VTAConfig) -> FusedPlan:
    """How an elementwise ``consumer`` is computed; VTAError where the machine cannot."""
    assert isinstance(consumer.work, ElementwiseWorkload)
    if any(map(consumer.work.repeated, range(consumer.work.operands))):
        shapes = " and ".join(map(str, consumer.work.in_shapes))
        raise VTAError(f"need operands of one shape to go on in the tile, have {shapes}")
    plan = plain_plan_of(consumer.work, config)
    own, summed, other, copied = _roles(plan, consumer.operand)
    found = FusedPlan(
        before=(*scaling(own.scale), *own.steps),
        first=own.first,
        summed=summed,
        other=other,
        copied=copied,
        op=plan.op if plan.other else "add" if other else None,
        after=plan.steps,
        last=plan.first,
        scales=plan_of(consumer.work, config).scales,
    )
    found = _shortened(found, consumer.work)
    if any(len(term.digits) > 1 for term in found.loaded):
        wide = next(term.scale for term in found.loaded if len(term.digits) > 1)
        raise VTAError(
            f"its other operand is multiplied by {wide}; one int8 weight holds -128 to 127 and "
            "this machine's ALU has no MUL (CAPABILITIES.mul is false); an operator of its own "
            "adds digit by digit"
        )
    factors = [step.operand for step in (*found.before, *found.other_steps) if step.op == "mul"]
    if factors and not config.capabilities.mul:
        raise VTAError(
            f"its fused operand is multiplied by {factors[0]}; this machine's ALU has no MUL "
            "(CAPABILITIES.mul is false); the GEMM core multiplies what it loads"
        )
    return found


def _shortened(plan: FusedPlan, work: ElementwiseWorkload) -> FusedPlan:
    """``plan``, or the larger of the value and its smaller slope where that takes fewer steps."""
    results = results_of(work) if is_on("short_chains") and plan.copied else None
    slope = None if results is None else slope_of(results)
    if slope is None or len(slope.steps) >= len((*plan.before, *plan.other_steps, *plan.after)):
        return plan
    other = Term(0, 1, slope.steps)
    return replace(plan, before=(), other=other, op="max", after=())


def _roles(plan: ProloguePlan, operand: int) -> tuple[Term, tuple[Term, ...], Term | None, bool]:
    """The fused term, the summed ones, the one with an accumulator, whether it is a copy."""
    head, rest = plan.head, plan.other or (plan.summed[0] if plan.summed else None)
    if rest is None:
        return head, (), None, False
    if head.operand == rest.operand:
        return head, (), rest, True
    if head.operand == operand:
        return head, plan.summed, plan.other, False
    # sums, maxima, minima and products commute; a difference is a sum by now
    if plan.other is None and not head.steps:
        return rest, (head,), None, False
    return rest, (), head, False


def scaling(scale: int) -> tuple[Step, ...]:
    """ALU steps that multiply by ``scale``."""
    if scale == 1:
        return ()
    if scale > 0 and scale & (scale - 1) == 0:
        return (Step("shl", scale.bit_length() - 1),)
    return (Step("mul", scale),)


RESULT, WEIGHTS = "result", "weights"
"""Parameters of a fused consumer that are no tensor operand: laid out as the result; weights."""


def parameter_kinds(fused: Sequence[FusedConsumer]) -> list[str]:
    """What the parameters of ``fused`` are, in order: RESULT, WEIGHTS or kinds of operands."""
    found = []
    for each in fused:
        found += [RESULT] * len(each.others) + [WEIGHTS] + list(operand_kinds(each))
    return found


def operand_kinds(consumer: FusedConsumer) -> tuple[str, ...]:
    """Kinds of the tensor operands of all its steps, as the operator orders them."""
    work = consumer.work
    prologues = () if isinstance(work, PoolWorkload) else work.prologues
    steps = [step for prologue in prologues for step in prologue.steps]
    return tuple(str(s.operand) for s in [*steps, *work.epilogue.steps] if s.is_tensor)


def keeps_int8(work: Workload) -> bool:
    """Whether the accumulators of ``work`` hold what STORE would write.

    That is where all values are int8, so that nothing is cut off.
    """
    if work.epilogue.dtype != "int8":
        return False
    low, high = INT32_LOW, INT32_HIGH
    if isinstance(work, ElementwiseWorkload):
        results = results_of(work)
        if results is not None:
            return min(results) >= INT8_LOW and max(results) <= INT8_HIGH
        low, high = _joined(work)
    elif isinstance(work, PoolWorkload) and work.kind == "max":
        low, high = INT8_LOW, INT8_HIGH
    low, high = _through(work.epilogue.steps, low, high)
    return low >= INT8_LOW and high <= INT8_HIGH


def _joined(work: ElementwiseWorkload) -> tuple[int, int]:
    """The interval of what the prologues make of int8 operands, joined."""
    ranges = [_through(each.steps, INT8_LOW, INT8_HIGH) for each in work.prologues]
    if work.op is None:
        return ranges[0]
    (low, high), (least, most) = ranges
    return _within(*OPERATIONS[work.op].bounds(low, high, least, most))


def _through(steps: Sequence[Step], low: int, high: int) -> tuple[int, int]:
    for step in steps:
        low, high = _after(step, low, high)
    return low, high


def _within(low: int, high: int) -> tuple[int, int]:
    """An interval of int32 values; all of them where it may wrap."""
    fits = low >= INT32_LOW and high <= INT32_HIGH
    return (low, high) if fits else (INT32_LOW, INT32_HIGH)


def _after(step: Step, low: int, high: int) -> tuple[int, int]:
    """The interval of values after ``step``."""
    if isinstance(step.operand, str):
        return INT32_LOW, INT32_HIGH
    value = int(step.operand)
    return _within(*OPERATIONS[step.op].bounds(low, high, value, value))
