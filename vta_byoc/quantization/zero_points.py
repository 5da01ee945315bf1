"""Which tensors get a zero point: those that symmetric scales leave much of int8 unused for.

A tensor behind a relu, a hard swish or a sigmoid reaches from 0 or a little less to a positive
number. With a zero point all 256 values of int8 lie there.  The producer pays nothing for it; what
a reader pays is known where the reader is registered (`IntegerOp.zero`).
"""

from __future__ import annotations

import dataclasses
import functools

from tvm import relax

from vta_byoc.base.choices import ALL, NONE
from vta_byoc.quantization.ops.unary import group_with
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW
from vta_byoc.quantization.value import Span

LEAST_NARROWED = 1 / 0.97
"""A zero point is given where it makes the step at least so many times smaller."""


def zero_pointed(q: Quantizer) -> dict[relax.Var, Span]:
    """The tensors that get a zero point, and what int8 then reaches from and to.

    `Quantizer.takes_zero` is what the rules of readers ask about their own results.
    """
    if q.policy.zero_points == NONE:
        return {}
    q.takes_zero = functools.cache(lambda var: _takes_zero(q, var))
    return {
        var: span
        for var, span in q.intervals.items()
        if _narrowed(span) >= LEAST_NARROWED and q.takes_zero(var)
    }


def left_symmetric(q: Quantizer) -> dict[relax.Var, float]:
    """Tensors without a zero point that `ALL` gives one, by how much it narrows their steps.

    `q.spans` must be chosen.
    """
    asked = q.policy, q.takes_zero
    if not q.policy.has_zero_points or q.policy.zero_points == ALL:
        return {}
    q.policy = dataclasses.replace(q.policy, zero_points=ALL)
    every = zero_pointed(q)
    q.policy, q.takes_zero = asked
    return {var: round(_narrowed(every[var]), 3) for var in every.keys() - q.spans.keys()}


def _narrowed(span: Span) -> float:
    """How many times smaller a zero point makes the step; 1 where there is nothing to reach."""
    amax, length = max(abs(end) for end in span), max(*span, 0.0) - min(*span, 0.0)
    return amax / INT8_HIGH * (INT8_HIGH - INT8_LOW) / length if length else 1.0


def _takes_zero(q: Quantizer, var: relax.Var) -> bool:
    """Whether everything that reads `var` takes a zero point of it."""
    users = [user for user in q.users.get(var, []) if user is not None]
    return all(_reader_takes_zero(q, user, var) for user in users)


def _reader_takes_zero(q: Quantizer, user: relax.VarBinding, var: relax.Var) -> bool:
    """A function is a table, and floats are dequantized: neither cares."""
    if not isinstance(user.value, relax.Call):
        return q.takes_zero(user.var)
    entry = q.entry(user)
    return entry is None or entry.zero(q, user) or group_with(q, user, var) is not None
