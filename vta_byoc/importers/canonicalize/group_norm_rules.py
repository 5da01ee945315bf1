"""Normalizations over the positions of channels or of groups of them, as `group_norm`.

Exporters write an instance normalization operator by operator, and a group normalization as one of
(N, groups, elements) between two reshapes:

    (x - mean(x)) / sqrt(variance(x) + epsilon) over rows and columns is group_norm(x, C groups)
    reshape(group_norm(reshape(x), G groups)) is group_norm(x, G groups)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.canonicalize.calls import shape_of
from vta_byoc.importers.canonicalize.norm_rules import GROUP_NORM
from vta_byoc.ir.bindings import is_constant, is_float32
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPE

INSTANCE_NORM = "relax.nn.instance_norm"
RESHAPE_OP = f"relax.{RESHAPE}"


def instance_norm_as_groups(_rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Each channel is a group of its own; one image may be among what is normalized."""
    shape = shape_of(call)
    if shape is None or int(call.attrs.channel_axis) % len(shape) != 1:
        return None
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axes)
    if axes != _positions(shape) and (shape[0] != 1 or axes != [0, *_positions(shape)]):
        return None
    attrs, (data, weight, bias) = call.attrs, call.args
    return relax.op.nn.group_norm(
        data,
        weight,
        bias,
        shape[1],
        1,
        _positions(shape),
        float(attrs.epsilon),
        bool(attrs.center),
        bool(attrs.scale),
    )


def instance_norm_of_quotient(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """(x - mean(x)) / sqrt(variance(x) + epsilon)."""
    difference = rewriter.producer_of(call.args[0], "relax.subtract")
    root = rewriter.producer_of(call.args[1], "relax.sqrt")
    total = None if root is None else rewriter.producer_of(root.args[0], "relax.add")
    if difference is None or total is None or not is_constant(total.args[1]):
        return None
    data, shape = difference.args[0], shape_of(difference.args[0])
    mean = rewriter.producer_of(difference.args[1], "relax.mean")
    variance = rewriter.producer_of(total.args[0], "relax.variance")
    epsilon = total.args[1].value.numpy()
    if shape is None or mean is None or variance is None or epsilon.size != 1:
        return None
    if not is_float32(data) or not all(_is_of(each, data, shape) for each in (mean, variance)):
        return None
    return _plain(data, shape, shape[1], float(epsilon.reshape(())))


def _is_of(total: relax.Call, data: relax.Expr, shape: Sequence[int]) -> bool:
    """Whether a mean or variance is that of all positions of each channel of `data`."""
    axes = [] if total.attrs.axis is None else [int(a) % len(shape) for a in total.attrs.axis]
    is_kept = bool(total.attrs.keepdims) and total.args[0].same_as(data)
    return is_kept and bool(axes) and sorted(axes) == _positions(shape)


def group_norm_between_reshapes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Groups that are the channels of a reshape of (N, C, ...), reshaped back."""
    norm = rewriter.producer_of(call.args[0], GROUP_NORM)
    before = None if norm is None else rewriter.producer_of(norm.args[0], RESHAPE_OP)
    if norm is None or before is None or rewriter.is_shared(call.args[0]):
        return None
    seen, shape = shape_of(norm), shape_of(before.args[0])
    if seen is None or shape is None or shape != shape_of(call) or len(shape) < 3:
        return None
    if len(seen) != 3 or int(norm.attrs.num_groups) != seen[1] or shape[1] % seen[1]:
        return None
    if seen[0] != shape[0] or not all(is_constant(arg) for arg in norm.args[1:]):
        return None
    weight, bias = (
        np.repeat(arg.value.numpy().reshape(-1), shape[1] // seen[1]) for arg in norm.args[1:]
    )
    return _plain(before.args[0], shape, seen[1], float(norm.attrs.epsilon), weight, bias)


def _plain(
    data: relax.Expr,
    shape: Sequence[int],
    groups: int,
    epsilon: float,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> relax.Expr:
    """`group_norm` of (N, C, ...), with weights of 1 and no bias where none are given."""
    weight = np.ones(shape[1], np.float32) if weight is None else weight
    bias = np.zeros(shape[1], np.float32) if bias is None else bias
    constants = relax.const(weight), relax.const(bias)
    return relax.op.nn.group_norm(data, *constants, groups, 1, _positions(shape), epsilon)


def _positions(shape: Sequence[int]) -> list[int]:
    """The axes behind the channels."""
    return list(range(2, len(shape)))


GROUP_NORM_RULES: dict[str, Sequence[Rule]] = {
    INSTANCE_NORM: (instance_norm_as_groups,),
    "relax.divide": (instance_norm_of_quotient,),
    RESHAPE_OP: (group_norm_between_reshapes,),
}
"""Operator -> its rules, in the order in which they are tried."""
