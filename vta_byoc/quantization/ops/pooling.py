"""Means and average pooling as integers: sums, one multiplication, a rescale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.ir.bindings import is_float32, op_name, source_name, static_shape
from vta_byoc.quantization.fused_ops import Epilogue
from vta_byoc.quantization.scales import Accumulator, MeanScale, Scale, mean_scale

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer


def convert_mean(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Mean over any axes, and adaptive average pooling to 1 x 1."""
    call = binding.value
    axes = mean_axes(call)
    if axes is None:
        return False
    shape = static_shape(call.args[0])
    scale = _scale(q, binding, [math.prod(shape[axis] for axis in axes)])
    if scale is None:
        return False
    keepdims = bool(getattr(call.attrs, "keepdims", True))
    x, name = q.int8(q.value(call.args[0])), source_name(binding.var)
    _close(q, binding, q.write.mean(x, axes, keepdims, scale, name), scale)
    return True


def mean_axes(call: relax.Call) -> list[int] | None:
    """The axes that are averaged over; None if the operator is no plain float32 mean."""
    if not is_float32(call.args[0]):
        return None
    rank = call.args[0].ty.ndim
    if op_name(call) == "relax.mean":
        axes = range(rank) if call.attrs.axis is None else call.attrs.axis
        return sorted({int(axis) % rank for axis in axes})
    sizes = [int(size) for size in call.attrs.output_size or ()]
    return [2, 3] if sizes == [1, 1] and str(call.attrs.layout) == "NCHW" else None


def convert_avg_pool2d(q: Quantizer, binding: relax.VarBinding) -> bool:
    """avg_pool2d NCHW; where padding does not count, the divisor depends on the position."""
    call = binding.value
    if not takes_avg_pool2d(call):
        return False
    padding = whole_padding(call.attrs, static_shape(call.args[0]), static_shape(binding.var))
    counts = window_counts(call.attrs, static_shape(call.args[0]), static_shape(binding.var))
    sizes, index = np.unique(counts, return_inverse=True)
    scale = _scale(q, binding, [int(size) for size in sizes])
    if scale is None:
        return False
    multipliers = np.array(scale.multipliers[0])
    if len(sizes) > 1:
        multipliers = np.array(scale.multipliers)[index].reshape(1, 1, *counts.shape)
    x, name = q.int8(q.value(call.args[0])), source_name(binding.var)
    out = q.write.avg_pool2d(x, call.attrs, padding, multipliers, scale.rescale, name)
    _close(q, binding, out, scale)
    return True


def takes_avg_pool2d(call: relax.Call) -> bool:
    """Whether this average pooling has the layout of the dialect."""
    layouts = {str(call.attrs.layout), str(call.attrs.out_layout) or "NCHW"}
    return layouts == {"NCHW"} and is_float32(call.args[0])


def _scale(q: Quantizer, binding: relax.VarBinding, counts: list[int]) -> MeanScale | None:
    """Multipliers for means of `counts` values; None if the operator stays float."""
    data = q.value(binding.value.args[0])
    if not (q.is_ready(data) or data.is_input):
        return None
    amax = q.ranges[binding.var]
    return mean_scale(counts, q.scale(data).exponent, amax, source_name(binding.var))


def _close(q: Quantizer, binding: relax.VarBinding, out: relax.Var, scale: MeanScale) -> None:
    name = source_name(binding.var)
    accumulator = Accumulator(name, scale.bound, scale.rescale.shift, "pool in two steps")
    end = Epilogue(binding.var)
    q.close_group(
        binding.var, end.absorbed, out, Scale.power(scale.exponent), accumulator.checked()
    )


# ---------------------------------------------------------------- windows
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
    """The divisor at every position, int64 (OH, OW): what lies inside the input, or inside the
    padded input. What ceil mode adds never counts. `include_pad` None: as the operator counts."""
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
