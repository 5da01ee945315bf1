"""Layers with constant weights as integers: one factor for each channel, zero points, borders."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Attrs, GenericConst

from vta_byoc.base.choices import ALL, MULTIPLY
from vta_byoc.base.int8_digits import MOST_OF_TWO, is_int8, magnitude
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import op_name, source_name, static_shape
from vta_byoc.quantization.exact_groups import exact_layer
from vta_byoc.quantization.fused_ops import FusedOperators, follow
from vta_byoc.quantization.groups import result_scale
from vta_byoc.quantization.ops.anchors import (
    ANCHORS,
    Anchor,
    channel_absmax,
    int8_weight,
    per_weight,
)
from vta_byoc.quantization.ops.attention import attention_at, convert_attention
from vta_byoc.quantization.ops.borders import border_sums, per_position
from vta_byoc.quantization.ops.layer_factor import (
    Scaled,
    Source,
    as_int32,
    bias_absmax,
    candidates,
)
from vta_byoc.quantization.ops.products import convert_product, takes_product
from vta_byoc.quantization.qdq import ConstantScale
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.requantize import FixedPoint, requantizer
from vta_byoc.quantization.scales import INT8_LOW, AccumulatorBound, Scale, Unscalable

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
        sums: int64 [channels]: largest magnitude of the products' sum, any input.
        unit: real value of one in the accumulator, like `steps`.
        rest: float64 [channels]: what rounding took from a stated bias.
        real_bias: float64 [channels], in units of the accumulator.
        data: scale of the data.
        is_stated: whether the model states the integers of its weights.
    """

    name: str
    weight: np.ndarray
    steps: np.ndarray
    bias: np.ndarray
    sums: np.ndarray
    unit: np.ndarray
    rest: np.ndarray
    real_bias: np.ndarray
    data: Scale
    is_stated: bool

    def bounds(self, offset: np.ndarray | int = 0) -> np.ndarray:
        """int64 [channels]: the largest magnitude of the sum, the bias and `offset`."""
        return self.sums + bias_absmax(self.bias + offset)


def takes_layer(call: relax.Call) -> bool:
    """Whether `call` is a layer that becomes integer."""
    anchor = ANCHORS.get(op_name(call))
    return anchor is not None and anchor.takes(call)


def takes_zero_point(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Whether a zero point of a layer's data is one number in the bias of each channel.

    It is a map where padding leaves some sums with fewer weights; products of two activations have
    no place for it.
    """
    call = binding.value
    if not takes_layer(call):
        return not takes_product(call)
    anchor, shape = ANCHORS[op_name(call)], static_shape(call.args[1])
    if q.policy.zero_points == ALL or len(shape) == 2:
        return True
    return border_sums(anchor, np.ones(shape, "int8"), call, static_shape(binding.var)).ndim == 1


@integer_op(
    *ANCHORS,
    asks=lambda q, binding: takes_layer(binding.value) or takes_product(binding.value),
    zero=takes_zero_point,
)
def convert_layer(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A layer with its bias and clamps; int32 to float where nothing integer reads it."""
    call, var = binding.value, binding.var
    if takes_product(call):
        chain = attention_at(q, binding)
        done = chain is not None and convert_attention(q, chain)
        return done or convert_product(q, binding)
    if not takes_layer(call):
        return False
    anchor = ANCHORS[op_name(call)]
    channels = (anchor.axis % var.ty.ndim, static_shape(var)[anchor.axis])
    end = follow(q, var, channels)
    is_open = end.scale is None and (not end.clamps or end.last not in q.ranges)
    if is_open and q.leaves_as_float(end.last):
        return _to_float(q, binding, anchor, follow(q, var, channels, clamps=False))
    found, target = _scaled(q, anchor, binding, end)
    proof = layer_proof(source_name(var), found.weight, end_bias(end, channels[1]), *found.proof)
    x = q.int8(q.value(call.args[0]))
    out = found.write(anchor, call.attrs, source_name(var))(q.write, x)
    q.close_group(var, end.absorbed, out, target, proof.checked())
    return True


def layer_proof(
    name: str, weight: np.ndarray, bias: np.ndarray, bound: int, shift: int
) -> AccumulatorBound:
    """The proof for a layer, with what its user can do if there is none."""
    inputs = weight.size // bias.shape[0]
    fix = f"split its {inputs} inputs per output over two layers and add their results"
    return AccumulatorBound(name, bound, shift, fix)


def end_bias(end: FusedOperators, channels: int) -> np.ndarray:
    """The float bias of a layer, zeros where it has none."""
    return np.zeros(channels) if end.bias is None else end.bias


def _scaled(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, end: FusedOperators
) -> tuple[Scaled, Scale]:
    """The layer as integers, and the scale of its result.

    Its factor is multiplied, or in the form that is asked for or costs least.
    """
    wanted = q.policy.rescale
    try:
        layer = _layer(q, anchor, binding, q.scale(q.value(binding.value.args[0])), end)
    except Unscalable as error:
        if not q.policy.keeps_stated:
            raise
        return _in_another_form(q, anchor, binding, end, error)
    target = result_scale(q, end, layer.unit, int(layer.bounds().max()))
    exact = _exact(q, anchor, layer, end)
    if exact is not None:
        return exact, target
    product = _multiplied(layer, end, target)
    multiplies = wanted == MULTIPLY or (wanted is None and q.policy.multiplies)
    if multiplies or not product.rescale.multiplies:
        return product, target
    source = _source(q, anchor, binding, end, target)
    ints = layer.weight if is_int8(layer.weight) else None
    forms = candidates(source, ints, layer.unit / target.step, wanted)
    found = _cheapest(q, anchor, binding, forms) if forms else None
    return product if found is None else found, target


def _in_another_form(
    q: Quantizer,
    anchor: Anchor,
    binding: relax.VarBinding,
    end: FusedOperators,
    refused: Unscalable,
) -> tuple[Scaled, Scale]:
    """A layer whose weights no int8 with a scale of output channels describes."""
    target = result_scale(q, end, 1.0, 0)
    source = _source(q, anchor, binding, end, target)
    forms = candidates(source, None, None, q.policy.rescale)
    if not forms:
        raise refused
    found = _cheapest(q, anchor, binding, forms)
    absmax = channel_absmax(anchor, binding.value.args[1].value.numpy(), binding.value.attrs)
    steps = source.unit * target.step
    q.record.note_weight(source_name(binding.var), steps, float(absmax.max()))
    return found, target


def _multiplied(layer: _Layer, end: FusedOperators, target: Scale) -> Scaled:
    """int8 weights, then a multiplication, or shifts where every factor is a power of two."""
    low, high = end.limits(target)
    ratio = layer.unit / target.step
    rescale = requantizer(ratio, layer.bounds(), target.zero, low, high, layer.rest)
    return _with_offset(layer, rescale)


def _with_offset(layer: _Layer, rescale: FixedPoint) -> Scaled:
    """The layer with the offset of its rescale in its bias."""
    offset = per_position(rescale.offset, layer.bias.ndim)
    rescale = dataclasses.replace(rescale, bound=int(layer.bounds(offset).max()))
    return Scaled(MULTIPLY, layer.weight, layer.bias + offset, rescale, 0.0)


def _exact(q: Quantizer, anchor: Anchor, layer: _Layer, end: FusedOperators) -> Scaled | None:
    """The layer with its runtime's results to the bit, where that is asked for and possible."""
    found = exact_layer(
        q,
        layer.name,
        end,
        layer.data,
        layer.steps if layer.is_stated else None,
        layer.bounds(),
        layer.real_bias,
        is_dense=anchor is ANCHORS["relax.matmul"],
    )
    return None if found is None else _with_offset(layer, found)


def _cheapest(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, forms: list[Scaled]
) -> Scaled:
    """The form that the compiler expects to be fastest, which is noted in the record.

    It is another one than the first only where it is clearly cheaper, and the first where the
    machine takes none.
    """
    attrs, name = binding.value.attrs, source_name(binding.var)
    found = forms[0]
    if len(forms) > 1:
        shape = static_shape(binding.value.args[0])
        costs = [q.policy.estimate(form.write(anchor, attrs, name), shape) for form in forms]
        taken = [(c if i == 0 else c / MARGIN, i) for i, c in enumerate(costs) if c is not None]
        found = forms[min(taken)[1] if taken else 0]
    q.record.factors[name] = {"form": found.form, "error": found.error}
    return found


def _source(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, end: FusedOperators, target: Scale
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


# ---------------------------------------------------------------- results that stay int32
def _to_float(q: Quantizer, binding: relax.VarBinding, anchor: Anchor, end: FusedOperators) -> bool:
    call = binding.value
    scale = q.scale(q.value(call.args[0]))
    try:
        layer = _layer(q, anchor, binding, scale, end)
    except Unscalable as error:
        return _digits_to_float(q, binding, anchor, end, error)
    bound = int(layer.bounds().max())
    proof = layer_proof(layer.name, layer.weight, layer.bias, bound, 0).checked()
    x = q.int8(q.value(call.args[0]))
    out = anchor.write(q.write, x, layer.weight, layer.bias, call.attrs, None, layer.name)
    real = float_result(q, anchor, out, layer.unit, layer.name)
    q.close_float_group(binding.var, end.absorbed, real, proof)
    return True


def _digits_to_float(
    q: Quantizer,
    binding: relax.VarBinding,
    anchor: Anchor,
    end: FusedOperators,
    refused: Unscalable,
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


def float_result(
    q: Quantizer, anchor: Anchor, out: relax.Var, steps: np.ndarray, name: str
) -> relax.Var:
    """int32 accumulators as float32; `steps` of all or of each channel."""
    if steps.ndim == 0:
        return q.write.dequantize(out, Scale(float(steps)), name)
    return q.write.dequantize(out, steps, name, axis=anchor.axis % out.ty.ndim)


# ---------------------------------------------------------------- constants
def _layer(
    q: Quantizer, anchor: Anchor, binding: relax.VarBinding, scale: Scale, end: FusedOperators
) -> _Layer:
    call, name = binding.value, source_name(binding.var)
    weight = call.args[1].value.numpy()
    absmax = channel_absmax(anchor, weight, call.attrs)
    bias = end_bias(end, len(absmax))
    stated = q.constants.get(call.args[1])
    if stated is None:
        amax = q.ranges.get(end.last)
        steps = q.policy.weight_steps(absmax, bias, scale.step, amax, name)
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
    q.record.note_weight(name, steps, float(absmax.max(initial=0)))
    # only of a model that came so is it known what its runtime adds
    rest = np.zeros(len(bias)) if stated is None else bias / unit - whole
    taps = anchor.taps(magnitude(ints), call.attrs) * -INT8_LOW
    real = bias / unit
    return _Layer(name, ints, steps, moved, taps, unit, rest, real, scale, stated is not None)


def _stated_weights(
    anchor: Anchor, stated: ConstantScale, attrs: Attrs, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps, () or [channels], and weights as the model has them.

    The weights are int8; or int16 where a zero point leaves them beyond int8: two digits
    (`int8_digits`), which give the same sums in two passes.

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
