"""Rows that a reshape parts or joins, behind the operators that compute each row alike.

Tokens (1, T, C) are seen as an image (1, H, W, C) for a convolution, and rows of an image as a
matrix for a linear layer. Operators of rows come in front of such a reshape, where it meets the one
back, or the permutation to (1, C, H, W).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.calls import same_type, shape_of
from vta_byoc.importers.canonicalize.chain_rules import WITH_CONSTANT
from vta_byoc.importers.canonicalize.channel_rules import LAST, MOVED
from vta_byoc.importers.canonicalize.norm_rules import LAYER_NORM, RMS_NORM
from vta_byoc.ir.bindings import SEPARATOR, constant_of, is_constant, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import PERMUTE_DIMS, RESHAPES, axes_of

MATMUL = "relax.matmul"


def rows_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """What f(reshape(x)) is: reshape(f(x)), where f computes each row (..., C) by itself."""
    shape, before = shape_of(call), shape_of(call.args[0])
    if shape is None or before is None or shape[:-1] != before[:-1]:
        return None
    args = [_without(rewriter, arg, before) for arg in _rows_of(call)]
    known = [arg for arg in args if arg is not None]
    if not args or len(known) < len(args) or any(not same_type(a, known[0]) for a in known):
        return None
    rest = call.args[len(args) :]
    if not all(_of_columns(arg, call) for arg in rest):
        return None
    value = rewriter.as_variable(_again(call, [*known, *rest]), f"{rewriter.name}{SEPARATOR}rows")
    return relax.op.reshape(value, shape)


def one_matrix(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """One matrix for each image, all alike: x @ w with that matrix.

    PyTorch writes a linear layer of a tensor that it has just permuted so.
    """
    data, weight = call.args
    if not is_constant(weight) or is_constant(data):
        return None
    values, shape, result = weight.value.numpy(), shape_of(data), shape_of(call)
    if values.ndim < 3 or shape is None or result is None or shape[:-1] != result[:-1]:
        return None
    first = values.reshape(-1, *values.shape[-2:])[0]
    if (values != first).any():
        return None
    return relax.Call(call.op, [data, constant_of(first)], call.attrs, call.ty_args)


def _rows_of(call: relax.Call) -> Sequence[relax.Expr]:
    """The operands of a call that have its rows; none where it computes others than rows."""
    name = op_name(call)
    if name in (LAYER_NORM, RMS_NORM):
        last = call.args[0].ty.ndim - 1
        is_last = [int(axis) % (last + 1) for axis in call.attrs.axes] == [last]
        return call.args[:1] if is_last else []
    if name in WITH_CONSTANT and not is_constant(call.args[1]):
        return call.args[:2] if same_type(*call.args) else []
    return call.args[:1]


def _of_columns(value: relax.Expr, call: relax.Call) -> bool:
    """Whether an operand is a constant of columns: a number, one for each, or their matrix."""
    if not is_constant(value):
        return False
    shape, rank = value.value.shape, 2 if op_name(call) == MATMUL else 1
    return math.prod(shape) == 1 or len(shape) == rank


def _again(call: relax.Call, args: Sequence[relax.Expr]) -> relax.Call:
    """The call of other operands, whose rows may have another number of axes."""
    attrs, name = call.attrs, op_name(call)
    if name == LAYER_NORM:
        flags = bool(attrs.center), bool(attrs.scale)
        return relax.op.nn.layer_norm(*args, [-1], float(attrs.epsilon), *flags)
    if name == RMS_NORM:
        return relax.op.nn.rms_norm(*args, [-1], float(attrs.epsilon))
    return relax.Call(call.op, args, attrs, call.ty_args)


def _without(rewriter: Rewriter, value: relax.Expr, shape: Sequence[int]) -> relax.Expr | None:
    """X of reshape(x) that keeps its rows: of tokens, or of an image with its channels last."""
    made = rewriter.producer_of(value, *RESHAPES)
    old = None if made is None else shape_of(made.args[0])
    if made is None or not old or old[-1] != shape[-1]:
        return None
    if len(old) == 3 and old[0] == 1 and len(shape) == 4:
        return made.args[0]
    permuted = rewriter.producer_of(made.args[0], PERMUTE_DIMS)
    is_image = permuted is not None and axes_of(permuted) == LAST
    return made.args[0] if is_image and len(shape) == 2 else None


ROW_OPERATORS = (MATMUL, LAYER_NORM, RMS_NORM, *MOVED, *WITH_CONSTANT)
TOKEN_RULES: dict[str, Sequence[Rule]] = {
    **{name: (rows_behind,) for name in ROW_OPERATORS},
    MATMUL: (one_matrix, rows_behind),
}
"""Operator -> its rules, in the order in which they are tried."""
