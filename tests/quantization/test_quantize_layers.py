"""Every kind of layer with weights as integers: LLVM, NumPy and the proofs agree."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dialect_numpy
import numpy as np
import pytest
import tvm
from small_models import Graph, Net, flat, ops
from tvm import relax

from vta_byoc.importers.load import load_model
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.records import text_of
from vta_byoc.ir.reference import build_reference
from vta_byoc.quantization.ops.anchors import transposed_taps
from vta_byoc.quantize import QUANTIZATION, default_calibration, quantize


def fast(mod: tvm.IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(build_reference(mod), tvm.cpu())
    return flat(machine["main"](*(tvm.runtime.tensor(array) for array in inputs)))


def check(mod: tvm.IRModule, tolerance: float = 0.05) -> tvm.IRModule:
    """Quantized: the LLVM reference equals NumPy bit for bit, near the float result, within
    every bound even if all inputs saturate. Returns the quantized module."""
    inputs = list(default_calibration(mod, 1)[0].values())
    qmod = quantize(mod, calibration=[inputs])
    relax.analysis.well_formed(qmod)
    exact, wanted = (flat(dialect_numpy.run(m, *inputs)["result"]) for m in (mod, qmod))
    for got, want, real in zip(fast(qmod, *inputs), wanted, exact, strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.abs(got - real).max() <= tolerance * max(np.abs(real).max(), 1)
    saturated = dialect_numpy.run(qmod, *(1e9 * array for array in inputs))
    for layer, proof in json.loads(text_of(qmod.get_attr(QUANTIZATION)))["accumulators"].items():
        inside = [f"{layer}__{part}" for part in ("acc", "wide", "product", "bias", "round")]
        values = [np.int64(saturated[name]) for name in inside if name in saturated]
        assert values and max(np.abs(value).max() for value in values) <= proof["bound"]
    return qmod


# ---------------------------------------------------------------- any layer of each kind
def spatial(rng: random.Random, rank: int) -> dict[str, list[int]]:
    """Kernel, strides, dilation and padding, one value (padding: two) per axis."""

    def axes(low: int, high: int, count: int = rank) -> list[int]:
        return [rng.randint(low, high) for _ in range(count)]

    return {
        "kernel": axes(1, 4),
        "strides": axes(1, 3),
        "dilation": axes(1, 2),
        "padding": axes(0, 3, 2 * rank),
    }


def channels(rng: random.Random) -> tuple[int, int, int]:
    """Groups, inputs per group, outputs per group; depthwise among them."""
    groups = rng.choice([1, 1, 2, 3, 8])
    return groups, 1 if groups == 8 else rng.randint(1, 5), rng.randint(1, 3)


def parameter(g: Graph, *shape: int) -> relax.Var:
    """One more input."""
    var = relax.Var(f"x{len(g.params)}", relax.TensorType(shape, "float32"))
    g.params.append(var)
    return var


def convolution(rng: random.Random, g: Graph, rank: int, name: str) -> Any:
    options = spatial(rng, rank)
    kernel = options.pop("kernel")
    groups, inputs, outputs = channels(rng)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, options["dilation"], strict=True)]
    x = parameter(
        g, rng.randint(1, 3), groups * inputs, *(extent + rng.randint(0, 9) for extent in extents)
    )
    scale = (inputs * np.prod(kernel)) ** -0.5
    weight = g.normal(groups * outputs, inputs, *kernel, scale=scale)
    return g.op(f"nn.conv{rank}d", x, weight, groups=groups, **options, name=name)


def transposed(rng: random.Random, g: Graph, name: str) -> Any:
    options = spatial(rng, 2)
    kernel = options.pop("kernel")
    options["output_padding"] = [rng.randint(0, stride - 1) for stride in options["strides"]]
    groups, inputs, outputs = channels(rng)
    sizes = []
    for axis, (k, d) in enumerate(zip(kernel, options["dilation"], strict=True)):
        extent = (k - 1) * d
        for side in (axis, axis + 2):
            options["padding"][side] = min(options["padding"][side], extent)
        # At least one row or column is left.
        sizes.append(rng.randint(1, 6) + 2 * extent)
    x = parameter(g, rng.randint(1, 2), groups * inputs, *sizes)
    weight = g.normal(groups * inputs, outputs, *kernel, scale=inputs**-0.5)
    return g.op("nn.conv2d_transpose", x, weight, groups=groups, **options, name=name)


def product(rng: random.Random, g: Graph, name: str) -> Any:
    rows = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    inputs, outputs = rng.randint(1, 40), rng.choice([1, 7, 16, 64, 130])
    weight = g.normal(inputs, outputs, scale=inputs**-0.5)
    return g.op("matmul", parameter(g, *rows, inputs), weight, name=name)


def finished(rng: random.Random, g: Graph, x: Any, axis: int) -> Any:
    """With or without bias, and every end that exporters write."""
    shape = [1] * x.ty.ndim
    shape[axis] = static_shape(x)[axis]
    if rng.random() < 0.6:
        x = g.op("add", x, g.normal(*shape), name=f"{x.name}_biased")
    ends: dict[str, Callable[[], Any]] = {
        "float": lambda: x,
        "relu": lambda: g.op("nn.relu", x),
        "relu6": lambda: g.op("minimum", g.op("nn.relu", x), g.const(6)),
        "hardtanh": lambda: g.op("clip", x, -1, 1),
        "int8": lambda: g.op("maximum", x, g.const(-1e9)),
    }
    return ends[rng.choice(sorted(ends))]()


KINDS: dict[str, Callable[[random.Random, Graph, str], Any]] = {
    "conv1d": lambda rng, g, name: convolution(rng, g, 1, name),
    "conv2d": lambda rng, g, name: convolution(rng, g, 2, name),
    "conv2d_transpose": transposed,
    "matmul": product,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_any_layer(kind, seed):
    """Six layers of one kind, each on its own input, in one module."""
    rng, g = random.Random(seed), Graph(seed=seed)
    layers = [KINDS[kind](rng, g, f"{kind}{i}") for i in range(6)]
    axis = -1 if kind == "matmul" else 1
    check(g.module(*(finished(rng, g, x, axis) for x in layers)), 0.15)


# ---------------------------------------------------------------- groups as they are written
def layer(kind: str, **options: Any) -> tvm.IRModule:
    shape = {"conv1d": (1, 4, 9), "conv2d": (1, 4, 9, 9), "conv2d_transpose": (1, 4, 5, 5)}[kind]
    g = Graph(shape)
    weight = g.normal(4, 4 // options.get("groups", 1), *([3] * (len(shape) - 2)))
    x = g.op(f"nn.{kind}", g.params[0], weight, name="layer__product", **options)
    x = g.op("add", x, g.normal(1, 4, *([1] * (len(shape) - 2))), name="layer")
    return g.module(g.op("nn.relu", x, name="relu"))


@pytest.mark.parametrize(
    "kind, options",
    [
        ("conv1d", {"padding": 1}),
        ("conv2d", {"groups": 4}),
        ("conv2d", {"groups": 2, "dilation": 2}),
        ("conv2d_transpose", {"strides": 2, "padding": 1, "output_padding": 1}),
        ("conv2d_transpose", {"groups": 4, "strides": 2}),
    ],
)
def test_a_group_is_anchor_bias_shift_clamp(kind, options):
    qmod = check(layer(kind, **options))
    assert ops(qmod) == [
        ("x0__int8", "quantize"),
        ("layer__acc", f"nn.{kind}"),
        ("layer__bias", "add"),
        ("layer__shift", "right_shift"),
        ("layer__max", "maximum"),
        ("layer__min", "minimum"),
        ("layer", "astype"),
        ("relu__float", "dequantize"),
    ]
    (block,) = qmod["main"].body.blocks
    bias = block.bindings[2].value.args[1]
    assert static_shape(bias) == (1, 4, *([1] * (block.bindings[1].var.ty.ndim - 2)))


def test_a_result_that_only_floats_read_leaves_from_int32():
    g = Graph((1, 4, 6, 6))
    x = g.conv(g.params[0], 4, name="head")
    flat_head = g.op("reshape", g.op("permute_dims", x, [0, 2, 3, 1]), (1, -1), name="flat")
    qmod = check(g.module(flat_head, g.op("abs", x)), 0.02)
    assert [name for name, op in ops(qmod) if op == "dequantize"] == ["head"]
    assert not [name for name, op in ops(qmod) if op == "right_shift"]


@pytest.mark.parametrize("reader", ["nn.max_pool2d", "nn.relu"])
def test_a_result_that_an_integer_operator_reads_is_int8(reader):
    g = Graph((1, 4, 6, 6))
    x = g.conv(g.params[0], 4, name="head")
    mod = g.module(g.op(reader, x, name="next"), x)
    names = [name for name, op in ops(check(mod, 0.02)) if op == "dequantize"]
    assert names == ["next__float", "head__float"]


# ---------------------------------------------------------------- bounds
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (2, 3), (4, 1)])
def test_the_bound_of_a_transposed_convolution_is_that_of_its_largest_phase(
    groups, dilation, strides
):
    rng = np.random.default_rng(3)
    weight = rng.integers(0, 9, (4, 3, 3, 4))
    attrs = SimpleNamespace(
        groups=groups, dilation=dilation, strides=strides, padding=[0] * 4, output_padding=(0, 0)
    )
    ones = np.ones((1, 4, 8, 8), "int64")
    result = dialect_numpy.OPS["nn.conv2d_transpose"](attrs, ones, weight)
    np.testing.assert_array_equal(transposed_taps(weight, attrs), result.max(axis=(0, 2, 3)))


# ---------------------------------------------------------------- as exporters write them
def run_onnx(net: Net, tmp_path: Any, *outputs: str) -> tvm.IRModule:
    return check(load_model(net.save(tmp_path / "net.onnx", *outputs)))


def layers(qmod: tvm.IRModule) -> list[str]:
    return [op for name, op in ops(qmod) if name.endswith("__acc")]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"strides": [2, 3], "pads": [0, 1, 2, 0]},
        {"dilations": [2, 2], "strides": [2, 1]},
    ],
)
def test_conv_transpose_of_onnx(tmp_path, group, attrs):
    net = Net(x=[1, 4, 5, 6])
    weight, bias = net.normal(4, 6 // group, 3, 3), net.normal(6)
    x = net.node("ConvTranspose", "x", weight, bias, name="up", group=group, **attrs)
    assert layers(run_onnx(net, tmp_path, x)) == ["nn.conv2d_transpose"]


@pytest.mark.parametrize("bias", [(5,), (1, 5), (1,), ()])
@pytest.mark.parametrize("attrs", [{}, {"transB": 1, "alpha": 0.5}, {"beta": 2.0}])
def test_gemm_of_onnx(tmp_path, bias, attrs):
    net = Net(x=[3, 8])
    weight = net.normal(*((5, 8) if attrs.get("transB") else (8, 5)))
    x = net.node("Gemm", "x", weight, net.normal(*bias), name="fc", **attrs)
    qmod = run_onnx(net, tmp_path, x)
    assert layers(qmod) == ["matmul"]
    assert len(ops(qmod)) == 4


def test_matmul_with_bias_first(tmp_path):
    net = Net(x=[2, 6, 8])
    product = net.node("MatMul", "x", net.normal(8, 5), name="product")
    qmod = run_onnx(net, tmp_path, net.node("Add", net.normal(5), product, name="sum"))
    assert [op for _, op in ops(qmod)] == ["quantize", "matmul", "add", "dequantize"]


def test_conv1d_of_onnx(tmp_path):
    net = Net(x=[1, 4, 20])
    x = net.node("Conv", "x", net.normal(6, 4, 3), net.normal(6), name="c", pads=[1, 1])
    assert layers(run_onnx(net, tmp_path, net.node("Relu", x))) == ["nn.conv1d"]
