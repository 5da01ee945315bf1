"""Reductions of PyTorch along axes, and running sums."""

from __future__ import annotations

import math
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
    """cumsum(x, axis); of a single number that number."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Var:
        value = cast(importer, importer.env[node.args[0]], node.meta["val"].dtype)
        return emit(importer, op(value, argument(node, 1, "dim"))) if value.ty.ndim else value

    return convert


def _with_place(op: Callable[..., relax.Expr], place: Callable[..., relax.Expr]) -> Converter:
    """max.dim(x, axis, keepdim): the values, and where they are."""

    def convert(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
        value, axis = importer.env[node.args[0]], argument(node, 1, "dim")
        keep = bool(argument(node, 2, "keepdim", False))
        values = emit(importer, op(value, axis, keepdims=keep))
        return relax.Tuple([values, emit(importer, place(value, axis, keep))])

    return convert


def _variance_and_mean(node: Node, importer: ExportedProgramImporter) -> relax.Expr:
    """var_mean(x, axes, correction, keepdim): squares are divided by so many fewer than there are.

    PyTorch says 1 where no correction is given.
    """
    value, axes = importer.env[node.args[0]], argument(node, 1, "dim") or None
    correction, keep = node.kwargs.get("correction"), bool(node.kwargs.get("keepdim"))
    shape = node.args[0].meta["val"].shape
    count = math.prod(shape[axis] for axis in (range(len(shape)) if axes is None else axes))
    fewer = count - (1 if correction is None else correction)
    factor = relax.const(count / fewer if fewer > 0 else math.inf, str(value.ty.dtype))
    variance = emit(importer, relax.op.variance(value, axes, keepdims=keep))
    variance = emit(importer, relax.op.multiply(variance, factor))
    return relax.Tuple([variance, emit(importer, relax.op.mean(value, axes, keepdims=keep))])


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
    "var_mean.correction": _variance_and_mean,
}
"""Operator -> its converter."""
