"""Rescaling by any factor: never out of int32, close to exact rounding."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.linear import LinearCombination, Operand, Precision, linear
from vta_byoc.quantization.requantize import FixedPoint, requantizer
from vta_byoc.quantization.scales import INT32_HIGH, AccumulatorBound

LAYERS = 10_000
STEPS = {
    "add": np.add,
    "left_shift": np.left_shift,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "right_shift": np.right_shift,
}


def run(rescale: FixedPoint, value: np.ndarray) -> np.ndarray:
    """The steps in int64; every value must fit int32."""
    value = value + rescale.offset
    assert np.abs(value).max() <= INT32_HIGH
    for op, by in rescale.steps:
        value = STEPS[op](value, by)
        assert np.abs(value).max() <= INT32_HIGH, (op, by)
    return np.clip(value, rescale.low, rescale.high)


def random_layer(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Ratios, reaches and zero point; channels up to 2**40 apart, as dead ones are."""
    channels = int(rng.integers(1, 9))
    ratio = 2.0 ** (rng.uniform(-30, 2) + rng.uniform(-1, 1, channels))
    if rng.random() < 0.3:
        ratio[rng.integers(channels)] *= 2.0 ** rng.uniform(-40, 10)
    if rng.random() < 0.2:
        ratio = 2.0 ** np.rint(np.log2(ratio))
    reach = np.int64(2.0 ** rng.uniform(5, 30.9, channels))
    return ratio, reach, int(rng.choice([0, 0, -128, 127, 3]))


def test_no_overflow_in_ten_thousand_random_layers():
    """At the proven bounds of every channel, and where the result saturates."""
    rng = np.random.default_rng(0)
    accepted = 0
    for _ in range(LAYERS):
        ratio, reach, zero = random_layer(rng)
        rescale = requantizer(ratio, reach, zero)
        if rescale.bound > INT32_HIGH:  # refused by the proof (scales.Accumulator)
            continue
        accepted += 1
        edge = np.minimum(reach, np.int64(np.minimum(200 / ratio, 2.0**31)))
        run(rescale, np.stack([reach, -reach, edge, -edge, np.zeros_like(reach)]))
    assert accepted > 0.9 * LAYERS


def test_results_are_within_one_of_exact_rounding():
    rng = np.random.default_rng(1)
    different = total = 0
    for _ in range(300):
        ratio, reach, zero = random_layer(rng)
        rescale = requantizer(ratio, reach, zero)
        if rescale.bound > INT32_HIGH:
            continue
        edge = np.minimum(reach, np.int64(np.minimum(200 / ratio, 2.0**31)))
        values = np.int64(rng.uniform(-1, 1, (400, len(ratio))) * edge)
        exact = np.clip(np.floor(values * ratio + 0.5) + zero, -128, 127)
        error = np.abs(run(rescale, values) - exact)
        assert error.max() <= 1
        different, total = different + int((error > 0).sum()), total + error.size
    assert different <= 0.002 * total


def test_what_rounding_took_from_a_bias_is_added_behind_the_multiplication():
    """Within int32 for any channel, and as close to exact rounding as a bias of whole numbers."""
    rng = np.random.default_rng(3)
    different = total = 0
    for _ in range(300):
        ratio, reach, zero = random_layer(rng)
        ratio = ratio[:1].reshape(()) if rng.random() < 0.3 else ratio
        rest = rng.uniform(-0.5, 0.5, len(reach))
        rescale = requantizer(ratio, reach, zero, rest=rest)
        if rescale.bound > INT32_HIGH or "multiply" not in dict(rescale.steps):
            continue
        edge = np.minimum(reach, np.int64(np.minimum(200 / ratio, 2.0**31)))
        values = np.int64(rng.uniform(-1, 1, (100, len(reach))) * edge)
        values[:2] = reach, -reach
        exact = np.clip(np.floor((values + rest) * ratio + 0.5) + zero, -128, 127)
        error = np.abs(run(rescale, values) - exact)
        assert error.max() <= 1
        different, total = different + int((error > 0).sum()), total + error.size
    assert different <= 0.004 * total  # 0.03 without


@pytest.mark.parametrize("shift", [-7, -1, 0, 3])
def test_bounds_are_proven_behind_a_left_shift(shift: int) -> None:
    most = INT32_HIGH >> max(-shift, 0)
    assert AccumulatorBound("conv", most, shift, "").checked().bound == most
    largest = (most + 1) * 2 ** max(-shift, 0)
    with pytest.raises(VTAError, match=f'^layer "conv" can accumulate {largest}; .*; a remedy$'):
        AccumulatorBound("conv", most + 1, shift, "a remedy").checked()


@pytest.mark.parametrize("shift", range(0, 20))
def test_powers_of_two_are_one_shift_and_exact(shift):
    rescale = requantizer(np.array(2.0**-shift), np.array(1 << 24), zero=-7)
    assert [op for op, _ in rescale.steps] == ["right_shift"] * (shift > 0)
    values = np.arange(-3000, 3000)
    exact = [Fraction(int(v), 1 << shift) + Fraction(1, 2) for v in values]
    want = np.clip([v.__floor__() - 7 for v in exact], -128, 127)
    np.testing.assert_array_equal(run(rescale, values), want)


def test_linear_is_exact_to_a_fraction_and_never_overflows():
    rng = np.random.default_rng(2)
    different = total = 0
    for _ in range(1000):
        ratios = 2.0 ** rng.uniform(-9, 5, int(rng.integers(1, 3)))
        zeros = rng.integers(-128, 128, len(ratios))
        operands = [Operand(np.array(r), int(z)) for r, z in zip(ratios, zeros, strict=True)]
        constant, zero = float(rng.normal(0, 50)), int(rng.integers(-128, 128))
        found = linear(operands, constant, zero)
        values = rng.integers(-128, 128, (len(ratios), 500))
        values[:, :2] = [[-128, 127]]
        terms = [f * v for f, v in zip(found.factors, values, strict=True)]
        total_sum = sum(terms) + found.offset
        assert np.abs(total_sum).max() <= found.bound <= INT32_HIGH
        got = np.clip(total_sum >> found.shift, -128, 127)
        real = sum(r * (v - z) for r, v, z in zip(ratios, values, zeros, strict=True)) + constant
        want = np.clip(np.floor(real + 0.5) + zero, -128, 127)
        assert np.abs(got - want).max() <= 1
        different, total = different + int((got != want).sum()), total + want.size
    assert different <= 0.0005 * total


def test_linear_needs_no_multiplication_for_powers_of_two():
    found = linear([Operand(np.array(0.5)), Operand(np.array(2.0))])
    assert [int(f) for f in found.factors] == [1, 4] and found.shift == 1


def combined(found: LinearCombination, values: np.ndarray) -> np.ndarray:
    """What a combination makes of operands."""
    sides = zip(found.factors, found.moved, values, strict=True)
    total = sum(factor * value + moved for factor, moved, value in sides) + found.offset
    shifted = total >> found.shift if found.shift >= 0 else total << -found.shift
    return np.clip(shifted, found.low, found.high)


def test_sums_of_powers_of_two_are_exact() -> None:
    """Whatever they have in common, zero points and constants included."""
    values = np.random.default_rng(5).integers(-128, 128, (2, 200))
    values[:, :2] = [[-128, 127]]
    powers, zeros, shifts = (0.25, 1.0, 4.0, 8.0), (0, -7, 16), set()
    for ratios in itertools.product(powers, powers):
        for of, zero, constant in itertools.product(zeros, (0, 4), (0.0, -12.0, 2.25)):
            operands = [Operand(np.array(ratios[0]), of), Operand(np.array(ratios[1]), 8)]
            found = linear(operands, constant, zero)
            real = ratios[0] * (values[0] - of) + ratios[1] * (values[1] - 8) + constant
            want = np.clip(np.floor(real + 0.5) + zero, -128, 127)
            np.testing.assert_array_equal(combined(found, values), want)
            shifts.add(found.shift)
    assert min(shifts) == -3 and max(shifts) == 2


@pytest.mark.parametrize("bits", [0, 1, 5])
def test_a_constant_beside_shifts_has_so_many_fraction_bits(bits: int) -> None:
    """More only where the shifts need them."""
    precise = Precision(offset_bits=bits)
    for shift in range(8):
        (term, other) = (Operand(np.array(ratio)) for ratio in (2.0**-shift, 1.0))
        assert linear([term, other], 1 / 3, precision=precise).shift == max(bits, shift)


@pytest.mark.parametrize("shift", range(1, 9))
def test_factors_above_one_that_are_powers_of_two_are_a_left_shift(shift):
    rescale = requantizer(np.array(2.0**shift), np.array(1 << 20))
    assert [op for op, _ in rescale.steps] == ["left_shift"] and rescale.shift == -shift
    values = np.arange(-200, 200)
    np.testing.assert_array_equal(run(rescale, values), np.clip(values << shift, -128, 127))


def test_channels_are_shifted_left_together_and_right_each():
    rescale = requantizer(np.array([4.0, 0.5, 1.0]), np.array([1 << 12] * 3))
    assert [op for op, _ in rescale.steps] == ["left_shift", "add", "right_shift"]
    values = np.arange(-300, 300)[:, None].repeat(3, axis=1)
    want = np.clip(np.floor(values * [4.0, 0.5, 1.0] + 0.5), -128, 127)
    np.testing.assert_array_equal(run(rescale, values), want)


@pytest.mark.parametrize("kept", ["zero", "rest", "no room"])
def test_what_a_left_shift_would_enlarge_or_overflow_is_multiplied(kept):
    bound = 1 << 29 if kept == "no room" else 1 << 20
    rest = np.array(0.25 if kept == "rest" else 0.0)
    rescale = requantizer(np.array(4.0), np.array(bound), zero=3 * (kept == "zero"), rest=rest)
    assert rescale.multiplies and rescale.bound <= INT32_HIGH


def test_what_operands_have_in_common_is_shifted_behind_their_sum():
    found = linear([Operand(np.array(4.0)), Operand(np.array(8.0))])
    assert [int(f) for f in found.factors] == [1, 2] and found.shift == -2
    assert found.bound == 128 * 3
    found = linear([Operand(np.array(4.0)), Operand(np.array(8.0))], zero=3)
    assert [int(f) for f in found.factors] == [4, 8] and found.shift == 0


def test_the_larger_of_two_loses_each_zero_point_alone():
    operands = [Operand(np.array(0.5), 3), Operand(np.array(1.0), -5)]
    found = linear(operands, zero=7, apart=True)
    assert [int(m) for m in found.moved] == [-3, 10]
    assert int(found.offset) == 7 * 2 + 1 and found.bound == 256 + 10 + 15


def test_reduced_factors_give_the_same_results():
    rng = np.random.default_rng(4)
    smaller = 0
    for _ in range(300):
        term = Operand(np.array(rng.uniform(0.001, 1)), 0, 128 * 49)
        found = linear([term], float(rng.integers(-9, 9)), precision=Precision(2**15 - 1))
        short = found.reduced()
        values = rng.integers(-128 * 49, 128 * 49, 500)
        wide, narrow = (
            (values * each.factors[0] + each.offset) >> each.shift for each in (found, short)
        )
        np.testing.assert_array_equal(wide, narrow)
        assert short.bound <= found.bound
        smaller += short.shift < found.shift
    assert smaller > 100


def test_a_reduced_combination_is_the_same_for_every_operand() -> None:
    """No bit is left out that counts, down to no shift at all."""
    values, reached = np.arange(-128, 128)[None, :], set()
    for factor, moved, constant, shift in itertools.product(
        (1, 2, 12, 32), (0, 4), (0, 3, -16), range(5)
    ):
        offset = np.array(constant + (1 << shift >> 1))
        found = LinearCombination(
            (np.array(factor),), (np.array(moved),), offset, shift, -128, 127, 1 << 14
        )
        short = found.reduced()
        np.testing.assert_array_equal(combined(short, values), combined(found, values))
        reached.add((shift, short.shift))
    assert {(4, 2), (2, 0), (1, 0), (3, 3)} <= reached


def test_a_factor_that_is_rounded_to_one_bit_more_is_halved() -> None:
    """Just below a power of two: beside values of 16 bits it leaves int32 with one bit more."""
    ratio, reach = np.array((2**15 - 0.4) * 2.0**-27), np.array(1 << 20)
    rescale = requantizer(ratio, reach, 3)
    edge = int(200 / ratio)
    values = np.array([-reach, reach, -edge, edge, *range(-edge, edge, 997)])
    exact = np.clip(np.floor(values * ratio + 0.5) + 3, -128, 127)
    assert np.abs(run(rescale, values) - exact).max() <= 1
