"""One-operator quantized ONNX models from code, as QDQ nodes and as integer operators (QOperator).

Inputs and outputs of the models are the integers themselves, so that what comes out compares with
ONNX Runtime value by value.  Weights use 7 of their 8 bits: without VNNI, ONNX Runtime adds pairs
of uint8 * int8 products in int16, which full weights overflow.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
OPSET = 17
MICROSOFT = helper.make_opsetid("com.microsoft", 1)
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Scheme:
    """How a model is quantized: dtypes, zero points, scales of weights."""

    name: str
    dtype: str = "int8"
    weights: str = "int8"
    symmetric: bool = True
    per_channel: bool = False


SCHEMES = (
    Scheme("int8 symmetric per tensor"),
    Scheme("int8 asymmetric per channel", symmetric=False, per_channel=True),
    Scheme("uint8 asymmetric per channel", "uint8", symmetric=False, per_channel=True),
    Scheme("uint8 asymmetric, uint8 weights", "uint8", "uint8", symmetric=False),
)


@dataclass(frozen=True)
class OpCase:
    """One operator.

    Attributes:
        op: the float operator.
        shapes: of its quantized inputs.
        weight: shape of constant weights, if it has them; with `bias`.
        channel: the weights' axis of output channels.
        attrs: of the operator.
        extra: more constant inputs of the operator (shapes, pads), with their dtypes.
        after: a float operator between this one and the quantize, with constant inputs.
        integer: the integer operator that does the same, "" if there is none; one that moves data
            is the operator itself.
        same: the result keeps the scale of the first input.
    """

    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    weight: tuple[int, ...] | None = None
    bias: bool = False
    channel: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    extra: tuple[tuple[str, Any], ...] = ()
    after: tuple[str, tuple[float, ...]] | None = None
    integer: str = ""
    same: bool = False


def _conv(name: str, ci: int, co: int, k: int, size: int = 10, **attrs: Any) -> OpCase:
    attrs.setdefault("pads", [k // 2] * 4)
    weight = (co, ci // attrs.get("group", 1), k, k)
    shapes = ((1, ci, size, size),)
    return OpCase(name, "Conv", shapes, weight, True, 0, attrs, integer="QLinearConv")


_IMAGE = (1, 16, 10, 10)
OP_CASES = (
    _conv("conv 1x1", 16, 24, 1),
    _conv("conv 3x3", 16, 24, 3),
    _conv("conv 3x3 stride 2", 16, 24, 3, strides=[2, 2]),
    _conv("conv 3x3 dilated", 16, 16, 3, dilations=[2, 2], pads=[2, 2, 2, 2]),
    _conv("conv 5x5 of 3 channels", 3, 16, 5, size=16, strides=[2, 2]),
    _conv("conv of groups", 16, 16, 3, group=4),
    _conv("conv depthwise", 16, 16, 3, group=16),
    _conv("conv without border", 16, 8, 3, pads=[0, 0, 0, 0]),
    _conv("conv with uneven border", 8, 8, 3, pads=[1, 0, 2, 1]),
    OpCase(
        "conv relu", "Conv", ((1, 8, 9, 9),), (16, 8, 3, 3), True, attrs={"pads": [1] * 4},
        after=("Relu", ()),
    ),
    OpCase(
        "conv clip", "Conv", ((1, 8, 9, 9),), (16, 8, 3, 3), True, attrs={"pads": [1] * 4},
        after=("Clip", (0.0, 6.0)),
    ),
    OpCase(
        "transposed conv", "ConvTranspose", ((1, 16, 6, 6),), (16, 8, 2, 2), True, 1,
        {"strides": [2, 2]},
    ),
    OpCase("matmul", "MatMul", ((40, 32),), (32, 20), channel=1, integer="QLinearMatMul"),
    OpCase(
        "matmul of rank 3", "MatMul", ((4, 25, 32),), (32, 8), channel=1, integer="QLinearMatMul"
    ),
    OpCase("gemm", "Gemm", ((60, 48),), (48, 10), True, 1, integer="QGemm"),
    OpCase(
        "gemm transposed", "Gemm", ((60, 48),), (10, 48), True, 0, {"transB": 1}, integer="QGemm"
    ),
    OpCase("add", "Add", (_IMAGE, _IMAGE), integer="QLinearAdd"),
    OpCase("add broadcast", "Add", (_IMAGE, (1, 16, 1, 1)), integer="QLinearAdd"),
    OpCase("add relu", "Add", (_IMAGE, _IMAGE), after=("Relu", ())),
    OpCase("mul", "Mul", (_IMAGE, _IMAGE), integer="QLinearMul"),
    OpCase("mul by channel", "Mul", (_IMAGE, (1, 16, 1, 1)), integer="QLinearMul"),
    OpCase(
        "concat", "Concat", ((1, 8, 5, 5), (1, 4, 5, 5), (1, 12, 5, 5)), attrs={"axis": 1},
        integer="QLinearConcat",
    ),
    OpCase(
        "max pool", "MaxPool", (_IMAGE,), integer="MaxPool", same=True,
        attrs={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    OpCase(
        "average pool", "AveragePool", (_IMAGE,), integer="QLinearAveragePool",
        attrs={"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    OpCase(
        "average pool with border", "AveragePool", (_IMAGE,), integer="QLinearAveragePool",
        attrs={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
    ),
    OpCase(
        "global average pool", "GlobalAveragePool", ((8, 64, 6, 6),),
        integer="QLinearGlobalAveragePool",
    ),
    OpCase("relu", "Relu", (_IMAGE,)),
    OpCase("clip", "Clip", (_IMAGE,), extra=(("float32", -0.5), ("float32", 1.0))),
    OpCase("leaky relu", "LeakyRelu", (_IMAGE,), attrs={"alpha": 0.1}, integer="QLinearLeakyRelu"),
    OpCase("sigmoid", "Sigmoid", (_IMAGE,), integer="QLinearSigmoid"),
    OpCase("softmax", "Softmax", ((40, 25),), attrs={"axis": -1}, integer="QLinearSoftmax"),
    OpCase(
        "resize", "Resize", ((1, 8, 5, 5),), same=True, integer="Resize",
        attrs={
            "mode": "nearest", "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
        extra=(("float32", []), ("float32", [1, 1, 2, 2])),
    ),
    OpCase(
        "reshape", "Reshape", (_IMAGE,), extra=(("int64", [1, -1]),), same=True, integer="Reshape"
    ),
    OpCase(
        "transpose", "Transpose", (_IMAGE,), attrs={"perm": [0, 2, 3, 1]}, same=True,
        integer="Transpose",
    ),
    OpCase("flatten", "Flatten", (_IMAGE,), attrs={"axis": 1}, same=True, integer="Flatten"),
    OpCase("pad", "Pad", (_IMAGE,), extra=(("int64", [0, 0, 1, 2, 0, 0, 2, 1]),), same=True),
    OpCase(
        "slice", "Slice", (_IMAGE,), same=True, integer="Slice",
        extra=(("int64", [0, 2]), ("int64", [8, 10]), ("int64", [1, 2])),
    ),
)  # fmt: skip
"""Every operator that is tested alone."""


@dataclass(frozen=True)
class Numbers:
    """Scale, zero point and dtype of a quantized tensor."""

    scale: Array
    zero: Array

    @property
    def dtype(self) -> str:
        """Of the integers: that of the zero point."""
        return str(self.zero.dtype)


@dataclass(frozen=True)
class Built:
    """A model and integers to feed it with."""

    model: onnx.ModelProto
    feed: dict[str, Array]


def qdq(case: OpCase, scheme: Scheme, opset: int = OPSET) -> Built:
    """The operator between DequantizeLinear and QuantizeLinear."""
    b = _Builder(case, scheme)
    values = [b.dequantized(f"x{i}", f"x{i}", q) for i, q in enumerate(b.inputs)]
    if case.weight is not None:
        axis = {"axis": case.channel} if scheme.per_channel else {}
        values.append(b.dequantized("w", "w", b.weight_numbers, **axis))
        if case.bias:
            axis = {"axis": 0} if scheme.per_channel else {}
            values.append(b.dequantized("bias", "bias", b.bias_numbers, **axis))
    values += b.extra()
    result = b.node(case.op, values, "y_float", **case.attrs)
    if case.after is not None:
        bounds = [
            b.constant(f"bound{i}", np.asarray(v, "float32")) for i, v in enumerate(case.after[1])
        ]
        result = b.node(case.after[0], [result, *bounds], "y_after")
    b.node("QuantizeLinear", [result, *b.names("y", b.output)], "y")
    return b.build(opset)


def qoperator(case: OpCase, scheme: Scheme) -> Built:
    """The integer operator; `case.integer` tells which.

    One that moves data has a float input: its scale must be known.
    """
    b = _Builder(case, scheme)
    operands = [[f"x{i}", *b.names(f"x{i}", q)] for i, q in enumerate(b.inputs)]
    attrs = dict(case.attrs)
    if case.same:
        b.feed["x0"] = dequantized(b.feed["x0"], b.inputs[0])
        quantize = b.node("QuantizeLinear", ["x0", *b.names("x0", b.inputs[0])], "x0_integer")
        inputs = [quantize, *b.extra()]
    elif case.integer == "QLinearConcat":
        inputs = [*b.names("y", b.output), *(name for operand in operands for name in operand)]
    else:
        if case.weight is not None:
            operands.append(["w", *b.names("w", b.weight_numbers)])
        inputs = [name for operand in operands for name in operand]
        bias, output = ["bias"] if case.bias else [], b.names("y", b.output)
        inputs += [*bias, *output] if case.integer == "QGemm" else [*output, *bias]
    domain = (
        "" if case.same or case.integer in ("QLinearConv", "QLinearMatMul") else MICROSOFT.domain
    )
    if case.integer == "QLinearSoftmax":
        attrs["opset"] = OPSET
    b.node(case.integer, inputs, "y", domain=domain, **attrs)
    return b.build(OPSET)


class _Builder:
    """Constants and nodes of one case; all random numbers follow from its name and scheme."""

    def __init__(self, case: OpCase, scheme: Scheme) -> None:
        self.case, self.scheme = case, scheme
        self.rng = np.random.RandomState(zlib.crc32(f"{case.name} {scheme.name}".encode()))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        floats = [self._values(shape) for shape in case.shapes]
        self.inputs = [self._numbers(values) for values in floats]
        self.feed = {
            f"x{i}": quantized(v, q)
            for i, (v, q) in enumerate(zip(floats, self.inputs, strict=True))
        }
        if case.weight is not None:
            self._weights(case.weight)
        result = self._result()
        self.shape = result.shape
        self.output = self.inputs[0] if case.same else self._numbers(result)

    def _values(self, shape: tuple[int, ...]) -> Array:
        spread = self.rng.uniform(0.5, 2.0)
        centre = 0.0 if self.scheme.symmetric else self.rng.uniform(-0.5, 0.5) * spread
        return (centre + spread * self.rng.standard_normal(shape)).astype("float32")

    def _numbers(self, values: Array) -> Numbers:
        """Scale and zero point of a range a little larger than that of the values.

        Calibration with other data gives such a range; one of exactly these values has scales in
        small ratios.
        """
        margin = self.rng.uniform(1.0, 1.05)
        low, high = margin * min(float(values.min()), 0.0), margin * max(float(values.max()), 0.0)
        limits = np.iinfo(self.scheme.dtype)
        if self.scheme.symmetric:
            reach = max(-low, high)
            return Numbers(
                np.asarray(reach / limits.max, "float32"), np.zeros((), self.scheme.dtype)
            )
        scale = np.asarray((high - low) / 255, "float32")
        zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
        return Numbers(scale, np.asarray(zero, self.scheme.dtype))

    def _weights(self, shape: tuple[int, ...]) -> None:
        case, rank = self.case, len(shape)
        spread = self.rng.uniform(
            0.3, 1.0, [shape[i] if i == case.channel else 1 for i in range(rank)]
        )
        values = (spread * self.rng.standard_normal(shape)).astype("float32")
        others = tuple(i for i in range(rank) if i != case.channel)
        reach = np.abs(values).max(axis=others if self.scheme.per_channel else None)
        zero = 128 if self.scheme.weights == "uint8" else 0
        zeros = np.full(reach.shape, zero, self.scheme.weights)
        self.weight_numbers = Numbers(np.asarray(reach / 63, "float32"), zeros)
        self.constants["w"] = quantized(values, self.weight_numbers, case.channel)
        if case.bias:
            scale = self.inputs[0].scale * self.weight_numbers.scale
            self.bias_numbers = Numbers(scale, np.zeros(scale.shape, "int32"))
            channels = shape[case.channel] * case.attrs.get("group", 1) ** (case.op != "Conv")
            bias = self.rng.standard_normal(channels).astype("float32")
            self.constants["bias"] = quantized(bias, self.bias_numbers, 0)

    def _result(self) -> Array:
        """The float result, for the range of the output."""
        case = self.case
        feed = {
            n: dequantized(self.feed[n], q) for n, q in zip(self.feed, self.inputs, strict=True)
        }
        inputs = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in feed.items()
        ]
        names, weights = list(feed), []
        if case.weight is not None:
            weights.append(
                ("w", dequantized(self.constants["w"], self.weight_numbers, case.channel))
            )
            if case.bias:
                weights.append(("bias", dequantized(self.constants["bias"], self.bias_numbers, 0)))
        weights += [(f"e{i}", np.asarray(v, t)) for i, (t, v) in enumerate(case.extra)]
        names += [name for name, _ in weights]
        names = ["" if n.startswith("e") and not dict(weights)[n].size else n for n in names]
        nodes = [helper.make_node(case.op, names, ["y"], **case.attrs)]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        tensors = [numpy_helper.from_array(v, n) for n, v in weights]
        graph = helper.make_graph(nodes, "float", inputs, [result], tensors)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        (values,) = session(model).run(None, feed)
        return np.maximum(values, 0) if case.after is not None else values

    def constant(self, name: str, value: Array) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def names(self, tensor: str, numbers: Numbers) -> list[str]:
        """The names of its scale and zero point."""
        return [
            self.constant(f"{tensor}_scale", numbers.scale),
            self.constant(f"{tensor}_zero", numbers.zero),
        ]

    def extra(self) -> list[str]:
        values = [np.asarray(value, dtype) for dtype, value in self.case.extra]
        return [self.constant(f"extra{i}", v) if v.size else "" for i, v in enumerate(values)]

    def node(self, op: str, inputs: Sequence[str], output: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{output}_node", **attrs))
        return output

    def dequantized(self, name: str, tensor: str, numbers: Numbers, **attrs: Any) -> str:
        inputs = [tensor, *self.names(name, numbers)]
        return self.node("DequantizeLinear", inputs, f"{name}_float", **attrs)

    def build(self, opset: int) -> Built:
        inputs = [
            helper.make_tensor_value_info(name, TYPES[str(value.dtype)], value.shape)
            for name, value in self.feed.items()
        ]
        result = helper.make_tensor_value_info("y", TYPES[self.scheme.dtype], self.shape)
        weights = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "operator", inputs, [result], weights)
        opsets = [helper.make_opsetid("", opset), MICROSOFT]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return Built(model, self.feed)


def quantized(values: Array, numbers: Numbers, axis: int = 0) -> Array:
    """float32 -> integers: half to even, saturated."""
    scale, zero = (_along(v, axis, values.ndim) for v in (numbers.scale, numbers.zero))
    limits = np.iinfo(numbers.dtype)
    rounded = np.rint(values / scale) + zero
    return np.clip(rounded, limits.min, limits.max).astype(numbers.dtype)


def dequantized(values: Array, numbers: Numbers, axis: int = 0) -> Array:
    """Integers -> float32."""
    scale, zero = (_along(v, axis, values.ndim) for v in (numbers.scale, numbers.zero))
    return np.asarray((values.astype("int64") - zero) * scale, "float32")


def _along(values: Array, axis: int, rank: int) -> Array:
    values = np.asarray(values)
    values = values.astype("int64") if values.dtype.kind in "iu" else values
    return (
        values
        if values.ndim == 0
        else values.reshape([-1 if i == axis else 1 for i in range(rank)])
    )


def session(model: onnx.ModelProto, *, literal: bool = False) -> onnxruntime.InferenceSession:
    """ONNX Runtime on the CPU, as it comes.

    With `literal` it does no rewrites that change values, such as leaving out the first of two
    quantizations.
    """
    options = onnxruntime.SessionOptions()
    if literal:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
