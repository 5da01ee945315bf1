"""How each operator becomes integer: one table, operator name -> handler.

A handler gets the quantizer and the operator's binding, writes the integer form, stores the
result's value and returns True; or it writes nothing and returns False, and the operator becomes
a float island.  A new operator is one entry here, and one in `asks_for_int8` if it should pull
its inputs into int8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.ir import Call

from vta_byoc.bindings import (
    is_constant,
    is_float32,
    op_name,
    per_channel,
    source_name,
    static_shape,
)
from vta_byoc.dialect import (
    ALIGN_BITS,
    INT8_HIGH,
    INT8_LOW,
    MAX_SHIFT,
    WEIGHT_HIGH,
    Accumulator,
    Rescale,
    mean_scale,
    quantized,
    scale_exponent,
    shift_to,
)

if TYPE_CHECKING:
    from vta_byoc.quantize import Quantizer, Value

Handler = Callable[["Quantizer", relax.VarBinding], bool]


# ---------------------------------------------------------------- what follows a layer
@dataclass
class Epilogue:
    """Operators after a layer that its group absorbs: constant bias, then clamps.

    Attributes:
        last: the variable whose value the group produces.
        bias: float64, one per channel.
        low, high: the float interval of the clamps.
        absorbed: the variables of the group after the first.
    """

    last: relax.Var
    bias: np.ndarray | None = None
    low: float = -math.inf
    high: float = math.inf
    absorbed: tuple[relax.Var, ...] = ()

    def take(self, binding: relax.VarBinding) -> None:
        self.last = binding.var
        self.absorbed = (*self.absorbed, binding.var)

    def rescale(self, shift: int, exponent: int) -> Rescale:
        low = clamp_bound(self.low, exponent)
        return Rescale(shift, low, clamp_bound(self.high, exponent))


def clamp_bound(bound: float, exponent: int) -> int:
    """A float bound as int8, saturated; infinities give -128 and 127."""
    return int(np.clip(np.rint(bound * 2.0**-exponent), INT8_LOW, INT8_HIGH))


def _follow(q: Quantizer, var: relax.Var, channels: tuple[int, int] | None = None) -> Epilogue:
    """The epilogue of the layer `var`; `channels` is its channel axis and their number."""
    end = Epilogue(var)
    user = q.only_user(var)
    while channels and user and (bias := _bias_of(user, end.last, *channels)) is not None:
        end.bias = bias if end.bias is None else end.bias + bias
        end.take(user)
        user = q.only_user(end.last)
    while user and (interval := _interval(user, end.last)) is not None:
        low, high = interval
        end.low, end.high = min(max(end.low, low), high), min(max(end.high, low), high)
        end.take(user)
        user = q.only_user(end.last)
    return end


def _bias_of(
    binding: relax.VarBinding, data: relax.Var, axis: int, channels: int
) -> np.ndarray | None:
    """The constant that `binding` adds to `data` per channel."""
    if op_name(binding.value) != "relax.add" or binding.var.ty.ndim != data.ty.ndim:
        return None
    constants = [arg for arg in binding.value.args if is_constant(arg)]
    if len(constants) != 1:
        return None
    return per_channel(constants[0].value.numpy(), data.ty.ndim, axis, channels)


def _interval(binding: relax.VarBinding, data: relax.Var) -> tuple[float, float] | None:
    """The interval that `binding` clamps `data` to; None if it is something else."""
    call = binding.value
    name = op_name(call)
    if name == "relax.nn.relu":
        return 0.0, math.inf
    if name == "relax.clip" and all(hasattr(arg, "value") for arg in call.args[1:]):
        return float(call.args[1].value), float(call.args[2].value)
    if name not in ("relax.maximum", "relax.minimum"):
        return None
    bounds = [arg for arg in call.args if is_constant(arg) and math.prod(arg.value.shape) == 1]
    if len(bounds) != 1 or binding.var.ty.ndim != data.ty.ndim:
        return None
    bound = float(bounds[0].value.numpy().reshape(()))
    if math.isnan(bound):
        return None
    return (bound, math.inf) if name == "relax.maximum" else (-math.inf, bound)


# ---------------------------------------------------------------- layers with weights
@dataclass(frozen=True)
class _Layer:
    """Quantized constants of a layer.

    Attributes:
        weight: int8 values in the layout of the float weights.
        bias: int32 values [channels], without rounding constant.
        sums: largest magnitude of the products' sum [channels] for any int8 input.
        exponent: of the accumulator.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    sums: np.ndarray
    exponent: int

    def bound(self, rounding: int = 0) -> int:
        return int((self.sums + np.abs(self.bias + rounding)).max())

    def accumulator(self, rescale: Rescale) -> Accumulator:
        inputs = self.weight.size // self.bias.size
        fix = f"split its {inputs} inputs per output over two layers and add their results"
        return Accumulator(self.name, self.bound(rescale.rounding), rescale.shift, fix)


def _layer(
    q: Quantizer, binding: relax.VarBinding, data: Value, axis: int, end: Epilogue
) -> _Layer:
    """Quantize weights and bias of a layer; `axis`: the output channels of its weights."""
    name = source_name(binding.var)
    weight = binding.value.args[1].value.numpy().astype("float64")
    bias = np.zeros(weight.shape[axis]) if end.bias is None else end.bias
    amax = float(np.abs(weight).max(initial=0))
    exponent = scale_exponent(amax, f"{name} weight")
    largest = float(np.abs(bias).max(initial=0))
    if largest:
        # Weights too small to matter beside the bias: the bias must still fit the accumulator.
        exponent = max(exponent, math.frexp(largest)[1] - BIAS_BITS - data.exponent)
    ints = quantized(weight, exponent, -WEIGHT_HIGH, WEIGHT_HIGH)
    inputs = tuple(a for a in range(ints.ndim) if a != axis % ints.ndim)
    acc_exponent = data.exponent + exponent
    q.note_tensor(f"{name}__weight", exponent, amax)
    return _Layer(
        name,
        ints,
        np.rint(bias * 2.0**-acc_exponent).astype("int64"),
        np.abs(ints).sum(axis=inputs) * -INT8_LOW,
        acc_exponent,
    )


BIAS_BITS = 29
"""A quantized bias has at most this many bits."""


def _conv2d(q: Quantizer, binding: relax.VarBinding) -> bool:
    call, var = binding.value, binding.var
    if not _is_integer_conv2d(call):
        return False
    data = q.value(call.args[0])
    x = q.int8(data)
    end = _follow(q, var, (1, static_shape(var)[1]))
    layer = _layer(q, binding, data, 0, end)
    exponent, shift = shift_to(layer.exponent, q.ranges[end.last], layer.bound(), layer.name)
    rescale = end.rescale(shift, exponent)
    accumulator = layer.accumulator(rescale).checked()
    bias = layer.bias + rescale.rounding
    out = q.write.conv2d(x, layer.weight, bias, call.attrs, rescale, layer.name)
    q.close_group(var, end.absorbed, out, exponent, accumulator)
    return True


def _is_integer_conv2d(call: relax.Call) -> bool:
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    return (
        layouts == ("NCHW", "OIHW")
        and str(call.attrs.out_layout) in ("NCHW", "")
        and is_constant(call.args[1])
        and is_float32(call.args[0])
    )


def _matmul(q: Quantizer, binding: relax.VarBinding) -> bool:
    call, var = binding.value, binding.var
    if not _is_integer_matmul(call):
        return False
    data = q.value(call.args[0])
    x = q.int8(data)
    end = _follow(q, var, (var.ty.ndim - 1, static_shape(var)[-1]))
    layer = _layer(q, binding, data, 1, end)
    if math.isinf(end.low) and math.isinf(end.high) and not q.wants_int8(end.last):
        accumulator = layer.accumulator(Rescale(0)).checked()
        out = q.write.matmul_to_float(x, layer.weight, layer.bias, layer.exponent, layer.name)
        q.close_float_group(var, end.absorbed, out, accumulator)
        return True
    exponent, shift = shift_to(layer.exponent, q.ranges[end.last], layer.bound(), layer.name)
    rescale = end.rescale(shift, exponent)
    accumulator = layer.accumulator(rescale).checked()
    out = q.write.matmul(x, layer.weight, layer.bias + rescale.rounding, rescale, layer.name)
    q.close_group(var, end.absorbed, out, exponent, accumulator)
    return True


def _is_integer_matmul(call: relax.Call) -> bool:
    return (
        is_constant(call.args[1])
        and len(call.args[1].value.shape) == 2
        and is_float32(call.args[0])
        and call.args[0].ty.ndim >= 2
    )


# ---------------------------------------------------------------- arithmetic without weights
def _add(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Residual addition, or the addition of a constant to an int8 tensor."""
    if not is_float32(binding.var):
        return False
    operands = [q.value(arg) for arg in binding.value.args]
    inputs_only = all(operand.is_input for operand in operands)
    if not inputs_only and not any(q.is_ready(operand) for operand in operands):
        return False
    name = source_name(binding.var)
    values = [q.int8(operand) for operand in operands]
    exponents = [operand.exponent for operand in operands]
    common = max(min(exponents), max(exponents) - ALIGN_BITS)
    shifts = [exponent - common for exponent in exponents]
    end = _follow(q, binding.var)
    bound = sum(-INT8_LOW << max(amount, 0) for amount in shifts)
    exponent, shift = shift_to(common, q.ranges[end.last], bound, name)
    rescale = end.rescale(shift, exponent)
    fix = "scale its operands alike"
    accumulator = Accumulator(name, bound + rescale.rounding, shift, fix).checked()
    out = q.write.add(list(zip(values, shifts, strict=True)), rescale, name)
    q.close_group(binding.var, end.absorbed, out, exponent, accumulator)
    return True


def _mean(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Mean over any axes, and adaptive average pooling to 1 x 1."""
    call, name = binding.value, source_name(binding.var)
    data = q.value(call.args[0])
    axes = _mean_axes(call)
    if axes is None or not (q.is_ready(data) or data.is_input):
        return False
    shape = static_shape(call.args[0])
    count = math.prod(shape[axis] for axis in axes)
    scale = mean_scale(count, q.exponent(data), q.ranges[binding.var], name)
    if scale is None:
        return False
    keepdims = bool(getattr(call.attrs, "keepdims", True))
    accumulator = Accumulator(name, scale.bound, scale.rescale.shift, "pool in two steps")
    out = q.write.mean(q.int8(data), axes, keepdims, scale, name)
    q.close_group(binding.var, (), out, scale.exponent, accumulator.checked())
    return True


def _mean_axes(call: relax.Call) -> list[int] | None:
    """The axes that are averaged over; None if the operator is no plain float32 mean."""
    if not is_float32(call.args[0]):
        return None
    rank = call.args[0].ty.ndim
    if op_name(call) == "relax.mean":
        axes = range(rank) if call.attrs.axis is None else call.attrs.axis
        return sorted({int(axis) % rank for axis in axes})
    sizes = [int(size) for size in call.attrs.output_size or ()]
    return [2, 3] if sizes == [1, 1] and str(call.attrs.layout) == "NCHW" else None


def _clamp(q: Quantizer, binding: relax.VarBinding) -> bool:
    """relu, clip, maximum and minimum with a constant, on int8 at the scale of the input."""
    data = next((arg for arg in binding.value.args if isinstance(arg, relax.Var)), None)
    interval = None if data is None else _interval(binding, data)
    if interval is None or not _moves_as_int8(q, binding, q.value(data)):
        return False
    value = q.value(data)
    x = q.int8(value)
    low, high = (clamp_bound(bound, value.exponent) for bound in interval)
    out = q.write.clamp(x, low, high, binding.var.name)
    q.set_int8(binding.var, out, value.exponent)
    return True


# ---------------------------------------------------------------- data movement
def _move(q: Quantizer, binding: relax.VarBinding) -> bool:
    """The same operator on int8: it selects or moves elements of its first argument."""
    call = binding.value
    if not is_float32(call.args[0]) or not _moves_zero(call):
        return False
    value = q.value(call.args[0])
    if not _moves_as_int8(q, binding, value):
        return False
    args = [q.int8(value), *(q.plain(arg) for arg in call.args[1:])]
    moved = relax.Call(call.op, args, call.attrs, call.ty_args)
    out = q.write.emit(moved, binding.var.name)
    q.set_int8(binding.var, out, value.exponent, value.amax)
    return True


def _moves_zero(call: relax.Call) -> bool:
    """Padding is data movement only if it pads with zero."""
    if op_name(call) != "relax.nn.pad":
        return True
    return str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0


def _moves_as_int8(q: Quantizer, binding: relax.VarBinding, value: Value) -> bool:
    return q.is_ready(value) or q.wants_int8(binding.var)


def _concat(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Concatenation at the coarsest scale of the inputs; the others are rescaled."""
    call = binding.value
    whole = q.value(call.args[0])
    if whole.fields is None or not is_float32(binding.var):
        return False
    if not _moves_as_int8(q, binding, whole):
        return False
    values = [q.int8(item) for item in whole.fields]
    exponent = max(item.exponent for item in whole.fields)
    parts = [
        _rescaled(q, x, exponent - item.exponent, f"{binding.var.name}__part{i}")
        for i, (x, item) in enumerate(zip(values, whole.fields, strict=True))
    ]
    moved = relax.op.concat(parts, axis=call.attrs.axis)
    out = q.write.emit(moved, binding.var.name)
    q.set_int8(binding.var, out, exponent)
    return True


def _rescaled(q: Quantizer, x: relax.Expr, shift: int, name: str) -> relax.Expr:
    return q.write.rescale(x, Rescale(min(shift, MAX_SHIFT)), name) if shift else x


# ---------------------------------------------------------------- the table
_MOVEMENT = (
    "broadcast_to",
    "expand_dims",
    "flatten",
    "flip",
    "max",
    "min",
    "nn.max_pool2d",
    "nn.pad",
    "nn.pixel_shuffle",
    "permute_dims",
    "repeat",
    "reshape",
    "split",
    "squeeze",
    "strided_slice",
    "take",
    "tile",
)

HANDLERS: dict[str, Handler] = {
    "relax.nn.conv2d": _conv2d,
    "relax.matmul": _matmul,
    "relax.add": _add,
    "relax.mean": _mean,
    "relax.nn.adaptive_avg_pool2d": _mean,
    "relax.nn.relu": _clamp,
    "relax.maximum": _clamp,
    "relax.minimum": _clamp,
    "relax.clip": _clamp,
    "relax.concat": _concat,
    **{f"relax.{name}": _move for name in _MOVEMENT},
}
"""Operator -> handler."""


def asks_for_int8(q: Quantizer, user: relax.VarBinding) -> bool:
    """Whether `user` will read its data as int8, now that nobody asked for its result yet."""
    call, name = user.value, op_name(user.value)
    if not isinstance(call, Call):
        return q.wants_int8(user.var)
    if name == "relax.nn.conv2d":
        return _is_integer_conv2d(call)
    if name == "relax.matmul":
        return _is_integer_matmul(call)
    if name == "relax.add":
        return not any(is_constant(arg) for arg in call.args)
    handler = HANDLERS.get(name)
    return handler is _mean or (handler is not None and q.wants_int8(user.var))
