"""Operators of models that come quantized: close to the float form, equal on every machine."""

from __future__ import annotations

import dataclasses
import itertools
import json

import dialect_numpy
import numpy as np
import pytest
from draws import draws
from layer_runs import machines, run_module
from quantized_graphs import BUILDS, QuantizedGraph, graph
from small_models import Graph, call
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.qdq import ConstantScale, as_float, quantize_scale
from vta_byoc.quantization.scales import Scale
from vta_byoc.quantization.tensor_pairs import Twin, _source
from vta_byoc.quantize import QUANTIZATION, quantize

GRAPHS, ON_VTA = draws(10, 24), 5
MACHINES = list(machines().values())


@pytest.mark.parametrize("kind", BUILDS)
def test_results_differ_by_at_most_one_step(kind):
    """From the float operators between the model's own scales; 99.8 % of them are equal."""
    different = total = 0
    for seed in range(GRAPHS):
        mod, inputs = graph(kind, seed)
        want = dialect_numpy.run(mod, *inputs)["result"].astype("int64")
        qmod = quantize(mod)
        steps = dialect_numpy.run(qmod, *inputs)  # asserts that nothing leaves int32
        got = steps["result"].astype("int64")
        assert np.abs(got - want).max() <= 1, f"seed {seed}"
        different, total = different + int((got != want).sum()), total + got.size
        assert not [b for b in straight_bindings(qmod["main"]) if "float" in str(b.var.ty.dtype)]
        if seed < ON_VTA:
            run = run_module(qmod, MACHINES[seed % len(MACHINES)], inputs, planned=False)
            np.testing.assert_array_equal(run.outputs[0], steps["result"])
            assert run.programs or kind == "padded", "data of the host is padded by the host"
    print(f"{kind}: {different} of {total} results differ by one")
    assert different <= 0.002 * total


def test_a_border_with_a_zero_point_is_a_map_of_biases():
    """Padding writes 0 where the model means the zero point: one bias for each position."""
    g = QuantizedGraph((1, 3, 5, 5), seed=1, dtype="int8")
    y = g.op("nn.conv2d", g.inputs[0], g.weight(4, 3, 3, 3), padding=1, name="layer__conv2d")
    mod = g.module(g.layer(y, False))
    assert int(g.scales[0][1].value.numpy()) != 0
    shapes = {b.var.name: b.value.args for b in straight_bindings(quantize(mod)["main"])}
    assert tuple(shapes["layer__bias"][1].value.shape) == (1, 4, 5, 5)


def test_scales_of_channels_are_recorded():
    mod, _ = graph("conv", 2)
    tensors = json.loads(text_of(quantize(mod).get_attr(QUANTIZATION)))["tensors"]
    weight = tensors["layer__weight"]
    assert len(weight["scales"]) > 1 and max(weight["scales"]) == weight["scale"]


def test_one_step_and_one_zero_point_are_a_scale_of_int8_values() -> None:
    """Channels that have their own are none; a zero point of uint8 is 128 less."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    for dtype, middle in (("int8", 0), ("uint8", 128)):
        values = relax.Var("values", relax.TensorType((2, 3), dtype))
        for steps, zeros in itertools.product(([0.5], [0.5] * 3), ([5], [5] * 3)):
            given = relax.const(np.float32(steps)), relax.const(np.asarray(zeros, dtype))
            want = Scale(0.5, 5 - middle) if len(steps) == len(zeros) == 1 else None
            there = relax.op.quantize(x, *given, axis=1, out_dtype=dtype)
            back = relax.BlockBuilder().normalize(relax.op.dequantize(values, *given, axis=1))
            assert quantize_scale(there) == quantize_scale(back) == want
    assert quantize_scale(relax.op.abs(x)) is None


def test_which_integers_int8_holds() -> None:
    """All of its own 256, and none beside them."""
    for least, most in ((-128, 127), (-129, 127), (-128, 128), (0, 0)):
        scale = ConstantScale(np.array([least, 0, most]), np.array(0.5), None)
        assert scale.is_int8 == (least >= -128 and most <= 127)
        np.testing.assert_array_equal(scale.real, [least / 2, 0, most / 2])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_activations_without_their_quantization_are_clipped(dtype: str) -> None:
    """At what int8 reaches, which is their range; what the model's results are quantized to stays
    as it is."""
    step, zero = np.float32(0.25), np.asarray(130 if dtype == "uint8" else 2, dtype)
    given = relax.const(step), relax.const(zero)
    g = Graph((2, 40))
    there = g.op("quantize", g.params[0], *given, axis=0, out_dtype=dtype)
    back = g.op("dequantize", there, *given, axis=0, name="back")
    mod = g.module(g.op("negative", back, name="last"))
    found, ranges = as_float(mod)
    assert {var.name: most for var, most in ranges.items()} == {"x0": 32.5, "quantize": 32.5}
    x = np.linspace(-50, 50, 80, dtype="float32").reshape(2, 40)
    (got,) = call(found, x)
    np.testing.assert_array_equal(got, -x.clip(-32.5, 31.25))
    kept, _ = as_float(g.module(there))
    assert op_name(straight_bindings(kept["main"])[0].value) == "relax.quantize"


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
def test_what_stands_for_a_tensor_of_the_source(dtype: str) -> None:
    """Floats for themselves; integers at the scale that a quantize states, as they are stored."""
    var = relax.Var("x", relax.TensorType((2, 3), dtype))
    if dtype == "float32":
        assert _source(var, None) == Twin(var)
        return
    data = relax.Var("data", relax.TensorType((2, 3), "float32"))
    given = relax.const(np.float32(0.5)), relax.const(np.asarray(7, dtype))
    stated = relax.op.quantize(data, *given, axis=0, out_dtype=dtype)
    assert _source(var, stated) == Twin(var, 0.5, 7)
    assert _source(var, None) is None and _source(var, relax.op.abs(data)) is None


def test_stated_scales_as_powers_of_two():
    """Without a multiplication: the stated ranges, the next power of two."""
    for kind in ("conv", "binary", "concat", "mean"):
        mod, inputs = graph(kind, 2)
        float_mod = dialect_numpy.run(mod, *inputs)["result"].astype("int64")
        qmod = quantize(mod, scales="pow2")
        got = dialect_numpy.run(qmod, *inputs)["result"].astype("int64")
        ops = {op_name(b.value) for b in straight_bindings(qmod["main"])}
        assert kind in ("binary", "mean") or "relax.multiply" not in ops
        assert np.abs(got - float_mod).mean() < 4, kind


def test_without_mul_the_cpu_multiplies_and_says_why():
    sim = MACHINES[0]
    config = dataclasses.replace(sim, capabilities=dataclasses.replace(sim.capabilities, mul=False))
    mod, inputs = graph("conv", 0)
    qmod = quantize(mod)
    run = run_module(qmod, config, inputs)
    np.testing.assert_array_equal(run.outputs[0], dialect_numpy.run(qmod, *inputs)["result"])
    assert "the machine has no MUL" in run.placement["layer"].reason


def test_weights_with_a_zero_point_that_int8_cannot_hold_have_two_digits():
    g = QuantizedGraph((1, 3, 4, 4), seed=0)
    ints = relax.const(np.uint8(g.rng.integers(0, 256, (5, 3, 3, 3))))
    weight = g.op(
        "dequantize", ints, relax.const(np.float32(0.01)), relax.const(np.uint8(3)), axis=0
    )
    y = g.op("nn.conv2d", g.inputs[0], weight, padding=1, name="layer__conv2d")
    assert_two_digits(g.module(g.quantized(y, 9.0)), g)


def test_a_scale_for_each_input_channel_is_in_two_digits():
    """As PyTorch's quantizer writes for transposed convolutions."""
    g = QuantizedGraph((1, 4, 3, 3), seed=0)
    weight = g.weight(4, 5, 2, 2, axis=0)
    while np.size(g.weight_steps) == 1:
        weight = g.weight(4, 5, 2, 2, axis=0)
    y = g.op("nn.conv2d_transpose", g.inputs[0], weight, strides=2, name="layer__transpose")
    assert_two_digits(g.module(g.quantized(y, 1.0)), g)


def assert_two_digits(mod, g):
    """On VTA, and one step from the floats of the model at most."""
    shape = tuple(int(d) for d in g.params[0].ty.shape)
    ends = np.iinfo(g.dtype)
    inputs = [g.rng.integers(ends.min, ends.max + 1, shape).astype(g.dtype)]
    qmod = quantize(mod)
    want, got = (dialect_numpy.run(m, *inputs)["result"].astype("int64") for m in (mod, qmod))
    assert np.abs(got - want).max() <= 1 and (got == want).mean() >= 0.95
    run = run_module(qmod, MACHINES[0], inputs)
    np.testing.assert_array_equal(run.outputs[0], got)
    assert run.placement["layer"].device == "vta"
    assert "weights of two digits" in run.placement["layer"].note


@pytest.mark.parametrize("clamp", ["relu", "clip"])
def test_a_clamp_before_a_float_result_is_kept(clamp: str) -> None:
    """No scale is stated behind the layer: int32 sums become float32, and the clamp follows."""
    g = QuantizedGraph((1, 3, 5, 5), seed=1, dtype="int8")
    y = g.op("nn.conv2d", g.inputs[0], g.weight(4, 3, 3, 3), padding=1, name="layer__conv2d")
    y = g.op("nn.relu", y) if clamp == "relu" else g.op("clip", y, -0.5, 0.25)
    mod, x = g.module(y), g.rng.integers(-128, 128, (1, 3, 5, 5)).astype("int8")
    want = dialect_numpy.run(mod, x)["result"]
    qmod = quantize(mod)
    assert "int32" in [str(b.var.ty.dtype) for b in straight_bindings(qmod["main"])]
    got = dialect_numpy.run(qmod, x)["result"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_unknown_form_of_scales():
    mod, _ = graph("conv", 0)
    with pytest.raises(VTAError, match='^scales "log" is not known; pow2 and mul are; choose one$'):
        quantize(mod, scales="log")
