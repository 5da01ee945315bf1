"""What a converter of an ONNX node is given: the node's inputs, and its attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, cast

import onnx
from onnx import helper
from tvm import relax


class Attributes(TypedDict, total=False):
    """The attributes that are read here; a name means the same for every operator that has it."""

    activations: Sequence[bytes]
    align_corners: int
    alpha: float
    auto_pad: bytes
    axes: Sequence[int]
    axis: int
    batch_dims: int
    beta: float
    block_size: int
    ceil_mode: int
    clip: float
    coordinate_transformation_mode: bytes
    dilations: Sequence[int]
    direction: bytes
    end: int
    group: int
    input_forget: int
    kernel_shape: Sequence[int]
    layout: int
    linear_before_reset: int
    max: float
    min: float
    mode: bytes
    noop_with_empty_axes: int
    output_dtype: int
    output_padding: Sequence[int]
    output_shape: Sequence[int]
    pads: Sequence[int]
    scales: Sequence[float]
    spatial_scale: float
    start: int
    strides: Sequence[int]
    transA: int
    transB: int
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


def attributes_of(node: onnx.NodeProto) -> Attributes:
    """Those that the node states."""
    found = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return cast(Attributes, found)  # ONNX's schemas state the type of each
