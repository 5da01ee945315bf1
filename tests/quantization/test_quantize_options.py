"""Options of quantize: scales of channels, any scales, operators kept in float, what is refused."""

from __future__ import annotations

import functools
import itertools
import json

import dialect_numpy
import numpy as np
import pytest
import tvm
from layer_runs import machines, run_module
from quantized_graphs import QuantizedGraph
from small_models import Graph
from tvm import relax

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, source_name, straight_bindings
from vta_byoc.ir.quantization_record import CAME_INTEGER
from vta_byoc.ir.records import text_of
from vta_byoc.quantize import EMPTY_RECORD, QUANTIZATION, quantize, quantized_alike

MACHINES = list(machines().values())
FORMS = [
    dict(scales=scales, per_channel=per_channel)
    for scales, per_channel in itertools.product(("pow2", "mul"), (False, True))
]


@functools.cache
def network(seed: int) -> tuple[tvm.IRModule, list[np.ndarray], list[np.ndarray]]:
    """A float network with channels of very different scale, samples, and one more input."""
    g = Graph((1, 16, 6, 7), seed=seed)
    rng = g.rng
    x = g.params[0]
    spread = 2.0 ** rng.uniform(-6, 2, (24, 1, 1, 1))
    weight = g.const(rng.standard_normal((24, 16, 3, 3)) / 12 * spread)
    y = g.op("nn.conv2d", x, weight, padding=1, name="first__conv2d")
    y = g.op("add", y, g.normal(1, 24, 1, 1, scale=0.3), name="first")
    y = g.op("nn.relu", y, name="first__relu")
    spread = 2.0 ** rng.uniform(-4, 4, (1, 3, 1, 1))
    kernel = g.const(rng.standard_normal((24, 3, 3, 3)) / 6 * spread)
    up = g.op("nn.conv2d_transpose", y, kernel, strides=(2, 2), groups=2, name="up")
    kept = g.op("nn.conv2d", y, g.normal(24, 1, 3, 3, scale=0.3), groups=24, padding=1, name="dw")
    both = g.op("add", kept, y, name="sum")
    leaky = g.op("nn.leakyrelu", g.op("concat", [both, y], axis=1, name="both"), 0.1, name="leaky")
    mean = g.op("mean", leaky, [2, 3], name="mean")
    dense = g.op("matmul", mean, g.normal(48, 5, scale=0.2), name="dense")
    samples = [rng.standard_normal((1, 16, 6, 7)).astype("float32") for _ in range(4)]
    return g.module(dense, up), samples[:3], samples[3:]


@functools.cache
def quantized(seed: int, scales: str, per_channel: bool) -> tvm.IRModule:
    """The network of ``seed`` in a form."""
    mod, samples, _ = network(seed)
    return quantize(mod, calibration=samples, scales=scales, per_channel=per_channel)


CASES = [(seed, FORMS[form]) for seed, form in ((0, 0), (0, 3), (1, 1), (1, 2), (2, 0), (2, 3))]
"""Every form; both kinds of scales, and of both extents, on every machine."""


@pytest.mark.parametrize(("seed", "form"), CASES, ids=str)
def test_vta_equals_the_reference_in_every_form(seed, form):
    inputs, qmod = network(seed)[2], quantized(seed, **form)
    wanted = dialect_numpy.run(qmod, *inputs)["result"]  # asserts that nothing leaves int32
    run = run_module(qmod, MACHINES[seed], inputs, planned=False)
    for got, want in zip(run.outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    on_cpu = {name for name, placed in run.placement.items() if placed.device != "vta"}
    assert not on_cpu - {"x0", "up", "dense"}, "quantize and dequantize only"


def test_scales_of_channels_and_multipliers_are_closer_to_float():
    """Without zero points, which move every rounding: these forms are close to one another."""
    errors = []
    for form in FORMS:
        total = 0.0
        for seed in range(3):
            mod, samples, inputs = network(seed)
            exact = dialect_numpy.run(mod, *inputs)["result"][0]
            qmod = quantize(mod, calibration=samples, zero_points="none", **form)
            got = dialect_numpy.run(qmod, *inputs)["result"]
            total += float(np.abs(got[0] - exact).mean())
        errors.append(total)
    pow2, pow2_channel, mul, mul_channel = errors
    assert mul_channel < mul < pow2_channel < pow2


def test_a_channel_that_is_finer_than_its_accumulator():
    """Cancelling weights: the result needs more fraction bits than the accumulator has; all
    channels are shifted left first."""
    g = Graph((1, 2, 1, 1))
    weight = g.const([[[[1.0]], [[-1.0]]], [[[1 / 64]], [[1 / 64]]]])
    y = g.op("nn.conv2d", g.params[0], weight, name="conv")
    mod = g.module(g.op("nn.relu", y, name="relu"))
    sample = np.float32([127, 126.9]).reshape(1, 2, 1, 1)
    qmod = quantize(mod, calibration=[sample / 8], per_channel=True)
    ops = [op_name(b.value) for b in straight_bindings(qmod["main"])]
    assert ops.count("relax.right_shift") == 1
    for scale in (1 / 8, 100, -100):
        x = sample * np.float32(scale)
        got = run_module(qmod, MACHINES[0], [x]).outputs[0]
        np.testing.assert_array_equal(got, dialect_numpy.run(qmod, x)["result"])


def test_operators_kept_in_float():
    mod, samples, inputs = network(0)
    qmod = quantize(mod, calibration=samples, keep_float=["dw", "le*"])
    floats = {
        source_name(b.var)
        for b in straight_bindings(qmod["main"])
        if str(getattr(b.var.ty, "dtype", "")) == "float32"
        and op_name(b.value) not in ("relax.dequantize", "relax.quantize")
    }
    assert floats == {"dw", "leaky", "mean"}, "a mean takes int8 data, where there is some"
    exact, got = (dialect_numpy.run(m, *inputs)["result"][0] for m in (mod, qmod))
    assert np.abs(got - exact).mean() < 0.1 * np.abs(exact).max()
    with pytest.raises(VTAError, match='^operator "dv" to keep in float '):
        quantize(mod, calibration=samples, keep_float=["dv"])


def test_all_options_together_are_deterministic():
    g = Graph((1, 3, 5, 5))
    x = g.op("nn.relu", g.conv(g.params[0], 8, 3, name="first"), name="relu")
    mod = g.module(g.conv(x, 8, 3, groups=8, name="dw"))
    samples = [g.rng.standard_normal((1, 3, 5, 5)).astype("float32") for _ in range(3)]
    options = dict(
        scales="mul", per_channel=True, method="mse", equalize=True, bias_correction=True
    )
    first, second = (quantize(mod, calibration=samples, **options) for _ in range(2))
    tvm.ir.assert_structural_equal(first, second)


def test_a_graph_that_is_partly_quantized():
    """Float operators between quantized ones are islands; with samples they are quantized too."""
    g = QuantizedGraph((1, 4, 6, 6), seed=4, dtype="int8")
    first = g.layer(g.op("nn.conv2d", g.inputs[0], g.weight(8, 4, 3, 3), name="first"), True)
    wide = g.op("dequantize", first, *first_scale(g), axis=0, name="wide")
    island = g.op("tanh", wide, name="island")
    second = g.op("nn.conv2d", island, g.normal(4, 8, 1, 1), name="second")
    last = g.op("nn.conv2d", g.op("nn.relu", second), g.normal(3, 4, 1, 1), name="last")
    mod = g.module(last)
    x = g.rng.integers(-128, 128, (1, 4, 6, 6)).astype("int8")
    qmod = quantize(mod)
    exact = dialect_numpy.run(mod, x)["result"]
    np.testing.assert_allclose(
        dialect_numpy.run(qmod, x)["result"], exact, atol=0.05 * np.abs(exact).max()
    )
    types = {b.var.name: str(b.var.ty.dtype) for b in straight_bindings(qmod["main"])}
    assert types["island"] == types["second"] == "float32"
    run = run_module(qmod, MACHINES[0], [x])
    np.testing.assert_array_equal(run.outputs[0], dialect_numpy.run(qmod, x)["result"])


def first_scale(g: QuantizedGraph) -> tuple[relax.Expr, relax.Expr]:
    return relax.const(np.float32(0.02)), relax.const(np.int8(3))


# ---------------------------------------------------------------- refused
def test_calibration_is_missing():
    mod, _, _ = network(0)
    with pytest.raises(VTAError) as caught:
        quantize(mod)
    assert str(caught.value) == (
        "calibration is missing; a float model is quantized by the ranges that its tensors have on "
        "representative samples; give calibration= (or --calibration)"
    )


def test_samples_that_can_be_read_once():
    mod, samples, _ = network(0)
    for option in ("equalize", "bias_correction"):
        with pytest.raises(VTAError) as caught:
            quantize(mod, calibration=iter(samples), **{option: True})
        assert str(caught.value) == (
            "calibration is a list_iterator, which can be read once; equalize and bias_correction "
            "read it again; give a list"
        )


def test_options_of_functions_are_checked() -> None:
    """Before anything is calibrated."""
    mod, samples, _ = network(0)
    for name, value in (
        ("function_tolerance", -1),
        ("function_worth", -0.5),
        ("function_worth", float("inf")),
    ):
        with pytest.raises(VTAError, match=f"^{name} is {value:g} "):
            quantize(mod, calibration=samples, **{name: value})


def test_integers_of_a_modules_own_are_kept() -> None:
    """With an empty record; no option of quantization applies to them."""
    g = Graph((1, 4))
    mod = g.module(g.op("nn.relu", g.params[0])).with_attr(CAME_INTEGER, "relay.quantize")
    found = quantize(mod)
    tvm.ir.assert_structural_equal(found["main"], mod["main"])
    assert json.loads(text_of(found.get_attr(QUANTIZATION))) == json.loads(EMPTY_RECORD)
    for option in ({"scales": "mul"}, {"equalize": True}, {"keep_float": ["a"]}):
        with pytest.raises(VTAError, match=next(iter(option))):
            quantize(mod, **option)


def test_which_machines_a_module_is_quantized_alike_for() -> None:
    """Only MUL counts for float modules, unless a softmax may fit one machine and not another."""
    sim, other = VTAConfig(), VTAConfig.preset("tophub_4x8")
    without = VTAConfig(capabilities=Capabilities(mul=False))
    for op, alike in (("nn.relu", True), ("nn.softmax", False)):
        g = Graph((2, 4))
        mod = g.module(g.op(op, g.params[0]))
        assert (quantized_alike(mod, sim) == quantized_alike(mod, other)) == alike
        assert quantized_alike(mod, sim) != quantized_alike(mod, without)
    g = QuantizedGraph((1, 4), seed=0)
    mod = g.module(g.quantized(g.op("nn.relu", g.inputs[0]), 1.0))
    assert quantized_alike(mod, sim) != quantized_alike(mod, other)


def test_weights_that_came_quantized_are_not_changed():
    g = QuantizedGraph((1, 4, 6, 6), seed=0)
    mod = g.module(g.layer(g.op("nn.conv2d", g.inputs[0], g.weight(8, 4, 3, 3)), False))
    with pytest.raises(VTAError, match="^equalize and bias_correction change float weights; this"):
        quantize(mod, equalize=True)


def test_a_layer_that_calibration_never_excites():
    """It stays usable: the scale is 1/128, and nothing is divided by zero."""
    for form in FORMS:
        mod, _, inputs = network(2)
        silent = [np.zeros((1, 16, 6, 7), "float32")]
        qmod = quantize(mod, calibration=silent, **form)
        scales = json.loads(text_of(qmod.get_attr(QUANTIZATION)))["tensors"]
        assert scales["x0__int8"] == {"scale": 2.0**-7, "amax": 0.0}
        for x in (silent, inputs):
            wanted = dialect_numpy.run(qmod, *x)["result"]
            if x is silent and form is not FORMS[-1]:  # all but the biases is zero
                continue
            got = run_module(qmod, MACHINES[0], x, planned=False).outputs
            for one, other in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(one, other)
