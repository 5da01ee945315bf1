"""Functions of one int8 value by fewer steps: all 256 values of each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from alu_cases import BARE, SIM, clamp

from vta_byoc.base.rewrites import without
from vta_byoc.ir.chains import INT8_VALUES
from vta_byoc.strategies.fused.consumer import FusedConsumer, fused_plan
from vta_byoc.strategies.te.int8_function import (
    Bend,
    Slope,
    bend_of,
    is_rising,
    results_of,
    slope_of,
)
from vta_byoc.strategies.te.prologue import Term, plain_plan_of, plan_of
from vta_byoc.workload.workloads import CHANNEL, ElementwiseWorkload, Epilogue, Prologue, Step

TENTH = 205, 11
"""A slope of 0.1 as quantization writes it: 205 / 2**11."""


def leaky(factor: int, bits: int) -> ElementwiseWorkload:
    """The larger of x and x * factor / 2**bits, rounded."""
    sides = (Prologue(0, (Step("shl", bits),)), Prologue(0, (Step("mul", factor),)))
    rounded = (Step("add", 1 << (bits - 1)), Step("shr", bits))
    return ElementwiseWorkload(1, 16, 4, 4, sides, "max", Epilogue(rounded))


def bent(found: Bend) -> list[int]:
    """What a bend makes of all values, in plain integers."""
    sums = (np.maximum(INT8_VALUES * found.rise, 0) << found.raised) + INT8_VALUES * found.factor
    return ((sums + found.offset) >> found.shift).tolist()


def sloped(found: Slope) -> list[int]:
    """What a slope makes of all values, in plain integers."""
    made = INT8_VALUES * found.factor + found.offset >> found.shift
    return np.maximum(INT8_VALUES, made).tolist()


@pytest.mark.parametrize("bits", range(1, 13))
def test_all_values_of_any_slope(bits: int) -> None:
    rng = np.random.default_rng(bits)
    short = 0
    for factor in rng.integers(1, 1 << bits, 6).tolist():
        work = leaky(factor, bits)
        wanted = [max(x, (x * factor + (1 << bits - 1)) >> bits) for x in INT8_VALUES.tolist()]
        results = results_of(work)
        assert results == tuple(wanted) and is_rising(work)
        bend, slope = bend_of(results), slope_of(results)
        assert bend is None or bent(bend) == wanted
        assert slope is None or sloped(slope) == wanted
        short += bend is not None and slope is not None
    assert short, "most slopes have short forms"


def test_a_tenth_takes_one_digit() -> None:
    results = results_of(leaky(*TENTH))
    assert results is not None
    assert bend_of(results) == Bend(rise=115, raised=2, factor=51, offset=204, shift=9)
    assert slope_of(results) == Slope(factor=51, offset=204, shift=9)


@pytest.mark.parametrize("factor", [-128, -2, -1, 1, 2, 127])
def test_slopes_of_whole_numbers_take_no_shift(factor: int) -> None:
    """Two products and their sum."""
    for rise in (1, 3, 127):
        wanted = np.maximum(INT8_VALUES * rise, 0) + INT8_VALUES * factor
        found = bend_of(tuple(wanted.tolist()))
        assert found is not None and (found.factor, found.last_steps) == (factor, ())
        assert bent(found) == wanted.tolist()


def test_a_factor_of_zero_is_no_product() -> None:
    """What is flat below zero is rounded off another slope."""
    found = bend_of(tuple(np.maximum(INT8_VALUES, 0).tolist()))
    assert found is not None and found.factor != 0
    assert bent(found) == np.maximum(INT8_VALUES, 0).tolist()


def test_the_gemm_core_sums_both_slopes_up() -> None:
    """Reset, product, maximum, shift, product, sum, shift: 7 cycles a vector, 11 step by step."""
    work = leaky(*TENTH)
    plan = plan_of(work, BARE)
    assert plan.head == Term(0, 115, (Step("max", 0), Step("shl", 2)))
    assert plan.summed == (Term(0, 51),) and plan.other is None
    assert plan.steps == (Step("add", 204), Step("shr", 9))
    with without(["short_chains"]):
        assert plan_of(work, BARE) == plain_plan_of(work, BARE) != plan


def test_in_a_tile_the_copy_is_scaled() -> None:
    """Copy, product, sum, shift, maximum: the value itself is not scaled."""
    plan = fused_plan(FusedConsumer(leaky(*TENTH)), SIM)
    assert plan.copied and (plan.before, plan.after) == ((), ())
    assert plan.other_steps == (Step("mul", 51), Step("add", 204), Step("shr", 9))
    with without(["short_chains"]):
        whole = fused_plan(FusedConsumer(leaky(*TENTH)), SIM)
    assert len((*whole.before, *whole.other_steps, *whole.after)) == 4


def test_what_stays_as_it_is() -> None:
    tenth = leaky(*TENTH)
    saturated = dataclasses.replace(
        tenth, epilogue=Epilogue((*tenth.epilogue.steps, Step("shl", 1), *clamp()))
    )
    wanted = results_of(saturated)
    assert wanted is not None and bend_of(wanted) is None and slope_of(wanted) is None
    assert plan_of(saturated, SIM) == plain_plan_of(saturated, SIM)
    two = dataclasses.replace(tenth, prologues=(Prologue(0), Prologue(1)))
    scaled = dataclasses.replace(tenth, prologues=(Prologue(0, (Step("mul", CHANNEL),)),) * 2)
    assert results_of(two) is None and results_of(scaled) is None
    assert not is_rising(two) and not is_rising(scaled)


def test_what_falls_or_wraps_does_not_rise() -> None:
    one = ElementwiseWorkload(1, 16, 4, 4, (Prologue(0),))
    for steps, rises in (
        ((Step("add", 3), Step("shr", 1)), True),
        ((Step("mul", 0),), True),
        ((Step("mul", -1),), False),
        ((Step("shl", 24),), True),
        ((Step("shl", 25),), False),  # 64 << 25 wraps
    ):
        assert is_rising(dataclasses.replace(one, epilogue=Epilogue(steps))) is rises, steps
