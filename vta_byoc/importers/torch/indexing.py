"""Operators of PyTorch that take elements at places, or windows one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.importers.torch.arguments import Converter, argument, emit

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


def _indexed(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """index(x, indices): the elements whose places the index tensors, broadcast, name together.

    An axis without an index stays.  The axes of the indices stand where the axes were that they
    point into, or in front of all where an axis that stays is between those.
    """
    given = {axis: index for axis, index in enumerate(node.args[1]) if index is not None}
    x, rank = importer.env[node.args[0]], node.args[0].meta["val"].ndim
    if len(given) == 1:
        ((axis, index),) = given.items()
        return emit(importer, relax.op.take(x, importer.env[index], axis))
    common = np.broadcast_shapes(*(tuple(i.meta["val"].shape) for i in given.values()))
    indices = [
        emit(importer, relax.op.broadcast_to(importer.env[index], common))
        for index in given.values()
    ]
    kept = [axis for axis in range(rank) if axis not in given]
    x = emit(importer, relax.op.permute_dims(x, [*given, *kept]))
    taken = emit(importer, relax.op.index_tensor(x, indices))
    first, count = min(given), len(common)
    if not first or max(given) - first >= len(given):
        return taken
    order = [*range(count, count + first), *range(count), *range(count + first, count + len(kept))]
    return emit(importer, relax.op.permute_dims(taken, order))


def _unfolded(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """unfold(x, axis, size, step): all windows of an axis; their elements are the last axis."""
    x, shape = importer.env[node.args[0]], node.args[0].meta["val"].shape
    if not shape:  # a number has one window, itself
        return emit(importer, relax.op.reshape(x, tuple(node.meta["val"].shape)))
    axis, size, step = node.args[1] % len(shape), node.args[2], argument(node, 3, "step")
    starts = np.arange(0, shape[axis] - size + 1, step)
    places = relax.const(starts[:, None] + np.arange(size), "int64")
    windows = emit(importer, relax.op.take(x, places, axis))
    order = [number for number in range(len(shape) + 1) if number != axis + 1]
    return emit(importer, relax.op.permute_dims(windows, [*order, axis + 1]))


INDEXING: dict[str, Converter] = {
    "index.Tensor": _indexed,
    "unfold.default": _unfolded,
}
"""Operator -> its converter."""
