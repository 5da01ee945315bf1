"""Operators that select or move elements: they run on int8 as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc.base.choices import ALL
from vta_byoc.ir.bindings import SEPARATOR, is_float32, op_name, static_shape
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.groups import moves_as_int8, rescaled
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, Scale, quantized, spanning
from vta_byoc.quantization.value import Value

COPIES = (
    "relax.broadcast_to",
    "relax.expand_dims",
    "relax.flatten",
    "relax.permute_dims",
    "relax.reshape",
    "relax.split",
    "relax.squeeze",
    "relax.strided_slice",
)
"""Operators on one tensor that give its elements another place and do nothing else."""
SELECTIONS = (
    "relax.flip",
    "relax.max",
    "relax.min",
    "relax.nn.max_pool2d",
    "relax.nn.pad",
    "relax.nn.pixel_shuffle",
    "relax.repeat",
    "relax.take",
    "relax.tile",
)
"""Operators on one tensor whose results hold only values of the tensor, and zero."""


def takes_zero_point(q: Quantizer, binding: relax.VarBinding) -> bool:
    """What a move gives elsewhere has its data's zero point; padding would have to be written."""
    attrs = binding.value.attrs
    pads = [int(width) for width in getattr(attrs, "pad_width", None) or ()]
    pads += [int(width) for width in getattr(attrs, "padding", None) or ()]
    is_free = not any(pads) or q.policy.zero_points == ALL
    return is_free and q.takes_zero(binding.var)


@integer_op(*COPIES, copies=True, zero=takes_zero_point)
@integer_op(*SELECTIONS, zero=takes_zero_point)
def convert_move(q: Quantizer, binding: relax.VarBinding) -> bool:
    """The same operator on int8; padding writes the zero point."""
    call = binding.value
    if not is_float32(call.args[0]) or not moves_zero(call):
        return False
    value = q.value(call.args[0])
    if not moves_as_int8(q, binding, value):
        return False
    scale = q.scale(value)
    args = [q.int8(value), *(q.plain(arg) for arg in call.args[1:])]
    moved = relax.Call(call.op, args, call.attrs, call.ty_args)
    is_pad = op_name(call) == "relax.nn.pad" and scale.zero != 0
    name = f"{binding.var.name}{SEPARATOR}moved" if is_pad else binding.var.name
    out = q.write.emit(moved, name)
    if is_pad:
        out = q.write.offset(out, _border(call, scale.zero), binding.var.name)
    q.set_int8(binding.var, out, scale, value.amax)
    return True


def moves_zero(call: relax.Call) -> bool:
    """Whether `call` only moves elements, and zero: padding does if it pads with zero."""
    if op_name(call) != "relax.nn.pad":
        return True
    return str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0


def _border(call: relax.Call, zero: int) -> np.ndarray:
    """`zero` where padding was written, 0 elsewhere; 1 long along axes that are not padded."""
    widths = np.reshape([int(width) for width in call.attrs.pad_width], (-1, 2))
    shape = [
        size if any(w) else 1 for size, w in zip(static_shape(call.args[0]), widths, strict=True)
    ]
    return np.pad(np.zeros(shape, "int64"), widths, constant_values=zero)


@integer_op("relax.concat", copies=True, zero=takes_zero_point)
def convert_concat(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Concatenation at one scale; inputs at other scales are rescaled.

    It is the scale that the model states for the result, or else one that reaches as far as all
    inputs do: the coarsest where none has a zero point.
    """
    call = binding.value
    whole = q.value(call.args[0])
    if whole.fields is None or not is_float32(binding.var):
        return False
    if not moves_as_int8(q, binding, whole):
        return False
    end = follow(q, binding.var, clamps=True)
    if end.clamps:
        end = follow(q, binding.var, clamps=False)
    scales = [q.scale(item) for item in whole.fields]
    target = end.scale or _covering(scales)
    parts = [
        _at_scale(q, item, target, f"{binding.var.name}{SEPARATOR}part{i}")
        for i, item in enumerate(whole.fields)
    ]
    moved = relax.op.concat(parts, axis=call.attrs.axis)
    out = q.write.emit(moved, binding.var.name)
    q.absorbed.update(end.absorbed)
    q.set_int8(end.last, out, target)
    return True


def _covering(scales: Sequence[Scale]) -> Scale:
    """A scale that holds what all do, to half a step of it: one of them where one does."""
    ends = [[scale.step * (q - scale.zero) for q in (INT8_LOW, INT8_HIGH)] for scale in scales]
    low, high = min(least for least, _ in ends), max(most for _, most in ends)
    for scale, (least, most) in zip(scales, ends, strict=True):
        if max(least - low, high - most) <= scale.step / 2:
            return scale
    return spanning(low, high)


def _at_scale(q: Quantizer, item: Value, target: Scale, name: str) -> relax.Expr:
    """A value as int8 at `target`; a constant is rounded once."""
    if item.int8 is None and isinstance(item.plain, GenericConst):
        return relax.const(quantized(item.plain.value.numpy(), target).astype("int8"))
    return rescaled(q, item, target, name)
