"""Arithmetic without weights as integers: two tensors, constants, clamps, leaky relu."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import is_constant, is_float32, op_name, source_name, static_shape
from vta_byoc.ir.clamps import interval_of
from vta_byoc.quantization.fused_ops import Epilogue, clamp_bound, follow
from vta_byoc.quantization.scales import (
    ALIGN_BITS,
    INT8_LOW,
    Accumulator,
    Scale,
    affine_scale,
    shift_to,
    slope_factor,
)

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer, Value

BINARY: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "relax.add": relax.op.add,
    "relax.subtract": relax.op.subtract,
    "relax.multiply": relax.op.multiply,
    "relax.maximum": relax.op.maximum,
    "relax.minimum": relax.op.minimum,
}
"""Operators of two tensors."""
AFFINE = frozenset(
    {"relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.negative"}
)
"""Operators that, with a constant, are a scale and an offset."""


# ---------------------------------------------------------------- two tensors
def convert_arithmetic(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A clamp, a scale and offset, or an operator of two tensors, whichever it is."""
    if convert_clamp(q, binding):
        return True
    chain = affine_chain(q, binding)
    return _binary(q, binding) if chain is None else _affine(q, binding, chain)


def asks_arithmetic(q: Quantizer, binding: relax.VarBinding) -> bool:
    """An operator of two tensors wants both as int8; with a constant it takes what comes."""
    if op_name(binding.value) not in BINARY or not is_float32(binding.var):
        return False
    if any(is_constant(arg) for arg in binding.value.args):
        is_clamp = op_name(binding.value) in ("relax.maximum", "relax.minimum")
        return is_clamp and q.wants_int8(binding.var)
    return is_wanted(q, binding)


def is_wanted(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Sums are integer whatever reads them; a product that only feeds float operators (the
    squares of a normalization, the scaled scores before a softmax) stays float."""
    return op_name(binding.value) == "relax.add" or not q.feeds_islands(binding.var)


def _binary(q: Quantizer, binding: relax.VarBinding) -> bool:
    call, name = binding.value, source_name(binding.var)
    if op_name(call) not in BINARY or not is_float32(binding.var):
        return False
    operands = [q.value(arg) for arg in call.args]
    if not is_integer(q, operands) or not is_wanted(q, binding):
        return False
    values = [q.int8(operand) for operand in operands]
    aligned = _aligned(op_name(call), [operand.scale.exponent for operand in operands])
    end = follow(q, binding.var)
    exponent, shift = shift_to(aligned.exponent, q.ranges[end.last], aligned.bound, name)
    rescale = end.rescale(shift, exponent)
    fix = "scale its operands alike"
    accumulator = Accumulator(name, aligned.bound + rescale.rounding, shift, fix).checked()
    terms = list(zip(values, aligned.shifts, strict=True))
    out = q.write.binary(BINARY[op_name(call)], terms, rescale, name)
    q.close_group(binding.var, end.absorbed, out, Scale.power(exponent), accumulator)
    return True


def is_integer(q: Quantizer, operands: list[Value]) -> bool:
    inputs_only = all(operand.is_input for operand in operands)
    return inputs_only or any(q.is_ready(operand) for operand in operands)


@dataclass(frozen=True)
class _Aligned:
    """Left shifts (right if negative) of two int8 operands, and the int32 result."""

    shifts: list[int]
    exponent: int
    bound: int


def _aligned(op: str, exponents: list[int]) -> _Aligned:
    """A product is at the product of the scales; everything else needs one common scale."""
    if op == "relax.multiply":
        return _Aligned([0, 0], sum(exponents), INT8_LOW * INT8_LOW)
    common = max(min(exponents), max(exponents) - ALIGN_BITS)
    shifts = [exponent - common for exponent in exponents]
    sides = [-INT8_LOW << max(amount, 0) for amount in shifts]
    bound = max(sides) if op in ("relax.maximum", "relax.minimum") else sum(sides)
    return _Aligned(shifts, common, bound)


# ---------------------------------------------------------------- a tensor and constants
@dataclass
class Affine:
    """A chain of operators that is scale * data + offset; constants float64."""

    data: relax.Var
    last: relax.Var
    scale: np.ndarray
    offset: np.ndarray
    absorbed: tuple[relax.Var, ...] = ()

    def step(self, binding: relax.VarBinding, data: relax.Var) -> bool:
        """Append `binding`, which reads `data`; False if it is something else."""
        call, name = binding.value, op_name(binding.value)
        if name not in AFFINE or static_shape(binding.var) != static_shape(data):
            return False
        if name == "relax.negative":
            self.scale, self.offset = -self.scale, -self.offset
            return True
        constants = [arg for arg in call.args if is_constant(arg)]
        if len(constants) != 1:
            return False
        values = np.float64(constants[0].value.numpy())
        is_reversed = is_constant(call.args[0])
        if not np.isfinite(values).all() or not values.size:
            return False
        if name == "relax.divide":
            if is_reversed or not values.all():
                return False
            name, values = "relax.multiply", 1 / values
        if name == "relax.multiply":
            self.scale, self.offset = self.scale * values, self.offset * values
        elif name == "relax.add":
            self.offset = self.offset + values
        elif is_reversed:
            self.scale, self.offset = -self.scale, values - self.offset
        else:
            self.offset = self.offset - values
        return True


def affine_chain(q: Quantizer, binding: relax.VarBinding) -> Affine | None:
    data = next((arg for arg in binding.value.args if isinstance(arg, relax.Var)), None)
    if data is None or not is_float32(data) or not is_float32(binding.var):
        return None
    chain = Affine(data, binding.var, np.array(1.0), np.array(0.0))
    if not chain.step(binding, data):
        return None
    while (user := q.only_user(chain.last)) and chain.step(user, chain.last):
        chain.last = user.var
        chain.absorbed = (*chain.absorbed, user.var)
    return chain


def _affine(q: Quantizer, binding: relax.VarBinding, chain: Affine) -> bool:
    """Constant scale and offset of an int8 tensor, per tensor, channel or element."""
    value = q.value(chain.data)
    end = follow(q, chain.last)
    if not q.is_ready(value) or q.feeds_islands(end.last):
        return False
    name = source_name(binding.var)
    x = q.int8(value)
    scale = affine_scale(chain.scale, chain.offset, value.scale.exponent, q.ranges[end.last], name)
    rescale = end.rescale(scale.shift, scale.exponent)
    fix = "scale its constants down"
    accumulator = Accumulator(name, scale.bound(), scale.shift, fix).checked()
    out = q.write.affine(x, scale, rescale, name)
    absorbed = chain.absorbed + end.absorbed
    q.close_group(binding.var, absorbed, out, Scale.power(scale.exponent), accumulator)
    return True


# ---------------------------------------------------------------- one tensor
def convert_clamp(q: Quantizer, binding: relax.VarBinding) -> bool:
    """relu, clip, maximum and minimum with a constant, on int8 at the scale of the input."""
    data = next((arg for arg in binding.value.args if isinstance(arg, relax.Var)), None)
    interval = None if data is None else interval_of(binding, data)
    if interval is None or not moves_as_int8(q, binding, q.value(data)):
        return False
    value = q.value(data)
    x = q.int8(value)
    low, high = (clamp_bound(bound, value.scale) for bound in interval)
    out = q.write.clamp(x, low, high, binding.var.name)
    q.set_int8(binding.var, out, value.scale)
    return True


def convert_leaky_relu(q: Quantizer, binding: relax.VarBinding) -> bool:
    """leakyrelu, and prelu with one slope; slopes up to 1."""
    slope = leaky_slope(binding.value)
    factor = None if slope is None or slope > 1 else slope_factor(slope)
    value = q.value(binding.value.args[0])
    if factor is None or not moves_as_int8(q, binding, value):
        return False
    name, (m, bits) = source_name(binding.var), factor
    x = q.int8(value)
    bound = -INT8_LOW * max(abs(m), 1 << bits)
    end = Epilogue(binding.var)
    exponent, shift = shift_to(value.scale.exponent - bits, q.ranges[binding.var], bound, name)
    rescale = end.rescale(shift, exponent)
    accumulator = Accumulator(name, bound + rescale.rounding, shift, "use a smaller slope")
    out = q.write.leaky_relu(x, m, bits, rescale, name)
    q.close_group(binding.var, (), out, Scale.power(exponent), accumulator.checked())
    return True


def leaky_slope(call: relax.Call) -> float | None:
    if not is_float32(call.args[0]):
        return None
    if op_name(call) == "relax.nn.leakyrelu":
        return float(call.attrs.alpha)
    slopes = call.args[1]
    values = {float(slope) for slope in slopes.value.numpy().flat} if is_constant(slopes) else set()
    return values.pop() if len(values) == 1 else None


def moves_as_int8(q: Quantizer, binding: relax.VarBinding, value: Value) -> bool:
    """Whether an operator that keeps the scale of its input is integer: the input is, or
    something integer reads the result."""
    return q.is_ready(value) or q.wants_int8(binding.var)
