"""Channels that a permutation moves to the end, and operators there, as operators channels second.

ConvNeXt's blocks normalize and multiply over the last axis between two permutations. A permutation
to (N, H, W, C) goes behind a normalization, and from there on behind what reads it, until the one
back meets it:

    norm(permute(x)) is permute(norm(x)) over axis 1; matmul(permute(x), w) is permute(conv2d(x, w))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.ir import Tuple

from vta_byoc.importers.canonicalize.calls import same_type
from vta_byoc.importers.canonicalize.chain_rules import ELEMENTWISE, WITH_CONSTANT
from vta_byoc.ir.bindings import is_constant, is_float32, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import axes_of

LAST = [0, 2, 3, 1]
"""The permutation that moves the channels of (N, C, H, W) to the end."""
LAYER_NORM, CONV2D = "relax.nn.layer_norm", "relax.nn.conv2d"
MOVED = ELEMENTWISE | {"relax.erf", "relax.nn.gelu_tanh", "relax.nn.softplus"}
BEHIND = MOVED | WITH_CONSTANT | {CONV2D, "relax.concat"}


def norm_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """layer_norm over the last axis of a permuted tensor is one over its channels."""
    data = before_last(rewriter, call.args[0])
    if data is None or [int(axis) % call.ty.ndim for axis in call.attrs.axes] != [3]:
        return None
    attrs = call.attrs
    normed = relax.op.nn.layer_norm(
        data, *call.args[1:], [1], float(attrs.epsilon), bool(attrs.center), bool(attrs.scale)
    )
    return _behind(rewriter, normed)


def dense_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A product with a constant matrix is a convolution with a kernel of one."""
    data, weight = _normed(rewriter, call.args[0]), call.args[1]
    if data is None or not is_constant(weight) or not is_float32(call):
        return None
    values = weight.value.numpy()
    if values.ndim != 2:
        return None
    kernel = np.ascontiguousarray(values.T)[:, :, None, None]
    return _behind(rewriter, relax.op.nn.conv2d(data, relax.const(kernel)))


def steps_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """An elementwise operator of one permuted tensor."""
    data = _normed(rewriter, call.args[0])
    if data is None or not same_type(call, call.args[0]):
        return None
    made = relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)
    return _behind(rewriter, made)


def joined_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """An elementwise operator of two tensors: both are permuted, or one is constant."""
    args = [_constant(arg) if is_constant(arg) else _normed(rewriter, arg) for arg in call.args]
    if any(arg is None for arg in args) or all(is_constant(arg) for arg in call.args):
        return None
    if not all(is_constant(arg) or same_type(call, arg) for arg in call.args):
        return None
    return _behind(rewriter, relax.Call(call.op, args, call.attrs, call.ty_args))


def concat_behind(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A concat of tensors that all are permuted."""
    fields = call.args[0].fields if isinstance(call.args[0], Tuple) else []
    data = [_normed(rewriter, field) for field in fields]
    parts = [part for part in data if part is not None]
    if not parts or len(parts) != len(data):
        return None
    return _behind(rewriter, relax.op.concat(parts, LAST[int(call.attrs.axis) % len(LAST)]))


def before_last(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """X of permute(x), with the channels at the end."""
    permuted = rewriter.producer_of(value, "relax.permute_dims")
    return permuted.args[0] if permuted is not None and axes_of(permuted) == LAST else None


def _normed(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """X of permute(x), where a normalization is among what x is computed of."""
    found = before_last(rewriter, value)
    made = None if found is None else rewriter.producer(found)
    while made is not None and op_name(made) in BEHIND:
        first = made.args[0]
        made = rewriter.producer(first.fields[0] if isinstance(first, Tuple) else first)
    return found if made is not None and op_name(made) == LAYER_NORM else None


def _constant(value: relax.Expr) -> relax.Expr | None:
    """A number, or one for each channel, as it broadcasts channels second."""
    values = value.value.numpy()
    size = math.prod(values.shape)
    if size == 1:
        return value
    if values.ndim > len(LAST) or size != values.shape[-1]:
        return None
    return relax.const(np.ascontiguousarray(values.reshape(-1, 1, 1)))


def _behind(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """`value`, whose channels are second, with them at the end."""
    return relax.op.permute_dims(rewriter.as_variable(value, rewriter.name), LAST)


CHANNEL_RULES: dict[str, Sequence[Rule]] = {
    LAYER_NORM: (norm_behind,),
    "relax.matmul": (dense_behind,),
    "relax.concat": (concat_behind,),
    **{name: (steps_behind,) for name in MOVED},
    **{name: (joined_behind,) for name in WITH_CONSTANT},
}
"""Operator -> its rules, in the order in which they are tried."""
