"""Arithmetic, pooling and data movement as integers: exact forms, and LLVM against NumPy."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import dialect_numpy
import numpy as np
import pytest
import tvm
from layer_runs import run_module
from small_models import Graph, Net, flat, ops
from test_quantize_layers import check, fast
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.quantization_record import functions
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.linear import Operand, linear
from vta_byoc.quantization.ops.pooling import averages
from vta_byoc.quantization.policy import PowersOfTwo
from vta_byoc.quantization.scales import Scale, slope_factor
from vta_byoc.quantize import QUANTIZATION, default_calibration, quantize

SIM = VTAConfig.preset("sim")


def parts(qmod: tvm.IRModule, name: str) -> list[tuple[str, str]]:
    """(part, operator) of the group `name`; "" is the group's result."""
    return [
        (var.removeprefix(name).removeprefix("__"), op)
        for var, op in ops(qmod)
        if var == name or var.startswith(f"{name}__")
    ]


def record(qmod: tvm.IRModule) -> dict[str, Any]:
    return json.loads(text_of(qmod.get_attr(QUANTIZATION)))


def integer_input(g: Graph, channels: int = 4, name: str = "conv") -> relax.Var:
    """An int8 tensor of (1, channels, 6, 6): the output of a convolution."""
    return g.conv(g.params[0], channels, name=name)


# ---------------------------------------------------------------- two tensors
@pytest.fixture(scope="module")
def joined() -> tvm.IRModule:
    """Every operator on a tensor and a finer one, of equal shape and broadcast."""
    g = Graph((1, 4, 6, 6), (1, 4, 6, 6), (1, 4, 1, 1), (1, 1, 6, 6))
    left = integer_input(g)
    fine = g.conv(g.op("multiply", g.params[1], g.const(0.03)), 4, name="fine")
    outputs = []
    for op in BINARY:
        join = g.op(op, left, fine, name=f"join_{op}")
        outputs.append(g.op("nn.relu", join, name=f"relu_{op}"))
        for i, small in enumerate(g.params[2:]):
            outputs.append(g.op(op, left, small, name=f"wide{i}_{op}"))
    return check(g.module(*outputs))


BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


@pytest.mark.parametrize("op", BINARY)
def test_an_operator_of_two_tensors(joined, op):
    group = parts(joined, f"join_{op}")
    assert group[0] == ("lhs", "astype") and group[-1] == ("", "astype")
    assert ("rhs", "astype") in group and ("acc", op) in group
    assert (("lhs__shift", "left_shift") in group) == (op != "multiply")
    assert record(joined)["sources"][f"join_{op}"] == [f"join_{op}", f"relu_{op}"]


@pytest.mark.parametrize("op", BINARY)
def test_operands_broadcast(joined, op):
    for i in range(2):
        assert ("acc", op) in parts(joined, f"wide{i}_{op}")


def test_a_square():
    g = Graph((1, 4, 6, 6))
    x = integer_input(g)
    check(g.module(g.op("multiply", x, x, name="square")))


def test_a_product_that_only_floats_read_stays_float():
    g = Graph((1, 4, 6, 6))
    x = integer_input(g)
    square = g.op("multiply", x, x, name="square")
    mod = g.module(g.op("abs", g.op("expand_dims", square, 1)))
    assert parts(check(mod), "square") == [("", "multiply")]


# ---------------------------------------------------------------- constants
def after_pool(*branches: Callable[[Graph, Any], Any]) -> tvm.IRModule:
    """Operators on an int8 tensor that no layer makes, so that nothing absorbs them."""
    g = Graph((1, 4, 6, 6))
    pool = g.op("nn.max_pool2d", integer_input(g), [2, 2], name="pool")
    return g.module(*(branch(g, pool) for branch in branches))


def test_a_scale_and_an_offset_per_channel():
    def norm(g: Graph, x: Any) -> Any:
        x = g.op("multiply", x, g.normal(1, 4, 1, 1), name="norm")
        return g.op("nn.relu", g.op("add", x, g.normal(1, 4, 1, 1), name="shift"), name="relu")

    qmod = check(after_pool(norm))
    assert parts(qmod, "norm") == [
        ("wide", "astype"),
        ("product", "multiply"),
        ("bias", "add"),
        ("shift", "right_shift"),
        ("max", "maximum"),
        ("min", "minimum"),
        ("", "astype"),
    ]
    constants = {
        b.var.name: b.value.args[1].value.numpy()
        for b in qmod["main"].body.blocks[0].bindings
        if b.var.name in ("norm__product", "norm__bias", "norm__max")
    }
    assert constants["norm__product"].shape == constants["norm__bias"].shape == (1, 4, 1, 1)
    assert 2**11 < np.abs(constants["norm__product"]).max() < 2**15
    assert constants["norm__max"] == 0
    assert record(qmod)["sources"]["norm"] == ["norm", "shift", "relu"]


CONSTANTS: list[tuple[str, Any]] = [
    ("add", 0.75),
    ("subtract", 0.3),
    ("multiply", 0.25),
    ("multiply", -1.7),
    ("divide", 6.0),
    ("add", [[[0.5]], [[-3]], [[1]], [[0]]]),
    ("multiply", [[[[1.0, 2.0, 0.5, 0.1, 7]]]]),
    ("negative", None),
]


def test_constants():
    """Of any shape, on either side, without waste: every result has its own group."""

    def branch(i: int, op: str, *constants: Any) -> Callable[[Graph, Any], Any]:
        return lambda g, x: g.op(op, x, *(g.const(c) for c in constants), name=f"y{i}")

    branches = [branch(i, op, *([] if c is None else [c])) for i, (op, c) in enumerate(CONSTANTS)]
    branches.append(lambda g, x: g.op("subtract", g.const(1.0), x, name="reversed"))
    qmod = check(after_pool(*branches), 0.05)
    groups = [*(f"y{i}" for i in range(len(CONSTANTS))), "reversed"]
    assert all(parts(qmod, group)[0] == ("wide", "astype") for group in groups)


def test_scaling_by_powers_of_two_needs_no_multiplier():
    def doubled(g: Graph, x: Any) -> Any:
        x = g.op("add", g.op("multiply", x, g.const(2), name="y"), g.const(-0.5))
        return g.op("divide", x, g.const(4))

    assert "multiply" not in [op for _, op in parts(check(after_pool(doubled), 0.05), "y")]


def test_a_chain_ends_where_another_operator_reads_it():
    def chain(g: Graph, x: Any) -> Any:
        scaled = g.op("multiply", x, g.const(0.7), name="scaled")
        moved = g.op("add", scaled, g.const(0.1), name="moved")
        return g.op("concat", [scaled, moved], axis=1)

    listed = [name for name, _ in ops(check(after_pool(chain)))]
    assert "scaled__product" in listed and "moved__bias" in listed


@pytest.mark.parametrize("seed", range(200))
def test_scale_and_offset_are_precise_and_bounded(seed):
    rng = random.Random(seed)
    exponent = rng.randint(-12, 6)
    scale = np.array([rng.uniform(-3, 3) for _ in range(rng.choice([1, 4]))])
    scale = rng.choice([scale, np.array([2.0 ** rng.randint(-4, 4)])])
    offset = np.array([rng.uniform(-2, 2) * 2.0**exponent * rng.choice([0, 1, 100])])
    x = np.arange(-128, 128)[:, None]
    exact = scale * x * 2.0**exponent + offset
    amax = float(np.abs(exact).max())
    step = PowersOfTwo().scale(amax, "x").step
    term = Operand(scale * 2.0**exponent / step)
    found = linear([term], offset / step, precision=PowersOfTwo().constants)
    acc = x * found.factors[0] + found.offset
    assert np.abs(acc).max() <= found.bound < 2**31
    assert np.abs(found.factors[0]).max() < 2**15 and 0 <= found.shift < 32
    error = np.abs((acc - found.rounding) * step / 2.0**found.shift - exact).max()
    assert error <= 0.07 * step


# ---------------------------------------------------------------- leaky relu
@pytest.mark.parametrize("slope, m, n", [(0.125, 1, 3), (0.75, 3, 2), (0.1, 205, 11), (0.0, 0, 0)])
def test_the_slope_as_a_fraction(slope, m, n):
    assert slope_factor(slope) == (m, n)
    assert abs(Fraction(m, 2**n) - Fraction(slope)) < Fraction(1, 2**13)


SLOPES = (0.125, 0.5, 0.1, 0.01, 0.2, -0.25, 1.0)


def test_leaky_relu():
    def leaky(slope: float) -> Callable[[Graph, Any], Any]:
        name = f"leaky{SLOPES.index(slope)}"
        return lambda g, x: g.op("nn.leakyrelu", x, slope, name=name)

    def steep(g: Graph, x: Any) -> Any:
        return g.op("nn.leakyrelu", x, 1.5, name="steep")

    qmod = check(after_pool(*(leaky(slope) for slope in SLOPES), steep), 0.05)
    for i, slope in enumerate(SLOPES):
        group = parts(qmod, f"leaky{i}")
        assert group[0] == ("wide", "astype")
        assert ("acc", "maximum") in group and ("", "astype") in group
        assert (("rhs__product", "multiply") in group) == (slope not in (0.125, 0.5, 1.0))
    assert ("acc", "minimum") in parts(qmod, "steep")


PRELUS = {
    "one": ([0.25] * 4, "maximum"),
    "each": (np.linspace(-0.3, 0.9, 4), "maximum"),
    "powers of two": ([0.5, 0.25, 1.0, 0.125], "maximum"),
    "steep": ([1.0, 1.5, 2.0, 3.0], "minimum"),
    "both sides of one": ([0.5, 1.0, 1.5, 2.0], "maximum"),
    "above one and below zero": ([-0.5, -1.5, 1.2, 3.0], "maximum"),
}


@pytest.mark.parametrize("scales", ["pow2", "mul"])
@pytest.mark.parametrize("kind", PRELUS)
def test_prelu(kind: str, scales: str, tmp_path: Path) -> None:
    """One slope or one for each channel: the larger or the smaller of x and slope * x, or both."""
    slopes, op = PRELUS[kind]
    net = Net(x=[1, 3, 6, 6])
    each = net.const(np.reshape(slopes, (4, 1, 1)))
    x = net.node("PRelu", net.conv("x", 3, 4), each, name="prelu")
    mod = load_model(net.save(tmp_path / "net.onnx", net.conv(x, 4, 4)))
    draw = np.random.default_rng(5)
    image = draw.normal(size=(1, 3, 6, 6)).astype("float32")
    qmod = quantize(mod, calibration=[[image]], scales=scales, config=SIM)
    assert op in [name for part, name in parts(qmod, "prelu") if part.endswith("acc")]
    want, got = (dialect_numpy.run(each, image)["result"] for each in (mod, qmod))
    assert np.abs(got - want).max() <= 0.08 * np.abs(want).max()
    np.testing.assert_array_equal(run_module(qmod, SIM, [image], planned=False).outputs[0], got)


@pytest.mark.parametrize("clamp", [False, True])
def test_slopes_on_both_sides_of_one(clamp: bool, tmp_path: Path) -> None:
    """The larger of x and slope * x, then the smaller: no channel of it is computed in float."""
    net = Net(x=[1, 3, 6, 6])
    slopes = net.const(np.reshape([-2.0, 0.5, 1.5, 3.0], (4, 1, 1)))
    x = net.node("PRelu", net.conv("x", 3, 4), slopes, name="prelu")
    x = net.node("Clip", x, net.const(-1.0), net.const(1.0)) if clamp else x
    qmod = check(load_model(net.save(tmp_path / "net.onnx", net.conv(x, 4, 4))))
    joined = [name for part, name in parts(qmod, "prelu") if part.endswith("acc")]
    assert joined == ["maximum", "minimum"] and "float_regions" not in record(qmod)


# ---------------------------------------------------------------- pooling
POOLS: list[dict[str, Any]] = [
    {"pool_size": 2, "strides": 2},
    {"pool_size": 3, "strides": 2, "padding": 1, "count_include_pad": True},
    {"pool_size": 3, "strides": 1, "padding": 1, "count_include_pad": False},
    {"pool_size": 3, "strides": 2, "padding": (0, 1, 2, 0), "count_include_pad": False},
    {"pool_size": 3, "strides": 2, "ceil_mode": True},
    {"pool_size": (2, 3), "strides": (3, 1), "padding": (1, 1), "ceil_mode": True},
    {"pool_size": 2, "strides": 1, "dilation": 2},
]


@pytest.fixture(scope="module")
def pooled() -> tvm.IRModule:
    g = Graph((2, 3, 8, 7))
    x = g.op("nn.relu", g.params[0], name="relu")
    outputs = [
        g.op("nn.avg_pool2d", x, **options, name=f"pool{i}") for i, options in enumerate(POOLS)
    ]
    return check(g.module(*outputs), 0.05)


@pytest.mark.parametrize("index", range(len(POOLS)))
def test_average_pooling(pooled, index):
    options, name = POOLS[index], f"pool{index}"
    group = parts(pooled, name)
    assert group[0] == ("acc", "nn.conv2d") and ("", "astype") in group
    bindings = {b.var.name: b for b in pooled["main"].body.blocks[0].bindings}
    if options["pool_size"] == 2:
        assert [op for _, op in group][:3] == ["nn.conv2d", "add", "right_shift"]
        return
    inside = not options.get("padding") and not options.get("ceil_mode")
    fixed = inside or options.get("count_include_pad")
    multiplier = bindings[f"{name}__product"].value.args[1]
    wanted = () if fixed else (1, 1, *static_shape(bindings[name].var)[2:])
    assert static_shape(multiplier) == wanted


def test_means_of_different_counts_share_a_shift():
    counts = np.array([4, 6, 9])
    found = averages(PowersOfTwo(), 1 / counts, Scale.power(0), counts)
    assert found is not None
    for count, factor in zip(counts.tolist(), found.factors[0].tolist(), strict=True):
        assert abs(Fraction(factor * count, 2**found.shift) - 1) < Fraction(1, 2**10)
        assert 128 * count * factor + found.rounding <= found.bound < 2**31


@pytest.mark.parametrize("scales", ["pow2", "mul"])
@pytest.mark.parametrize("kind", ["mean", "nn.avg_pool2d", "nn.leakyrelu"])
def test_a_clamp_belongs_to_the_operator_before_it(kind, scales):
    options = {"axis": [2, 3], "keepdims": True} if kind == "mean" else {}
    g = Graph((1, 4, 6, 6))
    x = g.op(kind, g.op("nn.max_pool2d", integer_input(g), [2, 2]), name="y", **options)
    mod = g.module(g.op("clip", x, 0, 0.25, name="clip"))
    sample = list(default_calibration(mod, 1)[0].values())
    qmod = quantize(mod, calibration=[sample], scales=scales)
    assert parts(qmod, "y")[-3:] == [("max", "maximum"), ("min", "minimum"), ("", "astype")]
    assert record(qmod)["sources"]["y"] == ["y", "clip"]
    assert record(qmod)["tensors"]["y"]["amax"] <= 0.25


# ---------------------------------------------------------------- data movement
@pytest.mark.parametrize("factors", [(2, 2), (1, 3), (4, 1)])
def test_nearest_upsampling_repeats_int8(tmp_path, factors):
    net = Net(x=[1, 3, 5, 6])
    scales = net.const([1, 1, *factors])
    options = {"mode": "nearest", "nearest_mode": "floor"}
    up = net.node("Resize", net.conv("x", 3, 4), "", scales, name="up",
                  coordinate_transformation_mode="asymmetric", **options)  # fmt: skip
    qmod = check(load_model(net.save(tmp_path / "net.onnx", net.conv(up, 4, 4))))
    repeats = [op for _, op in parts(qmod, "up")]
    assert repeats == ["repeat"] * sum(factor > 1 for factor in factors)


def test_channel_shuffle_stays_int8():
    g = Graph((1, 4, 6, 6))
    x = g.op("reshape", integer_input(g), (1, 2, 2, 6, 6), name="grouped")
    x = g.op("permute_dims", x, [0, 2, 1, 3, 4], name="shuffled")
    mod = g.module(g.conv(g.op("reshape", x, (1, 4, 6, 6), name="flat"), 4, name="last"))
    qmod = check(mod)
    assert [op for name, op in ops(qmod) if name in ("grouped", "shuffled", "flat")] == [
        "reshape",
        "permute_dims",
        "reshape",
    ]
    assert [op for _, op in ops(qmod)].count("quantize") == 1


def test_padding_slices_and_splits_stay_int8():
    g = Graph((1, 4, 6, 6))
    x = g.op("nn.pad", integer_input(g), [0, 0, 0, 0, 1, 0, 2, 1], name="pad")
    x = g.op("strided_slice", x, [2, 3], [1, 0], [6, 8], [1, 2], name="slice")
    halves = g.op("split", x, 2, axis=1, name="halves")
    first, second = (g.emit(relax.TupleGetItem(halves, i), f"half{i}") for i in range(2))
    mod = g.module(
        g.op("concat", [second, first], axis=1, name="swapped"), g.conv(first, 4, name="last")
    )
    assert {op for _, op in ops(check(mod))} >= {"nn.pad", "strided_slice", "split", "concat"}


# ---------------------------------------------------------------- whole graphs
def test_a_model_without_integer_operators_stays_float():
    g = Graph((1, 4))
    qmod = quantize(g.module(g.op("tanh", g.params[0])), calibration=[[np.ones((1, 4), "float32")]])
    assert [op for _, op in ops(qmod)] == ["tanh"]
    record = json.loads(text_of(qmod.get_attr(QUANTIZATION)))
    assert record == {"tensors": {}, "accumulators": {}, "sources": {}}


def test_an_output_that_is_an_input_and_an_output_twice():
    g = Graph((1, 4, 6, 6))
    x = integer_input(g)
    sample = [np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype("float32")]
    qmod = quantize(g.module(g.params[0], x, x), calibration=[sample])
    same, first, second = fast(qmod, *sample)
    np.testing.assert_array_equal(same, sample[0])
    np.testing.assert_array_equal(first, second)


def test_a_clamp_far_beyond_its_data_stays_float():
    g = Graph((1, 4, 6, 6))
    x = g.op("nn.conv2d", g.params[0], g.normal(4, 4, 3, 3, scale=1e-9), padding=1, name="tiny")
    mod = g.module(g.op("maximum", x, g.const(1e6), name="floor"))
    assert ("tiny", "nn.conv2d") in ops(check(mod, 1e-3))


def test_hard_swish_as_exporters_take_it_apart():
    def hard_swish(g: Graph, x: Any) -> Any:
        gate = g.op("clip", g.op("add", x, g.const(3), name="gate"), 0, 6)
        gate = g.op("divide", gate, g.const(6), name="sixth")
        return g.op("multiply", x, gate, name="swish")

    mod = after_pool(hard_swish)
    qmod = check(mod, 0.05)
    assert not [name for name, op in ops(qmod) if op in ("divide", "clip")]
    assert [op for _, op in ops(qmod)].count("dequantize") == 1


def test_squeeze_and_excite():
    g = Graph((1, 8, 6, 6))
    x = g.op("nn.relu", integer_input(g, 8), name="relu")
    gate = g.op("mean", x, axis=[2, 3], keepdims=True, name="pool")
    gate = g.op("sigmoid", g.conv(gate, 8, 1, name="excite"), name="sigmoid")
    mod = g.module(g.op("multiply", x, gate, name="scaled"))
    inputs = [np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype("float32")]
    qmod = quantize(mod, calibration=[inputs])
    assert ("acc", "multiply") in parts(qmod, "scaled")
    assert ("sigmoid__int8", "quantize") not in ops(qmod)
    assert functions(qmod)["sigmoid"]["error"] <= 1
    exact = flat(fast(mod, *inputs))[0]
    np.testing.assert_allclose(fast(qmod, *inputs)[0], exact, atol=0.05 * np.abs(exact).max())
