"""Factors without a multiplier: bounds hold for the worst inputs, no sum of shifts is shorter."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vta_byoc.base.choices import APPROXIMATE, DIGITS
from vta_byoc.base.int8_digits import MOST_OF_TWO, horner, split
from vta_byoc.quantization.ops.anchors import ANCHORS
from vta_byoc.quantization.ops.layer_factor import (
    Scaled,
    ShiftSum,
    Source,
    as_int32,
    as_shifts,
    in_weights,
    shift_sum,
)
from vta_byoc.quantization.scales import INT32_HIGH, WEIGHT_HIGH, Scale

KEPT_STEPS = {"right_shift": np.right_shift, "left_shift": np.left_shift, "add": np.add}


def test_every_number_of_two_digits():
    values = np.arange(-MOST_OF_TWO, MOST_OF_TWO + 1)
    high, low = split(values)
    assert ((high << 8) + low == values).all()
    for digit in (high, low):
        assert digit.min() >= -128 and digit.max() <= 127


def test_numbers_of_any_digits():
    for value in [*range(-40_000, 40_001, 7), 1 << 21, -(1 << 21), (1 << 22) - 1]:
        total = 0
        for digit in horner(value):
            assert -128 <= digit <= 127
            total = (total << 8) + digit
        assert total == value


# ---------------------------------------------------------------- sums of shifts
def exact(found: ShiftSum, index: int) -> Fraction:
    """The factor of a channel."""
    total = Fraction(1)
    for amount in found.shifts:
        total = total / 2 ** int(amount if amount.ndim == 0 else amount[index]) + 1
    shift = int(found.shift if found.shift.ndim == 0 else found.shift[index])
    return total / 2**shift if shift >= 0 else total * 2**-shift


@settings(max_examples=80)
@given(
    st.lists(st.floats(2.0**-20, 2.0**5), min_size=1, max_size=6),
    st.sampled_from([2.0**-4, 2.0**-9, 2.0**-14]),
)
def test_a_sum_is_within_its_tolerance(factors, tolerance):
    found = shift_sum(np.array(factors), tolerance)
    for index, factor in enumerate(factors):
        away = abs(exact(found, index) / Fraction(factor) - 1)
        assert away <= Fraction(tolerance) * (1 + Fraction(1, 2**8))
    assert all(int(amount.min()) >= 0 for amount in found.shifts)


def test_no_sum_is_shorter():
    """Against all numbers of ten fraction bits."""
    ones = np.array([bin(n).count("1") for n in range(1 << 11)])
    for value in np.linspace(1, 1.999, 400):
        found = shift_sum(np.array(value), 2.0**-7)
        near = np.arange(1 << 10, 1 << 11)
        near = near[np.abs(near / 1024 / value - 1) <= 2.0**-7]
        least = 1 if value * (1 + 2.0**-7) >= 2 else int(ones[near].min())
        assert len(found.shifts) + 1 <= least


# ---------------------------------------------------------------- layers
class Call:
    """What the forms read of a float operator."""

    class attrs:
        groups, strides, dilation, padding = 1, (1, 1), (1, 1), (0, 0, 0, 0)


def source(rng: np.random.Generator, channels: int, inputs: int, zero: int) -> Source:
    """A dense layer [inputs, channels] of random scales."""
    ints = rng.integers(-127, 128, (inputs, channels))
    ratio = 2.0 ** rng.uniform(-18, -6, channels)
    return Source(
        ANCHORS["relax.matmul"],
        Call,  # type: ignore[arg-type]
        (1, channels),
        ints * ratio,
        rng.normal(0, 60, channels),
        Scale(1.0, zero),
        int(rng.choice([0, -128, 11])),
    )


def results(found: Scaled, data: np.ndarray) -> np.ndarray:
    """Before saturation, int64; every value fits int32."""
    value = data @ found.weight + found.bias
    kept = value
    for op, by in found.rescale.steps:
        if op == "keep":
            kept = value
            continue
        value = KEPT_STEPS[op](value, kept if isinstance(by, str) else by)
        assert np.abs(value).max() <= found.rescale.bound <= INT32_HIGH, op
    return value


def worst(found: Scaled, layer: Source) -> np.ndarray:
    """Random data, and for each channel those that add up its errors of weights, and its sums."""
    rng = np.random.default_rng(0)
    data = [rng.integers(-128, 128, (40, len(layer.real)))]
    shift = found.rescale.steps[-1][1] if found.rescale.steps else 0
    away = found.weight - layer.real * 2.0**shift if found.form != "shifts" else layer.real
    for sign in (away, layer.real):
        data += [np.where(sign.T > 0, 127, -128), np.where(sign.T > 0, -128, 127)]
    return np.concatenate(data).astype(np.int64)


@pytest.mark.parametrize("form", [DIGITS, APPROXIMATE, "shifts"])
def test_errors_and_sums_stay_within_their_bounds(form):
    """For inputs that are made to break them, in 150 layers of 1 to 2,000 inputs."""
    rng = np.random.default_rng(1)
    taken = 0
    for number in range(150):
        zero = int(rng.choice([0, -128, 127, 5]))
        layer = source(rng, 5, int(2.0 ** rng.uniform(0, 11)), zero)
        if form == "shifts":
            ratio = np.abs(layer.real).max(axis=0) / 127
            ratio = ratio if number % 2 else ratio.max().repeat(5)
            ints = np.rint(layer.real / ratio).astype(np.int64)
            layer = Source(**{**layer.__dict__, "real": ints * ratio})
            found = as_shifts(layer, ints, ratio if number % 2 else ratio[:1].reshape(()))
        else:
            found = in_weights(layer, form)
        if found is None:
            continue
        taken += 1
        data = worst(found, layer)
        want = (data - zero) @ layer.real + layer.bias + layer.zero
        got = results(found, data)
        near = (want > -129) & (want < 128)  # what does not saturate
        assert (got - want)[near].max(initial=0) <= found.error + 0.5
        assert (want - got)[near].max(initial=0) <= found.error + 0.5
        # and what does, saturates
        slack = max(1.0, found.error + 0.5)
        assert (got[want >= 128 + slack] >= 127).all() and (got[want < -129 - slack] <= -128).all()
    assert taken >= 100


def dense(weights: np.ndarray, bias: np.ndarray, zero: int = 0) -> Source:
    """A dense layer [inputs, channels] whose results floats read."""
    shape = (1, weights.shape[1])
    anchor, scale = ANCHORS["relax.matmul"], Scale(1.0, zero)
    return Source(anchor, Call, shape, weights, bias, scale, saturates=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [DIGITS, APPROXIMATE])
def test_weights_have_as_many_fraction_bits_as_their_digits_hold(form: str) -> None:
    """By not quite half a unit, which rounding takes, they may be larger; without bits is none."""
    most = MOST_OF_TWO if form == DIGITS else WEIGHT_HIGH
    for reach, power in itertools.product((1, 1 + 0.4 / most, 1 - 0.1 / most, 0.7), range(-2, 9)):
        weights = np.array([[1.0], [-0.3]]) * reach * most * 2.0**-power
        fits = [bits for bits in range(-9, 12) if weights.max() * 2.0**bits <= most + 0.49]
        found = in_weights(dense(weights, np.zeros(1)), form)
        assert (found is None) == (max(fits) < 0)
        if found is not None:
            assert found.rescale.shift == max(fits)
            np.testing.assert_array_equal(found.weight, np.rint(weights * 2.0 ** max(fits)))
            assert np.abs(found.weight).max() <= most


@pytest.mark.parametrize("size", [1e-6, 0.3, 1.0, 700.0])
def test_results_for_floats_have_weights_of_all_bits(size: float) -> None:
    """Of two digits, whatever their size, and sums that are those of the real weights."""
    rng = np.random.default_rng(2)
    layer = dense(size * rng.uniform(-1, 1, (40, 5)), size * rng.normal(0, 300, 5), 7)
    made = as_int32(layer)
    assert made is not None
    found, unit = made
    assert np.abs(found.weight).max() == MOST_OF_TWO
    data = rng.integers(-128, 128, (100, 40))
    got = unit * (data @ found.weight + found.bias)
    want = (data - 7) @ layer.real + layer.bias
    assert np.abs(got - want).max() <= unit * (135 * 40 / 2 + 1)


def test_results_for_floats_lose_bits_beside_a_bias_that_int32_does_not_hold() -> None:
    """The largest bias is held with all bits; with one more half of the weights' are lost."""
    weights = np.array([[1.0]])
    none = as_int32(dense(weights, np.zeros(1)))
    assert none is not None
    room = INT32_HIGH - none[0].rescale.bound
    for bias, lost in ((room, 0), (-room, 0), (room + 1, 1), (2 * room, 1), (8 * room, 3)):
        made = as_int32(dense(weights, np.array([bias / MOST_OF_TWO])))
        assert made is not None and made[0].rescale.bound <= INT32_HIGH
        assert made[1] == 2**lost / MOST_OF_TWO
    assert as_int32(dense(weights, np.array([1000.0 * room]))) is None
