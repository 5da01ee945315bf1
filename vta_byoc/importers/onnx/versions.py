"""ONNX files of old versions: raised to the first one whose operators broadcast as today's do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx.version_converter
from onnx import helper

from vta_byoc.base.boundary import reason_of
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.onnx.node import opset_of, set_nodes

OLDEST = 7
"""The first opset without the attribute `broadcast`; what is older is converted to it."""


def usable(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The model itself, or what ONNX's version converter makes of one below opset `OLDEST`.

    Raises:
        VTAError: the file is of no valid form, or has an operator that the converter does not
            convert.
    """
    opset = opset_of(model)
    if opset >= OLDEST:
        return model
    try:
        onnx.checker.check_model(model)
        _place_operands(onnx.shape_inference.infer_shapes(model).graph, model.graph)
        return onnx.version_converter.convert_version(model, OLDEST)
    except Exception as error:
        reason = reason_of(error).rsplit("failed: ", 1)[-1]
        raise VTAError(
            f'model file "{path}" is of opset {opset}, and ONNX\'s converter cannot make opset '
            f"{OLDEST} of it: {reason}; export it again with opset {OLDEST} or later"
        ) from error


def _place_operands(known: onnx.GraphProto, graph: onnx.GraphProto) -> None:
    """Give second operands that are broadcast from an axis the ones that follow it in the first.

    The converter inserts too many. `known` is the graph with shapes.
    """
    ranks = {each.name: len(each.dims) for each in graph.initializer}
    for value in (*known.input, *known.value_info, *known.output):
        if value.type.tensor_type.HasField("shape"):
            ranks.setdefault(value.name, len(value.type.tensor_type.shape.dim))
    nodes = []
    for node in graph.node:
        given = {each.name: each.i for each in node.attribute if each.name in (BROADCAST, AXIS)}
        if given.get(BROADCAST) and AXIS in given:
            first, second = (_rank(name, ranks) for name in node.input)
            start = given[AXIS] % first
            behind = list(range(second, first - start))
            placed = f"{node.output[0]}_{BROADCAST}"
            if behind:
                nodes.append(helper.make_node("Unsqueeze", [node.input[1]], [placed], axes=behind))
                node.input[1] = placed
            kept = [each for each in node.attribute if each.name != AXIS]
            del node.attribute[:]
            node.attribute.extend(kept)
        nodes.append(node)
    set_nodes(graph, nodes)


def _rank(name: str, ranks: Mapping[str, int]) -> int:
    if name not in ranks:
        raise ValueError(f'the rank of "{name}" is not known')
    return ranks[name]


BROADCAST, AXIS = "broadcast", "axis"
