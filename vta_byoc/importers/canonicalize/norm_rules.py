"""Normalizations that exporters write operator by operator, as one operator each.

(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * weight + bias
x / sqrt(mean(x ** 2) + epsilon) * weight
x / maximum(sqrt(sum(x ** 2)), epsilon)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import same_type, shape_of
from vta_byoc.ir.bindings import is_constant, is_float32, op_name, per_channel
from vta_byoc.ir.rewriter import Rewriter, Rule

LAYER_NORM, RMS_NORM = "relax.nn.layer_norm", "relax.nn.rms_norm"
GROUP_NORM = "relax.nn.group_norm"
BROADCAST = "relax.broadcast_to"
ROOTS = {"relax.sqrt": 0.5, "relax.rsqrt": -0.5}
LEAST_LENGTH = 1e-6
"""Rows are divided by no less; more than that changes rows of usual numbers."""


@dataclass(frozen=True)
class _Root:
    """What a value is divided by: the root of a mean or a sum of squares.

    Attributes:
        squared: what is squared.
        axis: of the mean or sum.
        epsilon: added to the mean.
        factor: what the quotient by the root of the mean is to be multiplied by.
    """

    squared: relax.Expr
    axis: int
    epsilon: float
    factor: float = 1.0


def norm_of_quotient(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Deviation / sqrt(mean(deviation ** 2) + epsilon); or times the reciprocal root."""
    wanted = 0.5 if op_name(call) == "relax.divide" else -0.5
    pairs = [call.args] if wanted > 0 else [call.args, call.args[::-1]]
    for deviation, root in pairs:
        found = _root(rewriter, root, wanted)
        if found is None or not same_type(call, deviation) or not is_float32(deviation):
            continue
        if _are_same(rewriter, found.squared, deviation):
            return _norm(rewriter, deviation, found)
    return None


def _are_same(rewriter: Rewriter, one: relax.Expr, other: relax.Expr) -> bool:
    """Whether two values are one, or differences of the same two."""
    made = [rewriter.producer_of(each, "relax.subtract") for each in (one, other)]
    if one.same_as(other) or made[0] is None or made[1] is None:
        return one.same_as(other)
    return all(a.same_as(b) for a, b in zip(made[0].args, made[1].args, strict=True))


def _norm(rewriter: Rewriter, deviation: relax.Expr, root: _Root) -> relax.Expr | None:
    """The normalization of what `deviation` is a deviation of, or of itself."""
    shape, rank = shape_of(deviation), deviation.ty.ndim
    if shape is None:
        return None
    weight = relax.const(np.full(shape[root.axis], root.factor, np.float32))
    data = _centred(rewriter, deviation, root.axis)
    if data is not None:
        zeros = relax.const(np.zeros(shape[root.axis], np.float32))
        return relax.op.nn.layer_norm(data, weight, zeros, [root.axis], root.epsilon)
    # TVM has no root mean square of a single row
    if not 0 < root.axis == rank - 1:
        return None
    return relax.op.nn.rms_norm(deviation, weight, [root.axis], root.epsilon)


def _centred(rewriter: Rewriter, value: relax.Expr, axis: int) -> relax.Expr | None:
    """X of x - mean(x)."""
    difference = rewriter.producer_of(value, "relax.subtract")
    if difference is None:
        return None
    data, mean = difference.args
    mean = rewriter.producer_of(mean, "relax.mean")
    is_mean = mean is not None and mean.args[0].same_as(data) and _axis(mean) == axis
    return data if is_mean else None


def _root(rewriter: Rewriter, root: relax.Expr, wanted: float) -> _Root | None:
    """What a root to the power `wanted` is of; None for anything else.

    A length that is no less than `LEAST_LENGTH`, or something smaller, is that of the same row with
    the square of it added: they differ where the whole row is about so small.
    """
    made = rewriter.producer_of(root, BROADCAST)
    made = rewriter.producer(root if made is None else made.args[0])
    if made is None:
        return None
    if op_name(made) == "relax.divide" and _number(made.args[0]) == 1.0:
        return _root(rewriter, made.args[1], -wanted)
    if op_name(made) == "relax.maximum" and wanted > 0:
        least = _number(made.args[1])
        found = None if least is None else _root(rewriter, made.args[0], wanted)
        if found is None or least is None or found.epsilon or not 0 <= least <= LEAST_LENGTH:
            return None
        return dataclasses.replace(found, epsilon=(least * found.factor) ** 2)
    power = ROOTS.get(op_name(made))
    if op_name(made) == "relax.power":
        power = _number(made.args[1])
    return _mean(rewriter, made.args[0]) if power == wanted else None


def _mean(rewriter: Rewriter, value: relax.Expr) -> _Root | None:
    """The mean or sum of squares that `value` is, with an epsilon or without."""
    made = rewriter.producer_of(value, "relax.add", "relax.maximum")
    epsilon = 0.0 if made is None else _number(made.args[1])
    if epsilon is None or epsilon < 0:
        return None
    if op_name(made) == "relax.maximum" and epsilon > LEAST_LENGTH**2:
        return None
    total = rewriter.producer_of(value if made is None else made.args[0], "relax.mean", "relax.sum")
    axis = None if total is None else _axis(total)
    shape = None if total is None else shape_of(total.args[0])
    if total is None or axis is None or shape is None:
        return None
    square = rewriter.producer(total.args[0])
    squared = None if square is None else _square(rewriter, square)
    if squared is None:
        return None
    count = shape[axis] if op_name(total) == "relax.sum" else 1
    return _Root(squared, axis, epsilon / count, count**-0.5)


def _square(rewriter: Rewriter, call: relax.Expr) -> relax.Expr | None:
    """X of x * x, x ** 2, abs(x) ** 2 or square(x)."""
    name = op_name(call)
    if name == "relax.square":
        return call.args[0]
    if name == "relax.multiply" and call.args[0].same_as(call.args[1]):
        return call.args[0]
    if name == "relax.power" and _number(call.args[1]) == 2.0:
        magnitude = rewriter.producer_of(call.args[0], "relax.abs")
        return call.args[0] if magnitude is None else magnitude.args[0]
    return None


def _axis(total: relax.Call) -> int | None:
    """The only axis of a mean or a sum that keeps it, from the front."""
    axes = total.attrs.axis
    if axes is None or len(axes) != 1 or not total.attrs.keepdims:
        return None
    return int(axes[0]) % total.args[0].ty.ndim


def _number(value: relax.Expr) -> float | None:
    """A constant of one element."""
    if not is_constant(value) or math.prod(value.value.shape) != 1:
        return None
    return float(value.value.numpy().reshape(()))


# ---------------------------------------------------------------- weight and bias
def weight_of_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """norm(x) * c is a norm with the weight c, where c is one for each channel.

    Its own weight is a number, or none: the product of two is rounded once more.
    """
    norm, values = _with_constant(rewriter, call)
    if norm is None or values is None or _has_bias(norm):
        return None
    weight = norm.args[1].value.numpy() if is_constant(norm.args[1]) else None
    if weight is None or (weight != weight[:1]).any():
        return None
    return _replaced(norm, 1, values * weight)


def bias_of_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """layer_norm(x) + c is one with the bias c; group_norm(x) + c alike."""
    norm, values = _with_constant(rewriter, call)
    if norm is None or values is None or op_name(norm) == RMS_NORM or _has_bias(norm):
        return None
    return _replaced(norm, 2, values)


def _with_constant(
    rewriter: Rewriter, call: relax.Call
) -> tuple[relax.Call | None, np.ndarray | None]:
    data, constant = call.args
    norm = rewriter.producer_of(data, LAYER_NORM, RMS_NORM, GROUP_NORM)
    if norm is None or not is_constant(constant) or not same_type(call, norm):
        return None, None
    is_group, shape = op_name(norm) == GROUP_NORM, shape_of(norm)
    axes = [int(norm.attrs.channel_axis)] if is_group else [int(axis) for axis in norm.attrs.axes]
    if shape is None or len(axes) != 1:
        return None, None
    axis = axes[0] % len(shape)
    return norm, per_channel(constant.value.numpy(), len(shape), axis, shape[axis])


def _has_bias(norm: relax.Call) -> bool:
    """Whether a normalization adds anything, or what is no constant."""
    if op_name(norm) == RMS_NORM:
        return False
    bias = norm.args[2]
    return not is_constant(bias) or bool(bias.value.numpy().any())


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
