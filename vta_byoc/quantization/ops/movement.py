"""Operators that select or move elements: they run on int8 as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import relax

from vta_byoc.ir.bindings import is_float32, op_name
from vta_byoc.quantization.ops.elementwise import moves_as_int8
from vta_byoc.quantization.scales import MAX_SHIFT, Rescale, Scale

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer

COPIES = frozenset(
    f"relax.{name}"
    for name in (
        "broadcast_to",
        "concat",
        "expand_dims",
        "flatten",
        "permute_dims",
        "reshape",
        "split",
        "squeeze",
        "strided_slice",
    )
)
"""Operators that give their elements another place and nothing else."""
MOVES = COPIES - {"relax.concat"} | {
    f"relax.{name}"
    for name in (
        "flip",
        "max",
        "min",
        "nn.max_pool2d",
        "nn.pad",
        "nn.pixel_shuffle",
        "repeat",
        "take",
        "tile",
    )
}
"""Operators on one tensor whose results hold only values of the tensor, and zero."""


def convert_move(q: Quantizer, binding: relax.VarBinding) -> bool:
    """The same operator on int8."""
    call = binding.value
    if not is_float32(call.args[0]) or not moves_zero(call):
        return False
    value = q.value(call.args[0])
    if not moves_as_int8(q, binding, value):
        return False
    args = [q.int8(value), *(q.plain(arg) for arg in call.args[1:])]
    moved = relax.Call(call.op, args, call.attrs, call.ty_args)
    out = q.write.emit(moved, binding.var.name)
    q.set_int8(binding.var, out, value.scale, value.amax)
    return True


def moves_zero(call: relax.Call) -> bool:
    """Padding is data movement only if it pads with zero."""
    if op_name(call) != "relax.nn.pad":
        return True
    return str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0


def convert_concat(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Concatenation at the coarsest scale of the inputs; the others are rescaled."""
    call = binding.value
    whole = q.value(call.args[0])
    if whole.fields is None or not is_float32(binding.var):
        return False
    if not moves_as_int8(q, binding, whole):
        return False
    values = [q.int8(item) for item in whole.fields]
    exponent = max(item.scale.exponent for item in whole.fields)
    parts = [
        _rescaled(q, x, exponent - item.scale.exponent, f"{binding.var.name}__part{i}")
        for i, (x, item) in enumerate(zip(values, whole.fields, strict=True))
    ]
    moved = relax.op.concat(parts, axis=call.attrs.axis)
    out = q.write.emit(moved, binding.var.name)
    q.set_int8(binding.var, out, Scale.power(exponent))
    return True


def _rescaled(q: Quantizer, x: relax.Expr, shift: int, name: str) -> relax.Expr:
    return q.write.rescale(x, Rescale(min(shift, MAX_SHIFT)), name) if shift else x
