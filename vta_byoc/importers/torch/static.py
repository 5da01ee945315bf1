"""Nodes of a PyTorch program whose results are known before it runs: positions, masks, tables.

PyTorch computes them itself, with its own dtypes, while the program is imported.  What a
quantized weight stands for is not computed: it has to stay an integer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.importers.onnx.static import MAX_BYTES
from vta_byoc.ir.bindings import constant_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

STAY = ("quantize", "dequantize", "choose_qparams")
"""What the names of operators begin with that are never computed."""
RANDOM = ("rand", "bernoulli", "dropout", "normal", "multinomial", "empty")


class Known:
    """The values of nodes, as far as they depend on no input of the model.

    Args:
        program: a decomposed `torch.export.ExportedProgram`.
    """

    def __init__(self, program: ExportedProgram) -> None:
        signature = program.graph_signature
        state = {**program.state_dict, **program.constants}
        named = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._given = {node: state[name] for node, name in named.items() if name in state}
        self._values: dict[Node, torch.Tensor] = {}

    def value(self, node: Node) -> relax.Expr | None:
        """The result of a call as a constant; nodes must be asked for in the order of the program.

        None if it is not known, no tensor, or larger than `MAX_BYTES`.
        """
        if node.op == "placeholder" and node.name in self._given:
            self._values[node] = self._given[node.name]
        if node.op != "call_function" or not self._is_known(node):
            return None
        result = self._computed(node)
        self._values[node] = result
        return constant_of(as_real(result).detach().cpu().numpy())

    def _is_known(self, node: Node) -> bool:
        name = node.target.__name__
        if name.startswith((*STAY, *RANDOM)) or not name.partition(".")[2]:
            return False
        if not all(argument in self._values for argument in node.all_input_nodes):
            return False
        return _nbytes(node.meta.get("val")) <= MAX_BYTES

    def _computed(self, node: Node) -> torch.Tensor:
        import torch
        from torch.fx.node import map_arg

        given = self._values.__getitem__
        args, kwargs = map_arg(node.args, given), map_arg(node.kwargs, given)
        with torch.no_grad():
            return node.target(*args, **kwargs)


def as_real(value: torch.Tensor) -> torch.Tensor:
    """The two parts of complex numbers as a last axis; other numbers as they are."""
    import torch

    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _nbytes(meta: torch.Tensor | None) -> float:
    """Of a tensor that the exporter described; infinite for anything else."""
    shape = getattr(meta, "shape", None)
    if meta is None or shape is None or not all(isinstance(dim, int) for dim in shape):
        return math.inf
    return math.prod(shape) * int(meta.element_size())
