"""Rules for chains of reshapes and permutations, and for float regions in another layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from vta_byoc.importers.canonicalize.calls import same_type, shape_of
from vta_byoc.ir.bindings import constant_of, is_constant, op_name
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPES, axes_of

ELEMENTWISE = frozenset(
    f"relax.{n}"
    for n in (
        *("nn.relu", "nn.relu6", "nn.leakyrelu", "nn.silu", "nn.gelu"),
        *("sigmoid", "tanh", "exp", "abs", "negative", "clip"),
    )
)
"""Operators of one tensor, element by element."""
WITH_CONSTANT = frozenset(
    f"relax.{n}" for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
)
"""Operators of two tensors, element by element; one of them may be a constant."""


def merge_reshapes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """reshape(squeeze(x)) is one reshape of x."""
    inner, shape = rewriter.producer_of(call.args[0], *RESHAPES), shape_of(call)
    return None if inner is None or shape is None else relax.op.reshape(inner.args[0], shape)


def merge_permutations(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """permute(permute(x)) is one permutation of x."""
    inner = rewriter.producer_of(call.args[0], "relax.permute_dims")
    if inner is None:
        return None
    order = axes_of(inner)
    return relax.op.permute_dims(inner.args[0], [order[axis] for axis in axes_of(call)])


def hoist_permutation(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """permute(f(permute(x))) is f(x) if the permutations cancel and f is elementwise or a pad.

    Exporters leave such a region in another layout between two transposes.
    """
    inner = rewriter.producer(call.args[0])
    axes = axes_of(call)
    if inner is None or not _cancels(rewriter, inner, axes):
        return None
    rewriter.name = str(call.args[0].name)
    data = rewriter.as_variable(relax.op.permute_dims(inner.args[0], axes), rewriter.name)
    if op_name(inner) == "relax.nn.pad":
        widths = [int(width) for width in inner.attrs.pad_width]
        moved = [width for axis in axes for width in widths[2 * axis : 2 * axis + 2]]
        return relax.op.nn.pad(data, moved, "constant", float(inner.attrs.pad_value))
    others = [_permuted_constant(arg, axes) for arg in inner.args[1:]]
    return relax.Call(inner.op, [data, *others], inner.attrs, inner.ty_args)


def _cancels(rewriter: Rewriter, value: relax.Expr, axes: list[int]) -> bool:
    """Whether `value` is a chain of movable operators on a permutation that `axes` undoes."""
    while _is_movable(value):
        source = rewriter.producer(value.args[0])
        if op_name(source) == "relax.permute_dims":
            order = axes_of(source)
            return [order[axis] for axis in axes] == list(range(len(axes)))
        value = source
    return False


def _is_movable(value: relax.Expr | None) -> bool:
    if value is None:
        return False
    name = op_name(value)
    if name == "relax.nn.pad":
        return str(value.attrs.pad_mode) == "constant"
    if name in WITH_CONSTANT:
        data, constant = value.args
        return is_constant(constant) and same_type(data, value)
    return name in ELEMENTWISE


def _permuted_constant(arg: relax.Expr, axes: list[int]) -> relax.Expr:
    if not is_constant(arg) or math.prod(arg.value.shape) == 1:
        return arg
    array = arg.value.numpy()
    array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return constant_of(array.transpose(axes))


CHAIN_RULES: dict[str, Sequence[Rule]] = {
    **{name: (merge_reshapes,) for name in RESHAPES},
    "relax.permute_dims": (merge_permutations, hoist_permutation),
}
"""Operator -> its rules, in the order in which they are tried."""
