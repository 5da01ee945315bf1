"""Closing clamps of a producer that the operator fused into it implies.

Take `min(x, 127)` before `min(max(x + y, 0), 127)` where y is never negative: whatever x is above
127, the sum's own bounds give 127 either way.  A clamp at `bound` can go where the operator never
falls as its fused operand rises, and gives its outermost result for `bound` already, whatever the
other operand holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias, cast

from vta_byoc.base.rewrites import is_on
from vta_byoc.strategies.fused.consumer import INT32_HIGH, INT32_LOW, RISING, FusedConsumer
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.workloads import ElementwiseWorkload, Kind, MoveWorkload, Step

Interval: TypeAlias = tuple[int, int]
WHOLE: Interval = (INT32_LOW, INT32_HIGH)
CLAMPS = ("max", "min")
JOINS = ("add", *CLAMPS)


def without_implied_clamps(work: Kind, fused: Sequence[FusedConsumer]) -> Kind:
    """`work` without the closing clamps that the first of `fused` implies.

    Only the schedule computes it so: its result by itself would not be int8.
    """
    if not fused or isinstance(work, MoveWorkload) or not is_on("implied_clamps"):
        return work
    consumer = fused[0]
    if not isinstance(consumer.work, ElementwiseWorkload):
        return work
    steps = _without(work.epilogue.steps, consumer.work, consumer.operand)
    epilogue = dataclasses.replace(work.epilogue, steps=steps)
    return cast(Kind, dataclasses.replace(work, epilogue=epilogue))


def _without(
    steps: tuple[Step, ...], consumer: ElementwiseWorkload, operand: int
) -> tuple[Step, ...]:
    """`steps` without the last clamps that `consumer` implies of its operand number `operand`."""
    count = len(steps)
    while count and steps[count - 1].op in CLAMPS and not isinstance(steps[count - 1].operand, str):
        count -= 1
    before, clamps = steps[:count], steps[count:]
    whole = _result(consumer, operand, _reached(before)) if _is_ordered(clamps) else None
    if whole is None:
        return steps

    def is_implied(step: Step) -> bool:
        at = int(step.operand)
        found = _result(consumer, operand, (at, at))
        if found is None:
            return False
        return found[0] == whole[1] if step.op == "min" else found[1] == whole[0]

    return (*before, *(step for step in clamps if not is_implied(step)))


def _is_ordered(clamps: Sequence[Step]) -> bool:
    """Whether the lower bounds are all below the upper ones: the clamps then do not interact."""
    lows = [int(step.operand) for step in clamps if step.op == "max"]
    highs = [int(step.operand) for step in clamps if step.op == "min"]
    return max(lows, default=INT32_LOW) <= min(highs, default=INT32_HIGH)


def _result(work: ElementwiseWorkload, operand: int, value: Interval) -> Interval | None:
    """The results of `work` for values of its operand number `operand`, and all of the others.

    None where it is not known to rise with that operand, reads it twice, or may wrap.
    """
    own = [each for each in work.prologues if each.operand == operand]
    others = [each for each in work.prologues if each.operand != operand]
    if len(own) != 1 or not _rises((*own[0].steps, *work.epilogue.steps)):
        return None
    found = _through(own[0].steps, value)
    if work.op is not None:
        (other,) = others
        if work.op not in JOINS and (work.op != "sub" or work.prologues[0] is not own[0]):
            return None
        rest = _through(other.steps, work.range_of(other.operand))
        if found is None or rest is None:
            return None
        found = _fitting(OPERATIONS[work.op].bounds(*found, *rest))
    return None if found is None else _through(work.epilogue.steps, found)


def _rises(steps: Sequence[Step]) -> bool:
    """Whether `steps` are immediate and never fall as their value rises."""
    return all(
        not isinstance(s.operand, str) and (s.op in RISING or (s.op == "mul" and s.operand >= 0))
        for s in steps
    )


def _reached(steps: Sequence[Step]) -> Interval:
    """What accumulators are after `steps`: within int32, as partitioning proves."""
    low, high = WHOLE
    for step in steps:
        if isinstance(step.operand, str):
            low, high = WHOLE
            continue
        least, most = OPERATIONS[step.op].bounds(low, high, step.operand, step.operand)
        low, high = max(least, INT32_LOW), min(most, INT32_HIGH)
    return low, high


def _through(steps: Sequence[Step], value: Interval) -> Interval | None:
    """The interval of `value` after `steps`; None where it is not known or leaves int32."""
    found: Interval | None = value
    for step in steps:
        if found is None:
            return None
        if isinstance(step.operand, str):
            return None
        found = _fitting(OPERATIONS[step.op].bounds(*found, step.operand, step.operand))
    return found


def _fitting(value: Interval) -> Interval | None:
    return value if value[0] >= INT32_LOW and value[1] <= INT32_HIGH else None
