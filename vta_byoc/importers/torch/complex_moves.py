"""Moves of complex numbers of PyTorch programs, which leave the two parts of each together.

A complex tensor of shape s is a float tensor (*s, 2) (`complex_numbers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.torch.arguments import Converter, argument, emit, is_complex
from vta_byoc.importers.torch.spectra import rank_of
from vta_byoc.ir.bindings import static_shape

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


def not_compiled(node: Node, what: str) -> VTAError:
    """An operator that is taken, and not in this form."""
    return VTAError(
        f'node "{node.name}" ({node.target.__name__}) works on complex numbers, and {what}; that '
        "is not compiled; write it with real and imaginary parts"
    )


def _moved(move: Callable[[Node, relax.Expr], relax.Expr]) -> Converter:
    """A move of elements, which leaves the two parts of each together."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        return emit(importer, move(node, importer.env[node.args[0]]))

    return convert


def _viewed(node: Node, value: relax.Expr) -> relax.Expr:
    return relax.op.reshape(value, (*node.meta["val"].shape, 2))


def _permuted(node: Node, value: relax.Expr) -> relax.Expr:
    rank = rank_of(node)
    return relax.op.permute_dims(value, [*(dim % rank for dim in node.args[1]), rank])


def _expanded(node: Node, value: relax.Expr) -> relax.Expr:
    return relax.op.broadcast_to(value, (*node.meta["val"].shape, 2))


def _sliced(node: Node, value: relax.Expr) -> relax.Expr:
    """slice(x, dim, start, end, step)."""
    shape = static_shape(value)
    dim = int(argument(node, 1, "dim", 0)) % (len(shape) - 1)
    limits = slice(
        argument(node, 2, "start"), argument(node, 3, "end"), argument(node, 4, "step", 1)
    )
    start, end, step = limits.indices(shape[dim])
    return relax.op.strided_slice(value, [dim], [start], [end], [step])


def _selected(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """select(x, dim, index)."""
    value = importer.env[node.args[0]]
    shape = static_shape(value)
    dim = node.args[1] % (len(shape) - 1)
    at = node.args[2] % shape[dim]
    piece = emit(importer, relax.op.strided_slice(value, [dim], [at], [at + 1]))
    return emit(importer, relax.op.squeeze(piece, [dim]))


def _chosen(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """index_select(x, dim, indices)."""
    value, dim, index = importer.env[node.args[0]], node.args[1] % rank_of(node), node.args[2]
    return emit(importer, relax.op.take(value, importer.env[index], dim))


def _flipped(node: Node, value: relax.Expr) -> relax.Expr:
    """flip(x, dims), axis by axis."""
    rank = rank_of(node)
    for dim in node.args[1]:
        value = relax.op.flip(value, dim % rank)
    return value


def _padded(node: Node, value: relax.Expr) -> relax.Expr:
    """constant_pad_nd(x, widths, number) with widths of the last axis first."""
    number, widths = argument(node, 2, "value", 0), list(node.args[1])
    if number != 0 or min(widths, default=0) < 0:
        raise not_compiled(node, "it cuts, or pads with another number than 0")
    rank = rank_of(node)
    pairs = [widths[at : at + 2] for at in range(0, len(widths), 2)][::-1]
    whole = [[0, 0]] * (rank - len(pairs)) + pairs + [[0, 0]]
    return relax.op.nn.pad(value, [width for pair in whole for width in pair])


def _concatenated(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """cat(tensors, dim)."""
    if not all(map(is_complex, node.args[0])):
        raise not_compiled(node, "some of its tensors are real")
    dim = int(argument(node, 1, "dim", 0)) % rank_of(node)
    return emit(importer, relax.op.concat([importer.env[each] for each in node.args[0]], dim))


def _scattered(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """slice_scatter(x, part, dim, start, end, step): `x` with another part in the place of one."""
    value, part = (importer.env[each] for each in node.args[:2])
    if not all(map(is_complex, node.args[:2])) or argument(node, 5, "step", 1) != 1:
        raise not_compiled(node, "one of its tensors is real, or it has a step")
    dim = int(argument(node, 2, "dim", 0)) % rank_of(node)
    size = static_shape(value)[dim]
    start, end, _ = slice(argument(node, 3, "start"), argument(node, 4, "end")).indices(size)
    sides = [
        emit(importer, relax.op.strided_slice(value, [dim], [low], [high]))
        for low, high in ((0, start), (end, size))
        if low < high
    ]
    parts = [*sides[: start > 0], part, *sides[start > 0 :]]
    return emit(importer, relax.op.concat(parts, dim)) if len(parts) > 1 else part


MOVES: Mapping[str, Converter] = {
    "cat.default": _concatenated,
    "constant_pad_nd.default": _moved(_padded),
    "expand.default": _moved(_expanded),
    "flip.default": _moved(_flipped),
    "index_select.default": _chosen,
    "permute.default": _moved(_permuted),
    "select.int": _selected,
    "slice.Tensor": _moved(_sliced),
    "slice_scatter.default": _scattered,
    "squeeze.dims": _moved(_viewed),
    "unsqueeze.default": _moved(_viewed),
    "view.default": _moved(_viewed),
}
"""Operator -> its converter for complex numbers."""
