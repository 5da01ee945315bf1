"""Exact rescales: a runtime's arithmetic to the bit, in int32, for drawn scales and bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from draws import draws, least
from hypothesis import given, settings
from hypothesis import strategies as st

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.ir.quantization_record import exact_reasons
from vta_byoc.quantization.exact_point import OPERATIONS, ExactPoint, proven, thresholds
from vta_byoc.quantization.exact_search import exact_point
from vta_byoc.quantization.exact_sum import VALUES, exact_sum
from vta_byoc.quantization.runtime_arithmetic import (
    ARITHMETICS,
    Arithmetic,
    Rounding,
    multiplied,
    quantized_factor,
    rounded_once,
)
from vta_byoc.quantization.scales import INT32_HIGH, Scale
from vta_byoc.quantize import quantize

SIM = VTAConfig.preset("sim")
MANY = 12
LAYERS = draws(5, MANY)
"""Drawn layers for each runtime, with and without a relu."""
BOTH = sorted(ARITHMETICS)
steps = st.floats(-7, -3).map(lambda e: float(np.float32(2.0**e)))
zeros = st.sampled_from([0, -128, 127, -30, 5])
scales = st.builds(Scale, steps, zeros)


def stepped(point: ExactPoint, sums: np.ndarray, channel: int, low: int, high: int) -> np.ndarray:
    """The steps as they are written, on one channel, every value within int32."""
    fixed = point.fixed_point(low, high, np.abs(sums).max(keepdims=True))
    offset = fixed.offset if fixed.offset.ndim == 0 else fixed.offset[channel]
    value = kept = sums + offset
    for op, by in fixed.steps:
        if op == "keep":
            kept = value
            continue
        operand = kept if isinstance(by, str) else by[channel] if by.ndim else by
        value = OPERATIONS[op](value, operand)
        assert np.abs(value).max() <= INT32_HIGH, op
    return np.clip(value, low, high)


def layer(
    arithmetic: Arithmetic, seed: int, relu: bool
) -> tuple[ExactPoint | None, tuple[np.ndarray, Scale, float, np.ndarray, int]]:
    """A drawn layer of a few channels: its steps, and what they stand for."""
    rng = np.random.default_rng(seed)
    channels = int(rng.choice([1, 3, 8]))
    reach = int(2.0 ** rng.uniform(3, 10))
    weights = np.float64(np.float32(2.0 ** rng.uniform(-9, -6) * rng.uniform(0.3, 1, channels)))
    data = float(np.float32(2.0 ** rng.uniform(-7, -3)))
    bound = np.int64(128 * reach * rng.uniform(10, 127, channels))
    spread = np.sqrt(reach) * 1600 * data * weights.max() / 128
    target = Scale(
        float(np.float32(spread * 2.0 ** rng.uniform(-1, 1))),
        -128 if relu else int(rng.integers(-60, 60)),
    )
    rounding = arithmetic.layer(data, weights, target, is_dense=False)
    low = target.zero if relu else -128
    found = exact_point(rounding, bound, target.zero, low, 127)
    return found, (weights, target, data, bound, low)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("name", BOTH)
def test_a_layers_results_are_the_runtimes_for_every_sum(name: str, relu: bool) -> None:
    """At the extremes, around every change of the result, and between, all within int32."""
    arithmetic, exact = ARITHMETICS[name], 0
    for seed in range(LAYERS):
        point, (weights, target, data, bound, low) = layer(arithmetic, seed, relu)
        if point is None:
            continue
        exact += 1
        rng = np.random.default_rng(seed)
        for channel, most in enumerate(bound):
            one = arithmetic.layer(data, weights[channel : channel + 1], target, is_dense=False)
            edge = int(min(most, 300 / (data * weights[channel] / target.step)))
            sums = np.concatenate(
                [
                    np.arange(-min(edge, 20000), min(edge, 20000) + 1),
                    rng.integers(-edge, edge + 1, 4000),
                    rng.integers(-most, most + 1, 1000),
                    [-most, most, 1 - most, most - 1, 0, -1, 1],
                ]
            )
            wanted = np.clip(one(sums[:, None])[:, 0], low, 127)
            np.testing.assert_array_equal(stepped(point, sums, channel, low, 127), wanted)
    assert exact >= least(10, LAYERS, MANY)


@settings(max_examples=25)
@given(source=scales, target=scales, name=st.sampled_from(BOTH))
def test_a_change_of_scale_is_the_runtimes_for_all_256_values(
    source: Scale, target: Scale, name: str
) -> None:
    moved = ARITHMETICS[name].moved(source, target)
    bound = np.array([abs(source.zero) + 128])
    point = exact_point(moved, bound, target.zero, -128, 127, most_parts=1)
    if point is not None:
        wanted = np.clip(moved(VALUES - source.zero), -128, 127)
        np.testing.assert_array_equal(stepped(point, VALUES - source.zero, 0, -128, 127), wanted)


@settings(max_examples=20)
@given(first=scales, second=scales, target=scales, name=st.sampled_from(BOTH))
def test_a_sum_of_two_tensors_is_the_runtimes_for_all_pairs(
    first: Scale, second: Scale, target: Scale, name: str
) -> None:
    both = ARITHMETICS[name].added(first, second, target)
    ratios = (first.step / target.step, second.step / target.step)
    found = exact_sum(both, ratios, -128, 127)
    if found is None:
        return
    left, right = (VALUES * factor >> found.cut for factor in found.factors)
    total = left[:, None] + right[None, :]
    assert np.abs(total).max() <= INT32_HIGH and np.abs(total + found.offset).max() <= INT32_HIGH
    got = np.clip((total + found.offset) >> found.shift, -128, 127)
    wanted = np.clip(both(VALUES[:, None], VALUES[None, :]), -128, 127)
    np.testing.assert_array_equal(got, wanted)


def test_thresholds_are_where_the_result_changes() -> None:
    """On a function whose changes are known, with results that no sum has at either end."""
    bound = np.array([40, 4])
    steps_of = np.array([10, 3])
    found = thresholds(Rounding(lambda v: v // steps_of, 1 / steps_of), bound, -128, 127)
    for channel, step in enumerate((10, 3)):
        for result, at in zip(found.results, found.at[channel], strict=True):
            least = max(int(result) * step, -int(bound[channel]))
            assert at == least if least <= bound[channel] else at > bound[channel]


def test_steps_that_are_wrong_for_one_sum_are_not_proven() -> None:
    """The proof tells a factor that is one off."""
    arithmetic = ARITHMETICS["onnxruntime"]
    target = Scale(0.0527, 3)
    rounding = arithmetic.layer(0.0113, np.array([0.0031]), target, is_dense=False)
    bound = np.array([400_000])
    point = exact_point(rounding, bound, target.zero, -128, 127)
    assert point is not None
    wanted = thresholds(rounding, bound, -128, 127)
    assert proven(point, wanted).all()
    for away in (-40_000_000, 40_000_000):
        spoiled = ExactPoint(
            point.offset,
            point.clamp,
            point.first,
            point.more + away,
            point.jump,
            point.second,
            point.cut,
            point.down,
            point.shift,
            point.after,
        )
        assert not proven(spoiled, wanted).any()


@settings(max_examples=200)
@given(
    value=st.integers(-(2**31), 2**31 - 1),
    real=st.floats(2.0**-20, 0.999, exclude_min=True),
)
def test_tflites_product_rounds_twice(value: int, real: float) -> None:
    """Against fractions: a doubling high multiply, half up; then a shift, halves away from zero."""
    factor, exponent = (int(x) for x in quantized_factor(np.array(real)))
    product = Fraction(value * factor, 2**31)
    high = math.floor(product + Fraction(1, 2))
    shifted = Fraction(high, 2**-exponent)
    whole = math.floor(abs(shifted) + Fraction(1, 2))
    wanted = whole if shifted >= 0 else -whole
    got = int(multiplied(np.array(value), np.array(factor), np.array(exponent)))
    assert got == wanted


@settings(max_examples=100)
@given(value=st.integers(-(2**24), 2**24), real=st.floats(2.0**-20, 0.999))
def test_a_dense_layers_product_rounds_once(value: int, real: float) -> None:
    factor, exponent = quantized_factor(np.array(real))
    product = Fraction(value * int(factor), 2 ** (31 - int(exponent)))
    got = int(rounded_once(np.array(value), factor, exponent))
    assert got == math.floor(product + Fraction(1, 2))


def test_it_is_refused_without_a_runtime_to_be_exact_to() -> None:
    """A float model states no scales; one that came quantized does not as powers of two."""
    fixtures = Path(__file__).parents[1] / "fixtures" / "tflite"
    text = "exact_rescale reproduces the integers of tflite and onnxruntime"
    with pytest.raises(VTAError, match=text):
        quantize(load_model(fixtures / "net_float.tflite"), calibration=[], exact_rescale=True)
    with pytest.raises(VTAError, match=text):
        quantize(load_model(fixtures / "net.tflite"), scales="pow2", exact_rescale=True)


def test_what_cannot_be_exact_says_why() -> None:
    """No MUL: every layer keeps its form, and the record says so; some operators have no form."""
    fixtures = Path(__file__).parents[1] / "fixtures" / "tflite"
    mod = load_model(fixtures / "net.tflite")
    without = VTAConfig.preset("pynq")
    found = quantize(mod, config=without, exact_rescale=True)
    reasons = exact_reasons(found)
    assert reasons and all("no MUL" in why or "not reproduced" in why for why in reasons.values())
    assert not any(exact_reasons(quantize(mod, config=without)))
    leaky = quantize(
        load_model(fixtures / "leaky_relu.tflite"), config=SIM, exact_rescale=True
    )
    assert [why for why in exact_reasons(leaky).values() if "not reproduced" in why]
