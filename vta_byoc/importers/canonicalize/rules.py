"""What real exporters write around the operators, rewritten to the operators.

Every rule is a small function: it gets the rewriter and one call whose arguments are already
rewritten, and returns what the call becomes, or None. Rules apply until none does; what nobody
reads any more is removed. A new rule is one entry of its module's table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, Tuple

from vta_byoc.importers.canonicalize.axis_rules import AXIS_RULES
from vta_byoc.importers.canonicalize.batch_norm import fold_batch_norm
from vta_byoc.importers.canonicalize.broadcast_rules import BROADCAST_RULES
from vta_byoc.importers.canonicalize.calls import same_type
from vta_byoc.importers.canonicalize.chain_rules import CHAIN_RULES
from vta_byoc.importers.canonicalize.channel_rules import CHANNEL_RULES
from vta_byoc.importers.canonicalize.clamp_rules import CLAMP_RULES
from vta_byoc.importers.canonicalize.constants import fold_constant
from vta_byoc.importers.canonicalize.depth_rules import DEPTH_RULES
from vta_byoc.importers.canonicalize.group_norm_rules import GROUP_NORM_RULES
from vta_byoc.importers.canonicalize.group_rules import GROUP_RULES
from vta_byoc.importers.canonicalize.joined_rules import JOINED_RULES
from vta_byoc.importers.canonicalize.movement_rules import MOVE_RULES
from vta_byoc.importers.canonicalize.norm_rules import NORM_RULES
from vta_byoc.importers.canonicalize.plane_rules import PLANE_RULES
from vta_byoc.importers.canonicalize.qdq_rules import QDQ_RULES, fold_floats, merge_repeated
from vta_byoc.importers.canonicalize.row_rules import ROW_RULES
from vta_byoc.importers.canonicalize.share_rules import SHARE_RULES
from vta_byoc.importers.canonicalize.slice_rules import SLICE_RULES
from vta_byoc.importers.canonicalize.slope_rules import SLOPE_RULES
from vta_byoc.importers.canonicalize.softmax_rules import SOFTMAX_RULES
from vta_byoc.importers.canonicalize.token_rules import TOKEN_RULES
from vta_byoc.importers.canonicalize.view_rules import VIEW_RULES
from vta_byoc.ir.bindings import (
    SEPARATOR,
    constant_of,
    is_constant,
    known_shape,
    op_name,
    straight_bindings,
    with_main,
)
from vta_byoc.ir.clamps import interval_of_call
from vta_byoc.ir.joining import MOST_JOINED, few
from vta_byoc.ir.rewriter import Rewriter, Rule
from vta_byoc.ir.views import RESHAPES, axes_of

COMMUTATIVE = frozenset(f"relax.{n}" for n in ("add", "multiply", "maximum", "minimum"))


# ---------------------------------------------------------------- operators that do nothing
def drop_identity(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A reshape to the same shape, a permutation to the same order, padding by nothing ..."""
    data = call.args[0]
    return data if same_type(call, data) and _does_nothing(call) else None


def _does_nothing(call: relax.Call) -> bool:
    name, attrs = op_name(call), call.attrs
    if name == "relax.permute_dims":
        return axes_of(call) == list(range(call.ty.ndim))
    if name == "relax.strided_slice":
        return len(call.args) < 5 or all(int(step.value) == 1 for step in call.args[4].fields)
    if name == "relax.nn.pad":
        return not any(int(width) for width in attrs.pad_width)
    return True


def drop_single_concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """concat((x,)) is x."""
    parts = call.args[0]
    return parts.fields[0] if isinstance(parts, Tuple) and len(parts.fields) == 1 else None


def drop_empty_parts(_rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A concat of the tensors that have elements: rotary positions may leave no column unturned."""
    parts, axis = call.args[0], int(call.attrs.axis)
    if not isinstance(parts, Tuple) or 0 in (known_shape(call.ty) or (0,)):
        return None
    some = [part for part in parts.fields if 0 not in (known_shape(part.ty) or ())]
    return relax.op.concat(some, axis) if len(some) < len(parts.fields) else None


def differs_from_itself(_rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Floats that differ from themselves are NaN; TVM folds `x != x` to false."""
    one, two = call.args
    is_float = str(one.ty.dtype).startswith(("float", "bfloat"))
    return relax.op.isnan(one) if is_float and one.same_as(two) else None


def join_in_parts(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A concat of very many tensors is one of concats, which lie less deep in one expression."""
    fields = call.args[0].fields if isinstance(call.args[0], Tuple) else []
    if len(fields) <= MOST_JOINED:
        return None
    axis = int(call.attrs.axis)
    parts = few(
        fields,
        lambda some: rewriter.as_variable(
            relax.op.concat(list(some), axis), f"{rewriter.name}{SEPARATOR}part"
        ),
    )
    return relax.op.concat(list(parts), axis)


def constant_last(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Write c + x as x + c: the other rules look for constants on the right."""
    left, right = call.args
    if not is_constant(left) or is_constant(right):
        return None
    return relax.Call(call.op, [right, left], call.attrs, call.ty_args)


def merge_additions(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """(x + c) + d is x + (c + d) for constants that do not widen x, if no other reads x + c."""
    inner = rewriter.producer_of(call.args[0], "relax.add")
    if rewriter.is_shared(call.args[0]):
        return None  # the sum is a layer's bias, and what is behind it reads one tensor
    if inner is None or not is_constant(call.args[1]) or not is_constant(inner.args[1]):
        return None
    if not same_type(call, inner) or not same_type(inner, inner.args[0]):
        return None
    first, second = (value.args[1].value.numpy() for value in (inner, call))
    wide = first if np.issubdtype(first.dtype, np.integer) else first.astype(np.float64)
    return relax.op.add(inner.args[0], constant_of((wide + second).astype(first.dtype)))


def split_as_slices(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """split(x) is a tuple of slices of x, called like the model's outputs: `n`, `n__1` ..."""
    data = call.args[0]
    if not isinstance(call.ty, relax.TupleType):  # one part
        return data if same_type(call, data) else None
    axis, end, parts = int(call.attrs.axis) % data.ty.ndim, 0, []
    name = str(rewriter.name).split(SEPARATOR)[0]
    for number, field in enumerate(call.ty.fields):
        shape = known_shape(field)
        if shape is None:
            return None
        begin, end = end, end + shape[axis]
        part = relax.op.strided_slice(data, [axis], [begin], [end])
        parts.append(rewriter.as_variable(part, f"{name}{SEPARATOR}{number}" if number else name))
    return Tuple(parts)


def merge_clamps(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """relu(relu(x)) and clip(relu(x)): a bound that the inner clamp implies goes away."""
    interval = interval_of_call(call)
    inner = rewriter.producer(call.args[0])
    implied = interval_of_call(inner) if isinstance(inner, Call) else None
    if interval is None or implied is None or not same_type(call, call.args[0]):
        return None
    is_implied = interval[0] <= implied[0] and implied[1] <= interval[1]
    return call.args[0] if is_implied else None


RULES: dict[str, Sequence[Rule]] = {
    **{name: (drop_identity,) for name in (*RESHAPES, "relax.permute_dims")},
    **{name: (constant_last,) for name in COMMUTATIVE},
    "relax.add": (constant_last, merge_additions),
    "relax.broadcast_to": (drop_identity,),
    "relax.split": (split_as_slices,),
    "relax.strided_slice": (drop_identity,),
    "relax.astype": (drop_identity,),
    "relax.nn.pad": (drop_identity,),
    "relax.not_equal": (differs_from_itself,),
    "relax.concat": (drop_single_concat, drop_empty_parts, join_in_parts),
    "relax.nn.relu": (merge_clamps,),
    "relax.nn.relu6": (merge_clamps,),
    "relax.clip": (merge_clamps,),
    "relax.maximum": (constant_last, merge_clamps),
    "relax.minimum": (constant_last, merge_clamps),
}
"""Operator -> its rules, in the order in which they are tried."""


def normalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Apply the rules to `main` and fold constants and batch normalization until nothing changes.

    What nobody reads is removed.  Tensors of five axes become planes when that is done, which is
    when batch normalization has become a part of their layers.
    """
    mod = fold_floats(_rewritten(mod, _rules))
    for rules in (_rules, _rules_of_depths):
        before = 0
        while (count := len(straight_bindings(mod["main"]))) != before:
            mod, before = fold_batch_norm(_rewritten(mod, rules)), count
    return mod


def _rewritten(mod: tvm.IRModule, rules: Callable[[str], tuple[Rule, ...]]) -> tvm.IRModule:
    mod = merge_repeated(with_main(mod, Rewriter(mod["main"], rules).run()))
    return relax.transform.DeadCodeElimination()(mod)


def _rules_of_depths(name: str) -> tuple[Rule, ...]:
    return (*_rules(name), *DEPTH_RULES.get(name, ()))


def _rules(name: str) -> tuple[Rule, ...]:
    tables = (
        *(QDQ_RULES, RULES, CHAIN_RULES, VIEW_RULES, PLANE_RULES),
        *(AXIS_RULES, MOVE_RULES, SLICE_RULES, NORM_RULES, TOKEN_RULES, CHANNEL_RULES),
        *(GROUP_NORM_RULES, GROUP_RULES, JOINED_RULES, SOFTMAX_RULES, SHARE_RULES),
        *(SLOPE_RULES, ROW_RULES, CLAMP_RULES, BROADCAST_RULES),
    )
    return (fold_constant, *(rule for table in tables for rule in table.get(name, ())))
