"""Normalizations that exporters write operator by operator, as one operator each.

(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * weight + bias
x / sqrt(mean(x ** 2) + epsilon) * weight
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import same_type, shape_of
from vta_byoc.ir.bindings import is_constant, is_float32, op_name, per_channel
from vta_byoc.ir.rewriter import Rewriter, Rule

LAYER_NORM, RMS_NORM = "relax.nn.layer_norm", "relax.nn.rms_norm"
ROOTS = {"relax.sqrt": 0.5, "relax.rsqrt": -0.5}


def norm_of_quotient(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Deviation / sqrt(mean(deviation ** 2) + epsilon); or times the reciprocal root."""
    wanted = 0.5 if op_name(call) == "relax.divide" else -0.5
    pairs = [call.args] if wanted > 0 else [call.args, call.args[::-1]]
    for deviation, root in pairs:
        found = _squares(rewriter, root, wanted)
        if found is None or not same_type(call, deviation) or not is_float32(deviation):
            continue
        squared, axis, epsilon = found
        if squared.same_as(deviation):
            return _norm(rewriter, deviation, axis, epsilon)
    return None


def _norm(
    rewriter: Rewriter, deviation: relax.Expr, axis: int, epsilon: float
) -> relax.Expr | None:
    """The normalization of what `deviation` is a deviation of, or of itself."""
    shape, rank = shape_of(deviation), deviation.ty.ndim
    if shape is None:
        return None
    ones = relax.const(np.ones(shape[axis], np.float32))
    data = _centred(rewriter, deviation, axis)
    if data is not None:
        zeros = relax.const(np.zeros(shape[axis], np.float32))
        return relax.op.nn.layer_norm(data, ones, zeros, [axis], epsilon)
    # TVM has no root mean square of a single row
    if not 0 < axis == rank - 1:
        return None
    return relax.op.nn.rms_norm(deviation, ones, [axis], epsilon)


def _centred(rewriter: Rewriter, value: relax.Expr, axis: int) -> relax.Expr | None:
    """X of x - mean(x)."""
    difference = rewriter.producer_of(value, "relax.subtract")
    if difference is None:
        return None
    data, mean = difference.args
    mean = rewriter.producer_of(mean, "relax.mean")
    is_mean = mean is not None and mean.args[0].same_as(data) and _axis(mean) == axis
    return data if is_mean else None


def _squares(
    rewriter: Rewriter, root: relax.Expr, wanted: float
) -> tuple[relax.Expr, int, float] | None:
    """What is squared, the axis of the mean, and epsilon, of a root; None for anything else."""
    made = rewriter.producer(root)
    if made is not None and op_name(made) == "relax.divide" and _number(made.args[0]) == 1.0:
        return _squares(rewriter, made.args[1], -wanted)
    power = ROOTS.get(op_name(made)) if made is not None else None
    if made is not None and op_name(made) == "relax.power":
        power = _number(made.args[1])
    if made is None or power != wanted:
        return None
    total = rewriter.producer_of(made.args[0], "relax.add")
    epsilon = None if total is None else _number(total.args[1])
    mean = None if total is None else rewriter.producer_of(total.args[0], "relax.mean")
    axis = None if mean is None else _axis(mean)
    if mean is None or epsilon is None or axis is None or epsilon < 0:
        return None
    square = rewriter.producer(mean.args[0])
    value = None if square is None else _square(square)
    return None if value is None else (value, axis, epsilon)


def _square(call: relax.Expr) -> relax.Expr | None:
    """X of x * x, x ** 2 or square(x)."""
    name = op_name(call)
    if name == "relax.square":
        return call.args[0]
    if name == "relax.multiply" and call.args[0].same_as(call.args[1]):
        return call.args[0]
    if name == "relax.power" and _number(call.args[1]) == 2.0:
        return call.args[0]
    return None


def _axis(mean: relax.Call) -> int | None:
    """The only axis of a mean that keeps it, from the front."""
    axes = mean.attrs.axis
    if axes is None or len(axes) != 1 or not mean.attrs.keepdims:
        return None
    return int(axes[0]) % mean.args[0].ty.ndim


def _number(value: relax.Expr) -> float | None:
    """A constant of one element."""
    if not is_constant(value) or math.prod(value.value.shape) != 1:
        return None
    return float(value.value.numpy().reshape(()))


# ---------------------------------------------------------------- weight and bias
def weight_of_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """norm(x) * c is a norm with the weight c, where it has none and c is one for each channel."""
    norm, values = _with_constant(rewriter, call)
    if norm is None or values is None or _has(norm, 1, 1.0) or _has(norm, 2, 0.0):
        return None
    return _replaced(norm, 1, values)


def bias_of_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """layer_norm(x) + c is one with the bias c."""
    norm, values = _with_constant(rewriter, call)
    if norm is None or values is None or op_name(norm) != LAYER_NORM or _has(norm, 2, 0.0):
        return None
    return _replaced(norm, 2, values)


def _with_constant(
    rewriter: Rewriter, call: relax.Call
) -> tuple[relax.Call | None, np.ndarray | None]:
    data, constant = call.args
    norm = rewriter.producer_of(data, LAYER_NORM, RMS_NORM)
    if norm is None or not is_constant(constant) or not same_type(call, norm):
        return None, None
    axes, shape = [int(axis) for axis in norm.attrs.axes], shape_of(norm)
    if shape is None or len(axes) != 1:
        return None, None
    axis = axes[0] % len(shape)
    return norm, per_channel(constant.value.numpy(), len(shape), axis, shape[axis])


def _has(norm: relax.Call, number: int, neutral: float) -> bool:
    """Whether argument `number` changes anything, or is no constant."""
    if number >= len(norm.args):
        return False
    value = norm.args[number]
    return not is_constant(value) or bool((value.value.numpy() != neutral).any())


def _replaced(norm: relax.Call, number: int, values: np.ndarray) -> relax.Call:
    args = list(norm.args)
    args[number] = relax.const(values.astype(np.float32))
    return relax.Call(norm.op, args, norm.attrs, norm.ty_args)


NORM_RULES: dict[str, Sequence[Rule]] = {
    "relax.divide": (norm_of_quotient,),
    "relax.multiply": (norm_of_quotient, weight_of_norm),
    "relax.add": (bias_of_norm,),
}
"""Operator -> its rules, in the order in which they are tried."""
