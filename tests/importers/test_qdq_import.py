"""ONNX models with QuantizeLinear and DequantizeLinear: what they become, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from quantized_runs import assert_close, assert_qdq, loaded, operators
from tvm import relax

from models.quantized_ops import OP_CASES, SCHEMES, OpCase, Scheme, qdq, session
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings

CASES = {case.name: case for case in OP_CASES}
APPROXIMATE = ("Softmax",)
"""ONNX Runtime replaces the float operator by one on integers that approximates it."""
EVERY_SCHEME = ("conv 3x3", "conv depthwise", "transposed conv", "gemm transposed", "add")


def scheme_cases() -> list[Any]:
    """A scheme for each operator in turn, every scheme for those with weights and sums."""
    chosen = {(case.name, SCHEMES[i % len(SCHEMES)]) for i, case in enumerate(OP_CASES)}
    chosen |= {(name, scheme) for name in EVERY_SCHEME for scheme in SCHEMES}
    ordered = sorted(chosen, key=lambda pair: (pair[0], pair[1].name))
    return [pytest.param(CASES[n], s, id=f"{n}, {s.name}") for n, s in ordered]


@pytest.mark.parametrize("case, scheme", scheme_cases())
def test_operator_equals_onnxruntime(case: OpCase, scheme: Scheme, tmp_path: Path) -> None:
    built = qdq(case, scheme)
    mod = loaded(built.model, tmp_path)
    assert_qdq(mod)
    expected = session(built.model, literal=case.op in APPROXIMATE).run(None, built.feed)
    assert_close(mod, built.feed, expected)


# ---------------------------------------------------------------- forms
def weight_of(mod: tvm.IRModule, layer: str) -> Any:
    """The dequantize whose result is the second operand of `layer`."""
    made = {b.var: b.value for b in straight_bindings(mod["main"])}
    (found,) = [made[c.args[1]] for c in made.values() if op_name(c) == f"relax.{layer}"]
    assert is_constant(found.args[0])
    return found


def test_weights_stay_integers_and_the_bias_has_the_shape_it_is_added_in(tmp_path: Path) -> None:
    built = qdq(CASES["conv 3x3"], SCHEMES[2])
    mod = loaded(built.model, tmp_path)
    assert sorted(operators(mod)) == sorted(
        ["dequantize", "dequantize", "dequantize", "nn.conv2d", "add", "quantize"]
    )
    weight, bias = weight_of(mod, "nn.conv2d"), weight_of(mod, "add")
    assert (str(weight.args[0].ty.dtype), weight.attrs.axis) == ("int8", 0)
    assert weight.args[1].value.shape == (24,)
    assert (str(bias.args[0].ty.dtype), bias.attrs.axis) == ("int32", 1)
    assert tuple(bias.args[0].value.shape) == (1, 24, 1, 1)


def test_the_transpose_of_a_gemm_is_in_the_integers(tmp_path: Path) -> None:
    built = qdq(CASES["gemm transposed"], SCHEMES[1])
    mod = loaded(built.model, tmp_path)
    assert "permute_dims" not in operators(mod)
    weight = weight_of(mod, "matmul")
    constants = {t.name: numpy_helper.to_array(t) for t in built.model.graph.initializer}
    np.testing.assert_array_equal(weight.args[0].value.numpy(), constants["w"].T)
    np.testing.assert_array_equal(weight.args[1].value.numpy(), constants["w_scale"])
    assert weight.attrs.axis == 1


def test_uint8_weights_around_128_become_int8(tmp_path: Path) -> None:
    built = qdq(CASES["conv 3x3"], SCHEMES[3])
    weight = weight_of(loaded(built.model, tmp_path), "nn.conv2d")
    constants = {t.name: numpy_helper.to_array(t) for t in built.model.graph.initializer}
    np.testing.assert_array_equal(weight.args[0].value.numpy(), constants["w"].astype(int) - 128)
    assert (str(weight.args[0].ty.dtype), int(weight.args[2].value.numpy())) == ("int8", 0)


def test_uint8_weights_that_do_not_fit_int8_keep_their_zero_point(tmp_path: Path) -> None:
    net = Qdq()
    weight = net.const(np.array([[0, 255], [7, 9]], "uint8"))
    x, w = net.dq(net.q("x", 0.5, 3), 0.5, 3), net.dq(weight, 0.25, np.uint8(20))
    model = net.model(net.node("MatMul", x, w), (1, 2))
    found = weight_of(loaded(model, tmp_path), "matmul")
    assert (str(found.args[0].ty.dtype), int(found.args[2].value.numpy())) == ("uint8", 20)
    assert_floats(model, tmp_path)


def test_float_weights_between_quantize_and_dequantize_become_integers(tmp_path: Path) -> None:
    """The form that quantization-aware training exports."""
    net = Qdq()
    scale = np.array([0.01, 0.02], "float32")
    floats = np.array([[0.254, -0.011], [0.005, 9.0]], "float32")
    zero = np.zeros(2, "int8")
    w = net.dq(net.q(net.const(floats), scale, zero, axis=1), scale, zero, axis=1)
    model = net.model(net.node("MatMul", net.dq(net.q("x", 0.5, 3), 0.5, 3), w), (1, 2))
    found = weight_of(loaded(model, tmp_path), "matmul")
    # 0.005 / 0.01 is a half: to even, as ONNX Runtime does it
    np.testing.assert_array_equal(found.args[0].value.numpy(), [[25, -1], [0, 127]])
    assert_floats(model, tmp_path)


def test_pairs_that_repeat_one_scale_are_merged(tmp_path: Path) -> None:
    net = Qdq()
    x = net.dq(net.q("x", 0.5, 3), 0.5, 3)
    again = net.dq(net.q(x, 0.5, 3), 0.5, 3)
    other = net.dq(net.q("x", 0.5, 3), 0.5, 3)
    model = net.model(net.node("Add", again, other), (1, 2))
    mod = loaded(model, tmp_path)
    assert operators(mod) == ["quantize", "dequantize", "add"]
    assert_floats(model, tmp_path)


def test_a_pair_with_another_scale_stays(tmp_path: Path) -> None:
    net = Qdq()
    x = net.dq(net.q(net.dq(net.q("x", 0.5, 3), 0.5, 3), 0.25, 3), 0.25, 3)
    model = net.model(net.node("Relu", x), (1, 2))
    assert operators(loaded(model, tmp_path)) == [*["quantize", "dequantize"] * 2, "nn.relu"]
    assert_floats(model, tmp_path)


def test_a_padding_of_zeros_goes_into_the_convolution(tmp_path: Path) -> None:
    net = Qdq((1, 2, 4, 4))
    x = net.dq(net.q("x", 0.5, 3), 0.5, 3)
    padded = net.node("Pad", x, net.const(np.array([0, 0, 1, 2, 0, 0, 0, 1])))
    weight = net.rng.integers(-60, 60, (3, 2, 3, 3)).astype("int8")
    w = net.dq(net.const(weight), 0.1, np.int8(0))
    model = net.model(net.node("Conv", net.dq(net.q(padded, 0.5, 3), 0.5, 3), w), (1, 3, 3, 5))
    mod = loaded(model, tmp_path)
    assert operators(mod) == ["quantize", "dequantize", "dequantize", "nn.conv2d"]
    assert_floats(model, tmp_path)


def test_a_padding_of_other_values_stays(tmp_path: Path) -> None:
    net = Qdq((1, 2, 4, 4))
    x = net.dq(net.q("x", 0.5, 3), 0.5, 3)
    pads = net.const(np.array([0, 0, 1, 2, 0, 0, 0, 1]))
    padded = net.node("Pad", x, pads, net.const(np.float32(1.5)))
    model = net.model(net.dq(net.q(padded, 0.5, 3), 0.5, 3), (1, 2, 5, 7))
    assert "nn.pad" in operators(loaded(model, tmp_path))
    assert_floats(model, tmp_path)


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 19, 21])
def test_opsets(opset: int, tmp_path: Path) -> None:
    scheme = SCHEMES[0] if opset < 13 else SCHEMES[2]
    built = qdq(CASES["gemm"], scheme, opset)
    mod = loaded(built.model, tmp_path)
    assert_qdq(mod)
    assert_close(mod, built.feed, session(built.model).run(None, built.feed))


def test_scales_of_one_element_and_no_zero_point(tmp_path: Path) -> None:
    net = Qdq()
    scale = net.const(np.array([0.5], "float32"))
    q = net.node("QuantizeLinear", "x", scale)
    model = net.model(net.node("DequantizeLinear", q, scale), (1, 2))
    mod = loaded(model, tmp_path)
    quantize = straight_bindings(mod["main"])[0].value
    assert str(quantize.ty.dtype) == "uint8" and quantize.args[1].value.shape == ()
    assert_floats(model, tmp_path)


def test_a_scale_from_constant_nodes(tmp_path: Path) -> None:
    net = Qdq()
    scale = net.node("Constant", value=numpy_helper.from_array(np.array(0.5, "float32"), "s"))
    zero = net.node("Identity", net.const(np.array(7, "uint8")))
    q = net.node("QuantizeLinear", "x", scale, zero)
    model = net.model(net.node("DequantizeLinear", q, scale, zero), (1, 2))
    assert operators(loaded(model, tmp_path)) == ["quantize", "dequantize"]
    assert_floats(model, tmp_path)


def test_output_dtype_of_opset_21(tmp_path: Path) -> None:
    net = Qdq()
    scale = net.const(np.float32(0.5))
    q = net.node("QuantizeLinear", "x", scale, output_dtype=TensorProto.INT8)
    model = net.model(net.node("DequantizeLinear", q, scale), (1, 2), opset=21)
    quantize = straight_bindings(loaded(model, tmp_path)["main"])[0].value
    assert str(quantize.ty.dtype) == "int8"
    assert_floats(model, tmp_path)


# ---------------------------------------------------------------- refusals
def refused(model: onnx.ModelProto, folder: Path, text: str) -> None:
    with pytest.raises(VTAError) as caught:
        loaded(model, folder)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "scale, shown", [(0.0, "0.0"), (-0.5, "-0.5"), (np.inf, "inf"), (np.nan, "nan")]
)
def test_impossible_scale(scale: float, shown: str, tmp_path: Path) -> None:
    net = Qdq()
    model = net.model(net.dq(net.q("x", scale, 3), scale, 3), (1, 2))
    refused(
        model,
        tmp_path,
        f'tensor "x" has the quantization scale {shown}; scales must be positive and finite; '
        "quantize the model again with data that reaches this tensor",
    )


def test_one_impossible_scale_of_many(tmp_path: Path) -> None:
    net = Qdq()
    weight = net.const(np.ones((2, 2), "int8"))
    w = net.dq(weight, np.array([0.5, 0.0], "float32"), np.zeros(2, "int8"), axis=1)
    model = net.model(net.node("MatMul", net.dq(net.q("x", 0.5, 3), 0.5, 3), w), (1, 2))
    refused(
        model,
        tmp_path,
        f'tensor "{weight}" has the quantization scale 0.0; scales must be positive and finite; '
        "quantize the model again with data that reaches this tensor",
    )


@pytest.mark.parametrize(
    "dtype", [np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn]
)
def test_other_widths(dtype: Any, tmp_path: Path) -> None:
    net = Qdq()
    zero = net.const(np.zeros((), dtype))
    scale = net.const(np.float32(0.5))
    q = net.node("QuantizeLinear", "x", scale, zero)
    model = net.model(net.node("DequantizeLinear", q, scale, zero), (1, 2), opset=21)
    refused(
        model,
        tmp_path,
        f'tensor "x" is quantized to {np.dtype(dtype)}; only int8 and uint8 are compiled, and '
        "int32 for biases; quantize the model to 8 bits",
    )


def test_activations_per_channel(tmp_path: Path) -> None:
    net = Qdq()
    scale, zero = np.array([0.5, 0.25], "float32"), np.zeros(2, "int8")
    model = net.model(net.dq(net.q("x", scale, zero, axis=1), scale, zero, axis=1), (1, 2))
    refused(
        model,
        tmp_path,
        'tensor "x" has 2 scales, one per channel; only constants (weights and biases) may have '
        "that; quantize activations per tensor",
    )


def test_blocks(tmp_path: Path) -> None:
    net = Qdq()
    weight = net.const(np.ones((2, 2), "int8"))
    scale = net.const(np.full((1, 2), 0.5, "float32"))
    w = net.node("DequantizeLinear", weight, scale, axis=0, block_size=2)
    x = net.dq(net.q("x", 0.5, 3), 0.5, 3)
    model = net.model(net.node("MatMul", x, w), (1, 2), opset=21)
    refused(
        model,
        tmp_path,
        'node "t0" (DequantizeLinear) has block_size 2: one scale for each block of '
        f'"{weight}"; a tensor may have one scale, a weight one per channel; quantize the model '
        "without blocks",
    )


def test_dynamic_quantization(tmp_path: Path) -> None:
    net = Qdq()
    q = net.node("DynamicQuantizeLinear", "x", outputs=3)
    model = net.model(net.node("DequantizeLinear", *q), (1, 2))
    refused(
        model,
        tmp_path,
        'node "t0" (DynamicQuantizeLinear) quantizes "x" with a scale that is computed while the '
        "model runs (dynamic quantization); scales must be constants; quantize the model "
        "statically, with calibration data",
    )


@pytest.mark.parametrize("op", ["DynamicQuantizeLSTM", "DynamicQuantizeMatMul"])
def test_dynamically_quantized_layers(tmp_path: Path, op: str) -> None:
    net = Qdq()
    model = net.model(net.node(op, "x", domain="com.microsoft"))
    refused(
        model,
        tmp_path,
        f'node "t0" ({op}) quantizes "x" with a scale that is computed while the model runs '
        "(dynamic quantization); scales must be constants; quantize the model statically, with "
        "calibration data",
    )


def test_computed_scale(tmp_path: Path) -> None:
    net = Qdq()
    scale = net.node("ReduceMax", net.node("Abs", "x"), keepdims=0)
    model = net.model(net.node("DequantizeLinear", net.node("QuantizeLinear", "x", scale), scale))
    refused(
        model,
        tmp_path,
        'node "t2" (QuantizeLinear) quantizes "x" with a scale that is computed while the '
        "model runs (dynamic quantization); scales must be constants; quantize the model "
        "statically, with calibration data",
    )


E8M0 = np.array(0.5, ml_dtypes.float8_e8m0fnu)


def test_scale_of_another_dtype(tmp_path: Path) -> None:
    net = Qdq()
    weight, scale = net.const(np.ones((2, 2), "int8")), net.const(E8M0)
    w = net.node("Cast", net.node("DequantizeLinear", weight, scale), to=TensorProto.FLOAT)
    model = net.model(net.node("MatMul", "x", w), (1, 2), opset=21)
    refused(
        model,
        tmp_path,
        f'tensor "{weight}" has a scale of dtype float8_e8m0fnu; it must be float32; export the '
        "model in float32 before quantizing it",
    )


# ---------------------------------------------------------------- helpers
class Qdq:
    """An ONNX graph under construction; methods return the name of the tensor they make."""

    def __init__(self, shape: tuple[int, ...] = (1, 2)) -> None:
        self.shape = shape
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def const(self, value: Any) -> str:
        name = f"const{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        name = f"t{len(self.nodes)}"
        made = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, inputs, made, name=name, **attrs))
        return made[0] if outputs == 1 else made

    def q(self, x: str, scale: Any, zero: Any, **attrs: Any) -> str:
        return self._linear("QuantizeLinear", x, scale, zero, attrs)

    def dq(self, x: str, scale: Any, zero: Any, **attrs: Any) -> str:
        return self._linear("DequantizeLinear", x, scale, zero, attrs)

    def _linear(self, op: str, x: str, scale: Any, zero: Any, attrs: dict[str, Any]) -> str:
        zero = np.int8(zero) if isinstance(zero, int) else zero
        return str(self.node(op, x, self.const(np.float32(scale)), self.const(zero), **attrs))

    def model(
        self, output: str, shape: tuple[int, ...] = (), *, opset: int = 17
    ) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "net", [x], [y], self.weights)
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def assert_floats(model: onnx.ModelProto, folder: Path) -> None:
    """The same floats as ONNX Runtime."""
    mod = loaded(model, folder)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = (4 * np.random.default_rng(1).standard_normal(shape)).astype("float32")
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x)).numpy()
    (want,) = session(model, literal=True).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
