"""Closing clamps that a fused operator implies: every value of both operands."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from alu_cases import clamp

from vta_byoc.base.rewrites import without
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.fused.implied import without_implied_clamps
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.workloads import (
    CHANNEL,
    INT8_RANGE,
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    PoolWorkload,
    Prologue,
    Step,
)

WIDE = np.arange(-3000, 3001, dtype=np.int64)
RELU = (Step("max", 0), Step("min", 127))
POSITIVE = (0, 127)


def conv(*steps: Step) -> Conv2dWorkload:
    """A convolution whose accumulators are shifted right by 12 bits before `steps`."""
    return Conv2dWorkload(1, 16, 16, 8, 8, (1, 1), epilogue=Epilogue((Step("shr", 12), *steps)))


def joined(
    op: str,
    sides: tuple[tuple[Step, ...], tuple[Step, ...]],
    end: tuple[Step, ...],
    other: tuple[int, int],
) -> ElementwiseWorkload:
    """`end(sides[0](x) op sides[1](y))` with y in `other`."""
    prologues = tuple(Prologue(i, side) for i, side in enumerate(sides))
    ranges = (INT8_RANGE, other)
    return ElementwiseWorkload(1, 16, 8, 8, prologues, op, Epilogue(end), ranges)


def after(values: np.ndarray, steps: tuple[Step, ...]) -> np.ndarray:
    """`values` after immediate steps."""
    for step in steps:
        values = OPERATIONS[step.op].exact(values, np.int64(step.operand))
    return values


def result(work: ElementwiseWorkload, values: np.ndarray) -> np.ndarray:
    """What `work` makes of each of `values` and each value of its other operand."""
    others = np.arange(work.ranges[1][0], work.ranges[1][1] + 1, dtype=np.int64)
    assert work.op is not None
    left = after(values, work.prologues[0].steps)[:, None]
    right = after(others, work.prologues[1].steps)[None]
    return after(OPERATIONS[work.op].exact(left, right), work.epilogue.steps)


def left_over(work: ElementwiseWorkload, *clamps: Step) -> tuple[Step, ...]:
    """The clamps that stay before `work`, which is computed alike without the others."""
    made = without_implied_clamps(conv(*clamps), [FusedConsumer(work, 0)])
    kept = made.epilogue.steps[1:]
    assert made.epilogue.steps[0] == Step("shr", 12)
    assert np.array_equal(result(work, after(WIDE, kept)), result(work, after(WIDE, clamps)))
    return kept


def test_random_operators() -> None:
    rng, gone, stayed = np.random.default_rng(5), 0, 0
    for _ in range(150):
        op = str(rng.choice(["add", "add", "add", "sub", "max", "min"]))
        sides = tuple((Step("shl", int(s)),) if s else () for s in rng.integers(0, 3, 2))
        shift = int(rng.integers(0, 3))
        round_off = (Step("add", 1 << shift - 1), Step("shr", shift)) if shift else ()
        low = int(rng.choice([-128, -20, 0]))
        end = (*round_off, Step("max", low), Step("min", int(rng.choice([50, 127]))))
        other = sorted(rng.choice([-128, -127, -5, 0, 0, 3, 127, 127], 2, replace=False).tolist())
        work = joined(op, (sides[0], sides[1]), end, (other[0], other[1]))
        clamps = (Step("max", int(rng.choice([-128, -128, 0]))), Step("min", 127))
        kept = left_over(work, *(clamps if rng.random() < 0.5 else clamps[::-1]))
        gone, stayed = gone + 2 - len(kept), stayed + len(kept)
    assert gone >= 50 and stayed >= 50


def test_a_residual_sum_with_a_relu_implies_both() -> None:
    assert left_over(joined("add", ((), ()), RELU, POSITIVE), *clamp()) == ()


@pytest.mark.parametrize(
    ("end", "other", "kept"),
    [
        (RELU, (-128, 127), (Step("min", 127),)),  # -128 + 127 is below 0, 127 - 128 too
        (RELU, (-1, 127), (Step("min", 127),)),  # 127 - 1 is below 127
        ((Step("max", 0), Step("min", 126)), (-1, 127), ()),
        ((Step("max", -2), Step("min", 127)), POSITIVE, (Step("max", -128),)),  # -1 is above -2
        ((Step("shr", 1), *RELU), POSITIVE, (Step("min", 127),)),  # 127 >> 1 is below 127
    ],
)
def test_near_misses(end: tuple[Step, ...], other: tuple[int, int], kept: tuple[Step, ...]) -> None:
    assert left_over(joined("add", ((), ()), end, other), *clamp()) == kept


def test_what_implies_nothing() -> None:
    work, add = conv(*clamp()), joined("add", ((), ()), RELU, POSITIVE)
    unknown = dataclasses.replace(add, epilogue=Epilogue(clamp()), ranges=())
    same = dataclasses.replace(add, prologues=(Prologue(0), Prologue(0)), ranges=())
    by_channel = dataclasses.replace(
        add, prologues=(Prologue(0, (Step("add", CHANNEL),)), Prologue(1))
    )
    falling = dataclasses.replace(add, prologues=(Prologue(0, (Step("mul", -1),)), Prologue(1)))
    wrapping = dataclasses.replace(add, prologues=(Prologue(0, (Step("shl", 20),)), Prologue(1)))
    right = dataclasses.replace(add, op="sub")
    pool = PoolWorkload("max", 1, 16, 8, 8, (2, 2), (2, 2))
    cases = [(other, 0) for other in (unknown, same, by_channel, falling, wrapping)]
    for consumer, operand in [*cases, (right, 1)]:
        assert without_implied_clamps(work, [FusedConsumer(consumer, operand)]) == work, consumer
    assert without_implied_clamps(work, [FusedConsumer(pool)]) == work
    assert without_implied_clamps(work, []) == work
    crossed = conv(Step("max", 5), Step("min", 3))
    assert without_implied_clamps(crossed, [FusedConsumer(add, 0)]) == crossed
    with without(["implied_clamps"]):
        assert without_implied_clamps(work, [FusedConsumer(add, 0)]) == work
    assert without_implied_clamps(work, [FusedConsumer(add, 0)]) == conv()
