"""Which axis of a tensor lies in the lanes of its packed form, as far as layers say."""

from __future__ import annotations

import math

from tvm import relax
from tvm.ir import Tuple

from vta_byoc.ir.bindings import is_constant, op_name
from vta_byoc.ir.views import PERMUTE_DIMS, chain_of, exchanges, view_of
from vta_byoc.quantization.quantizer import Quantizer

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
    if exchanges(made := q.produced(right)) and exchanges(q.produced(made.args[0])):
        return True
    source, chain = chain_of(q.produced, right)
    view = view_of(source, chain)
    if view is None or not view.axes[rank - 2]:
        return False
    lanes = lane_axis(q, source)
    inner = math.prod(view.source[lanes + 1 :])
    return all(
        inner <= digit.stride and digit.stride * digit.size <= inner * view.source[lanes]
        for digit in view.axes[rank - 2]
    )


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
        if name == PERMUTE_DIMS or not isinstance(data, relax.Var) or data.ty.ndim != last + 1:
            return last
        value = data
    return last
