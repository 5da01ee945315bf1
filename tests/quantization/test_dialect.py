"""The numerics contract: scales, rounding, saturation, and proofs that int32 never overflows."""

from __future__ import annotations

import json
from fractions import Fraction

import dialect_numpy
import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from small_models import Graph, call
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.linear import Operand, linear
from vta_byoc.quantization.ops.pooling import averages
from vta_byoc.quantization.policy import PowersOfTwo
from vta_byoc.quantization.scales import (
    INT32_HIGH,
    Rescale,
    Scale,
    Unscalable,
    quantized,
    scale_exponent,
)
from vta_byoc.quantize import QUANTIZATION, quantize

EVERY_INT8 = np.arange(-128, 128, dtype="int8")


def written(write: DialectWriter, x: relax.Var, result: relax.Var) -> tvm.IRModule:
    source = relax.Function([x], result, ret_ty=result.ty)
    main = write.finish(source, result).with_attr("global_symbol", "main")
    return relax.transform.Normalize()(tvm.IRModule({"main": main}))


def half_up(values: np.ndarray, shift: int) -> np.ndarray:
    """values / 2**shift, halves towards plus infinity, saturated to int8."""
    exact = [Fraction(int(value)) * Fraction(2) ** -shift + Fraction(1, 2) for value in values.flat]
    rounded = np.array([value.__floor__() for value in exact]).reshape(values.shape)
    return np.clip(rounded, -128, 127)


# ---------------------------------------------------------------- scales
@given(st.floats(2.0**-50, 2.0**50, width=32))
def test_scale_is_the_smallest_power_of_two(amax):
    exponent = scale_exponent(amax, "x")
    assert 127 * Fraction(2) ** exponent >= Fraction(amax) > 127 * Fraction(2) ** (exponent - 1)


@pytest.mark.parametrize(
    "amax, exponent", [(127, 0), (127.00001, 1), (128, 1), (63.5, -1), (0, -7), (1e-30, -60)]
)
def test_scale_at_the_edges(amax, exponent):
    assert scale_exponent(amax, "x") == exponent


def test_values_too_large_for_a_scale():
    with pytest.raises(Unscalable) as caught:
        scale_exponent(1e38, "relu1")
    assert str(caught.value) == (
        "relu1: a tensor of it reaches 1e+38, as masks do, and int8 ends at 1.60992e+32"
    )


def test_weights_round_half_to_even_and_saturate_symmetrically():
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.51, 300, -300])
    assert quantized(values, Scale.power(0), -127, 127).tolist() == [0, 2, 2, 0, -2, 3, 127, -127]
    assert quantized(values, Scale.power(-1), -127, 127).tolist() == [1, 3, 5, -1, -3, 5, 127, -127]


# ---------------------------------------------------------------- rescale
@pytest.mark.parametrize("shift", range(-3, 10))
def test_rescale_rounds_half_up_for_every_int8(shift):
    x = relax.Var("x", relax.TensorType((256,), "int8"))
    write = DialectWriter()
    found = linear([Operand(np.array(2.0**-shift))])
    mod = written(write, x, write.linear(None, [x], found, "y"))
    assert not [b for b in mod["main"].body.blocks[0].bindings if "multiply" in op_name(b.value)]
    (got,) = call(mod, EVERY_INT8)
    np.testing.assert_array_equal(got, half_up(EVERY_INT8, shift))


@pytest.mark.parametrize("shift", [-2, 0, 1, 2, 7])
@pytest.mark.parametrize("low, high", [(-128, 127), (0, 127), (0, 48)])
def test_conv_group_adds_the_rounding_constant_with_the_bias(shift, low, high):
    x = relax.Var("x", relax.TensorType((1, 1, 16, 16), "int8"))
    weight, bias = np.array([3, -1]).reshape(2, 1, 1, 1), np.array([5, -7])
    rescale, write = Rescale(shift, low, high), DialectWriter()
    attrs = (
        relax.BlockBuilder().normalize(relax.op.nn.conv2d(x, relax.const(np.int8(weight)))).attrs
    )
    mod = written(write, x, write.conv2d(x, weight, bias + rescale.rounding, attrs, rescale, "y"))
    data = EVERY_INT8.reshape(1, 1, 16, 16)
    exact = data.astype("int64") * weight.reshape(1, 2, 1, 1) + bias.reshape(1, 2, 1, 1)
    (got,) = call(mod, data)
    np.testing.assert_array_equal(got, np.clip(half_up(exact, shift), low, high))


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": 2, "padding": [1, 0, 2, 1]},
        {"dilation": 2, "padding": 2},
        {"groups": 2},
        {"strides": [1, 3], "padding": [0, 3]},
    ],
)
def test_conv_group_equals_numpy(attrs):
    g = Graph((2, 4, 9, 8), seed=5)
    qmod = quantize(g.module(g.conv(g.params[0], 6, **attrs)), calibration=[_normal(2, 4, 9, 8)])
    x = _normal(2, 4, 9, 8, seed=1)
    np.testing.assert_array_equal(call(qmod, x)[0], dialect_numpy.run(qmod, x)["result"])


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# ---------------------------------------------------------------- shifts of whole layers
def clamped(g: Graph, x: relax.Var) -> relax.Var:
    """`x` behind a clamp that changes nothing: the layer before it ends in int8."""
    return g.op("maximum", x, g.const(-1e20), name="clamp")


def difference(values: tuple[float, float]) -> dict[str, int]:
    """The accumulator of x0 - x1 when calibration saw one pixel with these two values."""
    g = Graph((1, 2, 1, 1))
    x = g.op("nn.conv2d", g.params[0], g.const([[[[1.0]], [[-1.0]]]]), name="conv")
    x = clamped(g, x)
    sample = np.float32(values).reshape(1, 2, 1, 1)
    qmod = quantize(g.module(x), calibration=[sample])
    data = np.float32([127, 126]).reshape(1, 2, 1, 1)
    np.testing.assert_array_equal(call(qmod, data)[0], dialect_numpy.run(qmod, data)["result"])
    return json.loads(text_of(qmod.get_attr(QUANTIZATION)))["accumulators"]["conv"]


@pytest.mark.parametrize(
    "values, shift",
    [
        ((127, 0), 6),  # result up to 127: scale 1, accumulator 2**-6
        ((127, 126), 0),  # result up to 1: scale 2**-6
        ((127, 126.75), -2),  # result up to 0.25: scale 2**-8
        ((127, 126.99999), -16),  # scale 2**-23: one more would overflow, (128 * 128) << 17
        ((127, 127), -1),  # always zero: scale 2**-7
    ],
)
def test_shift_of_a_layer(values, shift):
    bound = 128 * 128 + (1 << shift - 1 if shift > 0 else 0)
    assert difference(values) == {"bound": bound, "shift": shift}
    assert bound << max(-shift, 0) <= INT32_HIGH


def test_shifts_are_limited():
    def exponent(unit: int, amax: float, bound: int) -> int:
        return PowersOfTwo().result(amax, np.array(2.0**unit), bound, "x").exponent

    assert exponent(-50, 0, 100) == -35, "always zero"
    assert exponent(50, 0, 0) == 19, "no weights"
    assert exponent(50, 1.0, 1 << 30) == 50, "no room"


# ---------------------------------------------------------------- proofs
WIDE = 132104
"""Inputs of 127 * 128 each sum to 2**31 - 1 - 1023."""


def wide_layer(inputs: int, bias: int) -> tvm.IRModule:
    """1x1 convolution with all weights 127, rescaled by 8 bits: rounding constant 128."""
    g = Graph((1, inputs, 1, 1))
    weight = g.const(np.full((1, inputs, 1, 1), 127))
    x = g.op("nn.conv2d", g.params[0], weight, name="wide__conv2d")
    x = clamped(g, g.op("add", x, g.const([[[[bias]]]]), name="wide"))
    sample = np.zeros((1, inputs, 1, 1), "float32")
    sample[0, 0] = 127
    return quantize(g.module(x), calibration=[sample])


def test_the_largest_layer_that_fits():
    qmod = wide_layer(WIDE, 1023 - 128)
    proof = json.loads(text_of(qmod.get_attr(QUANTIZATION)))["accumulators"]["wide"]
    assert proof == {"bound": INT32_HIGH, "shift": 8}
    for value in (-1e9, 1e9):
        x = np.full((1, WIDE, 1, 1), value, "float32")
        expected = dialect_numpy.run(qmod, x)
        np.testing.assert_array_equal(call(qmod, x)[0], expected["result"])


def test_a_layer_that_could_overflow():
    with pytest.raises(VTAError) as caught:
        wide_layer(WIDE, 1023 - 127)
    assert str(caught.value) == (
        'layer "wide" can accumulate 2147483648; int32 holds 2147483647; '
        f"split its {WIDE} inputs per output over two layers and add their results"
    )


def test_a_bias_beside_which_the_weights_vanish():
    g = Graph((1, 1, 1, 1))
    x = g.op("nn.conv2d", g.params[0], g.const([[[[1e-12]]]]), name="tiny__conv2d")
    mod = g.module(g.op("add", x, g.const([[[[100.0]]]]), name="tiny"))
    sample = np.ones((1, 1, 1, 1), "float32")
    qmod = quantize(mod, calibration=[sample])
    np.testing.assert_allclose(call(qmod, sample)[0], 100)


def test_operands_of_very_different_scale():
    g = Graph((1, 4), (1, 4))
    mod = g.module(g.op("add", *g.params, name="sum"))
    big, small = np.float32([[1e9, 5e8, 0, 1]]), np.float32([[1e-9, 1, 1, 1]])
    qmod = quantize(mod, calibration=[(big, small)])
    (got,) = call(qmod, big, small)
    np.testing.assert_array_equal(got, dialect_numpy.run(qmod, big, small)["result"])
    np.testing.assert_allclose(got, big, atol=1e9 / 127)


# ---------------------------------------------------------------- means
@given(st.integers(1, 32000), st.integers(-8, 8), st.floats(0.01, 100))
def test_mean_is_precise_and_bounded(count, exponent, amax):
    target = PowersOfTwo().result(amax, np.array(2.0**exponent), 128, "x")
    ratio = Fraction(2) ** (exponent - target.exponent) / count
    found = averages(PowersOfTwo(), np.array(float(ratio)), Scale.power(exponent), np.array(count))
    assert found is not None
    factor = int(found.factors[0])
    assert abs(Fraction(factor) / Fraction(2) ** found.shift / ratio - 1) <= Fraction(1, 256)
    assert 128 * count * factor + found.rounding <= found.bound <= INT32_HIGH
    assert factor < 2**15 or ratio >= 2**15  # more than any immediate only where nothing is lost


def test_a_mean_over_too_many_values_is_a_float_island():
    for count, is_integer in ((300 * 300, False), (256 * 256, True)):
        ratio = np.array(1 / count)
        found = averages(PowersOfTwo(), ratio, Scale.power(0), np.array(count))
        assert (found is not None) == is_integer
    g = Graph((1, 1, 300, 300))
    mod = g.module(g.op("mean", g.params[0], [2, 3], True))
    qmod = quantize(mod, calibration=[np.full((1, 1, 300, 300), 100, "float32")])
    assert [op_name(b.value) for b in qmod["main"].body.blocks[0].bindings] == ["relax.mean"]
    x = _normal(1, 1, 300, 300, seed=2)
    np.testing.assert_allclose(call(qmod, x)[0], x.mean().reshape(1, 1, 1, 1), atol=0.01)
