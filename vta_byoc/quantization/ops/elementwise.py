"""Arithmetic without weights as integers: two tensors, constants, clamps, leaky relu."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.base.choices import ALL
from vta_byoc.ir.bindings import (
    SEPARATOR,
    is_constant,
    is_float32,
    op_name,
    source_name,
    static_shape,
)
from vta_byoc.ir.clamps import interval_of
from vta_byoc.quantization.exact_groups import exact_addition
from vta_byoc.quantization.fused_ops import FusedOperators, follow
from vta_byoc.quantization.groups import close, moves_as_int8, requantized, result_scale
from vta_byoc.quantization.linear import Operand, linear
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.requantize import requantizer
from vta_byoc.quantization.scales import ALIGN_BITS, INT8_LOW, Scale
from vta_byoc.quantization.value import Value

BINARY: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "relax.add": relax.op.add,
    "relax.subtract": relax.op.subtract,
    "relax.multiply": relax.op.multiply,
    "relax.maximum": relax.op.maximum,
    "relax.minimum": relax.op.minimum,
}
"""Operators of two tensors."""
SUMS = ("relax.add", "relax.subtract")
AFFINE = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.negative")
"""Operators that, with a constant, are a scale and an offset."""
CLAMPED = ("float32", "int8", "uint8")
"""What is clamped as int8; indices are not."""
FIX = "scale its operands alike"


# ---------------------------------------------------------------- which operator it is
def asks_arithmetic(q: Quantizer, binding: relax.VarBinding) -> bool:
    """An operator of two tensors wants both as int8; with a constant it takes what comes."""
    if op_name(binding.value) not in BINARY or not is_float32(binding.var):
        return False
    if any(is_constant(arg) for arg in binding.value.args):
        is_clamp = op_name(binding.value) in ("relax.maximum", "relax.minimum")
        return is_clamp and q.wants_int8(binding.var)
    return is_wanted(q, binding)


def is_wanted(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Whether an operator of two tensors pays as an integer one.

    Sums do, whatever reads them; a product that only feeds float operators (the squares of a
    normalization, the scaled scores before a softmax) stays float.
    """
    return op_name(binding.value) == "relax.add" or not q.feeds_floats(binding.var)


def takes_zero_point(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Sums have zero points in their constant, a product adds one to its operand.

    The larger or smaller of two tensors would add one to each side.
    """
    constants = any(is_constant(arg) for arg in binding.value.args)
    if op_name(binding.value) in ("relax.maximum", "relax.minimum"):
        return q.takes_zero(binding.var) if constants else q.policy.zero_points == ALL
    return True


@integer_op(*BINARY, "relax.divide", "relax.negative", asks=asks_arithmetic, zero=takes_zero_point)
def convert_arithmetic(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A clamp, a scale and offset, or an operator of two tensors, whichever it is."""
    if convert_clamp(q, binding):
        return True
    chain = affine_chain(q, binding)
    return _binary(q, binding) if chain is None else _affine(q, binding, chain)


# ---------------------------------------------------------------- two tensors
def _binary(q: Quantizer, binding: relax.VarBinding) -> bool:
    call = binding.value
    if op_name(call) not in BINARY or not is_float32(binding.var):
        return False
    operands = [q.value(arg) for arg in call.args]
    end = follow(q, binding.var)
    if not is_integer(q, operands) or (end.scale is None and not is_wanted(q, binding)):
        return False
    scales = [q.scale(operand) for operand in operands]
    write = _product if op_name(call) == "relax.multiply" else _joined
    return write(q, binding, end, operands, scales)


def is_integer(q: Quantizer, operands: list[Value]) -> bool:
    """Whether an operator of two tensors has an int8 operand, or reads only inputs."""
    inputs_only = all(operand.is_input for operand in operands)
    return inputs_only or any(q.is_ready(operand) for operand in operands)


def _joined(
    q: Quantizer,
    binding: relax.VarBinding,
    end: FusedOperators,
    operands: list[Value],
    scales: list[Scale],
) -> bool:
    """A sum, or the larger or smaller of two.

    A sum has all zero points in one constant; else each side loses its zero point first.
    """
    name = op_name(binding.value)
    steps = [scale.step for scale in scales]
    unit = max(min(steps), max(steps) * 2.0**-ALIGN_BITS)
    bounds = [int(-INT8_LOW * max(step / unit, 1)) for step in steps]
    bound = sum(bounds) if name in SUMS else max(bounds)
    target = result_scale(q, end, unit, bound)
    if name == "relax.add" and (exact := exact_addition(q, source_name(binding.var), end, scales)):
        values = [q.int8(operand) for operand in operands]
        out = q.write.exact_sum(values, exact, source_name(binding.var))
        return close(q, binding, end, out, target, exact, FIX)
    terms = [Operand(np.array(scale.step / target.step), scale.zero) for scale in scales]
    if name == "relax.subtract":
        terms[1] = dataclasses.replace(terms[1], ratio=-terms[1].ratio)
    found = linear(
        terms, 0.0, target.zero, *end.limits(target), q.policy.terms, apart=name not in SUMS
    )
    if name == "relax.subtract":
        found = dataclasses.replace(found, factors=(found.factors[0], -found.factors[1]))
    values = [q.int8(operand) for operand in operands]
    out = q.write.linear(BINARY[name], values, found, source_name(binding.var))
    return close(q, binding, end, out, target, found, FIX)


def _product(
    q: Quantizer,
    binding: relax.VarBinding,
    end: FusedOperators,
    operands: list[Value],
    scales: list[Scale],
) -> bool:
    first, second = scales
    unit = first.step * second.step
    bound = (abs(first.zero) - INT8_LOW) * (abs(second.zero) - INT8_LOW)
    target = result_scale(q, end, unit, bound)
    ratio = np.array(unit / target.step)
    rescale = requantizer(ratio, np.array(bound), target.zero, *end.limits(target))
    sides = [(q.int8(value), scale.zero) for value, scale in zip(operands, scales, strict=True)]
    out = q.write.product(sides, rescale, source_name(binding.var))
    return close(q, binding, end, out, target, rescale, FIX)


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
    """The longest chain that begins with `binding`; None if it is no scale or offset."""
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
    end.absorbed = chain.absorbed + end.absorbed
    if not q.is_ready(value) or (end.scale is None and q.feeds_floats(end.last)):
        return False
    target = end.scale or q.chosen_scale(end.last)
    scale = q.scale(value)
    term = Operand(chain.scale * scale.step / target.step, scale.zero)
    constant, limits = chain.offset / target.step, end.limits(target)
    x, name = q.int8(value), source_name(binding.var)
    found = linear([term], constant, target.zero, *limits, q.policy.constants)
    own = static_shape(x)
    if _differs_between_images(own, term.ratio, constant):  # channels of one image may differ
        x = q.write.emit(relax.op.expand_dims(x, 0), f"{name}{SEPARATOR}image")
        moved = q.write.linear(None, [x], found, f"{name}{SEPARATOR}moved")
        out = q.write.emit(relax.op.reshape(moved, own), name)
    else:
        out = q.write.linear(None, [x], found, name)
    return close(q, binding, end, out, target, found, "scale its constants down")


def _differs_between_images(shape: tuple[int, ...], *constants: np.ndarray) -> bool:
    """Whether constants of three axes differ along the first, as biases of heads do."""
    return len(shape) == 3 and any(
        np.ndim(each) == 3 and not (each == each[:1]).all() for each in constants
    )


# ---------------------------------------------------------------- one tensor
@integer_op(
    "relax.nn.relu",
    "relax.nn.relu6",
    "relax.clip",
    zero=lambda q, binding: q.takes_zero(binding.var),
)
def convert_clamp(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A relu, clip, maximum or minimum with a constant, on int8.

    The result has the scale of the input, or that which the model states for it.
    """
    data = next((arg for arg in binding.value.args if isinstance(arg, relax.Var)), None)
    interval = None if data is None else interval_of(binding, data)
    if data is None or interval is None or str(data.ty.dtype) not in CLAMPED:
        return False
    value = q.value(data)
    if not moves_as_int8(q, binding, value):
        return False
    scale = q.scale(value)
    end = follow(q, binding.var, within=interval)
    if end.scale is None or end.scale == scale:
        out = q.write.clamp(q.int8(value), *end.limits(scale), binding.var.name)
        q.absorbed.update(end.absorbed)
        q.set_int8(end.last, out, scale)
        return True
    target, name = end.scale, source_name(binding.var)
    out, found = requantized(q, q.int8(value), scale, target, end.limits(target), name)
    return close(q, binding, end, out, target, found, FIX)


@integer_op(
    "relax.nn.leakyrelu",
    "relax.nn.prelu",
    zero=lambda q, binding: q.policy.zero_points == ALL,
)
def convert_leaky_relu(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A leaky relu or prelu, one slope or one for each channel: the larger of x and slope * x.

    Where all slopes are 1 or more, it is the smaller; where some are, the smaller of the larger.
    """
    stated = leaky_slopes(binding.value)
    value = q.value(binding.value.args[0])
    if stated is None or not moves_as_int8(q, binding, value):
        return False
    slopes = q.policy.slopes(stated)
    if slopes is None:
        return False
    end, scale, name = follow(q, binding.var), q.scale(value), source_name(binding.var)
    steepest = max(float(np.abs(slopes).max()), 1.0)
    target = result_scale(q, end, scale.step, int(-INT8_LOW * steepest))
    out, written = q.int8(value), []
    for op, each, part in _stages(slopes):  # what the first one makes is in the range of the result
        ratio = np.array(scale.step / target.step)
        terms = [Operand(ratio * slope, scale.zero) for slope in (np.array(1.0), each)]
        found = linear(terms, 0.0, target.zero, *end.limits(target), q.policy.terms, apart=True)
        out, scale = q.write.linear(op, [out], found, f"{name}{part}"), target
        written.append(found)
    widest = max(written, key=lambda found: found.bound)
    return close(q, binding, end, out, target, widest, "use a smaller slope")


def _stages(
    slopes: np.ndarray,
) -> list[tuple[Callable[[relax.Expr, relax.Expr], relax.Expr], np.ndarray, str]]:
    """A leaky relu as larger or smaller ones of x and slope * x, and what is behind their names."""
    if (slopes <= 1).all():
        return [(relax.op.maximum, slopes, "")]
    if (slopes >= 1).all():
        return [(relax.op.minimum, slopes, "")]
    larger = (relax.op.maximum, np.minimum(slopes, 1), f"{SEPARATOR}larger")
    return [larger, (relax.op.minimum, np.maximum(slopes, 1), "")]


def leaky_slopes(call: relax.Call) -> np.ndarray | None:
    """The slopes of a leaky relu of float32, () or broadcasting; None where they are no numbers."""
    if not is_float32(call.args[0]):
        return None
    if op_name(call) == "relax.nn.leakyrelu":
        return np.array(float(call.attrs.alpha))
    if not is_constant(call.args[1]):
        return None
    slopes = call.args[1].value.numpy().astype(np.float64)
    if len(set(slopes.flat)) == 1:
        return slopes.flat[0].reshape(())
    rank = len(static_shape(call.args[0]))
    return slopes.reshape((-1, *(1,) * (rank - 1 - int(call.attrs.axis) % rank)))
