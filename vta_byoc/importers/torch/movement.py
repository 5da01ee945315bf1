"""Operators of PyTorch that move data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.importers.torch.arguments import (
    Converter,
    argument,
    cast,
    emit,
    operand,
)

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


def _concatenated(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """cat(tensors, axis) in the dtype that all are promoted to.

    Tensors of one axis without elements do not count.
    """
    dtype, rank = node.meta["val"].dtype, node.meta["val"].ndim
    parts = [part for part in node.args[0] if part.meta["val"].ndim == rank]
    values = [operand(importer, part, dtype) for part in parts]
    return emit(importer, relax.op.concat(values, argument(node, 1, "dim", 0)))


def _squeeze(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """squeeze.dims drops those of the axes that have one element."""
    shape = node.meta["val"].shape
    return emit(importer, relax.op.reshape(importer.env[node.args[0]], list(shape)))


def _copied(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """copy(x, source): the source, in the dtype and shape of `x`."""
    value = node.meta["val"]
    source = cast(importer, importer.env[node.args[1]], value.dtype)
    return emit(importer, relax.op.broadcast_to(source, list(value.shape)))


def _scatter(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """scatter.src(x, axis, index, source): as much of the source as there are indices."""
    x, axis, index, source = node.args
    sizes = list(index.meta["val"].shape)
    updates = importer.env[source]
    if sizes != list(source.meta["val"].shape):
        axes = list(range(len(sizes)))
        updates = emit(importer, relax.op.strided_slice(updates, axes, [0] * len(axes), sizes))
    data, at = importer.env[x], importer.env[index]
    return emit(importer, relax.op.scatter_elements(data, at, updates, axis))


def _slice_scattered(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """slice_scatter(x, source, axis, start, end, step), limits as in Python."""
    data, source = (importer.env[arg] for arg in node.args[:2])
    axis, shape = argument(node, 2, "dim", 0), node.meta["val"].shape
    limits = slice(argument(node, 3, "start"), argument(node, 4, "end"), argument(node, 5, "step"))
    start, end, step = (relax.prim_value(v) for v in limits.indices(shape[axis]))
    return emit(importer, relax.op.slice_scatter(data, source, start, end, step, axis=axis))


MOVEMENT: dict[str, Converter] = {
    "cat.default": _concatenated,
    "copy.default": _copied,
    "scatter.src": _scatter,
    "slice_scatter.default": _slice_scattered,
    "squeeze.dims": _squeeze,
}
"""Operator -> its converter."""
