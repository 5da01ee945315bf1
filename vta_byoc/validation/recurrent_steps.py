"""Steps of ONNX's recurrent layers, which are operators here, out of a runtime's sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from vta_byoc.importers.onnx.recurrent import DIRECTIONS, KINDS, step_name
from vta_byoc.ir.bindings import SEPARATOR
from vta_byoc.ir.names import CELL

CELLS = 2
"""Number of the output of an LSTM that has its cells after the last step."""


@dataclass(frozen=True)
class RecurrentNode:
    """A node of a recurrent layer, whose outputs have names.

    Attributes:
        name: of the node.
        results: the tensor of the results of all steps, (steps, directions, batch, hidden).
        cells: that of the cells after the last step, (directions, batch, hidden); "" without.
        backward: of each direction, whether it goes from the end.
    """

    name: str
    results: str
    cells: str
    backward: tuple[bool, ...]

    @property
    def tensors(self) -> list[str]:
        """The tensors that `steps` reads."""
        return [self.results, *([self.cells] if self.cells else [])]

    def steps(self, found: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Variables of the imported module, each (batch, hidden), out of a runtime's tensors."""
        results = found[self.results]
        for number, is_backward in enumerate(self.backward):
            for step, values in enumerate(results[:, number]):
                yield step_name(self.name, step, number > 0), values
            if self.cells:
                last = 0 if is_backward else len(results) - 1
                yield step_name(self.name, last, number > 0, CELL), found[self.cells][number]


def recurrent_nodes(graph: onnx.GraphProto) -> list[RecurrentNode]:
    """The recurrent nodes of a graph; outputs that nothing reads get names in it."""
    return [_named(node) for node in graph.node if node.domain == "" and node.op_type in KINDS]


def _named(node: onnx.NodeProto) -> RecurrentNode:
    count = 1 + KINDS[node.op_type].states
    node.output.extend([""] * (count - len(node.output)))
    for number, output in enumerate(node.output):
        node.output[number] = output or f"{node.name}{SEPARATOR}{number}"
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    backward = DIRECTIONS[given.get("direction", b"forward").decode()]
    cells = node.output[CELLS] if count > CELLS else ""
    return RecurrentNode(node.name, node.output[0], cells, backward)
