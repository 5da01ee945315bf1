"""Means and average pooling at any scales: sums, one multiplication, a shift."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import source_name, static_shape
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.ops.multiplier_elementwise import close, result_scale
from vta_byoc.quantization.ops.pooling import (
    mean_axes,
    takes_avg_pool2d,
    whole_padding,
    window_counts,
)
from vta_byoc.quantization.requantize import Operand, linear, requantizer
from vta_byoc.quantization.scales import INT8_LOW

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer


def convert_mean(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Mean over any axes, and adaptive average pooling to 1 x 1."""
    call = binding.value
    axes = mean_axes(call)
    data = q.value(call.args[0])
    if axes is None or not (q.is_ready(data) or data.is_input):
        return False
    end = follow(q, binding.var)
    target, scale = result_scale(q, end), q.scale(data)
    shape = static_shape(call.args[0])
    count = math.prod(shape[axis] for axis in axes)
    ratio = np.array(scale.step / target.step / count)
    keepdims = bool(getattr(call.attrs, "keepdims", True))
    x, name = q.int8(data), source_name(binding.var)
    if not q.arithmetic.multiplies:
        term = Operand(ratio, 0, -INT8_LOW * count)
        shift = -scale.zero * count * ratio
        limits = end.limits(target)
        found = linear([term], shift, target.zero, *limits, q.arithmetic.most_factor)
        out = q.write.scaled_sums(q.write.sum(x, axes, keepdims, name), found, name)
        return close(q, binding, end, out, target, found.bound, found.shift)
    reach = np.array((abs(scale.zero) - INT8_LOW) * count)
    rescale = requantizer(ratio, reach, target.zero, *end.limits(target))
    total = q.write.sum(x, axes, keepdims, name)
    out = q.write.fixed_point(total, rescale.plus(-scale.zero * count), (), name)
    return close(q, binding, end, out, target, rescale.bound, rescale.shift)


def convert_avg_pool2d(q: Quantizer, binding: relax.VarBinding) -> bool:
    """avg_pool2d NCHW. Where padding does not count, the divisor depends on the position; with a
    zero point, what is subtracted does, too."""
    call = binding.value
    data = q.value(call.args[0])
    if not takes_avg_pool2d(call) or not (q.is_ready(data) or data.is_input):
        return False
    end = follow(q, binding.var)
    target, scale = result_scale(q, end), q.scale(data)
    shapes = static_shape(call.args[0]), static_shape(binding.var)
    padding = whole_padding(call.attrs, *shapes)
    counts = window_counts(call.attrs, *shapes)
    taps = math.prod(int(size) for size in call.attrs.pool_size)
    inside = window_counts(call.attrs, *shapes, include_pad=False)
    term = Operand(scale.step / target.step / _plane(counts), 0, -INT8_LOW * taps)
    shift = -scale.zero * _plane(inside) * term.ratio
    found = linear(
        [term], shift, target.zero, *end.limits(target), q.arithmetic.most_factor
    )
    x, name = q.int8(data), source_name(binding.var)
    total = q.write.window_sums(x, call.attrs, padding, name)
    out = q.write.scaled_sums(total, found, name)
    return close(q, binding, end, out, target, found.bound, found.shift)


def _plane(counts: np.ndarray) -> np.ndarray:
    """One number, or one for each position as (1, 1, OH, OW)."""
    if (counts == counts.reshape(-1)[0]).all():
        return np.array(counts.reshape(-1)[0])
    return counts.reshape(1, 1, *counts.shape)
