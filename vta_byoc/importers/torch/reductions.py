"""Reductions of PyTorch along axes, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.torch.arguments import (
    Converter,
    argument,
    cast,
    emit,
)

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter


def _any(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """any(x), any(x, axes, keepdim): whether an element is not zero."""
    import torch

    axes = argument(node, 1, "dim")
    value = importer.env[node.args[0]]
    is_set = cast(importer, cast(importer, value, torch.bool), torch.int8)
    largest = emit(
        importer, relax.op.max(is_set, axes, keepdims=bool(argument(node, 2, "keepdim")))
    )
    return cast(importer, largest, torch.bool)


def _in_result_dtype(op: Callable[..., relax.Expr]) -> Converter:
    """op(x, axis, keepdim) in the dtype of the result: integers are multiplied as int64."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = cast(importer, importer.env[node.args[0]], node.meta["val"].dtype)
        axis, keep = argument(node, 1, "dim"), bool(argument(node, 2, "keepdim", False))
        return emit(importer, op(value, axis, keepdims=keep))

    return convert


def _running(op: Callable[..., relax.Expr]) -> Converter:
    """cumsum(x, axis)."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = cast(importer, importer.env[node.args[0]], node.meta["val"].dtype)
        return emit(importer, op(value, argument(node, 1, "dim")))

    return convert


def _with_place(op: Callable[..., relax.Expr], place: Callable[..., relax.Expr]) -> Converter:
    """max.dim(x, axis, keepdim): the values, and where they are."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        value, axis = importer.env[node.args[0]], argument(node, 1, "dim")
        keep = bool(argument(node, 2, "keepdim", False))
        values = emit(importer, op(value, axis, keepdims=keep))
        return relax.Tuple([values, emit(importer, place(value, axis, keep))])

    return convert


def _norm(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """linalg_vector_norm of any order but 0, which counts."""
    if argument(node, 1, "ord", 2) == 0:
        raise VTAError(
            f'node "{node.name}" ({node.target.__name__}) has the order 0; orders other than 0 are '
            "imported; write it as (x != 0).sum()"
        )
    return importer._norm(node)


def _extreme(op: Callable[..., relax.Expr]) -> Converter:
    """amax(x, axes, keepdim)."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        axes = argument(node, 1, "dim") or None
        keep = bool(argument(node, 2, "keepdim", False))
        return emit(importer, op(importer.env[node.args[0]], axes, keepdims=keep))

    return convert


REDUCTIONS: dict[str, Converter] = {
    "amax.default": _extreme(relax.op.max),
    "amin.default": _extreme(relax.op.min),
    "any.default": _any,
    "any.dim": _any,
    "any.dims": _any,
    "cumprod.default": _running(relax.op.cumprod),
    "cumsum.default": _running(relax.op.cumsum),
    "linalg_vector_norm.default": _norm,
    "max.dim": _with_place(relax.op.max, relax.op.argmax),
    "min.dim": _with_place(relax.op.min, relax.op.argmin),
    "prod.default": _in_result_dtype(relax.op.prod),
    "prod.dim_int": _in_result_dtype(relax.op.prod),
}
"""Operator -> its converter."""
