"""ONNX QuantizeLinear and DequantizeLinear: what is refused, and their converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.node import Attributes, NodeAttributes, attributes_of
from vta_byoc.importers.quantized_tensor import Quantization, checked
from vta_byoc.ir.bindings import is_constant

QDQ = ("QuantizeLinear", "DequantizeLinear")
DYNAMIC = "DynamicQuantizeLinear"
DYNAMIC_LAYERS = ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul")
"""Layers of ONNX Runtime that do the same with their first input."""


# ---------------------------------------------------------------- constants of the graph
def constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Every tensor that is known before the model runs.

    These are weights, Constant nodes, and what little exporters compute from them for scales.
    """
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        function = _SIMPLE.get(node.op_type)
        if node.op_type == "Constant":
            tensors = [numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"]
            known.update(zip(node.output, tensors, strict=False))
        elif function is not None and node.input and all(name in known for name in node.input):
            known[node.output[0]] = function(*(known[name] for name in node.input))
    return known


_SIMPLE: dict[str, Callable[..., np.ndarray]] = {
    "Identity": lambda x: x,
    "Mul": lambda x, y: np.asarray(x * y),
}


# ---------------------------------------------------------------- what is refused
def check_dynamic(graph: onnx.GraphProto) -> None:
    """Refuse scales that are computed while the model runs.

    Raises:
        VTAError: the node that computes one.
    """
    for node in graph.node:
        if node.op_type == DYNAMIC:
            raise dynamic(node, node.input[0])


def check_parameters(graph: onnx.GraphProto) -> None:
    """Refuse what the importer would get wrong or nothing can run (`quantized_tensor.checked`)."""
    known = constants(graph)
    ranks = {name: value.ndim for name, value in known.items()}
    for node in graph.node:
        if node.op_type in QDQ:
            _check_qdq(node, known, ranks)
        if node.op_type in (*QDQ, "Transpose") and node.input[0] in ranks:
            ranks[node.output[0]] = ranks[node.input[0]]


def _check_qdq(
    node: onnx.NodeProto, known: Mapping[str, np.ndarray], ranks: Mapping[str, int]
) -> None:
    """`ranks`: of the tensors that are constant."""
    attrs = attributes_of(node)
    tensor, scale = node.input[0], known.get(node.input[1])
    zero = _zero(node, known)
    if scale is None or isinstance(zero, str):
        raise dynamic(node, tensor)
    if attrs.get("block_size", 0):
        raise VTAError(
            f'node "{node.name}" ({node.op_type}) has block_size {attrs["block_size"]}: one scale '
            f'for each block of "{tensor}"; a tensor may have one scale, a weight one per channel; '
            "quantize the model without blocks"
        )
    rank = ranks.get(tensor, 1)
    dtype = _dtype(node, attrs, zero, known)
    axis = int(attrs.get("axis", 1)) if rank > 1 else 0
    checked(tensor, dtype, scale, zero, axis=axis, rank=rank, constant=tensor in ranks)


def _zero(node: onnx.NodeProto, known: Mapping[str, np.ndarray]) -> np.ndarray | str | None:
    """The zero point; None if there is none, its name if it is computed."""
    if len(node.input) < 3 or not node.input[2]:
        return None
    return known.get(node.input[2], node.input[2])


def _dtype(
    node: onnx.NodeProto,
    attrs: Attributes,
    zero: np.ndarray | None,
    known: Mapping[str, np.ndarray],
) -> str:
    """Of the integers that the node makes or reads."""
    if zero is not None:
        return str(zero.dtype)
    if node.op_type == "DequantizeLinear":
        return str(known[node.input[0]].dtype) if node.input[0] in known else "uint8"
    if attrs.get("output_dtype"):
        return str(helper.tensor_dtype_to_np_dtype(attrs["output_dtype"]))
    return "uint8"


def dynamic(node: onnx.NodeProto, tensor: str) -> VTAError:
    """The refusal of a scale that is no constant."""
    return VTAError(
        f'node "{node.name or node.output[0]}" ({node.op_type}) quantizes "{tensor}" with a scale '
        "that is computed while the model runs (dynamic quantization); scales must be constants; "
        "quantize the model statically, with calibration data"
    )


# ---------------------------------------------------------------- QDQ nodes
def convert_quantize(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr:
    """QuantizeLinear of any opset; `check_parameters` has seen the parameters."""
    data, scale, zero = inputs[:3]
    dtype = "uint8" if zero is None else str(zero.ty.dtype)
    if zero is None and attrs.get("output_dtype"):
        dtype = str(helper.tensor_dtype_to_np_dtype(attrs["output_dtype"]))
    return _quantization(data, scale, zero, dtype, attrs).quantize(data)


def convert_dequantize(inputs: list[relax.Expr], attrs: NodeAttributes) -> relax.Expr:
    """DequantizeLinear of any opset; `check_parameters` has seen the parameters."""
    data, scale, zero = inputs[:3]
    return _quantization(data, scale, zero, str(data.ty.dtype), attrs).dequantize(data)


def _quantization(
    data: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, dtype: str, attrs: NodeAttributes
) -> Quantization:
    rank, axis = data.ty.ndim, int(attrs.get("axis", 1))
    return checked(
        attrs["tvm_custom"]["name"],
        dtype,
        _array(scale),
        None if zero is None else _array(zero),
        axis=axis if rank > 1 else 0,
        rank=rank,
        constant=True,
    )


def _array(expr: relax.Expr) -> np.ndarray:
    if not is_constant(expr):
        raise ValueError("a scale or zero point is computed by nodes that were not folded")
    return expr.value.numpy()
