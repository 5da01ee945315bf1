"""Which axis of a tensor lies in the lanes of its packed form, as far as layers say."""

from __future__ import annotations

import math
from typing import TypeGuard

from tvm import relax
from tvm.ir import Tuple

from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.views import View
from vta_byoc.quantization.quantizer import Quantizer

VIEWS = ("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims")
PERMUTE = "relax.permute_dims"
CHANNELS_SECOND = frozenset(
    f"relax.{op}"
    for op in (
        *("nn.conv1d", "nn.conv2d", "nn.conv2d_transpose", "nn.max_pool2d", "nn.avg_pool2d"),
        *("nn.adaptive_avg_pool2d", "image.resize2d", "repeat"),
    )
)
"""Operators on images; all others hold the channels of tokens last."""
NORMS = frozenset(("relax.nn.layer_norm", "relax.nn.rms_norm"))


def has_summed_lanes(q: Quantizer, right: relax.Expr) -> bool:
    """Whether the last axis but one of a product's second operand lies in lanes as it is stored.

    That is the axis that the product sums: such a tensor is a weight without being turned. So is
    one whose last two axes the model exchanges twice.
    """
    rank = right.ty.ndim
    if _exchanges(made := q.produced(right)) and _exchanges(q.produced(made.args[0])):
        return True
    source, view = _moved(q, right)
    if view is None or not view.axes[rank - 2]:
        return False
    lanes = lane_axis(q, source)
    inner = math.prod(view.source[lanes + 1 :])
    return all(
        inner <= digit.stride and digit.stride * digit.size <= inner * view.source[lanes]
        for digit in view.axes[rank - 2]
    )


def _moved(q: Quantizer, value: relax.Expr) -> tuple[relax.Expr, View | None]:
    """What reshapes and permutations make `value` of, and what they do; None where one cuts."""
    moves: list[relax.Call] = []
    while (call := q.produced(value)) is not None and op_name(call) in (*VIEWS, PERMUTE):
        moves.insert(0, call)
        value = call.args[0]
    view: View | None = View.of(static_shape(value))
    for call in moves:
        if view is None:
            break
        is_permutation = op_name(call) == PERMUTE
        view = view.permuted(_order(call)) if is_permutation else view.reshaped(static_shape(call))
    return value, view


def _exchanges(call: relax.Call | None) -> TypeGuard[relax.Call]:
    """Whether a call exchanges the last two axes."""
    if call is None or op_name(call) != PERMUTE:
        return False
    rank = call.ty.ndim
    return rank > 1 and _order(call) == [*range(rank - 2), rank - 1, rank - 2]


def _order(call: relax.Call) -> list[int]:
    rank = call.ty.ndim
    axes = call.attrs.axes
    return list(reversed(range(rank))) if axes is None else [int(axis) % rank for axis in axes]


def lane_axis(q: Quantizer, value: relax.Expr) -> int:
    """The axis of the channels of `value`: the second of an image, the last of tokens."""
    last = value.ty.ndim - 1
    while (call := q.produced(value)) is not None:
        name = op_name(call)
        if name in CHANNELS_SECOND:
            return 1
        if name in NORMS:
            return int(call.attrs.axes[0]) % (last + 1)
        data = call.args[0].fields[0] if isinstance(call.args[0], Tuple) else call.args[0]
        if is_constant(data) and len(call.args) > 1:
            data = call.args[1]
        if name == PERMUTE or not isinstance(data, relax.Var) or data.ty.ndim != last + 1:
            return last
        value = data
    return last
