"""The search for programs of the ALU: what it gives up for cycles, and what it does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vta_byoc.base.choices import FUNCTION_WORTH
from vta_byoc.ir.chains import OTHER, SELF
from vta_byoc.unary import search
from vta_byoc.unary.evolution import evolved
from vta_byoc.unary.forms import Form, ramp_of
from vta_byoc.unary.functions import FUNCTIONS, table_of
from vta_byoc.unary.gates import clamped_late, refitted
from vta_byoc.unary.long_forms import varied
from vta_byoc.unary.program import VALUES, Program
from vta_byoc.unary.search import found_for
from vta_byoc.unary.target import ROUNDING, Target

RANGES = (1.5, 3.0, 5.0, 8.0, 16.0)


def table(name: str, reach: float) -> np.ndarray:
    """A function at symmetric scales that reach `reach`, and its largest magnitude there."""
    function = FUNCTIONS[name]
    peak = float(np.abs(function(np.linspace(-reach, reach, 2001))).max())
    return np.asarray(table_of(function, reach / 127, 0, peak / 127, 0))


@pytest.mark.parametrize("reach", RANGES)
def test_hard_swish_is_all_but_exact(reach: float) -> None:
    found = found_for(table("hard_swish", reach))
    assert found is not None
    assert found.exact >= 0.97 and found.program.cycles() <= 15


@pytest.mark.parametrize("name", ["hard_sigmoid", "gelu", "elu", "softplus"])
def test_what_is_reported_is_what_the_program_gives(name: str) -> None:
    wanted = table(name, 8.0)
    found = found_for(wanted)
    assert found is not None
    off = np.abs(found.program.results() - wanted)
    assert found.error == off.max() <= 1
    assert found.exact == (off == 0).mean()
    assert found.program.fits


def test_noise_is_worth_cycles() -> None:
    """Two clamps of four cycles are within a step of this GELU; one cycle more is worth it."""
    wanted = table("gelu", 16.0)
    found = found_for(wanted)
    clamps = Program(after=(("max", int(wanted.min())), ("min", int(wanted.max()))))
    target = Target(wanted, 1)
    assert found is not None and target.takes(clamps)
    assert clamps.cycles() < found.program.cycles()
    assert target.price(found.program) < target.price(clamps)


def test_the_price_is_cycles_and_doublings_of_the_noise() -> None:
    wanted = np.zeros(256, np.int64)
    target = Target(wanted, 1)
    one_off = Program(after=(("max", 1), ("min", 1)))
    assert target.price(one_off) == one_off.cycles() + FUNCTION_WORTH * math.log2(1 + 1 / ROUNDING)
    assert target.price(None) == math.inf
    assert Target(wanted, 0).price(one_off) == math.inf
    assert Target(wanted + 127, 255).price(Program(after=(("add", 1),))) == math.inf


def test_what_noise_is_worth_is_chosen() -> None:
    """A SiLU of wide range: a relu, a gate, a bump beside a ramp, the nearer the dearer."""
    wanted = table("silu", 24.0)
    found = [found_for(wanted, worth=worth) for worth in (0.0, 4.0, 16.0)]
    cycles = [each.program.cycles() for each in found if each is not None]
    noise = [each.noise for each in found if each is not None]
    assert len(found) == 3 and cycles == sorted(cycles) and noise == sorted(noise)[::-1]
    assert cycles[0] == 3 and noise[-1] < 0.2


def test_no_tolerance_asks_for_every_result() -> None:
    wanted = table("hard_swish", 8.0)
    found = found_for(wanted, tolerance=0)
    assert found is not None
    assert (found.program.results() == wanted).all()
    assert (found.error, found.exact) == (0, 1.0)


def test_a_table_without_a_shape_is_not_found() -> None:
    drawn = np.random.default_rng(3).integers(-128, 128, 256)
    assert found_for(drawn) is None


def test_the_same_table_gives_the_same_program() -> None:
    wanted = tuple(int(v) for v in table("elu", 1.5))
    again = search._found.__wrapped__(wanted, 1, True, FUNCTION_WORTH)
    assert again == found_for(np.array(wanted))


GATES = (
    (0.04665, -18, 0.028019, -115),
    (0.06087, -27, 0.03832, -118),
    (0.04238, -19, 0.0257, -113),
)
"""Step and zero point of a hard swish's operand and result, where 256 values reach from -0.4 on."""


@pytest.mark.parametrize("scales", GATES)
def test_a_hard_swish_with_zero_points_is_all_but_exact(scales: tuple[float, ...]) -> None:
    step, zero, out_step, out_zero = scales
    table = table_of(FUNCTIONS["hard_swish"], step, int(zero), out_step, int(out_zero))
    found = found_for(table)
    assert found is not None
    assert found.exact >= 0.97 and found.program.cycles() <= 16


def test_a_gate_whose_result_is_clamped_computes_the_same() -> None:
    line = (("mul", 26473), ("shr", 8), ("add", 8882))
    after = (("shr", 5), ("add", -28736), ("shr", 8))
    early = Program((("add", 16),), "mul", (("max", -84), ("min", 47), *line), after)
    late = clamped_late(early)
    assert late is not None and late.right[:3] == line
    np.testing.assert_array_equal(late.results(), early.results())
    assert clamped_late(late) is None
    assert clamped_late(Program(after=(("max", 0),))) is None


def test_a_gate_is_fitted_for_every_offset_of_its_operand() -> None:
    wanted = table_of(FUNCTIONS["hard_swish"], 0.04665, -18, 0.028019, -115)
    line = (("mul", 26473), ("shr", 8), ("add", 8882))
    after = (("shr", 5), ("add", -28736), ("shr", 8))
    late = clamped_late(Program((("add", 16),), "mul", (("max", -84), ("min", 47), *line), after))
    assert late is not None
    target, offsets = Target(wanted, 1), []
    for found in refitted(late, wanted):
        assert found.fits
        offsets.append(found.left[0][1])
    assert offsets == list(range(8, 25))
    nearest = min(refitted(late, wanted), key=target.noise)
    assert target.noise(nearest) < target.noise(late) / 4
    assert not list(refitted(Program(after=(("max", 0),)), wanted))


@pytest.mark.parametrize("reach", [3.0, 8.0])
@pytest.mark.parametrize("out_step", [None, 1 / 128], ids=["whole-range", "tflite"])
def test_hyperbolic_tangents_take_long_forms(reach: float, out_step: float | None) -> None:
    """TFLite asks for a step of 1/128."""
    step = float(np.tanh(reach)) / 127 if out_step is None else out_step
    found = found_for(table_of(FUNCTIONS["tanh"], reach / 127, 0, step, 0))
    assert found is not None and found.error == 1 and found.program.fits
    assert found.program.cycles() <= 34


def test_long_forms_are_for_a_tolerance() -> None:
    """Exact results come from clamps and straight lines; the long search would be in vain."""
    assert found_for(table("tanh", 8.0), tolerance=0) is None


def test_immediates_are_varied_towards_the_table() -> None:
    line = Program(after=(("mul", 300), ("add", 600), ("shr", 8), ("max", -128), ("min", 127)))
    wanted = np.clip(VALUES * 5 // 4 + 3, -128, 127)
    target = Target(wanted, 1)
    assert not target.takes(line)
    near = varied(line, target, seed=1)
    assert target.takes(near) and [op for op, _ in near.steps] == [op for op, _ in line.steps]
    assert near.after[2] == ("shr", 8) and near == varied(line, target, seed=1)


def test_varied_programs_fit_int32() -> None:
    """The nearest immediates would be those of a product that leaves int32."""
    square = Program(after=(("mul", 200), ("mul", "self"), ("mul", 3), ("shr", 27)))
    assert square.fits
    near = varied(square, Target(VALUES * 0 + 127, 1), seed=3)
    assert near.fits


# ---------------------------------------------------------------- a ramp and an even function
@pytest.mark.parametrize("reach", [*RANGES, 24.0])
@pytest.mark.parametrize("name", ["silu", "gelu", "softplus"])
def test_a_bump_beside_a_ramp_is_all_but_exact(name: str, reach: float) -> None:
    wanted = table(name, reach)
    target = Target(wanted, 1)
    near = [evolved(Form(levels, "even"), target) for levels in ("n", "n-", "n--")]
    found = min((p for p in near if p is not None), key=target.noise)
    assert target.takes(found) and target.noise(found) <= 1.7
    assert found.op == "add" and sum(by == OTHER for _, by in found.after) == 1


ZEROS = ((0.0627, 22, 0.0266, -118), (0.0627, 0, 0.0322, -119), (0.0627, -28, 0.0391, -121))
"""Step and zero point of a SiLU's operand and result, where results begin below zero."""


@pytest.mark.parametrize("scales", ZEROS)
def test_a_silu_with_zero_points_has_a_program(scales: tuple[float, ...]) -> None:
    """The result's zero is a constant too large for one immediate in front of the factor."""
    step, zero, out_step, out_zero = scales
    wanted = table_of(FUNCTIONS["silu"], step, int(zero), out_step, int(out_zero))
    found = found_for(wanted)
    assert found is not None and found.noise < 2.0 and found.program.fits
    assert any(by == OTHER for _, by in found.program.after)


def test_the_ramp_of_a_table_is_where_its_function_bends() -> None:
    """About the operand's zero; of centres that are about as near, the one nearest to 0."""
    for zero in (-30, 0, 20):
        wanted = table_of(FUNCTIONS["gelu"], 5 / 127, zero, 6.2 / 127, 3)
        found = ramp_of(tuple(wanted.tolist()))
        assert found.centre == zero and found.off < 0.2
        assert found.slope == pytest.approx(5 / 6.2, rel=2e-3)
    assert ramp_of(tuple(table("silu", 1.5).tolist())).centre == 0


def test_a_table_without_a_ramp_is_not_searched_for_one() -> None:
    form = Form("n-", "even")
    assert form.suits(table("silu", 8.0)) and Form("", "add").suits(table("silu", 8.0))
    assert not Form("n-", "add").suits(table("silu", 8.0))
    for name in ("sigmoid", "tanh", "exp", "erf"):
        wanted = table(name, 8.0)
        assert Form("n-", "add").suits(wanted) and not form.suits(wanted)


def test_a_program_adds_its_second_chain_again() -> None:
    after = (("shr", 1), ("mul", SELF), ("add", OTHER), ("min", 90))
    program = Program((("mul", -1),), "add", (("max", 3), ("mul", 2)), after)
    ramp = 2 * np.maximum(VALUES, 3)
    found = np.minimum(((ramp - VALUES) >> 1) ** 2 + ramp, 90)
    np.testing.assert_array_equal(program.results(), found)
    assert str(program) == (
        "(x: mul -1) add (x: max 3, mul 2), shr 1, square, add the second, min 90"
    )
    # two chains, two joins of two cycles, a square of two, five immediates
    assert program.cycles() == 4 + 2 + 2 + 2 + 5
    assert program.bound == max(254, int((((ramp - VALUES) >> 1) ** 2 + ramp).max()))
    assert program.fits and program.multiplies


def test_what_leaves_int32_on_the_way_does_not_fit() -> None:
    """By its values: intervals of both chains would add up to three times as much."""
    ramp = (("max", 0), ("mul", 1 << 14), ("mul", 1 << 9))
    fits = Program((("mul", -1), ("mul", 1 << 14), ("mul", 1 << 8)), "add", ramp, (("shr", 23),))
    assert fits.fits and fits.bound == 127 << 23
    squares = tuple(("mul", SELF) for _ in range(5))
    assert not Program(after=(*squares, ("shr", 31))).fits
    assert not Program(after=(("add", 1 << 15),)).fits, "no immediate"


def test_a_falling_ramp_is_one_too() -> None:
    """The opposite of a SiLU, whose result has a zero point."""
    wanted = table_of(lambda x: -FUNCTIONS["silu"](x), 5 / 127, 0, 5.28 / 255, 104)
    assert ramp_of(tuple(wanted.tolist())).slope == pytest.approx(-5 / 127 / 5.28 * 255, rel=0.02)
    near = evolved(Form("n-", "even"), Target(wanted, 1))
    assert near is not None and near.fits


def test_one_result_for_all_is_no_ramp() -> None:
    found = found_for(np.full(256, 7))
    assert found is not None and found.error == 0
    assert not Form("n-", "even").suits(np.full(256, 7))
