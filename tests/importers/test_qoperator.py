"""Integer operators of ONNX (QOperator): float operators between dequantize and quantize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantized_runs import assert_close, assert_qdq, differences, loaded, operators
from small_models import call

from models.quantized_ops import OP_CASES, SCHEMES, OpCase, Scheme, qoperator, session
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.qoperator import EXPANSIONS
from vta_byoc.ir.bindings import source_name, straight_bindings

CASES = {case.name: case for case in OP_CASES if case.integer}
EVERY_SCHEME = ("conv 3x3", "gemm", "matmul")


def scheme_cases() -> list[Any]:
    chosen = {(name, SCHEMES[(i + 1) % len(SCHEMES)]) for i, name in enumerate(CASES)}
    chosen |= {(name, scheme) for name in EVERY_SCHEME for scheme in SCHEMES}
    ordered = sorted(chosen, key=lambda pair: (pair[0], pair[1].name))
    return [pytest.param(CASES[n], s, id=f"{n}, {s.name}") for n, s in ordered]


@pytest.mark.parametrize("case, scheme", scheme_cases())
def test_operator_equals_onnxruntime(case: OpCase, scheme: Scheme, tmp_path: Path) -> None:
    built = qoperator(case, scheme)
    mod = loaded(built.model, tmp_path)
    assert_qdq(mod)
    expected = session(built.model).run(None, built.feed)
    if case.op == "Softmax":  # ONNX Runtime approximates it with a table of integers
        largest, equal = differences(mod, built.feed, expected)
        assert largest <= 1 and equal >= 0.95
    else:
        assert_close(mod, built.feed, expected)


def test_every_integer_operator_is_tested() -> None:
    by_hand = {"ConvInteger", "MatMulInteger"}
    assert {case.integer for case in OP_CASES} >= set(EXPANSIONS) - by_hand


def test_all_parts_carry_the_name_of_the_node(tmp_path: Path) -> None:
    mod = loaded(qoperator(CASES["conv 3x3"], SCHEMES[1]).model, tmp_path)
    bindings = straight_bindings(mod["main"])
    assert {source_name(b.var) for b in bindings} == {"y_node"}
    assert bindings[-1].var.name == "y_node"


# ---------------------------------------------------------------- hand-made models
class Integers:
    """An ONNX graph on one int8 or float input "x"."""

    def __init__(self, shape: tuple[int, ...], dtype: str = "uint8") -> None:
        self.dtype = np.dtype(dtype)
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.inputs = [helper.make_tensor_value_info("x", kind, shape)]
        self.rng = np.random.default_rng(0)
        if dtype == "float32":
            self.feed = {"x": (2 * self.rng.standard_normal(shape)).astype(dtype)}
        else:
            info = np.iinfo(dtype)
            self.feed = {"x": self.rng.integers(info.min, info.max + 1, shape).astype(dtype)}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, value: Any, dtype: str = "") -> str:
        name = f"const{len(self.weights)}"
        array = np.asarray(value, dtype or None)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, domain: str = "", **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        made = helper.make_node(op, inputs, [name], name=name, domain=domain, **attrs)
        self.nodes.append(made)
        return name

    def model(self, output: str, shape: tuple[int, ...], dtype: str = "float32") -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        results = [helper.make_tensor_value_info(output, kind, shape)]
        graph = helper.make_graph(self.nodes, "net", self.inputs, results, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def compare(self, model: onnx.ModelProto, folder: Path) -> Any:
        """The module, after comparing floats."""
        mod = loaded(model, folder)
        assert_qdq(mod)
        for got, want in zip(
            call(mod, *self.feed.values()), session(model).run(None, self.feed), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-4)
        return mod


@pytest.mark.parametrize("factor", ["scalar", "channels"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_conv_integer(dtype: str, factor: str, tmp_path: Path) -> None:
    net = Integers((1, 4, 6, 6), dtype)
    w = net.const(net.rng.integers(-60, 60, (5, 4, 3, 3)), "int8")
    scale = 0.01 * (np.ones(()) if factor == "scalar" else np.arange(1, 6).reshape(1, 5, 1, 1))
    acc = net.node("ConvInteger", "x", w, net.const(3, dtype), pads=[1] * 4, strides=[2, 2])
    wide = net.node("Cast", acc, to=TensorProto.FLOAT)
    y = net.node("Mul", wide, net.const(scale, "float32"))
    bias = net.const(net.rng.standard_normal((1, 5, 1, 1)), "float32")
    mod = net.compare(net.model(net.node("Add", y, bias), (1, 5, 3, 3)), tmp_path)
    assert operators(mod) == ["dequantize", "dequantize", "nn.conv2d", "add"]


@pytest.mark.parametrize("factor", ["scalar", "channels"])
def test_matmul_integer(factor: str, tmp_path: Path) -> None:
    """The scale that the data were quantized with goes to the data, the rest to the weights."""
    net = Integers((3, 8), "float32")
    q = net.node("QuantizeLinear", "x", net.const(0.05, "float32"), net.const(7, "uint8"))
    w = net.const(net.rng.integers(-60, 60, (8, 5)), "int8")
    acc = net.node("MatMulInteger", q, w, net.const(7, "uint8"), net.const(0, "int8"))
    wide = net.node("Cast", acc, to=TensorProto.FLOAT)
    scale = net.const(0.01 if factor == "scalar" else 0.01 * np.arange(1, 6), "float32")
    both = net.node("Mul", net.const(0.05, "float32"), scale)
    mod = net.compare(net.model(net.node("Mul", both, wide), (3, 5)), tmp_path)
    scales = [b.value.args[1].value.numpy() for b in straight_bindings(mod["main"])[:3]]
    assert np.float32(0.05) in [scale for scale in scales if scale.size == 1]
    assert operators(mod) == ["quantize", "dequantize", "dequantize", "matmul"]


def test_qgemm_with_alpha_and_float_result(tmp_path: Path) -> None:
    net = Integers((3, 8))
    w = net.const(net.rng.integers(-60, 60, (5, 8)), "int8")
    bias = net.const(net.rng.integers(-999, 999, 5), "int32")
    y = net.node(
        "QGemm",
        *("x", net.const(0.05, "float32"), net.const(7, "uint8")),
        *(w, net.const(0.02, "float32"), net.const(0, "int8"), bias),
        domain="com.microsoft",
        transB=1,
        alpha=0.5,
    )
    mod = net.compare(net.model(y, (3, 5)), tmp_path)
    assert operators(mod) == ["dequantize", "dequantize", "dequantize", "matmul", "add"]


def test_integers_that_are_moved_between_operators(tmp_path: Path) -> None:
    """Every operator stands between a dequantize and a quantize, also one that moves integers."""
    net = Integers((1, 2, 4, 4), "float32")
    scale, zero = net.const(0.03, "float32"), net.const(9, "uint8")
    q = net.node("QuantizeLinear", "x", scale, zero)
    q = net.node("MaxPool", q, kernel_shape=[2, 2], strides=[2, 2])
    q = net.node("Transpose", q, perm=[0, 2, 3, 1])
    q = net.node("Pad", q, net.const([0, 0, 0, 0, 0, 1, 0, 0]), net.const(9, "uint8"))
    model = net.model(net.node("DequantizeLinear", q, scale, zero), (1, 2, 3, 2))
    mod = net.compare(model, tmp_path)
    assert [op for op in operators(mod) if not op.endswith("quantize")] == [
        *("nn.max_pool2d", "permute_dims", "nn.pad"),
    ]


def test_moved_input(tmp_path: Path) -> None:
    """An integer input has no scale before its first dequantize; that comes first."""
    net = Integers((1, 2, 4, 4), "int8")
    moved = net.node("Reshape", "x", net.const([1, -1]))
    y = net.node("DequantizeLinear", moved, net.const(0.1, "float32"), net.const(-3, "int8"))
    mod = net.compare(net.model(y, (1, 32)), tmp_path)
    assert operators(mod) == ["dequantize", "reshape"]


# ---------------------------------------------------------------- refusals
def refused(model: onnx.ModelProto, folder: Path, text: str) -> None:
    with pytest.raises(VTAError) as caught:
        loaded(model, folder)
    assert str(caught.value) == text


def test_raw_int32(tmp_path: Path) -> None:
    net = Integers((3, 8))
    y = net.node("MatMulInteger", "x", net.const(np.ones((8, 2)), "int8"))
    refused(
        net.model(y, (3, 2), "int32"),
        tmp_path,
        'node "t0" (MatMulInteger) makes int32 that nothing reads; only a Cast to float32 and a '
        "Mul by a constant scale may follow; export the model as QDQ",
    )


def test_scales_that_are_computed(tmp_path: Path) -> None:
    net = Integers((3, 8))
    acc = net.node("MatMulInteger", "x", net.const(np.ones((8, 2)), "int8"))
    wide = net.node("Cast", acc, to=TensorProto.FLOAT)
    scale = net.node("ReduceMax", net.node("Cast", "x", to=TensorProto.FLOAT), keepdims=0)
    refused(
        net.model(net.node("Mul", wide, scale), (3, 2)),
        tmp_path,
        'node "t0" (MatMulInteger) quantizes "x" with a scale that is computed while the model '
        "runs (dynamic quantization); scales must be constants; quantize the model statically, "
        "with calibration data",
    )


def test_a_factor_per_row(tmp_path: Path) -> None:
    net = Integers((3, 8))
    acc = net.node("MatMulInteger", "x", net.const(np.ones((8, 2)), "int8"))
    wide = net.node("Cast", acc, to=TensorProto.FLOAT)
    y = net.node("Mul", wide, net.const([[1.0], [2.0], [3.0]], "float32"))
    refused(
        net.model(y, (3, 2)),
        tmp_path,
        'node "t0" (MatMulInteger) is scaled by a tensor of the shape (3, 1); it may be one '
        "number or one per channel; quantize the weights per tensor or per channel",
    )


def test_channels_last(tmp_path: Path) -> None:
    net = Integers((1, 4, 4, 8))
    scale, zero = net.const(0.1, "float32"), net.const(3, "uint8")
    y = net.node(
        "QLinearGlobalAveragePool",
        *("x", scale, zero, scale, zero),
        domain="com.microsoft",
        channels_last=1,
    )
    refused(
        net.model(y, (1, 1, 1, 8), "uint8"),
        tmp_path,
        'node "t0" (QLinearGlobalAveragePool) has channels_last 1; only channels first (NCHW) is '
        "imported; export the model without ONNX Runtime's NHWC transform",
    )


def test_scale_of_an_integer_operator(tmp_path: Path) -> None:
    net = Integers((1, 4))
    scale, zero = net.const(0.0, "float32"), net.const(3, "uint8")
    y = net.node(
        "QLinearLeakyRelu", "x", scale, zero, scale, zero, domain="com.microsoft", alpha=0.1
    )
    refused(
        net.model(y, (1, 4), "uint8"),
        tmp_path,
        'tensor "x" has the quantization scale 0.0; scales must be positive and finite; '
        "quantize the model again with data that reaches this tensor",
    )
