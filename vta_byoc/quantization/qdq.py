"""Models that come quantized: float operators between `relax.dequantize` and `relax.quantize`.

Weights are `dequantize(integers)`, per tensor or per axis.  `resolved` makes them float constants
again and keeps what they stood for, so that the rest of the quantizer meets float operators only;
`as_float` drops the quantization of activations too and keeps their ranges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from vta_byoc.ir.bindings import (
    FunctionWriter,
    is_constant,
    is_float32,
    op_name,
    straight_bindings,
    substituted,
    vars_in,
    with_main,
)
from vta_byoc.ir.quantization_record import CAME_INTEGER
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, UINT8_ZERO, Scale

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"


@dataclass(frozen=True, eq=False)
class ConstantScale:
    """What a float constant was made of: `step * ints`.

    Attributes:
        ints: int64, zero points subtracted.
        steps: float64, scalar or one for each index of `axis`.
        axis: None: one step for all.
    """

    ints: np.ndarray
    steps: np.ndarray
    axis: int | None

    @property
    def real(self) -> np.ndarray:
        """`step * ints`, float64."""
        return np.asarray(_spread(self) * self.ints, np.float64)

    @property
    def is_int8(self) -> bool:
        """Whether int8 holds the integers."""
        return bool(self.ints.min() >= INT8_LOW and self.ints.max() <= INT8_HIGH)


def is_quantized(mod: tvm.IRModule) -> bool:
    """Whether the module says scales of its own, or came in integers."""
    return mod.get_attr(CAME_INTEGER) is not None or any(
        op_name(binding.value) in (QUANTIZE, DEQUANTIZE)
        for binding in straight_bindings(mod["main"])
    )


def quantize_scale(expr: relax.Expr) -> Scale | None:
    """The scale of int8 values that a quantize or dequantize of int8 or uint8 states.

    Returns:
        None if `expr` is something else, or states a scale for each channel.
    """
    name = op_name(expr)
    if name not in (QUANTIZE, DEQUANTIZE) or not all(is_constant(arg) for arg in expr.args[1:]):
        return None
    step, zero = (arg.value.numpy().reshape(-1) for arg in expr.args[1:])
    dtype = str(expr.attrs.out_dtype if name == QUANTIZE else expr.args[0].ty.dtype)
    if step.size != 1 or zero.size != 1 or dtype not in ("int8", "uint8"):
        return None
    return Scale(float(step[0]), int(zero[0]) - (UINT8_ZERO if dtype == "uint8" else 0))


def resolved(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[GenericConst, ConstantScale]]:
    """`mod` with every dequantized constant as a float constant, and what these were made of."""
    main, writer = mod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    scales: dict[GenericConst, ConstantScale] = {}
    for binding in straight_bindings(main):
        call = binding.value
        if op_name(call) == DEQUANTIZE and all(is_constant(arg) for arg in call.args):
            scale = _constant_scale(call)
            constant = relax.const(np.float32(_spread(scale) * scale.ints))
            scales[constant] = scale
            env[binding.var] = constant
        else:
            env[binding.var] = writer.emit(substituted(call, env), binding.var.name)
    return with_main(mod, writer.finish(main, substituted(main.body.body, env))), scales


def _constant_scale(call: relax.Call) -> ConstantScale:
    values, steps, zeros = (arg.value.numpy() for arg in call.args)
    axis = int(call.attrs.axis) % max(values.ndim, 1)
    ints = values.astype("int64") - _along(zeros.astype("int64"), axis, values.ndim)
    if steps.size == 1:
        return ConstantScale(ints, np.asarray(steps.reshape(()), np.float64), None)
    return ConstantScale(ints, np.asarray(steps.reshape(-1), np.float64), axis)


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    if values.size == 1:
        return values.reshape(())
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def _spread(scale: ConstantScale) -> np.ndarray:
    return _along(scale.steps, scale.axis or 0, scale.ints.ndim)


def as_float(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[relax.Var, float]]:
    """`mod`, resolved, without the quantization of its activations, and their ranges.

    What quantize and dequantize of floats saturated is a clip; the ranges are those of these clips
    and of what they read. Integer inputs and results of the model keep their dequantize and
    quantize.
    """
    main, writer = mod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    ranges: dict[str, float] = {}
    results = set(vars_in(main.body.body))
    for binding in straight_bindings(main):
        var, call = binding.var, substituted(binding.value, env)
        scale, name = quantize_scale(binding.value), op_name(call)
        if scale is None:
            env[var] = writer.emit(call, var.name)
            continue
        if name == DEQUANTIZE and is_float32(call.args[0]):
            env[var] = call.args[0]
            continue
        low, high = (scale.step * (q - scale.zero) for q in (INT8_LOW, INT8_HIGH))
        if name == QUANTIZE and isinstance(call.args[0], relax.Var):
            ranges.setdefault(call.args[0].name, max(-low, high))
        if name == QUANTIZE and var not in results:
            call = relax.op.clip(call.args[0], low, high)
        env[var] = writer.emit(call, var.name)
        ranges[env[var].name] = max(-low, high)
    result = with_main(mod, writer.finish(main, substituted(main.body.body, env)))
    new = result["main"]
    found = [*new.params, *(binding.var for binding in straight_bindings(new))]
    return result, {var: ranges[var.name] for var in found if var.name in ranges}
