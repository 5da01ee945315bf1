"""Operators that select or move elements, at any scales; quantize and dequantize themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import SEPARATOR, is_float32, op_name, static_shape
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.ops.elementwise import moves_as_int8
from vta_byoc.quantization.ops.movement import moves_zero
from vta_byoc.quantization.ops.multiplier_elementwise import requantized
from vta_byoc.quantization.qdq import quantize_scale
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, Scale

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer, Value

ALL = (INT8_LOW, INT8_HIGH)


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


def _border(call: relax.Call, zero: int) -> np.ndarray:
    """`zero` where padding was written, 0 elsewhere; 1 long along axes that are not padded."""
    widths = np.reshape([int(width) for width in call.attrs.pad_width], (-1, 2))
    shape = [
        size if any(w) else 1 for size, w in zip(static_shape(call.args[0]), widths, strict=True)
    ]
    return np.pad(np.zeros(shape, "int64"), widths, constant_values=zero)


def convert_concat(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Concatenation at the scale that the model states for the result, or else at the coarsest of
    the inputs; inputs at other scales are rescaled."""
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
    target = end.scale or max(scales, key=lambda scale: scale.step)
    parts = [
        rescaled(q, item, target, f"{binding.var.name}{SEPARATOR}part{i}")
        for i, item in enumerate(whole.fields)
    ]
    moved = relax.op.concat(parts, axis=call.attrs.axis)
    out = q.write.emit(moved, binding.var.name)
    q.absorbed.update(end.absorbed)
    q.set_int8(end.last, out, target)
    return True


def rescaled(q: Quantizer, value: Value, target: Scale, name: str) -> relax.Expr:
    """A value as int8 at `target`."""
    x = q.int8(value)
    return x if value.scale == target else requantized(q, x, value.scale, target, ALL, name)[0]


def convert_quantize(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A quantize operator of the model: of floats as it is, of int8 values a rescale."""
    scale = quantize_scale(binding.value)
    if scale is None:
        return False
    value = q.value(binding.value.args[0])
    if value.int8 is None:
        out = q.write.quantize(q.plain(binding.value.args[0]), scale, binding.var.name)
    else:
        out = rescaled(q, value, scale, binding.var.name)
    q.set_int8(binding.var, out, scale)
    return True


def convert_dequantize(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A dequantize operator of the model: the int8 value, at its scale."""
    scale = quantize_scale(binding.value)
    if scale is None:
        return False
    q.set_int8(binding.var, q.as_int8(q.value(binding.value.args[0])), scale)
    return True
