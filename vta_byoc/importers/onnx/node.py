"""What a converter of an ONNX node is given: the node's inputs, and its attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict, cast

import numpy as np
import onnx
import onnx.defs
from onnx import helper
from tvm import relax

from vta_byoc.ir.bindings import is_constant


class Attributes(TypedDict, total=False):
    """The attributes that are read here; a name means the same for every operator that has it."""

    activations: Sequence[bytes]
    align_corners: int
    antialias: int
    alpha: float
    auto_pad: bytes
    axes: Sequence[int]
    axis: int
    batch_axis: int
    batch_dims: int
    beta: float
    block_size: int
    blocksize: int
    ceil_mode: int
    clip: float
    coordinate_transformation_mode: bytes
    cubic_coeff_a: float
    detect_negative: int
    detect_positive: int
    dilations: Sequence[int]
    direction: bytes
    do_rotary: int
    dtype: int
    end: int
    ends: Sequence[int]
    epsilon: float
    exclude_outside: int
    exclusive: int
    group: int
    input_forget: int
    interleaved: int
    inverse: int
    is_causal: int
    k: int
    kernel_shape: Sequence[int]
    kv_num_heads: int
    layout: int
    left_window_size: int
    linear_before_reset: int
    local_window_size: int
    mask_filter_value: float
    max: float
    min: float
    mode: bytes
    nearest_mode: bytes
    noop_with_empty_axes: int
    num_heads: int
    onesided: int
    output_dtype: int
    output_padding: Sequence[int]
    output_shape: Sequence[int]
    p: int
    pads: Sequence[int]
    q_num_heads: int
    qkv_hidden_sizes: Sequence[int]
    reverse: int
    right_window_size: int
    rotary_embedding_dim: int
    rotary_interleaved: int
    scale: float
    scales: Sequence[float]
    softcap: float
    spatial_scale: float
    start: int
    starts: Sequence[int]
    storage_order: int
    strides: Sequence[int]
    time_axis: int
    to: int
    transA: int
    transB: int
    transBatchA: int
    transBatchB: int
    unidirectional: int
    value: float


class Origin(TypedDict):
    """What TVM's importer says of the node."""

    name: str
    num_outputs: int


class NodeAttributes(Attributes):
    """Attributes as TVM's importer hands them to a converter."""

    tvm_custom: Origin


Converter = Callable[[list[relax.Expr], NodeAttributes], "relax.Expr | None"]
"""(inputs, None for one that is left out; attributes) -> the value; None as its result lets TVM's
converter do the work."""


def values_of(expr: relax.Expr | None) -> np.ndarray | None:
    """The elements of a constant; None for what is computed while the model runs, or left out."""
    return expr.value.numpy() if expr is not None and is_constant(expr) else None


def known_values(expr: relax.Expr, what: str) -> np.ndarray:
    """The elements of an operand that must be a constant.

    Raises:
        ValueError: it is computed while the model runs; `what` names it.
    """
    found = values_of(expr)
    if found is None:
        raise ValueError(f"its {what} is computed while the model runs; it must be a constant")
    return found


def attributes_of(node: onnx.NodeProto) -> Attributes:
    """Those that the node states."""
    found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return cast(Attributes, found)  # ONNX's schemas state the type of each


def set_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Give a graph other nodes; some may be its own."""
    kept = onnx.GraphProto(node=nodes)
    del graph.node[:]
    graph.node.extend(kept.node)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The branches of an If; few other operators have any."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and its subgraphs."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of the graph, and of its subgraphs."""
    for each in all_graphs(graph):
        yield from each.node


def opset_of(model: onnx.ModelProto) -> int:
    """The opset of the default domain."""
    return next((s.version for s in model.opset_import if s.domain in ("", "ai.onnx")), 1)


def schema_of(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    """What ONNX says of an operator of its own domain; None for one that it does not have."""
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None
