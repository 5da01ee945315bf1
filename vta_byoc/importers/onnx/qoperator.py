"""Quantized ONNX models: QDQ nodes, and the integer operators (QOperator) as QDQ nodes.

An integer operator is the float operator between DequantizeLinear and QuantizeLinear, so it is
written as these nodes before the import: one small function per operator, one entry of
`EXPANSIONS`.  The new nodes are called `<node>__<part>`; the last one keeps the node's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.node import set_nodes
from vta_byoc.importers.onnx.qdq import (
    DYNAMIC,
    QDQ,
    check_dynamic,
    check_parameters,
    constants,
    dynamic,
)
from vta_byoc.ir.bindings import SEPARATOR


# ---------------------------------------------------------------- integer operators
class _Node:
    """One integer operator being written as float nodes."""

    def __init__(self, node: onnx.NodeProto, expander: _Expander) -> None:
        self.node = node
        self.inputs = [*node.input, *[""] * (10 - len(node.input))]
        self.attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.expander = expander

    def constant(self, name: str) -> np.ndarray:
        """The value of a scale.

        Raises:
            VTAError: it is computed while the model runs.
        """
        value = self.expander.known.get(name)
        if value is None:
            raise dynamic(self.node, self.inputs[0])
        return value

    def emit(self, op: str, inputs: Sequence[str], part: str, **attrs: Any) -> str:
        """A node `<name>__<part>`; its output has the same name."""
        name = f"{self.node.name}{SEPARATOR}{part}"
        self.expander.nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def dequantized(
        self, tensor: str, scale: str, zero: str, part: str, axis: int | None = None
    ) -> str:
        """`tensor` as floats; `axis` counts only where there is a scale per channel."""
        attrs = {} if axis is None or self.constant(scale).size == 1 else {"axis": axis}
        inputs = [tensor, scale] + ([zero] if zero else [])
        return self.emit("DequantizeLinear", inputs, part, **attrs)

    def bias(self, tensor: str, scale: np.ndarray, part: str) -> str:
        """An int32 bias as floats."""
        name = self.expander.weight(f"{self.node.name}{SEPARATOR}{part}_scale", scale)
        return self.dequantized(tensor, name, "", part, axis=self.bias_axis(tensor))

    def bias_axis(self, tensor: str) -> int:
        return max(self.constant(tensor).ndim - 1, 0)

    def scaled_output(self, value: str, scale: str, zero: str) -> None:
        """The node's output, from floats."""
        inputs = [value, scale] + ([zero] if zero else [])
        self.finish("QuantizeLinear", inputs)

    def finish(self, op: str, inputs: Sequence[str], **attrs: Any) -> None:
        """The node that makes the output, under the node's name."""
        made = helper.make_node(op, inputs, self.node.output, name=self.node.name, **attrs)
        self.expander.nodes.append(made)

    def kept(self, *names: str) -> dict[str, object]:
        """Those of the attributes that are there."""
        return {name: self.attrs[name] for name in names if name in self.attrs}


_WINDOW = ("auto_pad", "kernel_shape", "strides", "pads", "dilations", "group")


def _conv(n: _Node) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = n.inputs[:9]
    operands = [n.dequantized(x, x_scale, x_zero, "x"), n.dequantized(w, w_scale, w_zero, "w", 0)]
    if bias:
        operands.append(n.bias(bias, n.constant(x_scale) * n.constant(w_scale), "bias"))
    n.scaled_output(n.emit("Conv", operands, "float", **n.kept(*_WINDOW)), y_scale, y_zero)


def _matmul(n: _Node) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = n.inputs[:8]
    axis = n.constant(b).ndim - 1 if n.constant(b_scale).size > 1 else None
    operands = [
        n.dequantized(a, a_scale, a_zero, "a"),
        n.dequantized(b, b_scale, b_zero, "b", axis),
    ]
    n.scaled_output(n.emit("MatMul", operands, "float"), y_scale, y_zero)


def _gemm(n: _Node) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = n.inputs[:9]
    factor = np.float32(n.attrs.get("alpha", 1.0))
    if factor != 1:
        b_scale = n.expander.weight(
            f"{n.node.name}{SEPARATOR}b_scale", factor * n.constant(b_scale)
        )
    axis = 0 if n.attrs.get("transB") else 1
    operands = [
        n.dequantized(a, a_scale, a_zero, "a"),
        n.dequantized(b, b_scale, b_zero, "b", axis),
    ]
    if bias:
        operands.append(n.bias(bias, n.constant(a_scale) * n.constant(b_scale), "bias"))
    attrs = n.kept("transA", "transB")
    if not y_scale:
        n.finish("Gemm", operands, **attrs)
        return
    n.scaled_output(n.emit("Gemm", operands, "float", **attrs), y_scale, y_zero)


def _binary(op: str) -> Callable[[_Node], None]:
    def expand(n: _Node) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = n.inputs[:8]
        operands = [n.dequantized(a, a_scale, a_zero, "a"), n.dequantized(b, b_scale, b_zero, "b")]
        n.scaled_output(n.emit(op, operands, "float"), y_scale, y_zero)

    return expand


def _unary(op: str, *attributes: str) -> Callable[[_Node], None]:
    def expand(n: _Node) -> None:
        x, x_scale, x_zero, y_scale, y_zero = n.inputs[:5]
        if n.attrs.get("channels_last"):
            raise VTAError(
                f'node "{n.node.name}" ({n.node.op_type}) has channels_last 1; only channels '
                "first (NCHW) is imported; export the model without ONNX Runtime's NHWC transform"
            )
        value = n.dequantized(x, x_scale, x_zero, "x")
        n.scaled_output(n.emit(op, [value], "float", **n.kept(*attributes)), y_scale, y_zero)

    return expand


def _concat(n: _Node) -> None:
    y_scale, y_zero, *rest = n.node.input
    parts = [rest[i : i + 3] for i in range(0, len(rest), 3)]
    values = [n.dequantized(x, scale, zero, f"x{i}") for i, (x, scale, zero) in enumerate(parts)]
    n.scaled_output(n.emit("Concat", values, "float", **n.kept("axis")), y_scale, y_zero)


# ---------------------------------------------------------------- int32 results
def _integer(op: str, channel_axis: Callable[[int], int]) -> Callable[[_Node], None]:
    """ConvInteger and MatMulInteger, with the Cast and Mul behind them.

    The factor of Mul is the scale of the data times that of the weights.
    """

    def expand(n: _Node) -> None:
        x, w, x_zero, w_zero = n.inputs[:4]
        factor, scale = n.expander.factor(n), n.expander.scale_of(x)
        rank = n.constant(w).ndim
        per_channel = np.asarray(factor / scale, "float32")
        axis = channel_axis(rank)
        if factor.size > 1:
            per_channel = _channels(n.node, per_channel, rank, axis)
        w_scale = n.expander.weight(f"{n.node.name}{SEPARATOR}w_scale", per_channel)
        x_scale = n.expander.weight(f"{n.node.name}{SEPARATOR}x_scale", scale)
        operands = [
            n.dequantized(x, x_scale, x_zero, "x"),
            n.dequantized(w, w_scale, w_zero, "w", axis),
        ]
        n.finish(op, operands, **n.kept(*_WINDOW))

    return expand


def _channels(node: onnx.NodeProto, factor: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """A factor that varies along the channels of the result only, as [C]."""
    result_axis = 1 if axis == 0 else rank - 1
    shape = (1,) * (rank - factor.ndim) + factor.shape
    if len(shape) != rank or shape[result_axis] != factor.size:
        raise VTAError(
            f'node "{node.name}" ({node.op_type}) is scaled by a tensor of the shape '
            f"{factor.shape}; it may be one number or one per channel; quantize the weights "
            "per tensor or per channel"
        )
    return factor.reshape(-1)


EXPANSIONS: dict[str, Callable[[_Node], None]] = {
    "ConvInteger": _integer("Conv", lambda rank: 0),
    "MatMulInteger": _integer("MatMul", lambda rank: rank - 1),
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary(
        "AveragePool", "auto_pad", "ceil_mode", "count_include_pad", *_WINDOW[1:4]
    ),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMatMul": _matmul,
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax", "axis"),
}
"""Integer operator -> how it is written with float operators."""


class _Expander:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.known = constants(graph)
        self.nodes: list[onnx.NodeProto] = []
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.producers = {name: node for node in graph.node for name in node.output}
        self.absorbed: set[str] = set()
        """Outputs of nodes that became part of another."""

    def run(self) -> None:
        for node in self.graph.node:
            expansion = EXPANSIONS.get(node.op_type)
            if node.output[0] in self.absorbed:
                continue
            if expansion is None:
                self.nodes.append(node)
            else:
                expansion(_Node(node, self))
        set_nodes(self.graph, self.nodes)

    def weight(self, name: str, value: np.ndarray) -> str:
        """A new constant of the graph."""
        array = np.asarray(value, "float32")
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        self.known[name] = array
        return name

    def scale_of(self, tensor: str) -> np.ndarray:
        """The scale that a quantized tensor was made with; 1 where only products of it count."""
        producer = self.producers.get(tensor)
        if producer is not None and producer.op_type == "QuantizeLinear":
            scale = self.known.get(producer.input[1])
            if scale is not None and scale.size == 1:
                return np.asarray(scale, "float32").reshape(())
        return np.ones((), "float32")

    def factor(self, n: _Node) -> np.ndarray:
        """What the int32 result is multiplied by; the output of that product becomes the node's.

        Raises:
            VTAError: the result is used otherwise, or the factor is computed.
        """
        cast = self._only_reader(n, n.node.output[0], "Cast")
        product = self._only_reader(n, cast.output[0], "Mul")
        (factor,) = [name for name in product.input if name != cast.output[0]]
        value = n.constant(factor)
        self.absorbed |= {cast.output[0], product.output[0]}
        del n.node.output[:]
        n.node.output.append(product.output[0])
        return value

    def _only_reader(self, n: _Node, tensor: str, op: str) -> onnx.NodeProto:
        readers = self.readers.get(tensor, [])
        is_result = any(value.name == tensor for value in self.graph.output)
        if len(readers) == 1 and readers[0].op_type == op and not is_result:
            return readers[0]
        found = ", ".join(sorted({node.op_type for node in readers})) or "nothing"
        raise VTAError(
            f'node "{n.node.name}" ({n.node.op_type}) makes int32 that {found} reads; only a Cast '
            "to float32 and a Mul by a constant scale may follow; export the model as QDQ"
        )


def expand(graph: onnx.GraphProto) -> None:
    """Write the integer operators of `graph` as float operators between QDQ nodes, in place.

    Every node has a name (`importers.onnx.naming.name_nodes`).

    Raises:
        VTAError: dynamic or blocked quantization, a scale that is computed while the model runs,
            int32 results that are used as such, and what `quantized_tensor.checked` refuses.
    """
    if not is_quantized(graph):
        return
    check_dynamic(graph)
    if any(node.op_type in EXPANSIONS for node in graph.node):
        _Expander(graph).run()
    check_parameters(graph)


def is_quantized(graph: onnx.GraphProto) -> bool:
    """Whether any node works on quantized tensors."""
    return any(node.op_type in (*QDQ, DYNAMIC, *EXPANSIONS) for node in graph.node)
