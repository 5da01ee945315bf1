"""Zero points of tensors: who gets one, what readers make of it, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
import json

import dialect_numpy
import numpy as np
import pytest
import tvm
from layer_runs import machines, run_module
from operators_llvm import OPERATORS
from small_models import Graph

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.quantization_record import symmetric
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.ops.movement import _covering
from vta_byoc.quantization.scales import Scale, spanning
from vta_byoc.quantize import QUANTIZATION, quantize

MACHINES = list(machines().values())
READERS = (
    "point",
    "dense",
    "sum",
    "gate",
    "mean",
    "pool",
    "table",
    "joined",
    "moved",
    "padded",
    "padded_max",
    "product",
    "larger",
    "depthwise",
)
ONLY_ALL = {"padded", "padded_max", "larger", "depthwise"}
"""Readers that take a zero point at a price."""
NEVER = {"product"}
LAYERS = {"point", "dense", "padded", "depthwise"}


@functools.cache
def network(reader: str, seed: int) -> tuple[tvm.IRModule, list[np.ndarray], np.ndarray]:
    """A relu and one reader of it, and a layer behind; samples, and one more input."""
    channels, size = (16, 6) if seed % 2 else (20, 5)
    g = Graph((1, channels, size, size), seed=seed)
    x = g.params[0]
    y = g.op("nn.relu", g.conv(x, channels, 1, name="first"), name="rectified")
    other = g.conv(x, channels, 1, name="other")
    shape = (1, channels, size * size)
    if reader == "point":
        out = g.conv(y, 12, 1, name="point")
    elif reader == "dense":
        out = g.dense(g.op("reshape", y, (1, channels * size * size)), 8, name="dense")
    elif reader == "sum":
        out = g.conv(g.op("add", y, other, name="sum"), 12, 1, name="last")
    elif reader == "gate":
        gate = g.op("sigmoid", g.op("mean", other, [2, 3], keepdims=True), name="opening")
        out = g.conv(g.op("multiply", y, gate, name="gate"), 12, 1, name="last")
    elif reader == "mean":
        out = g.dense(g.op("mean", y, [2, 3], name="mean"), 8)
    elif reader == "pool":
        pooled = g.op("nn.max_pool2d", y, (2, 2), strides=(2, 2), name="most")
        out = g.conv(g.op("nn.avg_pool2d", pooled, (2, 2), name="pool"), 8, 1)
    elif reader == "table":
        out = g.conv(g.op("sigmoid", y, name="table"), 8, 1, name="last")
    elif reader == "joined":
        out = g.conv(g.op("concat", [y, other], axis=1, name="joined"), 8, 1, name="last")
    elif reader == "moved":
        out = g.conv(g.op("permute_dims", y, [0, 1, 3, 2], name="moved"), 8, 1, name="last")
    elif reader == "padded":
        out = g.conv(y, 8, 3, padding=1, name="padded")
    elif reader == "depthwise":
        out = g.conv(y, channels, 3, padding=1, groups=channels, name="depthwise")
    elif reader == "padded_max":
        out = g.conv(g.op("nn.max_pool2d", y, (3, 3), padding=(1, 1, 1, 1)), 8, 1, name="last")
    elif reader == "larger":
        out = g.conv(g.op("maximum", y, other, name="larger"), 8, 1, name="last")
    else:
        right = g.op("permute_dims", g.op("reshape", other, shape), [0, 2, 1])
        out = g.op("matmul", g.op("reshape", y, shape), right, name="product")
    rng = np.random.default_rng(seed)
    draw = [rng.standard_normal((1, channels, size, size)).astype("float32") for _ in range(4)]
    return g.module(out), draw[:3], draw[3]


@functools.cache
def quantized(reader: str, mode: str, seed: int = 0, per_channel: bool = False) -> tvm.IRModule:
    """The network of a reader, at any scales."""
    mod, samples, _ = network(reader, seed)
    form = {"zero_points": mode, "per_channel": per_channel}
    with OPERATORS.calibrating():
        return quantize(mod, calibration=samples, scales="mul", **form)


def tensors(qmod: tvm.IRModule) -> dict[str, dict[str, float]]:
    """The int8 tensors of the record."""
    found: dict[str, dict[str, float]] = json.loads(text_of(qmod.get_attr(QUANTIZATION)))["tensors"]
    return found


@pytest.mark.parametrize("reader", READERS)
def test_a_relu_has_a_zero_point_where_its_reader_takes_it(reader: str) -> None:
    takes = {"none": set(), "cheap": set(READERS) - ONLY_ALL - NEVER, "all": set(READERS) - NEVER}
    for mode, readers in takes.items():
        record = tensors(quantized(reader, mode))
        assert record["first"].get("zero", 0) == (-128 if reader in readers else 0), mode
        ratio = record["first"]["amax"] / record["first"]["scale"]
        assert round(ratio) == (255 if reader in readers else 127)


@pytest.mark.parametrize("reader", READERS)
def test_vta_equals_the_reference(reader: str) -> None:
    """Scales of channels also where a layer reads the zero point itself."""
    mode = "all" if reader in ONLY_ALL else "cheap"
    for seed in (0, 1) if reader in LAYERS else (0,):
        x, qmod = network(reader, seed)[2], quantized(reader, mode, seed, bool(seed))
        wanted = dialect_numpy.run(qmod, x)["result"]  # asserts that nothing leaves int32
        machine = MACHINES[(seed + READERS.index(reader)) % len(MACHINES)]
        found = run_module(qmod, machine, [x], planned=False).outputs[0]
        np.testing.assert_array_equal(found, wanted)


def test_results_are_nearer_to_float() -> None:
    mod, samples, _ = network("point", 0)
    errors = []
    for mode in ("none", "cheap"):
        qmod = quantize(mod, calibration=samples, scales="mul", per_channel=True, zero_points=mode)
        found = [dialect_numpy.run(each, x)["result"] for x in samples for each in (qmod, mod)]
        pairs = zip(found[::2], found[1::2], strict=True)
        errors.append(sum(float(np.square(got - exact).mean()) for got, exact in pairs))
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("reader", ["point", "dense", "sum"])
def test_without_a_multiplier_a_zero_point_is_in_the_bias_too(reader: str) -> None:
    capabilities = dataclasses.replace(MACHINES[0].capabilities, mul=False)
    machine = dataclasses.replace(MACHINES[0], capabilities=capabilities)
    mod, samples, x = network(reader, 1)
    qmod = quantize(mod, calibration=samples, scales="mul", config=machine)
    assert tensors(qmod)["first"]["zero"] == -128
    wanted = dialect_numpy.run(qmod, x)["result"]
    np.testing.assert_array_equal(run_module(qmod, machine, [x]).outputs[0], wanted)


def test_the_range_has_all_values_and_zero_its_own() -> None:
    for low, high in ((0.0, 3.0), (-0.375, 6.0), (-2.0, 0.0), (0.5, 1.0), (-1e-3, 255.0)):
        scale = spanning(low, high)
        assert -128 <= scale.zero <= 127
        ends = [scale.step * (q - scale.zero) for q in (-128, 127)]
        np.testing.assert_allclose(ends, [min(low, 0), max(high, 0)], atol=0.5001 * scale.step)


def test_a_concatenation_reaches_as_far_as_all_its_inputs() -> None:
    wide, one_sided, other = Scale(0.5), Scale(0.25, -128), Scale(0.25, 127)
    assert _covering([one_sided, wide]) == wide, "a quarter beyond its end is half a step"
    assert _covering([Scale(0.4), one_sided]) == spanning(-51.2, 63.75)
    assert _covering([Scale(0.1), Scale(0.2), Scale(0.15)]) == Scale(0.2)
    both = _covering([one_sided, other])
    assert both == spanning(-63.75, 63.75)


def test_operators_inside_a_function_take_what_it_takes() -> None:
    """A leaky relu takes no zero point at little cost; as a part of a table it does."""
    g = Graph((1, 16, 5, 5), seed=3)
    y = g.op("nn.relu", g.conv(g.params[0], 16, 1, name="first"), name="rectified")
    gate = g.op("sigmoid", g.op("nn.leakyrelu", y, alpha=0.5, name="leaky"), name="gate")
    mod = g.module(g.conv(gate, 8, 1, name="last"))
    x = np.random.default_rng(0).standard_normal((1, 16, 5, 5), dtype=np.float32)
    assert tensors(quantize(mod, calibration=[x], scales="mul"))["first"]["zero"] == -128


def test_the_record_tells_what_all_would_narrow() -> None:
    for reader in ("padded", "point", "product"):
        cheap, every = (symmetric(quantized(reader, mode)) for mode in ("cheap", "all"))
        assert not every
        assert ("rectified" in cheap) == (reader == "padded")
    mod, samples, _ = network("padded", 0)
    assert symmetric(quantize(mod, calibration=samples)) == {}


def test_powers_of_two_have_none() -> None:
    mod, samples, _ = network("point", 0)
    before = quantize(mod, calibration=samples)
    tvm.ir.assert_structural_equal(quantize(mod, calibration=samples, zero_points="none"), before)
    with pytest.raises(VTAError) as caught:
        quantize(mod, calibration=samples, zero_points="all")
    assert str(caught.value) == (
        'zero_points "all" with scales "pow2", which has none; use scales "mul" or leave '
        "zero_points out"
    )


def test_a_choice_that_is_not_known() -> None:
    mod, samples, _ = network("point", 0)
    with pytest.raises(VTAError) as caught:
        quantize(mod, calibration=samples, scales="mul", zero_points="some")
    assert str(caught.value) == (
        'zero_points "some" is not known; none, cheap, all are; choose one'
    )
