"""Softmax as PyTorch guards it: rows of which every score is hidden get zeros.

Attention on integers has no use for the guard: where all keys of a query are hidden, they count as
if none were.  Where a constant mask leaves every row open, the guard has gone on import.
"""

from __future__ import annotations

import math

from tvm import relax

from vta_byoc.ir.bindings import is_constant, op_name
from vta_byoc.quantization.quantizer import Quantizer

SOFTMAX = "relax.nn.softmax"
ALL_HIDDEN = ("logical_not", "astype", "max", "astype", "logical_not", "where")
"""What follows the comparison of each score with -infinity."""


def guarded_at(q: Quantizer, var: relax.Var) -> list[relax.VarBinding]:
    """The bindings of a guard that begins with `var`, in order; the last one is its result.

    It is where(not max(scores != -infinity), 0, softmax(scores)) of scores, as programs have it, or
    where(isnan(shares), 0, shares) of the softmax, as ONNX files have it, and nothing else reads
    what is inside. Empty where something else follows.
    """
    readers = _readers(q, var)
    if set(readers) == {"relax.equal", SOFTMAX}:
        return _guard_of_scores(q, var, readers["relax.equal"], readers[SOFTMAX])
    if set(readers) == {"relax.isnan", "relax.where"}:
        asked, where = readers["relax.isnan"], readers["relax.where"]
        condition, zeros, shares = where.value.args
        is_it = condition.same_as(asked.var) and shares.same_as(var) and _is(zeros, 0.0)
        return [asked, where] if is_it and q.only_user(asked.var) is not None else []
    return []


def _guard_of_scores(
    q: Quantizer, scores: relax.Var, compared: relax.VarBinding, softmax: relax.VarBinding
) -> list[relax.VarBinding]:
    found = [compared]
    for kind in ALL_HIDDEN:
        user = q.only_user(found[-1].var)
        if user is None or op_name(user.value) != f"relax.{kind}":
            return []
        found.append(user)
    zeros = _zeros_of(q, softmax, found[-1])
    is_row = _axes(found[3].value) == _axes(softmax.value) == [scores.ty.ndim - 1]
    if zeros is None or not is_row or not _is(compared.value.args[1], -math.inf):
        return []
    return sorted([*found, softmax, *zeros], key=lambda binding: q.places[binding.var])


def _readers(q: Quantizer, var: relax.Var) -> dict[str | None, relax.VarBinding]:
    """Who reads `var`, by operator; empty where two are alike, or it is a result of the model."""
    users = [user for user in q.users.get(var, []) if user is not None]
    found: dict[str | None, relax.VarBinding] = {op_name(user.value): user for user in users}
    return found if len(found) == len(q.users.get(var, [])) else {}


def _zeros_of(
    q: Quantizer, softmax: relax.VarBinding, where: relax.VarBinding
) -> list[relax.VarBinding] | None:
    """What makes the zeros that `where` puts in place of hidden rows; None where it does not."""
    _, zeros, shares = where.value.args
    readers = _readers(q, softmax.var)
    filled = readers.pop("relax.full_like", None)
    if not shares.same_as(softmax.var) or list(readers.values()) != [where]:
        return None
    if filled is None:
        return [] if _is(zeros, 0.0) else None
    is_it = zeros.same_as(filled.var) and q.only_user(filled.var) is not None
    return [filled] if is_it and _is(filled.value.args[1], 0.0) else None


def _axes(call: relax.Call) -> list[int]:
    """The axes of a softmax or a maximum, counted from the front."""
    axis, rank = call.attrs.axis, call.args[0].ty.ndim
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return [int(each) % rank for each in axes]


def _is(value: relax.Expr, number: float) -> bool:
    return is_constant(value) and bool((value.value.numpy() == number).all())
