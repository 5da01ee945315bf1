"""Products of two tensors that the model computes: `relax.matmul` of two activations."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import is_constant, is_float32, op_name, source_name, static_shape
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.groups import close, result_scale
from vta_byoc.quantization.ops.lanes import has_summed_lanes
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.requantize import requantizer
from vta_byoc.quantization.scales import INT8_LOW, Scale, Unscalable

FIX = "split the summed axis over two products and add their results"


def takes_product(call: relax.Call) -> bool:
    """Whether `call` is a product of two float32 tensors of equal leading dimensions."""
    if op_name(call) != "relax.matmul" or any(is_constant(arg) for arg in call.args):
        return False
    if not all(is_float32(arg) for arg in call.args):
        return False
    left, right = (static_shape(arg) for arg in call.args)
    return len(left) == len(right) >= 2 and left[:-2] == right[:-2]


def convert_product(q: Quantizer, binding: relax.VarBinding) -> bool:
    """An int8 product of two tensors with zero point 0, a constant factor behind it included.

    Raises:
        Unscalable: an operand has a zero point, or a range is not known.
    """
    call, name = binding.value, source_name(binding.var)
    values = [q.value(arg) for arg in call.args]
    scales = [q.scale(value) for value in values]
    for scale in scales:
        if scale.zero:
            raise Unscalable(
                name,
                Refusal(
                    "an operand of the product has the zero point",
                    f"{scale.zero}",
                    "products of two activations take 0",
                    "quantize both operands symmetrically",
                ),
            )
    factor, last, absorbed = _factor(q, binding.var)
    end = follow(q, last)
    end.absorbed = absorbed + end.absorbed
    bound = static_shape(call.args[0])[-1] * INT8_LOW**2
    unit = scales[0].step * scales[1].step * factor
    target = result_scale(q, end, unit, bound)
    if end.scale is None and not q.policy.multiplies:
        target = _shifted_scale(target, unit)
    rescale = requantizer(
        np.array(unit / target.step), np.array(bound), target.zero, *end.limits(target)
    )
    offset = int(np.abs(rescale.offset).max(initial=0))
    rescale = dataclasses.replace(rescale, bound=bound + offset)
    left, right = (q.int8(value) for value in values)
    if not has_summed_lanes(q, call.args[1]):
        right = q.write.turned_twice(right, name)
    out = q.write.product_of_two(left, right, rescale, name)
    return close(q, binding, end, out, target, rescale, FIX)


def _shifted_scale(target: Scale, unit: float) -> Scale:
    """The least scale of `target`'s step or more that a shift reaches from `unit`."""
    return dataclasses.replace(
        target, step=unit * 2.0 ** math.ceil(math.log2(target.step / unit) - 1e-9)
    )


def _factor(q: Quantizer, var: relax.Var) -> tuple[float, relax.Var, tuple[relax.Var, ...]]:
    """The positive scalar that `var` is multiplied by next, and the variables it takes.

    With power-of-two scales it is one too, so that the result's rescale stays a shift.
    """
    factor, absorbed = 1.0, []
    while (user := q.only_user(var)) is not None:
        by = scalar_factor(user, var)
        if by is None or not q.policy.takes_factor(by):
            break
        factor, var = factor * by, user.var
        absorbed.append(var)
    return factor, var, tuple(absorbed)


def scalar_factor(binding: relax.VarBinding, data: relax.Var) -> float | None:
    """What `binding` multiplies `data` by: one positive number, or None."""
    call, kind = binding.value, op_name(binding.value)
    if kind not in ("relax.multiply", "relax.divide") or binding.var.ty.ndim != data.ty.ndim:
        return None
    constants = [arg for arg in call.args if is_constant(arg)]
    if len(constants) != 1 or (kind == "relax.divide" and is_constant(call.args[0])):
        return None
    values = constants[0].value.numpy()
    if values.size != 1 or not 0 < float(values.item()) < math.inf:
        return None
    number = float(values.item())
    return number if kind == "relax.multiply" else 1 / number
