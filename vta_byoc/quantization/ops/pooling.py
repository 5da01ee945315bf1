"""Means and average pooling as integers: sums, one multiplication, a shift."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.base.choices import ALL
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import is_float32, op_name, source_name, static_shape
from vta_byoc.quantization.exact_groups import exact_mean
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.groups import close, result_scale
from vta_byoc.quantization.linear import LinearCombination, Operand, linear
from vta_byoc.quantization.policy import Policy
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.requantize import requantizer
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, MULTIPLIER_BITS, Scale

FIX, CPU = "pool in two steps", "leave it to the CPU"


# ---------------------------------------------------------------- means
@integer_op(
    "relax.mean",
    "relax.nn.adaptive_avg_pool2d",
    asks=lambda q, binding: True,
    zero=lambda q, binding: True,
)
def convert_mean(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Mean over any axes, and adaptive average pooling to 1 x 1."""
    return _averaged(q, binding, is_mean=True)


def sum_refusal(q: Quantizer, binding: relax.VarBinding) -> Refusal | None:
    """Why it is no float sum over rows, columns or both of an image; None where it is one."""
    call, axes = binding.value, mean_axes(binding.value)
    if axes is None:
        return Refusal("it sums numbers of", str(call.args[0].ty.dtype), "float32 is taken", CPU)
    if q.policy.arithmetic is not None:
        return Refusal(
            "it sums as the runtime of the quantized model does",
            remedy=f"quantize the float model, or {CPU}",
        )
    if call.args[0].ty.ndim != 4 or axes not in ([2], [3], [2, 3]):
        said = f"{axes} of a tensor of shape {static_shape(call.args[0])}"
        return Refusal("it sums over axes", said, "2, 3 or both of (N, C, H, W) are taken", CPU)
    if not call.attrs.keepdims and axes != [2, 3]:
        return Refusal(f"its sum drops axis {axes[0]}", remedy=f"keep the axis, or {CPU}")
    return None


@integer_op("relax.sum", if_read=True, refuses=sum_refusal, zero=lambda q, binding: True)
def convert_sum(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A sum over a plane that integers read: the mean times how many there are."""
    if q.leaves_as_float(follow(q, binding.var).last):
        return False
    return _averaged(q, binding, is_mean=False)


def _averaged(q: Quantizer, binding: relax.VarBinding, *, is_mean: bool) -> bool:
    call = binding.value
    axes = mean_axes(call)
    data = q.value(call.args[0])
    if axes is None or not (q.is_ready(data) or (data.is_input and is_mean)):
        return False
    shape = static_shape(call.args[0])
    count = math.prod(shape[axis] for axis in axes)
    end, scale = follow(q, binding.var), q.scale(data)
    parts = count if is_mean else 1
    target = result_scale(q, end, scale.step, -INT8_LOW * count // parts)
    ratio = np.array(scale.step / target.step / parts)
    keepdims = bool(getattr(call.attrs, "keepdims", True))
    name = source_name(binding.var)
    exact = exact_mean(q, name, end, scale, count)
    if exact is not None:
        total = q.write.sum(q.int8(data), axes, keepdims, name)
        out = q.write.fixed_point(total, exact.plus(-scale.zero * count), (), name)
        return close(q, binding, end, out, target, exact, FIX)
    if q.policy.cuts_sums:
        bound = np.array((abs(scale.zero) - INT8_LOW) * count)
        rescale = requantizer(ratio, bound, target.zero, *end.limits(target))
        total = q.write.sum(q.int8(data), axes, keepdims, name)
        out = q.write.fixed_point(total, rescale.plus(-scale.zero * count), (), name)
        return close(q, binding, end, out, target, rescale, FIX)
    limits = end.limits(target)
    found = averages(q.policy, ratio, scale, np.array(count), target.zero, *limits)
    if found is None:
        return False
    total = q.write.sum(q.int8(data), axes, keepdims, name)
    return close(q, binding, end, q.write.scaled_sums(total, found, name), target, found, FIX)


def averages(
    policy: Policy,
    ratio: np.ndarray,
    scale: Scale,
    inside: np.ndarray,
    zero: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
) -> LinearCombination | None:
    """How sums of int8 values at `scale` become their means.

    Args:
        policy: says how long the factors may be.
        ratio: what a sum is multiplied by, in steps of the result: () or by position.
        scale: of the values.
        inside: how many values a sum has, () or by position; any has the room of the largest.
        zero: zero point of the result.
        low: the least result.
        high: the largest result.

    Returns:
        None where less than 8 bits of the ratio are left and it is not exact: then an integer mean
        would be worse than a float one.
    """
    term = Operand(ratio, 0, -INT8_LOW * int(inside.max()))
    lost = -scale.zero * inside * ratio
    found = linear([term], lost, zero, low, high, policy.sums)
    factors = found.factors[0]
    is_exact = bool((np.ldexp(ratio, found.shift) == factors).all())
    if np.abs(factors).min() < 1 << (MULTIPLIER_BITS - 1) and not is_exact:
        return None
    return found.reduced()


def mean_axes(call: relax.Call) -> list[int] | None:
    """The axes that are averaged over; None if the operator is no plain float32 mean."""
    if not is_float32(call.args[0]):
        return None
    rank = call.args[0].ty.ndim
    if op_name(call) in ("relax.mean", "relax.sum"):
        axes = range(rank) if call.attrs.axis is None else call.attrs.axis
        return sorted({int(axis) % rank for axis in axes})
    sizes = [int(size) for size in call.attrs.output_size or ()]
    return [2, 3] if sizes == [1, 1] and str(call.attrs.layout) == "NCHW" else None


# ---------------------------------------------------------------- averages over windows
def takes_avg_pool2d(call: relax.Call) -> bool:
    """Whether this average pooling has the layout of the dialect."""
    layouts = {str(call.attrs.layout), str(call.attrs.out_layout) or "NCHW"}
    return layouts == {"NCHW"} and is_float32(call.args[0])


def _is_whole(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Whether every window of a pool reads as many values of the input as any other."""
    call = binding.value
    if not takes_avg_pool2d(call) or q.policy.zero_points == ALL:
        return True
    shapes = static_shape(call.args[0]), static_shape(binding.var)
    return window_counts(call.attrs, *shapes, include_pad=False).size == 1


@integer_op(
    "relax.nn.avg_pool2d",
    asks=lambda q, binding: takes_avg_pool2d(binding.value),
    zero=_is_whole,
)
def convert_avg_pool2d(q: Quantizer, binding: relax.VarBinding) -> bool:
    """avg_pool2d of NCHW.

    Where padding does not count, the divisor depends on the position; with a zero point, what is
    subtracted does, too.
    """
    call = binding.value
    data = q.value(call.args[0])
    if not takes_avg_pool2d(call) or not (q.is_ready(data) or data.is_input):
        return False
    end, scale = follow(q, binding.var), q.scale(data)
    target = result_scale(q, end, scale.step, -INT8_LOW)
    shapes = static_shape(call.args[0]), static_shape(binding.var)
    counts = window_counts(call.attrs, *shapes)
    inside = window_counts(call.attrs, *shapes, include_pad=False)
    ratio = scale.step / target.step / _plane(counts)
    limits = end.limits(target)
    found = averages(q.policy, ratio, scale, _plane(inside), target.zero, *limits)
    if found is None:
        return False
    padding, name = whole_padding(call.attrs, *shapes), source_name(binding.var)
    total = q.write.window_sums(q.int8(data), call.attrs, padding, name)
    return close(q, binding, end, q.write.scaled_sums(total, found, name), target, found, FIX)


def _plane(counts: np.ndarray) -> np.ndarray:
    """One number, or one for each position as (1, 1, OH, OW)."""
    if (counts == counts.reshape(-1)[0]).all():
        return np.array(counts.reshape(-1)[0])
    return counts.reshape(1, 1, *counts.shape)


def _extents(attrs: Attrs) -> list[int]:
    """Height and width that one window spans."""
    sizes = zip(attrs.pool_size, attrs.dilation, strict=True)
    return [(int(size) - 1) * int(dilation) + 1 for size, dilation in sizes]


def whole_padding(attrs: Attrs, data: Sequence[int], out: Sequence[int]) -> list[int]:
    """The padding with which every window is whole: ceil mode adds rows and columns."""
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    ends = []
    for axis, (before, after) in enumerate(((top, bottom), (left, right))):
        last = (out[2 + axis] - 1) * int(attrs.strides[axis]) + _extents(attrs)[axis]
        ends.append(max(after, last - data[2 + axis] - before))
    return [top, left, *ends]


def window_counts(
    attrs: Attrs, data: Sequence[int], out: Sequence[int], *, include_pad: bool | None = None
) -> np.ndarray:
    """The divisor at every position, int64 (OH, OW), or (1, 1) where it is the same everywhere.

    It is the number of taps inside the input, or inside the padded input with `include_pad` (None:
    as the operator counts). What ceil mode adds never counts.
    """
    padded = bool(attrs.count_include_pad if include_pad is None else include_pad)
    inside = []
    for axis in range(2):
        before, after = int(attrs.padding[axis]), int(attrs.padding[2 + axis])
        first = np.arange(out[2 + axis]) * int(attrs.strides[axis]) - before
        places = first[:, None] + np.arange(int(attrs.pool_size[axis])) * int(attrs.dilation[axis])
        low, high = (-before, data[2 + axis] + after) if padded else (0, data[2 + axis])
        inside.append(((places >= low) & (places < high)).sum(axis=1))
    counts = np.maximum(np.outer(*inside), 1)
    same = (counts == counts.reshape(-1)[0]).all()
    return counts[:1, :1] if same else counts
