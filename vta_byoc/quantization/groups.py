"""What conversions share: the scale of a group's result, its proof, and changes of scale."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import is_float32, op_name, source_name
from vta_byoc.quantization.exact_groups import exact_change
from vta_byoc.quantization.exact_sum import ExactSum
from vta_byoc.quantization.fused_ops import FusedOperators, follow
from vta_byoc.quantization.linear import LinearCombination, Operand, linear
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.requantize import FixedPoint
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, AccumulatorBound, Scale, Unscalable
from vta_byoc.quantization.value import Value

ALL = (INT8_LOW, INT8_HIGH)
"""The limits of a result that nothing clamps."""


def moves_as_int8(q: Quantizer, binding: relax.VarBinding, value: Value) -> bool:
    """Whether an operator that keeps the scale of its input `value` becomes integer.

    It does if the input is an integer, or if something integer reads the result.
    """
    return q.is_ready(value) or q.wants_int8(binding.var)


def result_scale(q: Quantizer, end: FusedOperators, unit: np.ndarray | float, bound: int) -> Scale:
    """The scale of a group's result: what the model states, or else what the policy chooses.

    The policy chooses for an accumulator of so many `unit`, () or [channels], up to `bound`.

    Raises:
        Unscalable: the range of the result is not known, or out of reach.
    """
    if end.scale is not None:
        return end.scale
    amax, name, span = q.ranges[end.last], source_name(end.last), q.spans.get(end.last)
    steps = np.asarray(unit, np.float64)
    return _of_its_sum(q, end, q.policy.result(amax, steps, bound, name, span), steps)


def _of_its_sum(q: Quantizer, end: FusedOperators, own: Scale, unit: np.ndarray) -> Scale:
    """The scale of the sum that alone reads a group's result, where that loses nothing; `own`.

    A clamp at another number than 0 would be another one there.
    """
    user = q.only_user(end.last)
    if user is None or op_name(user.value) != "relax.add" or not is_float32(user.var):
        return own
    others = [arg for arg in user.value.args if not arg.same_as(end.last)]
    if len(others) != 1 or not isinstance(others[0], relax.Var):
        return own
    if any(bound and not math.isinf(bound) for bound in (end.low, end.high)):
        return own
    try:
        read = q.values.get(others[0])
        other = q.chosen_scale(others[0]) if read is None else q.scale(read)
        total = q.chosen_scale(follow(q, user.var).last)
    except Unscalable:  # the sum stays float
        return own
    return q.policy.term(own, other, total, unit)


def close(
    q: Quantizer,
    binding: relax.VarBinding,
    end: FusedOperators,
    out: relax.Var,
    target: Scale,
    found: LinearCombination | FixedPoint | ExactSum,
    fix: str,
) -> bool:
    """Store the result of the group that `binding` begins, with its proof; True.

    Raises:
        VTAError: the accumulator could leave int32; `fix` says what the user can do.
    """
    proof = AccumulatorBound(source_name(binding.var), found.bound, found.shift, fix).checked()
    q.close_group(binding.var, end.absorbed, out, target, proof)
    return True


def requantized(
    q: Quantizer,
    x: relax.Expr,
    scale: Scale,
    target: Scale,
    limits: tuple[int, int],
    name: str,
) -> tuple[relax.Var, LinearCombination | FixedPoint]:
    """int8 at `scale` as int8 at `target`, saturated to `limits`."""
    exact = exact_change(q, name, scale, target, limits)
    if exact is not None:
        return q.write.changed(x, exact.plus(-scale.zero), name), exact
    ratio = Operand(np.array(scale.step / target.step), scale.zero)
    found = linear([ratio], 0.0, target.zero, *limits, q.policy.terms)
    return q.write.linear(None, [x], found, name), found


def rescaled(q: Quantizer, value: Value, target: Scale, name: str) -> relax.Expr:
    """A value as int8 at `target`."""
    x = q.int8(value)
    return x if value.scale == target else requantized(q, x, value.scale, target, ALL, name)[0]
