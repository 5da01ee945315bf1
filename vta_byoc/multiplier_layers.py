"""Layers with constant weights at any scales: one factor for each channel, zero points, borders.

With a zero point z the accumulator is `sum(w * q) - z * sum(w)` over the taps that are inside the
input.  Padding writes 0, not z, so beside a border the second sum has fewer terms: the bias
then has one value for each position (a map), which the machine loads like any int32 operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from vta_byoc.bindings import op_name, source_name, static_shape
from vta_byoc.epilogue import Epilogue, follow
from vta_byoc.fixed_point import requantizer
from vta_byoc.integer_layers import (
    ANCHORS,
    BIAS_BITS,
    Anchor,
    channel_peaks,
    float_result,
    int8_weight,
    layer_proof,
    per_weight,
    takes_layer,
)
from vta_byoc.scales import INT8_LOW, WEIGHT_HIGH, Scale, Unscalable

if TYPE_CHECKING:
    from vta_byoc.quantizer import Quantizer

SMALLEST_STEP = 2.0**-60


@dataclass(frozen=True)
class _Layer:
    """Quantized constants of a layer.

    Attributes:
        weight: int8, in the layout of the float weights.
        steps: of the weights, float64 () or [channels].
        bias: int64 [channels] or [channels, positions ...]; the input's zero point is in it.
        reach: int64 [channels]: largest magnitude of product sum and bias, any input.
        unit: real value of one in the accumulator, like `steps`.
    """

    name: str
    weight: np.ndarray
    steps: np.ndarray
    bias: np.ndarray
    reach: np.ndarray
    unit: np.ndarray


def convert_layer(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A layer with its bias and clamps; int32 to float where nothing integer reads it."""
    call, var = binding.value, binding.var
    if not takes_layer(call):
        return False
    anchor = ANCHORS[op_name(call)]
    channels = (anchor.axis % var.ty.ndim, static_shape(var)[anchor.axis])
    end = follow(q, var, channels)
    is_open = end.scale is None and (not end.clamps or end.last not in q.ranges)
    if is_open and q.leaves_as_float(end.last):
        return _to_float(q, binding, anchor, follow(q, var, channels, clamps=False))
    target = end.scale or q.target(end.last)
    scale = q.scale(q.value(call.args[0]))
    layer = _layer(q, anchor, binding, scale, end)
    low, high = end.limits(target)
    rescale = requantizer(layer.unit / target.step, layer.reach, target.zero, low, high)
    bound = int((layer.reach + np.abs(rescale.offset)).max())
    proof = layer_proof(layer.name, layer.weight, layer.bias, bound, rescale.shift).checked()
    bias = layer.bias + per_position(rescale.offset, layer.bias.ndim)
    x = q.int8(q.value(call.args[0]))
    out = anchor.write(q.write, x, layer.weight, bias, call.attrs, rescale, layer.name)
    q.close_group(var, end.absorbed, out, target, proof)
    return True


def per_position(values: np.ndarray, rank: int) -> np.ndarray:
    """One value per channel, so that it broadcasts against [channels, positions ...]."""
    return values if values.ndim == 0 else values.reshape(-1, *[1] * (rank - 1))


def _to_float(q: Quantizer, binding: relax.VarBinding, anchor: Anchor, end: Epilogue) -> bool:
    call = binding.value
    scale = q.scale(q.value(call.args[0]))
    layer = _layer(q, anchor, binding, scale, end)
    bound = int(layer.reach.max())
    proof = layer_proof(layer.name, layer.weight, layer.bias, bound, 0).checked()
    x = q.int8(q.value(call.args[0]))
    out = anchor.write(q.write, x, layer.weight, layer.bias, call.attrs, None, layer.name)
    real = float_result(q, anchor, out, layer.unit, layer.name)
    q.close_float_group(binding.var, end.absorbed, real, proof)
    return True


def _layer(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, scale: Scale, end: Epilogue
) -> _Layer:
    call, name = binding.value, source_name(binding.var)
    weight = call.args[1].value.numpy()
    peaks = channel_peaks(anchor, weight, call.attrs)
    bias = np.zeros(len(peaks)) if end.bias is None else end.bias
    stated = q.constants.get(call.args[1])
    if stated is None:
        steps = _steps(q, peaks, bias, scale.step)
        ints = int8_weight(weight, per_weight(anchor, steps, weight.shape, call.attrs))
    else:
        steps, ints = _stated_weights(anchor, stated, call.attrs, name)
    unit = scale.step * steps
    whole = np.rint(bias / unit).astype("int64")
    if np.abs(whole).max(initial=0) >= 1 << 31:
        raise Unscalable(name, "its bias exceeds int32 at the scale of its sums")
    moved = whole
    if scale.zero:
        sums = border_sums(anchor, ints, call, static_shape(binding.var))
        moved = per_position(whole, sums.ndim) - scale.zero * sums
    taps = anchor.taps(np.abs(ints), call.attrs) * -INT8_LOW
    reach = taps + np.abs(moved).reshape(len(peaks), -1).max(axis=1)
    q.note_weight(name, steps, float(peaks.max(initial=0)))
    return _Layer(name, ints, steps, moved, reach, unit)


def _steps(q: Quantizer, peaks: np.ndarray, bias: np.ndarray, data: float) -> np.ndarray:
    """The step of all weights, or of each channel's; the bias must fit the accumulator."""
    if not q.arithmetic.per_channel:
        peaks, bias = np.array(peaks.max(initial=0)), np.array(np.abs(bias).max(initial=0))
    least = np.maximum(np.abs(bias) / (data * 2.0**BIAS_BITS), SMALLEST_STEP)
    return np.maximum(np.float64(np.float32(peaks / WEIGHT_HIGH)), least)


def _stated_weights(
    anchor: Anchor, stated: Any, attrs: Any, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps () or [channels] and int8 weights as the model has them.

    Raises:
        Unscalable: the integers do not fit int8 without zero point, or a step is not for an
            output channel.
    """
    if not stated.is_int8:
        raise Unscalable(name, "its weights less their zero point exceed int8")
    if stated.axis not in (None, anchor.weight_axis):
        raise Unscalable(
            name,
            f"its weights have a scale for each index of axis {stated.axis}; a sum can be scaled "
            f"by output channel (axis {anchor.weight_axis}); quantize them so, or with one scale",
        )
    steps = stated.steps
    if steps.ndim and anchor.shares_axis:
        steps = np.tile(steps, int(attrs.groups))
    return steps, stated.ints.astype("int8")


# ---------------------------------------------------------------- borders
def border_sums(
    anchor: Anchor, weight: np.ndarray, call: relax.Call, out: tuple[int, ...]
) -> np.ndarray:
    """The sum of the weights whose taps lie inside the input: int64 [channels] where it is the
    same everywhere, else [channels, positions ...]."""
    attrs, rank = call.attrs, weight.ndim - 2
    if rank == 0:
        return weight.astype("int64").sum(axis=0)
    taps = _channel_taps(anchor, weight.astype("int64"), attrs)
    sizes = static_shape(call.args[0])[2:]
    for axis in reversed(range(rank)):
        inside = _inside(anchor, attrs, axis, sizes[axis], weight.shape[2 + axis], out[2 + axis])
        taps = np.moveaxis(np.tensordot(taps, inside, axes=([1 + axis], [1])), -1, 1 + axis)
    first = taps.reshape(len(taps), -1)[:, 0]
    same = (taps == per_position(first, taps.ndim)).all()
    return first if same else taps


def _channel_taps(anchor: Anchor, weight: np.ndarray, attrs: Any) -> np.ndarray:
    """Weights summed over the input channels of each output channel: [channels, kernel ...]."""
    if not anchor.shares_axis:
        return weight.sum(axis=1)
    groups = int(attrs.groups)
    whole = weight.reshape(groups, -1, *weight.shape[1:]).sum(axis=1)
    return whole.reshape(-1, *weight.shape[2:])


def _inside(anchor: Anchor, attrs: Any, axis: int, size: int, kernel: int, out: int) -> np.ndarray:
    """Whether tap k of output position p reads the input, int64 [out, kernel]."""
    stride, dilation = int(attrs.strides[axis]), int(attrs.dilation[axis])
    before = int(attrs.padding[axis])
    positions, taps = np.arange(out)[:, None], np.arange(kernel)[None, :] * dilation
    if not anchor.shares_axis:
        read = positions * stride + taps - before
        return np.asarray((read >= 0) & (read < size), np.int64)
    read = positions + before - taps
    return np.asarray((read % stride == 0) & (read >= 0) & (read < size * stride), np.int64)
