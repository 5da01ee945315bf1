"""Arithmetic without weights at any scales: two tensors, constants, clamps, leaky relu."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import is_float32, op_name, source_name
from vta_byoc.ir.clamps import interval_of
from vta_byoc.quantization.fused_ops import Epilogue, follow
from vta_byoc.quantization.ops.elementwise import (
    BINARY,
    Affine,
    affine_chain,
    is_integer,
    is_wanted,
    leaky_slope,
    moves_as_int8,
)
from vta_byoc.quantization.requantize import Linear, Operand, linear, requantizer
from vta_byoc.quantization.scales import INT8_LOW, Accumulator, Scale

if TYPE_CHECKING:
    from vta_byoc.quantization.rewriter import Quantizer, Value

NOTHING = np.array(0)


def convert_arithmetic(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A clamp, a scale and offset, or an operator of two tensors, whichever it is."""
    if convert_clamp(q, binding):
        return True
    chain = affine_chain(q, binding)
    return _binary(q, binding) if chain is None else _affine(q, binding, chain)


def result_scale(q: Quantizer, end: Epilogue) -> Scale:
    """The scale of a group's result, as the model or calibration says it."""
    return end.scale or q.target(end.last)


def close(
    q: Quantizer,
    binding: relax.VarBinding,
    end: Epilogue,
    out: relax.Var,
    target: Scale,
    bound: int,
    shift: int,
) -> bool:
    """Store the group's result with its proof; True."""
    name = source_name(binding.var)
    proof = Accumulator(name, bound, shift, "scale its operands alike").checked()
    q.close_group(binding.var, end.absorbed, out, target, proof)
    return True


# ---------------------------------------------------------------- two tensors
def _binary(q: Quantizer, binding: relax.VarBinding) -> bool:
    call = binding.value
    if op_name(call) not in BINARY or not is_float32(binding.var):
        return False
    operands = [q.value(arg) for arg in call.args]
    end = follow(q, binding.var)
    if not is_integer(q, operands) or (end.scale is None and not is_wanted(q, binding)):
        return False
    target = result_scale(q, end)
    scales = [q.scale(operand) for operand in operands]
    if op_name(call) == "relax.multiply":
        return _product(q, binding, end, operands, scales, target)
    terms = [Operand(np.array(s.step / target.step), s.zero) for s in scales]
    write = _sum if op_name(call) in ("relax.add", "relax.subtract") else _larger
    return write(q, binding, end, operands, terms, target)


def _sum(
    q: Quantizer,
    binding: relax.VarBinding,
    end: Epilogue,
    operands: list[Value],
    terms: list[Operand],
    target: Scale,
) -> bool:
    """Both sides times their factors, in one sum with all zero points."""
    minus = op_name(binding.value) == "relax.subtract"
    signed = [terms[0], Operand(-terms[1].ratio, terms[1].zero)] if minus else terms
    found = linear(signed, 0.0, target.zero, *end.limits(target), q.arithmetic.most_factor)
    factors = [np.abs(factor) for factor in found.factors]
    sides = [(q.int8(v), f, NOTHING) for v, f in zip(operands, factors, strict=True)]
    out = q.write.linear(BINARY[op_name(binding.value)], sides, found, source_name(binding.var))
    return close(q, binding, end, out, target, found.bound, found.shift)


def _larger(
    q: Quantizer,
    binding: relax.VarBinding,
    end: Epilogue,
    operands: list[Value],
    terms: list[Operand],
    target: Scale,
) -> bool:
    """Maximum or minimum: each side loses its zero point first."""
    found = linear(terms, 0.0, target.zero, *end.limits(target), q.arithmetic.most_factor)
    sides = [
        (q.int8(value), factor, -factor * term.zero)
        for value, factor, term in zip(operands, found.factors, terms, strict=True)
    ]
    out = q.write.linear(
        BINARY[op_name(binding.value)], sides, last_step(found, target), source_name(binding.var)
    )
    return close(q, binding, end, out, target, found.bound, found.shift)


def last_step(found: Linear, target: Scale) -> Linear:
    """`found` where the operands' zero points are dealt with already."""
    rounding = 1 << (found.shift - 1) if found.shift else 0
    offset = np.array((target.zero << found.shift) + rounding)
    return Linear(found.factors, offset, found.shift, found.low, found.high, found.bound)


def _product(
    q: Quantizer,
    binding: relax.VarBinding,
    end: Epilogue,
    operands: list[Value],
    scales: list[Scale],
    target: Scale,
) -> bool:
    first, second = scales
    ratio = np.array(first.step * second.step / target.step)
    reach = (abs(first.zero) - INT8_LOW) * (abs(second.zero) - INT8_LOW)
    rescale = requantizer(ratio, np.array(reach), target.zero, *end.limits(target))
    sides = [(q.int8(value), scale.zero) for value, scale in zip(operands, scales, strict=True)]
    out = q.write.product(sides, rescale, source_name(binding.var))
    return close(q, binding, end, out, target, rescale.bound, rescale.shift)


# ---------------------------------------------------------------- one tensor
def _affine(q: Quantizer, binding: relax.VarBinding, chain: Affine) -> bool:
    """Constant scale and offset of an int8 tensor, per tensor, channel or element."""
    value = q.value(chain.data)
    end = follow(q, chain.last)
    end.absorbed = chain.absorbed + end.absorbed
    if not q.is_ready(value) or (end.scale is None and q.feeds_islands(end.last)):
        return False
    target, scale = result_scale(q, end), q.scale(value)
    term = Operand(chain.scale * scale.step / target.step, scale.zero)
    constant, limits = chain.offset / target.step, end.limits(target)
    found = linear([term], constant, target.zero, *limits, q.arithmetic.most_factor)
    side = (q.int8(value), found.factors[0], NOTHING)
    out = q.write.linear(None, [side], found, source_name(binding.var))
    return close(q, binding, end, out, target, found.bound, found.shift)


def convert_clamp(q: Quantizer, binding: relax.VarBinding) -> bool:
    """relu, clip, maximum and minimum with a constant: on int8 at the scale of the input, or with a
    rescale if the model states another for the result."""
    data = next((arg for arg in binding.value.args if isinstance(arg, relax.Var)), None)
    interval = None if data is None else interval_of(binding, data)
    if data is None or interval is None or not moves_as_int8(q, binding, q.value(data)):
        return False
    value = q.value(data)
    scale = q.scale(value)
    end = follow(q, binding.var, within=interval)
    if end.scale is not None and end.scale != scale:
        return _requantized(q, binding, end, value)
    out = q.write.clamp(q.int8(value), *end.limits(scale), binding.var.name)
    q.absorbed.update(end.absorbed)
    q.set_int8(end.last, out, scale)
    return True


def _requantized(q: Quantizer, binding: relax.VarBinding, end: Epilogue, value: Value) -> bool:
    target = result_scale(q, end)
    x = q.int8(value)
    out, found = requantized(
        q, x, value.scale, target, end.limits(target), source_name(binding.var)
    )
    return close(q, binding, end, out, target, found.bound, found.shift)


def requantized(
    q: Quantizer,
    x: relax.Expr,
    scale: Scale,
    target: Scale,
    limits: tuple[int, int],
    name: str,
) -> tuple[relax.Var, Linear]:
    """int8 at `scale` as int8 at `target`."""
    found = linear(
        [Operand(np.array(scale.step / target.step), scale.zero)],
        0.0,
        target.zero,
        *limits,
        q.arithmetic.most_factor,
    )
    out = q.write.linear(None, [(x, found.factors[0], NOTHING)], found, name)
    return out, found


def convert_leaky_relu(q: Quantizer, binding: relax.VarBinding) -> bool:
    """leakyrelu, and prelu with one slope; slopes up to 1: the larger of x and slope * x."""
    slope = leaky_slope(binding.value)
    value = q.value(binding.value.args[0])
    if slope is None or slope > 1 or not moves_as_int8(q, binding, value):
        return False
    end = follow(q, binding.var)
    target, scale = result_scale(q, end), q.scale(value)
    ratio = scale.step / target.step
    terms = [Operand(np.array(ratio), scale.zero), Operand(np.array(ratio * slope), scale.zero)]
    found = linear(terms, 0.0, target.zero, *end.limits(target), q.arithmetic.most_factor)
    x = q.int8(value)
    sides = [(x, f, -f * scale.zero) for f in found.factors]
    name = source_name(binding.var)
    out = q.write.linear(relax.op.maximum, sides, last_step(found, target), name)
    return close(q, binding, end, out, target, found.bound, found.shift)
