"""Attention whose tokens are columns: `values @ sharesᵀ`, and softmax over the axis before the last.

Convolutional networks attend over the pixels of [images, channels, pixels]. Their products are the
transposed ones of attention over tokens, [images, tokens, channels].
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.calls import axes_of, shape_of
from vta_byoc.importers.canonicalize.softmax_rules import MATMUL, SOFTMAX
from vta_byoc.importers.canonicalize.view_rules import PERMUTE_DIMS, chain_of_views
from vta_byoc.ir.bindings import SEPARATOR, is_constant
from vta_byoc.ir.rewriter import Rewriter, Rule


def turned(rank: int) -> list[int]:
    """The order of axes that exchanges the last two."""
    return [*range(rank - 2), rank - 1, rank - 2]


def shares_first(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """values @ transposed(shares) is transposed(shares @ transposed(values))."""
    values, right = call.args
    turn, shape = rewriter.producer_of(right, PERMUTE_DIMS), shape_of(call)
    if turn is None or shape is None or is_constant(values) or values.ty.ndim != len(shape):
        return None
    order = turned(len(shape))
    source, _ = chain_of_views(rewriter, turn.args[0])
    if axes_of(turn) != order or rewriter.producer_of(source, SOFTMAX) is None:
        return None
    name = str(rewriter.name)
    rows = relax.op.permute_dims(values, order)
    rows = rewriter.as_variable(rows, f"{name}{SEPARATOR}values")
    product = relax.Call(call.op, [turn.args[0], rows], call.attrs, call.ty_args)
    product = rewriter.as_variable(product, f"{name}{SEPARATOR}rows")
    return relax.op.permute_dims(product, order)


SHARE_RULES: dict[str, Sequence[Rule]] = {MATMUL: (shares_first,)}
"""Operator -> its rules, in the order in which they are tried."""
