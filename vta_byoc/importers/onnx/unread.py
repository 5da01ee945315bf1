"""What is not read: results that no node wants, and what a converter leaves out of a node.

The former are dropped.  The latter is an error, as the node would be imported as another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx.defs
from onnx import AttributeProto, helper
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from vta_byoc.importers.onnx.fused import domain_of
from vta_byoc.importers.onnx.node import all_graphs, all_nodes, opset_of, schema_of

HARMLESS: Mapping[str, frozenset[str]] = {
    op_type: frozenset(names.split())
    for op_type, names in {
        "Attention": "qk_matmul_output_mode softmax_precision",  # of a result not taken; digits
        "BatchNormalization": "momentum spatial",
        "Cast": "round_mode saturate",  # of 8-bit floats, which are refused
        "CastLike": "round_mode saturate",
        "Dropout": "ratio seed",
        "GRU": "hidden_size",
        "GroupNormalization": "stash_type",
        "LSTM": "hidden_size",
        "LayerNormalization": "stash_type",
        "MaxPool": "storage_order",  # of the places, where these are results
        "RMSNormalization": "stash_type",
        "RNN": "hidden_size",
        "Range": "stash_type",
        "Split": "num_outputs",  # as many as the node has
    }.items()
}
"""Operator -> attributes that change no result of inference here."""
UNUSED_OPERANDS: Mapping[str, frozenset[int]] = {
    "Dropout": frozenset({1}),  # how much it drops
    "GroupQueryAttention": frozenset({5, 6}),  # lengths: a token sees no key behind its own
    "Resize": frozenset({1}),  # a region, which TVM's converter reads where places are in one
}
"""Operator -> operands that change no result of inference."""
NEUTRAL = (0, -1, b"", b"NONE")
"""Values that leave an option of ONNX Runtime's own operators out."""


class Attributes(dict[str, Any]):
    """Attributes that remember which of them were read."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As of any dictionary."""
        self.read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


class Operands(onnx_input):
    """Operands that remember which of them were read."""

    def __init__(self, given: list[relax.Expr | None]) -> None:
        super().__init__(given)
        self.read: set[int] = set()

    def __getitem__(self, item: int | slice) -> Any:
        """None for an operand behind the last one, as TVM's converters expect."""
        if isinstance(item, slice):
            stop = len(self) if item.stop is None else item.stop
            return [self[place] for place in range(stop)[item]]
        place = item + len(self) if item < 0 else item
        self.read.add(place)
        return list.__getitem__(self, place) if place < len(self) else None

    def __iter__(self) -> Iterator[Any]:
        self.read.update(range(len(self)))
        return super().__iter__()

    def __add__(self, more: list[Any]) -> list[Any]:
        """All of them and more, as converters of old versions hand them to those of newer ones."""
        return [*self, *more]


def drop_results(model: onnx.ModelProto) -> None:
    """Drop results that are optional and that nothing reads, from the last one on.

    Exporters name the mean of a normalization, or the mask of a Dropout, whether or not it is used.
    """
    opset = opset_of(model)
    read = {value.name for graph in all_graphs(model.graph) for value in graph.output}
    read |= {name for node in all_nodes(model.graph) for name in node.input if name}
    for node in all_nodes(model.graph):
        schema = None if domain_of(node) else schema_of(node.op_type, opset)
        while schema is not None and len(node.output) > 1 and node.output[-1] not in read:
            last = schema.outputs[min(len(node.output), len(schema.outputs)) - 1]
            if last.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
                break
            del node.output[-1]


def check_read(node: onnx.NodeProto, attrs: Attributes, operands: Operands, opset: int) -> None:
    """Refuse a node of which the converter left something out.

    Raises:
        ValueError: the attribute and its value, or the place of the operand.
    """
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        read = attribute.name in attrs.read or attribute.name in HARMLESS.get(node.op_type, ())
        if not read and not _is_default(node, attribute, value, opset):
            shown = value.decode() if isinstance(value, bytes) else value
            raise ValueError(f"its attribute {attribute.name} = {shown} is not supported")
    for place, name in enumerate(node.input):
        unused = UNUSED_OPERANDS.get(node.op_type, frozenset())
        if name and place not in operands.read and place not in unused:
            raise ValueError(f'its operand {place}, "{name}", is not supported')


def _is_default(node: onnx.NodeProto, attribute: AttributeProto, value: object, opset: int) -> bool:
    if domain_of(node):
        return value in NEUTRAL
    schema = schema_of(node.op_type, opset)
    known = None if schema is None else schema.attributes.get(attribute.name)
    default = None if known is None else known.default_value
    return (
        default is not None and default.name != "" and helper.get_attribute_value(default) == value
    )
