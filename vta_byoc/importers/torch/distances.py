"""Distances between the rows of matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.importers.torch.arguments import Converter, argument, emit

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

PRODUCT_FROM = 26
"""Rows from which PyTorch computes Euclidean distances by a product of matrices, if left to it."""
WHERE_NEEDED, ALWAYS, _NEVER = range(3)
"""Its modes: when such distances are computed by a product."""


def _distances(node: Node, importer: ExportedProgramImporter) -> relax.Var:
    """_cdist_forward(a, b, p, mode): [..., M, N], of rows [..., M, K] to rows [..., N, K]."""
    one, two = (importer.env[arg] for arg in node.args[:2])
    order, mode = float(argument(node, 2, "p")), argument(node, 3, "compute_mode") or WHERE_NEEDED
    rows = max(int(value.ty.shape[-2]) for value in (one, two))
    is_needed = mode == ALWAYS or (mode == WHERE_NEEDED and rows >= PRODUCT_FROM)
    if order == 2 and is_needed:
        return emit(importer, _by_product(one, two))
    apart = relax.op.subtract(relax.op.expand_dims(one, [-2]), relax.op.expand_dims(two, [-3]))
    return emit(importer, _length(emit(importer, relax.op.abs(apart)), order))


def _by_product(one: relax.Expr, two: relax.Expr) -> relax.Expr:
    """Euclidean distances by |a|^2 + |b|^2 - 2 ab."""
    axes = list(range(two.ty.ndim))
    turned = relax.op.permute_dims(two, [*axes[:-2], axes[-1], axes[-2]])
    of_one = relax.op.sum(relax.op.multiply(one, one), [-1], keepdims=True)
    of_two = relax.op.sum(relax.op.multiply(turned, turned), [-2], keepdims=True)
    both = relax.op.multiply(relax.op.matmul(one, turned), _number(one, 2))
    squares = relax.op.subtract(relax.op.add(of_one, of_two), both)
    return relax.op.sqrt(relax.op.maximum(squares, _number(one, 0)))  # rounding goes below 0


def _length(sizes: relax.Var, order: float) -> relax.Expr:
    """The norm of the last axis, whose values are positive."""
    if order == 0:
        is_apart = relax.op.not_equal(sizes, _number(sizes, 0))
        return relax.op.sum(relax.op.astype(is_apart, str(sizes.ty.dtype)), [-1])
    if order == 1:
        return relax.op.sum(sizes, [-1])
    if order == math.inf:
        return relax.op.max(sizes, [-1])
    if order == 2:
        return relax.op.sqrt(relax.op.sum(relax.op.multiply(sizes, sizes), [-1]))
    powers = relax.op.sum(relax.op.power(sizes, _number(sizes, order)), [-1])
    return relax.op.power(powers, _number(sizes, 1 / order))


def _number(beside: relax.Expr, value: float) -> relax.Constant:
    return relax.const(value, str(beside.ty.dtype))


DISTANCES: dict[str, Converter] = {"_cdist_forward.default": _distances}
"""Operator -> its converter."""
