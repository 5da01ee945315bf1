"""What exporters write around the two products of an attention: batches, factors, hidden rows.

The scores of all heads are one product of tensors `[..., T, D]`. Exporters join the leading axes
for it and part them behind it, multiply both operands by a root of the scale, and guard softmax
against rows of which every place is hidden.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.chain_rules import WITH_CONSTANT
from vta_byoc.importers.canonicalize.view_rules import chain_of_views, moved
from vta_byoc.ir.bindings import SEPARATOR, constant_of, is_constant, is_float32, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPE, RESHAPES, View, view_of

MATMUL, SOFTMAX, MULTIPLY = "relax.matmul", "relax.nn.softmax", "relax.multiply"
FINITE = (MATMUL, "relax.nn.conv2d")
"""Operators whose results are finite where their operands are."""


# ---------------------------------------------------------------- batches
def batches_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """matmul(reshape(x), y) is reshape(matmul(x, reshape(y))) of leading axes."""
    left, right = call.args
    inner, other, result = _batched(rewriter, left), shape_of(right), shape_of(call)
    if inner is None or other is None or result is None or is_constant(right):
        return None
    own = shape_of(inner.args[0])
    if own is None or len(other) < 3 or math.prod(other[:-2]) != math.prod(own[:-2]):
        return None
    whole = relax.op.reshape(right, [*own[:-2], *other[-2:]])
    right = rewriter.as_variable(whole, f"{rewriter.name}{SEPARATOR}right")
    product = relax.Call(call.op, [inner.args[0], right], call.attrs, call.ty_args)
    name = f"{rewriter.name}{SEPARATOR}product"
    return relax.op.reshape(rewriter.as_variable(product, name), result)


def _batched(rewriter: Rewriter, value: relax.Expr) -> relax.Call | None:
    """The reshape that makes `value`, if it changes leading axes alone: all but the last two."""
    inner = rewriter.producer_of(value, *RESHAPES)
    old, new = (None, None) if inner is None else (shape_of(inner.args[0]), shape_of(inner))
    if old is None or new is None or min(len(old), len(new)) < 3 or old[-2:] != new[-2:]:
        return None
    return inner


def _of_rows(rewriter: Rewriter, value: relax.Expr) -> relax.Call | None:
    """The reshape that makes `value`, if it changes all axes but the last."""
    inner = rewriter.producer_of(value, *RESHAPES)
    old, new = (None, None) if inner is None else (shape_of(inner.args[0]), shape_of(inner))
    if old is None or new is None or min(len(old), len(new)) < 2 or old[-1] != new[-1]:
        return None
    return inner


def softmax_of_rows(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """softmax(reshape(x)) is reshape(softmax(x)) of all axes but the last."""
    inner, result = _of_rows(rewriter, call.args[0]), shape_of(call)
    if inner is None or result is None or int(call.attrs.axis) % len(result) != len(result) - 1:
        return None
    made = relax.op.nn.softmax(inner.args[0], -1)
    name = f"{rewriter.name}{SEPARATOR}batches"
    return relax.op.reshape(rewriter.as_variable(made, name), result)


def steps_of_rows(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """reshape(product) + constant is reshape(product + constant); of other operators too."""
    inner, result = _of_rows(rewriter, call.args[0]), shape_of(call)
    if inner is None or not is_constant(call.args[1]) or result != shape_of(inner):
        return None
    shape = shape_of(inner.args[0])
    if not _is_product(rewriter, inner.args[0]) or result is None or shape is None:
        return None
    constant = _reshaped(call.args[1].value.numpy(), result, shape)
    made = relax.Call(call.op, [inner.args[0], constant_of(constant)], call.attrs, call.ty_args)
    name = f"{rewriter.name}{SEPARATOR}batches"
    return relax.op.reshape(rewriter.as_variable(made, name), result)


def _is_product(rewriter: Rewriter, value: relax.Expr) -> bool:
    """Whether `value` is a product of two computed tensors, and constants behind it."""
    call = rewriter.producer(value)
    while call is not None and op_name(call) in WITH_CONSTANT and is_constant(call.args[1]):
        call = rewriter.producer(call.args[0])
    return call is not None and op_name(call) == MATMUL and not is_constant(call.args[1])


def _reshaped(constant: np.ndarray, old: Sequence[int], new: Sequence[int]) -> np.ndarray:
    """A constant that broadcasts to `old` as one that broadcasts to `new`."""
    if constant.size == 1:
        return constant.reshape(())
    if tuple(old[-2:]) == tuple(new[-2:]) and math.prod(constant.shape[:-2]) == 1:
        return constant.reshape(constant.shape[-2:])
    whole = np.broadcast_to(constant, old).reshape(new)
    for axis in range(whole.ndim - 2):
        first = whole.take([0], axis)
        if (whole == first).all():
            whole = first
    return np.ascontiguousarray(whole)


def batches_ahead(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """reshape(product) + mask is product + mask, where the operands are moved otherwise anyway.

    A mask that the model computes meets scores of (images, heads, ...), and so does what follows.
    """
    for place, value in enumerate(call.args):
        inner, result = _batched(rewriter, value), shape_of(value)
        if inner is None or result is None or shape_of(call) != result:
            continue
        if all(is_constant(other) for number, other in enumerate(call.args) if number != place):
            continue
        scores = _product_of(rewriter, inner.args[0], result[:-2])
        if scores is not None:
            args = [*call.args[:place], scores, *call.args[place + 1 :]]
            return relax.Call(call.op, args, call.attrs, call.ty_args)
        if math.prod(result[:-2]) == 1 and _is_product(rewriter, inner.args[0]):
            return _of_one_batch(rewriter, call, place, inner.args[0], result)
    return None


def _of_one_batch(
    rewriter: Rewriter, call: relax.Call, place: int, scores: relax.Expr, result: Sequence[int]
) -> relax.Expr | None:
    """reshape(product) + mask is reshape(product + reshape(mask)) where no axis leads but of 1."""
    own, args = shape_of(scores), []
    for number, arg in enumerate(call.args):
        shape = shape_of(arg)
        if own is None or shape is None:
            return None
        if number != place and len(shape) > 2:
            arg = relax.op.reshape(arg, [*own[:-2], *shape[-2:]])
            arg = rewriter.as_variable(arg, f"{rewriter.name}{SEPARATOR}mask{number}")
        args.append(scores if number == place else arg)
    made = relax.Call(call.op, args, call.attrs, call.ty_args)
    name = f"{rewriter.name}{SEPARATOR}batches"
    return relax.op.reshape(rewriter.as_variable(made, name), result)


def _product_of(
    rewriter: Rewriter, value: relax.Expr, leading: Sequence[int]
) -> relax.Expr | None:
    """A product, and numbers behind it, with other leading axes; None where that takes a move."""
    call = rewriter.producer(value)
    if call is None or not _is_product(rewriter, value):
        return None
    name = f"{rewriter.name}{SEPARATOR}scores"
    if op_name(call) != MATMUL:
        number = call.args[1].value.numpy()
        data = _product_of(rewriter, call.args[0], leading) if number.size == 1 else None
        if data is None:
            return None
        args = [data, constant_of(number.reshape(()))]
        made = relax.Call(call.op, args, call.attrs, call.ty_args)
        return rewriter.as_variable(made, name)
    found = [_with_leading(rewriter, arg, leading) for arg in call.args]
    if any(each is None for each in found):
        return None
    operands = [
        rewriter.as_variable(moved(rewriter, *each, f"{name}{number}"), f"{name}{number}")
        for number, each in enumerate(found)
        if each is not None
    ]
    return rewriter.as_variable(relax.Call(call.op, operands, call.attrs, call.ty_args), name)


def _with_leading(
    rewriter: Rewriter, value: relax.Expr, leading: Sequence[int]
) -> tuple[relax.Expr, View] | None:
    """What `value` with other leading axes is a permutation of; a reshape would be moved back."""
    source, chain = chain_of_views(rewriter, value)
    view, shape = view_of(source, chain), shape_of(value)
    view = None if view is None or shape is None else view.reshaped((*leading, *shape[-2:]))
    moves = [] if view is None else view.moves()
    return (source, view) if view is not None and moves and moves[-1][0] != RESHAPE else None


# ---------------------------------------------------------------- factors
def factors_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """(x · a) @ (y · b) is (x @ y) · ab for numbers a and b, moved tensors included."""
    if any(is_constant(arg) for arg in call.args) or not is_float32(call):
        return None
    factor = np.float32(1)
    args: list[relax.Expr] = []
    for number, arg in enumerate(call.args):
        name = f"{rewriter.name}{SEPARATOR}operand{number}"
        by, value = _without_factor(rewriter, arg, name)
        factor = np.float32(factor * by)
        args.append(value)
    if all(new.same_as(old) for new, old in zip(args, call.args, strict=True)):
        return None
    product = relax.Call(call.op, args, call.attrs, call.ty_args)
    name = f"{rewriter.name}{SEPARATOR}product"
    return relax.op.multiply(rewriter.as_variable(product, name), relax.const(factor))


def _without_factor(
    rewriter: Rewriter, value: relax.Expr, name: str
) -> tuple[np.float32, relax.Expr]:
    """The number that `value` is multiplied by, and what it is without."""
    source, chain = chain_of_views(rewriter, value)
    call = rewriter.producer_of(source, MULTIPLY)
    view = view_of(source, chain)
    if call is None or view is None or not is_constant(call.args[1]):
        return np.float32(1), value
    number, data = call.args[1].value.numpy(), call.args[0]
    if number.size != 1 or shape_of(data) != shape_of(source) or not math.isfinite(number.item()):
        return np.float32(1), value
    plain = rewriter.as_variable(moved(rewriter, data, view, name), name)
    return np.float32(number.item()), plain


def merge_factors(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """(product · a) · b is product · ab for numbers."""
    inner = rewriter.producer_of(call.args[0], MULTIPLY)
    if inner is None or not _is_product(rewriter, inner.args[0]):
        return None
    if not all(is_constant(c.args[1]) and c.args[1].value.numpy().size == 1 for c in (call, inner)):
        return None
    first, second = (np.float32(c.args[1].value.numpy().item()) for c in (inner, call))
    return relax.op.multiply(inner.args[0], relax.const(np.float32(first * second)))


# ---------------------------------------------------------------- rows that are hidden
def guarded_softmax(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """where(every score of the row is -inf, 0, softmax) is softmax where no row is.

    PyTorch writes `scaled_dot_product_attention` so.
    """
    condition, zeros, shares = call.args
    softmax = rewriter.producer_of(_before(rewriter, shares), SOFTMAX)
    if softmax is None or not _is_zero(rewriter, zeros):
        return None
    value: relax.Expr = condition
    for names in (
        ("relax.logical_not",),
        ("relax.astype",),
        ("relax.max",),
        ("relax.astype",),
        ("relax.logical_not",),
        ("relax.equal",),
    ):
        made = rewriter.producer_of(value, *names)
        if made is None:
            return None
        value = made.args[0]
        if names == ("relax.equal",) and not _is_number(made.args[1], -math.inf):
            return None
    scores = softmax.args[0]
    is_same = _before(rewriter, value).same_as(_before(rewriter, scores))
    return shares if is_same and _has_finite_rows(rewriter, scores) else None


def _before(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """What a reshape of rows begins with, or `value`."""
    inner = _of_rows(rewriter, value)
    return value if inner is None else inner.args[0]


def _is_zero(rewriter: Rewriter, value: relax.Expr) -> bool:
    made = rewriter.producer_of(value, "relax.full_like", "relax.zeros_like")
    if made is not None:
        return op_name(made) == "relax.zeros_like" or _is_number(made.args[1], 0.0)
    return is_constant(value) and not value.value.numpy().any()


def _is_number(value: relax.Expr, number: float) -> bool:
    return is_constant(value) and bool((value.value.numpy() == number).all())


def _has_finite_rows(rewriter: Rewriter, scores: relax.Expr) -> bool:
    """Whether some score of every row is finite: a product, with a mask that leaves a place."""
    value, hidden = scores, np.zeros((), bool)
    while True:
        value, _ = chain_of_views(rewriter, value)
        call = rewriter.producer(value)
        if call is None:
            return False
        if op_name(call) in FINITE:
            return not hidden.all(axis=-1).any() if hidden.ndim else not hidden
        if op_name(call) not in WITH_CONSTANT or not is_constant(call.args[1]):
            return False
        constant = call.args[1].value.numpy()
        if op_name(call) == "relax.add" and not hidden.ndim:
            hidden = np.isneginf(constant)
            constant = constant[~hidden]
        if not np.isfinite(constant).all():
            return False
        value = call.args[0]


SOFTMAX_RULES: dict[str, Sequence[Rule]] = {
    MATMUL: (factors_behind, batches_behind),
    SOFTMAX: (softmax_of_rows,),
    MULTIPLY: (merge_factors, steps_of_rows),
    "relax.add": (steps_of_rows, batches_ahead),
    "relax.divide": (steps_of_rows,),
    "relax.where": (guarded_softmax, batches_ahead),
}
"""Operator -> its rules, in the order in which they are tried."""
