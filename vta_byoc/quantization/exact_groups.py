"""Groups of a model that came quantized whose integers are its runtime's to the bit.

Each function gives the constants of a group, or None and notes in the record why there are none;
the group then keeps the form it has without `exact_rescale`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vta_byoc.quantization.exact_search import exact_point
from vta_byoc.quantization.exact_sum import ExactSum, exact_sum
from vta_byoc.quantization.fused_ops import FusedOperators
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.requantize import FixedPoint
from vta_byoc.quantization.runtime_arithmetic import Rounding
from vta_byoc.quantization.scales import INT8_LOW, INT32_HIGH, Scale

NEEDS_MUL = "the machine's ALU has no MUL (CAPABILITIES.mul is false)"
NO_SCALE = "the model states no scale for its result"
NO_INTEGERS = "the model states no integers for its weights"
FLOAT_BIAS = "its bias is no whole number at the scale of its sums"
TOO_LONG = "its sums reach {bound}, and {most} are taken"
NO_STEPS = "no steps within int32 have the runtime's result for all sums up to {bound}"
NO_PAIR = "no factors within int32 have the runtime's result for all pairs"
LONG_BIAS = "its bias reaches {bias}, more than float32 holds exactly"
FLOAT_BITS = 22
"""A bias of more bits is not known to the last one: it came through float32."""


def exact_layer(
    q: Quantizer,
    name: str,
    end: FusedOperators,
    data: Scale,
    steps: np.ndarray | None,
    bounds: np.ndarray,
    bias: np.ndarray,
    *,
    is_dense: bool,
) -> FixedPoint | None:
    """The rescale of a layer.

    Args:
        q: knows the runtime and keeps the record.
        name: of the layer.
        end: what follows it.
        data: scale of the data.
        steps: of the weights that the model states, () or [channels]; None where it states none.
        bounds: int64 [channels]: the largest magnitude of sums with their bias.
        bias: float64 [channels], in steps of the sums.
        is_dense: whether it is a matrix product.
    """
    if q.policy.arithmetic is None:
        return None
    reason = _unknown(q, end) or _unsure(steps, bias)
    if reason or steps is None or end.scale is None:
        _note(q, name, reason)
        return None
    rounding = q.policy.arithmetic.layer(data.step, steps, end.scale, is_dense=is_dense)
    return _point(q, name, end, rounding, bounds)


def exact_mean(
    q: Quantizer, name: str, end: FusedOperators, data: Scale, count: int
) -> FixedPoint | None:
    """The rescale of sums of `count` values less their zero points."""
    if q.policy.arithmetic is None:
        return None
    reason = _unknown(q, end)
    if reason or end.scale is None:
        _note(q, name, reason)
        return None
    rounding = q.policy.arithmetic.mean(data, end.scale, count)
    bound = np.array([(abs(data.zero) - INT8_LOW) * count])
    return _point(q, name, end, rounding, bound)


def exact_change(
    q: Quantizer, name: str, source: Scale, target: Scale, limits: tuple[int, int]
) -> FixedPoint | None:
    """The change of scale of int8 values less their zero point."""
    if q.policy.arithmetic is None:
        return None
    if not q.policy.multiplies:
        _note(q, name, NEEDS_MUL)
        return None
    moved = q.policy.arithmetic.moved(source, target)
    bound = np.array([abs(source.zero) - INT8_LOW])
    found = exact_point(moved, bound, target.zero, *limits, most_parts=1)
    if found is None:
        _note(q, name, NO_STEPS.format(bound=int(bound[0])))
        return None
    q.record.exact[name] = ""
    return found.fixed_point(*limits, bound)


def exact_addition(
    q: Quantizer, name: str, end: FusedOperators, scales: Sequence[Scale]
) -> ExactSum | None:
    """The sum of two int8 tensors."""
    if q.policy.arithmetic is None:
        return None
    reason = _unknown(q, end)
    if reason or end.scale is None:
        _note(q, name, reason)
        return None
    first, second = scales
    both = q.policy.arithmetic.added(first, second, end.scale)
    ratios = (first.step / end.scale.step, second.step / end.scale.step)
    found = exact_sum(both, ratios, *exact_limits(q, end, end.scale))
    if found is None:
        _note(q, name, NO_PAIR)
        return None
    q.record.exact[name] = ""
    return found


def exact_limits(q: Quantizer, end: FusedOperators, scale: Scale) -> tuple[int, int]:
    """The clamps of a group as the runtime rounds them to int8."""
    if q.policy.arithmetic is None:
        return end.limits(scale)
    return q.policy.arithmetic.limit(end.low, scale), q.policy.arithmetic.limit(end.high, scale)


def _unknown(q: Quantizer, end: FusedOperators) -> str:
    """Why no group that ends so can be exact; "" where it may be."""
    if not q.policy.multiplies:
        return NEEDS_MUL
    return NO_SCALE if end.scale is None else ""


def _unsure(steps: np.ndarray | None, bias: np.ndarray) -> str:
    """Why the sums of a layer are not the runtime's; "" where they are."""
    if steps is None:
        return NO_INTEGERS
    largest = float(np.abs(bias).max(initial=0))
    if largest >= 1 << FLOAT_BITS:
        return LONG_BIAS.format(bias=round(largest))
    # what float32 took from a whole number is less than this
    lost = np.maximum(np.abs(bias) * 2.0**-FLOAT_BITS, 2.0**-FLOAT_BITS)
    return FLOAT_BIAS if (np.abs(bias - np.rint(bias)) > lost).any() else ""


def _point(
    q: Quantizer, name: str, end: FusedOperators, rounding: Rounding, bound: np.ndarray
) -> FixedPoint | None:
    """One rescale for all channels, or one for each where their ratios differ."""
    assert end.scale is not None
    channels = rounding.ratio.shape
    bounds = bound if bound.shape == channels else np.broadcast_to(bound.max(), channels)
    if bounds.max() > INT32_HIGH // 2:
        text = TOO_LONG.format(bound=int(bounds.max()), most=INT32_HIGH // 2)
        _note(q, name, text)
        return None
    low, high = exact_limits(q, end, end.scale)
    found = exact_point(rounding, bounds, end.scale.zero, low, high)
    if found is None:
        _note(q, name, NO_STEPS.format(bound=int(bounds.max())))
        return None
    q.record.exact[name] = ""
    return found.fixed_point(low, high, bounds)


def _note(q: Quantizer, name: str, reason: str) -> None:
    """Note why the group is not exact."""
    q.record.exact[name] = reason
