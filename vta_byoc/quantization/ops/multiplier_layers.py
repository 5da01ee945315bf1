"""Layers with constant weights at any scales: one factor for each channel, zero points, borders."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.ir import Attrs, GenericConst

from vta_byoc.base.int8_digits import MOST_OF_TWO, is_int8, magnitude
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import op_name, source_name, static_shape
from vta_byoc.ir.quantization_record import MULTIPLY
from vta_byoc.quantization.fused_ops import Epilogue, follow
from vta_byoc.quantization.ops.layer_factor import Scaled, Source, as_int32, candidates
from vta_byoc.quantization.ops.layers import (
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
from vta_byoc.quantization.ops.multiplier_borders import border_sums, per_position
from vta_byoc.quantization.qdq import ConstantScale
from vta_byoc.quantization.requantize import requantizer
from vta_byoc.quantization.scales import INT8_LOW, WEIGHT_HIGH, Scale, Unscalable

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer

SMALLEST_STEP = 2.0**-60
MARGIN = 0.8
"""Another form is clearly cheaper below this share: estimates of single layers, which do not know
what will share a tile, are about so precise."""


@dataclass(frozen=True)
class _Layer:
    """Quantized constants of a layer.

    Attributes:
        weight: int8, or int16 of two int8 digits, in the layout of the float weights.
        steps: of the weights, float64 () or [channels].
        bias: int64 [channels] or [channels, positions ...]; the input's zero point is in it.
        reach: int64 [channels]: largest magnitude of product sum and bias, any input.
        unit: real value of one in the accumulator, like `steps`.
        rest: float64 [channels]: what rounding took from a stated bias.
    """

    name: str
    weight: np.ndarray
    steps: np.ndarray
    bias: np.ndarray
    reach: np.ndarray
    unit: np.ndarray
    rest: np.ndarray


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
    found = _scaled(q, anchor, binding, end, target)
    proof = layer_proof(source_name(var), found.weight, end_bias(end, channels[1]), *found.proof)
    x = q.int8(q.value(call.args[0]))
    out = found.write(anchor, call.attrs, source_name(var))(q.write, x)
    q.close_group(var, end.absorbed, out, target, proof.checked())
    return True


def end_bias(end: Epilogue, channels: int) -> np.ndarray:
    """The float bias of a layer, zeros where it has none."""
    return np.zeros(channels) if end.bias is None else end.bias


def _scaled(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, end: Epilogue, target: Scale
) -> Scaled:
    """The layer as integers: multiplied, or in the form that is asked for or costs least."""
    wanted = q.arithmetic.rescale
    refused: Unscalable | None = None
    layer = product = None
    try:
        layer = _layer(q, anchor, binding, q.scale(q.value(binding.value.args[0])), end)
        product = _multiplied(layer, end, target)
    except Unscalable as error:
        refused = error
    multiplies = wanted == MULTIPLY or (wanted is None and q.arithmetic.multiplies)
    if product is not None and (multiplies or not product.rescale.multiplies):
        return product
    source = _source(q, anchor, binding, end, target)
    ratio = None if layer is None else layer.unit / target.step
    ints = None if layer is None or not is_int8(layer.weight) else layer.weight
    forms = candidates(source, ints, ratio, wanted)
    if not forms and product is not None:
        return product
    if not forms:
        assert refused is not None
        raise refused
    found = _cheapest(q, anchor, binding, forms)
    q.record.factors[source_name(binding.var)] = {"form": found.form, "error": found.error}
    if layer is None:
        peaks = channel_peaks(anchor, binding.value.args[1].value.numpy(), binding.value.attrs)
        q.note_weight(source_name(binding.var), source.unit * target.step, float(peaks.max()))
    return found


def _multiplied(layer: _Layer, end: Epilogue, target: Scale) -> Scaled:
    """int8 weights, then a multiplication, or none where every factor is a power of two."""
    low, high = end.limits(target)
    ratio = layer.unit / target.step
    rescale = requantizer(ratio, layer.reach, target.zero, low, high, layer.rest)
    bias = layer.bias + per_position(rescale.offset, layer.bias.ndim)
    bound = int((layer.reach + np.abs(rescale.offset)).max())
    rescale = dataclasses.replace(rescale, bound=bound)
    return Scaled(MULTIPLY, layer.weight, bias, rescale, 0.0)


def _cheapest(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, forms: list[Scaled]
) -> Scaled:
    """The form of the fewest cycles, the first unless another one is clearly cheaper; the first
    where the machine takes none."""
    if len(forms) == 1:
        return forms[0]
    attrs, name = binding.value.attrs, source_name(binding.var)
    shape = static_shape(binding.value.args[0])
    costs = [q.arithmetic.estimate(form.write(anchor, attrs, name), shape) for form in forms]
    taken = [(c if i == 0 else c / MARGIN, i) for i, c in enumerate(costs) if c is not None]
    return forms[min(taken)[1] if taken else 0]


def _source(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, end: Epilogue, target: Scale
) -> Source:
    """The layer in steps of its result: weights as the model states them, or floats."""
    call = binding.value
    scale = q.scale(q.value(call.args[0]))
    bias = end_bias(end, static_shape(binding.var)[anchor.axis])
    low, high = end.limits(target)
    return Source(
        anchor,
        call,
        static_shape(binding.var),
        _real_weights(q, call.args[1]) * (scale.step / target.step),
        bias / target.step,
        scale,
        target.zero,
        low,
        high,
    )


def _real_weights(q: Quantizer, weight: GenericConst) -> np.ndarray:
    """float64: integers times their steps where the model states them, along any axis."""
    stated = q.constants.get(weight)
    return np.asarray(weight.value.numpy(), np.float64) if stated is None else stated.real


def _to_float(q: Quantizer, binding: relax.VarBinding, anchor: Anchor, end: Epilogue) -> bool:
    call = binding.value
    scale = q.scale(q.value(call.args[0]))
    try:
        layer = _layer(q, anchor, binding, scale, end)
    except Unscalable as error:
        return _digits_to_float(q, binding, anchor, end, error)
    bound = int(layer.reach.max())
    proof = layer_proof(layer.name, layer.weight, layer.bias, bound, 0).checked()
    x = q.int8(q.value(call.args[0]))
    out = anchor.write(q.write, x, layer.weight, layer.bias, call.attrs, None, layer.name)
    real = float_result(q, anchor, out, layer.unit, layer.name)
    q.close_float_group(binding.var, end.absorbed, real, proof)
    return True


def _digits_to_float(
    q: Quantizer, binding: relax.VarBinding, anchor: Anchor, end: Epilogue, refused: Unscalable
) -> bool:
    """Weights that no int8 with a scale of output channels describes, in two digits."""
    call, name = binding.value, source_name(binding.var)
    source = _source(q, anchor, binding, end, Scale(1.0))
    scaled = as_int32(dataclasses.replace(source, saturates=False))
    if scaled is None:
        raise refused
    found, unit = scaled
    proof = layer_proof(name, found.weight, source.bias, found.rescale.bound, 0).checked()
    x = q.int8(q.value(call.args[0]))
    out = anchor.write(q.write, x, found.weight, found.bias, call.attrs, None, name)
    real = float_result(q, anchor, out, np.array(unit), name)
    q.record.factors[name] = {"form": found.form, "error": found.error * unit}
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
    taps = anchor.taps(magnitude(ints), call.attrs) * -INT8_LOW
    reach = taps + np.abs(moved).reshape(len(peaks), -1).max(axis=1)
    q.note_weight(name, steps, float(peaks.max(initial=0)))
    # only of a model that came so is it known what its runtime adds
    rest = np.zeros(len(bias)) if stated is None else bias / unit - whole
    return _Layer(name, ints, steps, moved, reach, unit, rest)


def _steps(q: Quantizer, peaks: np.ndarray, bias: np.ndarray, data: float) -> np.ndarray:
    """The step of all weights, or of each channel's; the bias must fit the accumulator."""
    if not q.arithmetic.per_channel:
        peaks, bias = np.array(peaks.max(initial=0)), np.array(np.abs(bias).max(initial=0))
    least = np.maximum(np.abs(bias) / (data * 2.0**BIAS_BITS), SMALLEST_STEP)
    return np.maximum(np.float64(np.float32(peaks / WEIGHT_HIGH)), least)


def _stated_weights(
    anchor: Anchor, stated: ConstantScale, attrs: Attrs, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps () or [channels] and weights as the model has them: int8, or int16 where a zero point
    leaves them beyond int8, which are two digits (`int8_digits`): the same sums, in two passes.

    Raises:
        Unscalable: the integers do not fit two digits, or a step is not for an output channel.
    """
    if np.abs(stated.ints).max(initial=0) > MOST_OF_TWO:
        raise Unscalable(name, "its weights less their zero point exceed two int8 digits")
    if stated.axis not in (None, anchor.weight_axis):
        raise Unscalable(
            name,
            Refusal(
                "its weights have a scale for each index of axis",
                f"{stated.axis}",
                f"a sum can be scaled by output channel (axis {anchor.weight_axis})",
                "quantize them so, or with one scale",
            ),
        )
    steps = stated.steps
    if steps.ndim and anchor.shares_axis:
        steps = np.tile(steps, int(attrs.groups))
    return steps, stated.ints.astype("int8" if stated.is_int8 else "int16")
