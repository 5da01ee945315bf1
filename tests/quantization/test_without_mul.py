"""Models at any scales on machines without MUL: one step from the float form, equal everywhere."""

from __future__ import annotations

import dataclasses
import importlib
import json

import dialect_numpy
import numpy as np
import pytest
from layer_runs import machines, run_module
from quantized_graphs import BUILDS, QuantizedGraph, graph
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.records import text_of
from vta_byoc.partition import placements
from vta_byoc.pipeline import partition_for_vta
from vta_byoc.quantize import QUANTIZATION, quantize

GRAPHS, ON_VTA = 8, 2
LAYERS = ("conv", "transposed", "dense")


def without_mul(config: VTAConfig) -> VTAConfig:
    """The machine with neither MUL nor ACC_8BIT, as the boards' cores."""
    caps = dataclasses.replace(config.capabilities, mul=False, acc_8bit=False)
    return dataclasses.replace(config, capabilities=caps)


MACHINES = [without_mul(config) for config in machines().values()]
MACHINE = MACHINES[0]
CASES = [
    *((kind, form) for kind in LAYERS for form in (None, "digits", "shifts")),
    *((kind, None) for kind in BUILDS if kind not in LAYERS),
]


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_results_differ_by_at_most_one_step(kind, form):
    """From the float operators between the model's own scales; nearly all of them are equal."""
    different = total = 0
    for seed in range(GRAPHS):
        mod, inputs = graph(kind, seed)
        want = dialect_numpy.run(mod, *inputs)["result"].astype("int64")
        config = MACHINES[seed % len(MACHINES)]
        qmod = quantize(mod, config=config, rescale=form)
        steps = dialect_numpy.run(qmod, *inputs)  # asserts that nothing leaves int32
        got = steps["result"].astype("int64")
        assert np.abs(got - want).max() <= 1, f"seed {seed}"
        different, total = different + int((got != want).sum()), total + got.size
        if kind in LAYERS:
            names = [op_name(b.value) for b in straight_bindings(qmod["main"])]
            assert "relax.multiply" not in names
        if seed < ON_VTA:
            run = run_module(qmod, config, inputs, planned=False)
            np.testing.assert_array_equal(run.outputs[0], steps["result"])
            assert run.programs or kind not in LAYERS
    assert different <= (0.004 if form != "shifts" else 0.01) * total, (different, total)


# ---------------------------------------------------------------- forms
def layer(
    channels: int, kernel: int, *, per_channel: bool, axis: int = 0, transposed: bool = False
) -> QuantizedGraph:
    """One convolution at scales that no shift can do."""
    g = QuantizedGraph((1, channels, 9, 9), seed=3, dtype="int8")
    g.scales = [g.scalars(0.037)]
    g.inputs = [g.op("dequantize", g.params[0], *g.scales[0], axis=0)]
    ints = g.rng.integers(-127, 128, (channels, channels, kernel, kernel)).astype("int8")
    count = channels if per_channel else 1
    steps = np.float32(0.001 * (1 + np.arange(count) / count))
    zero = np.zeros(count, "int8")
    if not per_channel:
        steps, zero = steps[0], zero[0]
    consts = (relax.const(ints), relax.const(steps), relax.const(zero))
    weight = g.op("dequantize", *consts, axis=axis, name="weight")
    name = "nn.conv2d_transpose" if transposed else "nn.conv2d"
    y = g.op(name, g.inputs[0], weight, name="layer__product")
    g.result = g.op("quantize", y, *g.scalars(0.21), axis=0, out_dtype="int8", name="out")
    return g


def forms_and_notes(g: QuantizedGraph, **options):
    qmod = quantize(g.module(g.result), config=options.pop("config", MACHINE), **options)
    record = json.loads(text_of(qmod.get_attr(QUANTIZATION))).get("factors", {})
    placed = [p for p in placements(partition_for_vta(qmod, MACHINE)) if p.macs]
    return {entry["form"] for entry in record.values()}, placed


def test_the_form_of_the_fewest_cycles_is_chosen():
    """A second GEMM pass costs as much as the first, a sum of shifts the same for every layer."""
    small, placed = forms_and_notes(layer(16, 1, per_channel=False))
    assert small == {"digits"}
    assert [(p.device, p.note) for p in placed] == [
        ("vta", "packed GEMM, factor in weights of two digits")
    ]
    large, placed = forms_and_notes(layer(64, 3, per_channel=False))
    assert large == {"shifts"}
    assert [(p.device, p.note) for p in placed] == [
        ("vta", "packed GEMM, factor as shifts and sums")
    ]


@pytest.mark.parametrize(
    ("form", "note"),
    [
        ("digits", "packed GEMM, factor in weights of two digits"),
        ("shifts", "packed GEMM, factor as shifts and sums"),
        ("approximate", "packed GEMM; factor in weights of one digit (approximate)"),
    ],
)
def test_a_form_that_is_asked_for_is_taken(form, note):
    for config in (MACHINE, VTAConfig()):
        g = layer(16, 1, per_channel=True)
        found, placed = forms_and_notes(g, rescale=form, config=config)
        assert found == {form}
        assert [(p.device, p.note) for p in placed] == [("vta", note)]


def test_the_multiplier_stays_where_the_machine_has_one():
    found, _ = forms_and_notes(layer(16, 1, per_channel=True), config=VTAConfig())
    assert found == set()
    found, placed = forms_and_notes(layer(16, 1, per_channel=True), rescale="multiply")
    assert found == set()
    assert [(p.device, p.reason) for p in placed] == [
        (
            "cpu",
            "the accumulator multiplies and the machine has no MUL (CAPABILITIES.mul is false); "
            "quantize for this machine (config=), use power-of-two scales or a machine with MUL",
        )
    ]


def test_counts_of_macs_are_those_of_the_layer():
    for form in ("digits", "shifts", "approximate"):
        _, (placed,) = forms_and_notes(layer(16, 3, per_channel=False), rescale=form)
        assert placed.macs == 16 * 16 * 9 * 7 * 7


@pytest.mark.parametrize("config", [VTAConfig(), MACHINE], ids=["mul", "no mul"])
@pytest.mark.parametrize("is_float", [False, True])
def test_scales_by_input_channel_are_weights_of_two_digits(config, is_float):
    """As PyTorch's quantizer gives transposed convolutions; no scale of sums can apply them."""
    g = layer(16, 2, per_channel=True, axis=0, transposed=True)
    mod = g.module(g.result)
    inputs = [g.rng.integers(-128, 128, (1, 16, 9, 9)).astype("int8")]
    if is_float:
        mod = g.module(g.op("dequantize", g.result, *g.scalars(0.21), axis=0))
    want = dialect_numpy.run(mod, *inputs)["result"]
    qmod = quantize(mod, config=config)
    got = dialect_numpy.run(qmod, *inputs)["result"]
    unit = 0.21 if is_float else 1
    assert np.abs(got / unit - want / unit).max() <= 1.001
    assert (np.rint(got / unit) == np.rint(want / unit)).mean() >= 0.998
    run = run_module(qmod, config, inputs)
    np.testing.assert_array_equal(run.outputs[0], got)
    assert {p.device for p in run.placement.values() if p.macs} == {"vta"}


def test_a_product_of_two_tensors_stays_on_the_cpu():
    mod = _product()
    reasons = {
        p.reason
        for p in placements(partition_for_vta(quantize(mod, config=MACHINE), MACHINE))
        if p.name == "multiply"
    }
    assert reasons == {
        "both operands are computed and the machine has no MUL (CAPABILITIES.mul is false); a "
        "constant factor can become shifts; leave it to the CPU"
    }


def _product():
    g = QuantizedGraph((1, 16, 3, 3), (1, 16, 3, 3), seed=1, dtype="int8")
    return g.module(g.quantized(g.op("multiply", *g.inputs), 2.0))


# ---------------------------------------------------------------- options
def test_unknown_and_needless_forms_are_refused():
    g = layer(16, 1, per_channel=False)
    mod = g.module(g.result)
    with pytest.raises(VTAError) as error:
        quantize(mod, rescale="table")
    assert str(error.value) == (
        'rescale "table" is not known; multiply, digits, shifts, approximate are; choose one'
    )
    with pytest.raises(VTAError) as error:
        quantize(mod, rescale="digits", scales="pow2")
    assert str(error.value) == (
        'rescale "digits" with scales "pow2", which are rescaled by shifts; use scales "mul" or '
        "leave rescale out"
    )


def test_a_single_form_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate compiles the layer: that is for layers with a choice."""
    module, asked = importlib.import_module("vta_byoc.quantize"), []
    plain = module.estimated_cycles
    monkeypatch.setattr(
        module, "estimated_cycles", lambda *given: asked.append(given) or plain(*given)
    )
    forms_and_notes(layer(16, 1, per_channel=False), rescale="digits")
    assert not asked
    forms_and_notes(layer(16, 1, per_channel=False))
    assert len(asked) == 2
