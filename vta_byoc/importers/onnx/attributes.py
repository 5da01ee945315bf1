"""ONNX operators and attributes that are refused, as TVM's importer would miscompute them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
from onnx import helper, numpy_helper

from vta_byoc.hw.errors import VTAError

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
TAKEN: Mapping[tuple[str, str], tuple[int | str, ...]] = {
    ("BatchNormalization", "training_mode"): (0,),
    ("LpPool", "ceil_mode"): (0,),
    ("Resize", "coordinate_transformation_mode"): COORDINATES,
    ("Resize", "keep_aspect_ratio_policy"): ("stretch",),
    ("RoiAlign", "mode"): ("avg",),
}
"""(operator, attribute) -> the values that are computed as ONNX says."""
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("Loop", "Scan"), "control flow is not compiled"),
    **dict.fromkeys(
        ("AllClassNMS", "Compress", "NonMaxSuppression", "NonZero", "Unique"),
        "the shape of its result depends on the data, and every shape must be known",
    ),
    "SequenceEmpty": "sequences are taken apart when the model is loaded; this one has no parts",
}
"""Operator -> why it is not imported though TVM's importer has a converter for it."""
TRAINING_INPUT = 2
"""Of Dropout: whether it drops anything."""


def check_attributes(graph: onnx.GraphProto) -> None:
    """Refuse what would be imported as something else.

    Raises:
        VTAError: the node, its attribute, and the values that are taken.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for name, value, taken in _given(node, constants):
            if value not in taken:
                listed = ", ".join(map(str, taken))
                raise VTAError(
                    f'node "{node.name or node.output[0]}" ({node.op_type}) has {name} = {value}; '
                    f"only {listed} is imported as ONNX defines it; export the model for "
                    "inference, with that"
                )


def _given(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> Iterator[tuple[str, int | str, tuple[int | str, ...]]]:
    """(attribute, its value, the values that are taken) of the attributes to check."""
    for attribute in node.attribute:
        taken = TAKEN.get((node.op_type, attribute.name))
        if taken is not None:
            value = helper.get_attribute_value(attribute)
            yield attribute.name, value.decode() if isinstance(value, bytes) else value, taken
    if node.op_type == "Dropout" and len(node.input) > TRAINING_INPUT:
        training = constants.get(node.input[TRAINING_INPUT])
        if training is not None:
            yield "training_mode", int(numpy_helper.to_array(training).reshape(-1)[0]), (0,)
