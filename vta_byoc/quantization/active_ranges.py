"""Active ranges: from where to where the readers of a tensor tell its values apart.

A sigmoid and a hard swish are constant a few units from zero, to within a part of a step of their
results.  A tensor that only such functions read needs its int8 values between these points alone:
what lies beyond saturates, and reads as the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import op_name
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.ops.movement import COPIES, SELECTIONS
from vta_byoc.quantization.ops.unary import Group, function_of, group_with
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW
from vta_byoc.quantization.value import Span

FLAT = 0.25
"""Results of a function that differ by at most so much of a step of int8 count as equal."""
LEAST_CUT = 1 / 32
"""An end of a range stays where it is if less of the range than this is flat there."""
POINTS = 4097
"""A function is looked at in so many points of its operand's range."""


def active_ranges(q: Quantizer) -> dict[relax.Var, Span]:
    """The tensors that reach further than their readers tell values apart, and where they do.

    Inputs of the model keep their range: who runs it is told what share of them is cut off. So do
    all tensors where functions must be exact or the machine cannot multiply: few tables of a finer
    operand have a program then, and a function without one leaves VTA.
    """
    if not (q.policy.tolerance and q.policy.multiplies):
        return {}
    needed: dict[relax.Var, Span] = {}
    for var in (binding.var for binding in reversed(q.bindings)):
        span, users = q.intervals.get(var), q.users.get(var, [])
        parts = [
            span if user is None else _needed_by(q, user, var, span, needed) for user in users
        ]
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts):
            needed[var] = _inside(_union(known), span)
        elif span is not None:
            needed[var] = span
    return {var: span for var, span in needed.items() if span != q.intervals.get(var, span)}


def _needed_by(
    q: Quantizer,
    user: relax.VarBinding,
    var: relax.Var,
    span: Span | None,
    needed: dict[relax.Var, Span],
) -> Span | None:
    """What `user` tells apart of `var`, whose range is `span`; None where that is not known."""
    if user.var in q.keep_float:
        return span
    is_call = isinstance(user.value, relax.Call)
    if not is_call or op_name(user.value) in (*COPIES, *SELECTIONS):
        return needed.get(user.var, span)
    if span is None:
        return None
    function = group_with(q, user, var, function_of)
    return span if function is None else _active(q, function, span)


def _active(q: Quantizer, function: Group, span: Span) -> Span:
    """The part of `span` between the ends at which `function` is flat."""
    points, end = np.linspace(*span, POINTS), follow(q, function.last)
    with np.errstate(all="ignore"):
        results = np.clip(function.of(points), end.low, end.high)
    if not np.isfinite(results).all():
        return span
    levels = INT8_HIGH - INT8_LOW
    step = float(np.ptp(results)) / levels if end.scale is None else end.scale.step
    first, last = (_flat(values, FLAT * step) for values in (results, results[::-1]))
    if first + last >= POINTS - 1:  # flat all over
        return span
    return float(points[first]), float(points[POINTS - 1 - last])


def _flat(results: np.ndarray, tolerance: float) -> int:
    """The last point whose result all before it are near, 0 where they are too few to count."""
    above = np.maximum.accumulate(results) - results
    below = results - np.minimum.accumulate(results)
    is_near = (above <= tolerance) & (below <= tolerance)
    place = len(results) - 1 if is_near.all() else int(np.argmin(is_near)) - 1
    return place if place >= LEAST_CUT * (len(results) - 1) else 0


def _union(parts: Iterable[Span]) -> Span:
    """With 0, which int8 reaches at any scale."""
    lows, highs = zip(*parts, strict=True)
    return min(0.0, *lows), max(0.0, *highs)


def _inside(part: Span, span: Span | None) -> Span:
    return part if span is None else (max(part[0], span[0]), min(part[1], span[1]))
