"""ONNX models of other floats than float32, as models of float32.

Layers are quantized from float32, and the CPU computes in it: doubles lose digits that no 8-bit
scale has, and 16-bit floats lose nothing.  Values are not rounded to 16 bits between operators.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

from vta_byoc.importers.onnx.node import all_graphs, all_nodes

OTHER_FLOATS = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
"""The element types that become float32."""
TYPES = ("dtype", "output_datatype", "output_dtype", "precision", "stash_type", "to")
"""Attributes whose value is an element type."""


def as_float32(model: onnx.ModelProto) -> None:
    """Make every float of the model float32: its weights, its constants, inputs and outputs."""
    for graph in all_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            if kind.elem_type in OTHER_FLOATS:
                kind.elem_type = TensorProto.FLOAT
        for tensor in graph.initializer:
            _convert(tensor)
        for sparse in graph.sparse_initializer:
            _convert(sparse.values)
    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _convert(attribute.t)
            elif attribute.name in TYPES and attribute.i in OTHER_FLOATS:
                attribute.i = TensorProto.FLOAT


def _convert(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in OTHER_FLOATS:
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
            values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
