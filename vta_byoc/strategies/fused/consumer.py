"""Operators of which one operand is in the accumulators already: elementwise ones and pools.

The producer has left an int8 value in every accumulator of a tile; the other operand of an
elementwise operator comes from DRAM, or is the same value again.  What the GEMM core would have
multiplied while it widened (:mod:`vta_byoc.strategies.elementwise.operands`), the ALU does in
place; sums with the other operand stay GEMMs.  A pool is taken where its windows do not overlap:
tiles are then cut between windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.elementwise.operands import Plan, Term, plan_of
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.workloads import ElementwiseWorkload, PoolWorkload, Step, Workload

INT8_LOW, INT8_HIGH = -(1 << 7), (1 << 7) - 1
INT32_LOW, INT32_HIGH = -(1 << 31), (1 << 31) - 1


TailWork: TypeAlias = ElementwiseWorkload | PoolWorkload
MOST_TAPS = 16
"""Windows of a pool in the tile are unrolled."""


@dataclass(frozen=True)
class Tail:
    """The elementwise operator or pool ``work`` takes its operand number ``carried`` from the
    tile."""

    work: TailWork
    carried: int = 0

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of the tile that become one."""
        return self.work.kernel if isinstance(self.work, PoolWorkload) else (1, 1)

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the int8 operands that come from DRAM."""
        return tuple(i for i in range(len(self.work.in_shapes)) if i != self.carried)


@dataclass(frozen=True)
class Carried:
    """What is computed: ``after(before(value) + summed ... op other)``.

    Attributes:
        before: steps on the carried value, their tensor operands from number ``first`` on.
        summed: operands from DRAM, added by GEMM.
        other: the other side where it has an accumulator of its own, joined by ``op``.
        copied: ``other`` is the carried value again.
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
    def other_steps(self) -> tuple[Step, ...]:
        """What the ALU does to the other side."""
        if self.other is None:
            return ()
        scale = scaling(self.other.scale) if self.copied else ()
        return (*scale, *self.other.steps)


def check_pool(work: PoolWorkload) -> None:
    """VTAError where a pool cannot be computed in its producer's tiles."""
    what = f"windows of {work.kernel[0]}x{work.kernel[1]} every {work.strides[0]}x{work.strides[1]}"
    if work.kernel != work.strides:
        raise VTAError(f"need windows that neither overlap nor leave gaps, have {what}")
    if any(work.padding):
        raise VTAError(f"need windows inside of the tensor, have {what} with padding")
    if math.prod(work.kernel) > MOST_TAPS:
        raise VTAError(f"need windows of at most {MOST_TAPS} positions, have {what}")
    if work.factor != 1:
        raise VTAError(
            f"need a divisor that the ALU multiplies by, have {work.factor} in the GEMM core's "
            "weights (no MUL)"
        )


def pooled_by(tails: Sequence[Tail]) -> tuple[int, int]:
    """Rows and columns of the producer's tile that become one of the result."""
    rows, cols = 1, 1
    for tail in tails:
        rows, cols = rows * tail.window[0], cols * tail.window[1]
    return rows, cols


def refuse_pools(tails: Sequence[Tail], producer: str) -> None:
    """VTAError where ``tails`` pool tiles that are not rows and columns, be it windows of 1x1."""
    if any(isinstance(tail.work, PoolWorkload) for tail in tails):
        raise VTAError(f"need tiles of rows and columns (conv2d) to pool in, have {producer}")


def carried_plan(tail: Tail, config: VTAConfig) -> Carried:
    """How an elementwise ``tail`` is computed; VTAError where the machine cannot."""
    assert isinstance(tail.work, ElementwiseWorkload)
    plan = plan_of(tail.work, config)
    own, summed, other, copied = _roles(plan, tail.carried)
    found = Carried(
        before=(*scaling(own.scale), *own.steps),
        first=own.first,
        summed=summed,
        other=other,
        copied=copied,
        op=plan.op if plan.other else "add" if other else None,
        after=plan.steps,
        last=plan.first,
        scales=plan.scales,
    )
    if any(len(term.digits) > 1 for term in found.loaded):
        wide = next(term.scale for term in found.loaded if len(term.digits) > 1)
        raise VTAError(
            f"its other side is multiplied by {wide}; one int8 weight holds -128 to 127 and this "
            "machine's ALU has no MUL (CAPABILITIES.mul is false); an operator of its own adds "
            "digit by digit"
        )
    multiplies = any(step.op == "mul" for step in (*found.before, *found.other_steps))
    if multiplies and not config.capabilities.mul:
        raise VTAError(
            f"its side is multiplied by {own.scale}; this machine's ALU has no MUL "
            "(CAPABILITIES.mul is false); the GEMM core multiplies what it loads"
        )
    return found


def _roles(plan: Plan, carried: int) -> tuple[Term, tuple[Term, ...], Term | None, bool]:
    """The carried term, the summed ones, the one with an accumulator, whether it is a copy."""
    head, rest = plan.head, plan.other or (plan.summed[0] if plan.summed else None)
    if rest is None:
        return head, (), None, False
    if head.operand == rest.operand:
        return head, (), rest, True
    if head.operand == carried:
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
"""Parameters of a tail that are no tensor operand: laid out as the result, and weights."""


def tail_kinds(tails: Sequence[Tail]) -> list[str]:
    """What the parameters of ``tails`` are, in order: RESULT, WEIGHTS or kinds of operands."""
    found = []
    for tail in tails:
        found += [RESULT] * len(tail.others) + [WEIGHTS] + list(tail_tensors(tail))
    return found


def tail_tensors(tail: Tail) -> tuple[str, ...]:
    """Kinds of the tensor operands of all its steps, as the operator orders them."""
    sides = () if isinstance(tail.work, PoolWorkload) else tail.work.sides
    steps = [step for side in sides for step in side.steps]
    return tuple(str(s.operand) for s in [*steps, *tail.work.epilogue.steps] if s.is_tensor)


def keeps_int8(work: Workload) -> bool:
    """Whether the accumulators of ``work`` hold what STORE would write: int8 values, nothing cut
    off."""
    if work.epilogue.dtype != "int8":
        return False
    low, high = INT32_LOW, INT32_HIGH
    if isinstance(work, ElementwiseWorkload):
        low, high = _joined(work)
    elif isinstance(work, PoolWorkload) and work.kind == "max":
        low, high = INT8_LOW, INT8_HIGH
    low, high = _through(work.epilogue.steps, low, high)
    return low >= INT8_LOW and high <= INT8_HIGH


def _joined(work: ElementwiseWorkload) -> tuple[int, int]:
    """The interval of the sides of int8 operands, joined."""
    sides = [_through(side.steps, INT8_LOW, INT8_HIGH) for side in work.sides]
    if work.op is None:
        return sides[0]
    (low, high), (least, most) = sides
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
    if step.is_tensor or step.is_kept:
        return INT32_LOW, INT32_HIGH
    value = int(step.operand)
    return _within(*OPERATIONS[step.op].bounds(low, high, value, value))
