"""How the constants of exact rescales are searched: what is skipped, what room is used."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from vta_byoc.quantization.exact_point import ExactPoint, thresholds
from vta_byoc.quantization.exact_search import (
    _Form,
    _lies_apart,
    _lies_on_lines,
    _room,
    exact_point,
)
from vta_byoc.quantization.exact_sum import VALUES, exact_sum
from vta_byoc.quantization.runtime_arithmetic import ARITHMETICS, Rounding, quantized_factor
from vta_byoc.quantization.scales import INT32_HIGH, Scale

ONE = np.array([1])


# ---------------------------------------------------------------- factors and sums
@pytest.mark.parametrize(
    ("real", "factor", "exponent"),
    (
        (0.75, 3 << 29, 0),
        (2.0**-32, 1 << 30, -31),
        (2.0**-33, 0, 0),
        (1e-30, 0, 0),
        (1e12, (1 << 31) - 1, 30),
    ),
)
def test_tflites_factors_end_where_its_shifts_do(real: float, factor: int, exponent: int) -> None:
    """What 31 bits to the right lose is 0 without a shift; the largest has all its bits set."""
    assert [int(x) for x in quantized_factor(np.array(real))] == [factor, exponent]


@pytest.mark.parametrize("name", ARITHMETICS)
def test_bounds_of_clamps_are_the_nearest_values_of_int8(name: str) -> None:
    """Halves away from zero in TFLite, to even in ONNX Runtime; infinities are the ends."""
    halves = {"tflite": (-3, 1, 3), "onnxruntime": (-2, 0, 2)}[name]
    for step, zero in ((0.5, 0), (0.25, -100), (2.0, 101)):
        limit = functools.partial(ARITHMETICS[name].limit, scale=Scale(step, zero))
        assert (limit(-np.inf), limit(np.inf)) == (-128, 127)
        found = [limit(step * half) - zero for half in (-2.5, 0.5, 2.5)]
        assert tuple(found) == halves
        assert [limit(step * whole) for whole in (-3, 0, 3.2)] == [zero - 3, zero, zero + 3]
        assert (limit(-1e9), limit(1e9)) == (-128, 127)


def test_means_of_onnxruntime_divide_by_the_count() -> None:
    """As one float32 factor; sums are multiplied by it and rounded to even."""
    rounding = ARITHMETICS["onnxruntime"].mean(Scale(0.5), Scale(0.25, -3), 16)
    assert rounding.ratio == [2 / 16]
    sums = np.array([-100, -12, -4, 0, 4, 12, 20, 100])
    np.testing.assert_array_equal(rounding(sums), [-15, -5, -3, -3, -3, -1, -1, 9])


def test_dense_layers_of_tflite_have_a_factor_of_a_float32_product() -> None:
    """Where they have one scale; those of channels, and convolutions, multiply in float64."""
    data, step = 0.1, np.float64(np.float32(0.3))
    arithmetic, target = ARITHMETICS["tflite"], Scale(1.0)
    for weights, is_dense in itertools.product((np.array(step), np.array([step])), (False, True)):
        exact = arithmetic.layer(data, weights, target, is_dense=is_dense).ratio
        real = float(np.float32(data) * np.float32(step)) if is_dense and not weights.ndim else None
        assert exact == pytest.approx([real or data * step], rel=2.0**-31, abs=0)


def test_a_sum_of_operands_at_different_steps_is_found() -> None:
    """Each operand has its own factor."""

    def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return (4 * left + right + 4) >> 3

    found = exact_sum(both, (0.5, 0.125), -128, 127)
    assert found is not None
    left, right = (VALUES * factor >> found.cut for factor in found.factors)
    total = left[:, None] + right[None, :] + found.offset
    got = np.clip(total >> found.shift, -128, 127)
    np.testing.assert_array_equal(got, both(VALUES[:, None], VALUES[None, :]))


@pytest.mark.parametrize(("end", "side"), [(127, 0), (-128, 1)])
def test_a_sum_counts_for_all_values_of_its_operands(end: int, side: int) -> None:
    """Where the least or the largest of one alone gives something else there is no such sum."""

    def both(*values: np.ndarray) -> np.ndarray:
        return ((values[0] + values[1] + 1) >> 1) + 9 * (values[side] == end)

    assert exact_sum(both, (0.5, 0.5), -128, 127) is None


# ---------------------------------------------------------------- steps
@pytest.mark.parametrize(("shift", "count"), ((0, 1), (5, 2), (7, 2), (8, 3)))
def test_a_shift_by_nothing_is_no_step(shift: int, count: int) -> None:
    """Behind the product: the zero point, and a shift before and behind it where bits are left."""
    none = np.zeros(1, np.int64)
    point = ExactPoint(none, None, ONE, none, None, None, 0, 0, shift, 3)
    (first, *behind), sums = point.steps, np.arange(-900, 900)[None, :]
    assert first[0] == "multiply" and len(behind) == count
    wanted = ((sums + (1 << shift >> 1)) >> shift) + 3
    np.testing.assert_array_equal(point.run(sums)[0], wanted)


def test_products_use_all_bits_of_int32() -> None:
    """The last shift is the longest for which products stay below 31/32 of int32."""
    ratio, bound = 0.0101234, np.array([11_963])
    rounding = ARITHMETICS["onnxruntime"].layer(ratio, ONE, Scale(1.0), is_dense=False)
    point = exact_point(rounding, bound, 0, -128, 127)
    assert point is not None
    _, most = point.run(np.stack([-bound, bound], axis=1))
    assert INT32_HIGH * 15 // 16 < most.max() <= INT32_HIGH


def test_where_no_result_is_reached_nothing_needs_to_be_added() -> None:
    """A relu of sums too small for the result 1: 0 is the least that may be added."""
    bound = np.array([1000])
    rounding = Rounding(lambda v: np.rint(v * 1e-4).astype(np.int64), np.array([1e-4]))
    wanted = thresholds(rounding, bound, 0, 127)
    assert not wanted.above.any()
    point = ExactPoint(ONE * 0, None, ONE * 3, ONE * 0, None, None, 0, 0, 15, 0)
    least, most = _room(point, wanted)
    assert least == 0 and most == (1 << 14) - 3 * 1000 - 1


@pytest.mark.parametrize(("zero", "ratio"), ((0, 0.1), (0, 1e-3), (-128, 1e-3), (127, 1e-3)))
def test_a_clamp_is_of_all_channels_where_both_ends_are_immediates(zero: int, ratio: float) -> None:
    """Else each channel has its own; what is cut off saturates anyway."""
    ratios, bound = np.array([ratio, 2 * ratio]), np.array([1 << 20] * 2)
    rounding = Rounding(lambda sums: np.rint(sums * ratios).astype(np.int64) + zero, ratios)
    wanted = thresholds(rounding, bound, -128, 127)
    clamp = _Form(wanted, ratios, zero, np.zeros(2, np.int64), True, False).clamp
    assert clamp is not None
    for end, own, whole in zip(clamp, wanted.ends, (min, max), strict=True):
        assert end.tolist() == ([whole(own)] * 2 if ratio == 0.1 else own.tolist())
    sums = np.linspace(-bound, bound, 999).astype(np.int64)
    for result in (rounding(sums), rounding(np.clip(sums, *clamp))):
        np.testing.assert_array_equal(result.clip(-128, 127), rounding(sums).clip(-128, 127))


# ---------------------------------------------------------------- what is not tried
def test_only_tflites_negative_sums_lie_apart() -> None:
    """It rounds halves away from zero: forms without a jump are not tried there."""
    apart = {}
    for name, arithmetic in ARITHMETICS.items():
        rounding = arithmetic.layer(0.5, np.array([0.5]), Scale(1.0, 3), is_dense=False)
        wanted = thresholds(rounding, np.array([4000]), -128, 127)
        apart[name] = _lies_apart(wanted, rounding.ratio, 3)
    assert apart == {"tflite": True, "onnxruntime": False}


def test_one_side_without_thresholds_lies_nowhere() -> None:
    """A relu's results are never below its zero point; nothing is divided by their number."""
    rounding = ARITHMETICS["tflite"].layer(0.5, np.array([0.5]), Scale(1.0, -128), is_dense=False)
    wanted = thresholds(rounding, np.array([4000]), -128, 127)
    with np.errstate(all="raise"):
        assert not _lies_apart(wanted, rounding.ratio, -128)


def test_thresholds_lie_on_a_line_beside_the_stated_ratio() -> None:
    """A slope a part of 2**23 away is tried: over 2**27 sums the stated one is 16 off."""
    slope, bound = 2.0**-20, np.array([1 << 27])
    rounding = Rounding(lambda v: np.floor(v * slope + 0.3).astype(np.int64), np.array([slope]))
    wanted = thresholds(rounding, bound, -128, 127)
    stated = np.array([slope / (1 + 2.0**-23)])
    assert _lies_on_lines(wanted, stated, 0)
    assert not _lies_on_lines(wanted, stated * (1 + 2.0**-18), 0)
