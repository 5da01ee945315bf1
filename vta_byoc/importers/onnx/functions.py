"""Operators that ONNX defines by simpler ones, written out where nothing converts them whole."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx.defs
import onnx.inliner
import onnx.shape_inference
from onnx import helper

from vta_byoc.importers.onnx.checks import is_known
from vta_byoc.importers.onnx.fused import domain_of
from vta_byoc.importers.onnx.node import all_nodes, opset_of, schema_of


def written_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with the bodies that ONNX's specification gives in place of such operators."""
    opset = opset_of(model)
    met: set[str] = set()
    while True:
        defined = {
            node.op_type
            for node in all_nodes(model.graph)
            if _is_new(node) and not domain_of(node) and _has_body(node.op_type, opset)
        }
        if defined <= met:
            return model
        met |= defined
        try:
            model = _inlined(model, defined, opset)
        except (RuntimeError, ValueError, onnx.shape_inference.InferenceError):
            return model  # too large, or of types not found: the operator is refused by its name


def _is_new(node: onnx.NodeProto) -> bool:
    """Whether no converter takes the node: its operator, or the results of one with statistics."""
    return not is_known(node) or (node.op_type == "LayerNormalization" and len(node.output) > 1)


def _inlined(model: onnx.ModelProto, names: Collection[str], opset: int) -> onnx.ModelProto:
    """With the bodies in place of the operators of these names.

    ONNX's inliner looks for the types of operands among values, and knows no default attributes.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    for node in all_nodes(typed.graph):
        if node.op_type in names and not domain_of(node):
            stated = {attribute.name for attribute in node.attribute}
            for name, each in onnx.defs.get_schema(node.op_type, opset).attributes.items():
                if name not in stated and each.default_value.name:
                    node.attribute.append(each.default_value)
    for tensor in typed.graph.initializer:
        typed.graph.value_info.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    ids = [("", name) for name in sorted(names)]
    result = onnx.inliner.inline_selected_functions(typed, ids, inline_schema_functions=True)
    del result.graph.value_info[:]
    return result


def _has_body(op_type: str, opset: int) -> bool:
    schema = schema_of(op_type, opset)
    return schema is not None and any(getattr(schema, flag) for flag in BODIES)


BODIES = ("has_function", "has_context_dependent_function")
"""Of a schema: two ways of definition, which the type stubs of onnx leave out."""
