"""The sizes that an ONNX model declares and implies, before anything computes with them.

TVM's importer folds what is known, and would make a tensor of 128 GiB to look at its shape.  ONNX's
shape inference computes with shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vta_byoc.base import limits
from vta_byoc.hw.errors import VTAError

CONSTANTS = ("Constant", "ConstantOfShape")
"""Operators that may make a tensor without elements: an optional operand that is left out."""
SHAPE_VALUES = 1024
"""Elements of the largest weight that can be a shape; the values of others are left out."""


def check_sizes(graph: onnx.GraphProto, opset: int, shapes: Mapping[str, list[int]]) -> None:
    """Refuse tensors that are too large, or have no elements.

    Args:
        graph: its nodes need no names yet.
        opset: of the default domain.
        shapes: of the inputs.

    Raises:
        VTAError: the tensor, the node that makes it, its shape.
    """
    known = inferred(graph, opset, shapes)
    limits.check(_declared(graph, known), "the model")
    for node in graph.node:
        if node.op_type not in CONSTANTS:
            _check_elements(node, known)


Known = Mapping[str, tuple[tuple[int, ...], int]]
"""Tensor -> its shape and element type, where both are known."""


def inferred(
    graph: onnx.GraphProto,
    opset: int,
    shapes: Mapping[str, list[int]],
    values: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Known:
    """What ONNX's shape inference finds out, given the `shapes` of inputs and `values` of nodes.

    It does not look into branches.
    """
    bare = onnx.GraphProto(name="sizes")
    for node in graph.node:
        if node.op_type != "If" and not all(name in values for name in node.output if name):
            bare.node.append(node)
    weights = {tensor.name for tensor in graph.initializer}
    for name, array in values.items():
        if name not in weights:
            bare.initializer.append(numpy_helper.from_array(array, name))
    for value in graph.input:
        bare.input.add().CopyFrom(value)
        if value.name in shapes:
            kind = value.type.tensor_type.elem_type
            bare.input[-1].CopyFrom(
                helper.make_tensor_value_info(value.name, kind, shapes[value.name])
            )
    for tensor in graph.initializer:
        bare.initializer.add().CopyFrom(_without_values(tensor))
    for value in graph.output:  # what the file says about its shape may not be true
        kind = value.type.tensor_type.elem_type
        bare.output.append(helper.make_tensor_value_info(value.name, kind, None))
    model = helper.make_model(bare, opset_imports=[helper.make_opsetid("", opset)])
    try:
        result = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:
        result = bare  # the checker, or the importer, finds out what is wrong with it
    tensors = (*result.input, *result.value_info, *result.output)
    found = {value.name: _shape_and_type(value) for value in tensors}
    known = {name: both for name, both in found.items() if both is not None}
    return known | {t.name: (tuple(t.dims), t.data_type) for t in bare.initializer}


def can_be_shape(tensor: onnx.TensorProto) -> bool:
    """Whether it has few enough elements."""
    return math.prod(tensor.dims) <= SHAPE_VALUES


def _without_values(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor itself if it can be a shape, else only its type."""
    if can_be_shape(tensor):
        return tensor
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def _shape_and_type(value: onnx.ValueInfoProto) -> tuple[tuple[int, ...], int] | None:
    kind = value.type.tensor_type
    if not kind.HasField("shape") or not all(d.HasField("dim_value") for d in kind.shape.dim):
        return None
    return tuple(d.dim_value for d in kind.shape.dim), kind.elem_type


def _declared(graph: onnx.GraphProto, known: Known) -> Iterator[limits.Declared]:
    weights = {tensor.name for tensor in graph.initializer}
    made = {name: node for node in graph.node for name in node.output}
    for name, (shape, kind) in known.items():
        what = f'weight "{name}"' if name in weights else f'tensor "{name}"'
        if name in made:
            what = f'node "{_name(made[name])}" ({made[name].op_type}): {what}'
        dims = tuple(max(dim, 0) for dim in shape)
        yield limits.Declared(what, dims, _itemsize(kind))


def _itemsize(kind: int) -> int:
    try:
        return int(helper.tensor_dtype_to_np_dtype(kind).itemsize)
    except (KeyError, ValueError):
        return 8


def _check_elements(node: onnx.NodeProto, known: Known) -> None:
    """Refuse a node that makes floats without elements from tensors that have some."""
    inputs = [known[name][0] for name in node.input if name in known]
    if any(math.prod(shape) == 0 for shape in inputs):
        return
    for name in node.output:
        shape, kind = known.get(name, ((), 0))
        if kind == TensorProto.FLOAT and any(dim < 1 for dim in shape):
            raise VTAError(
                f'node "{_name(node)}" ({node.op_type}) makes "{name}" of shape '
                f"{limits.listed(shape)} from {_shapes(node, known)}; every dimension must be at "
                "least 1; correct its attributes, or the shapes of the inputs"
            )


def _shapes(node: onnx.NodeProto, known: Known) -> str:
    """Of the operands that are no vectors of parameters."""
    shapes = [known[name][0] for name in node.input if name in known]
    listed = [limits.listed(shape) for shape in shapes if len(shape) > 1]
    return " and ".join(listed) or "operands of one dimension"


def _name(node: onnx.NodeProto) -> str:
    return str(node.name or (node.output[0] if node.output else node.op_type))
