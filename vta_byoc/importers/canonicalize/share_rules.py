"""Products of an attention in other forms: values before the shares, a factor for each head.

Convolutional networks attend over the pixels of (images, channels, pixels). Their products are the
transposed ones of attention over tokens, (images, tokens, channels).
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.softmax_rules import MATMUL, SOFTMAX
from vta_byoc.importers.canonicalize.view_rules import chain_of_views
from vta_byoc.ir.bindings import SEPARATOR, is_constant
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import exchange, exchanges


def shares_first(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """What values @ transposed(shares) is: transposed(shares @ transposed(values))."""
    values, right = call.args
    turn, shape = rewriter.producer(right), shape_of(call)
    if not exchanges(turn) or shape is None or is_constant(values) or values.ty.ndim != len(shape):
        return None
    order = exchange(len(shape))
    source, _ = chain_of_views(rewriter, turn.args[0])
    if rewriter.producer_of(source, SOFTMAX) is None:
        return None
    name = str(rewriter.name)
    rows = relax.op.permute_dims(values, order)
    rows = rewriter.as_variable(rows, f"{name}{SEPARATOR}values")
    product = relax.Call(call.op, [turn.args[0], rows], call.attrs, call.ty_args)
    product = rewriter.as_variable(product, f"{name}{SEPARATOR}rows")
    return relax.op.permute_dims(product, order)


def factors_ahead(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """(x @ y) * c is (x * c) @ y where c is one number for each matrix, of several.

    Attention over normalized queries and keys has such temperatures, one for each head.
    """
    product, factor = call.args
    made, shape = rewriter.producer_of(product, MATMUL), shape_of(call)
    if made is None or shape is None or not is_constant(factor) or shape != shape_of(product):
        return None
    if is_constant(made.args[1]) or rewriter.is_shared(product):
        return None
    values = factor.value.numpy()
    left = shape_of(made.args[0])
    if values.size == 1 or values.shape[-2:] != (1, 1) or left is None or left[:-2] != shape[:-2]:
        return None
    name = str(rewriter.name)
    rows = relax.op.multiply(made.args[0], factor)
    rows = rewriter.as_variable(rows, f"{name}{SEPARATOR}rows")
    return relax.Call(made.op, [rows, made.args[1]], made.attrs, made.ty_args)


SHARE_RULES: dict[str, Sequence[Rule]] = {
    MATMUL: (shares_first,),
    "relax.multiply": (factors_ahead,),
}
"""Operator -> its rules, in the order in which they are tried."""
