"""What real exporters write around the operators, rewritten to the operators.

Every rule is a small function: it gets the rewriter and one call whose arguments are already
rewritten, and returns what the call becomes, or None.  Rules apply until none does; what nobody
reads any more is removed.  A new rule is one entry of `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Attrs, Call, Tuple

from vta_byoc.importers.canonicalize.axis_rules import AXIS_RULES
from vta_byoc.importers.canonicalize.batch_norm import fold_batch_norm
from vta_byoc.importers.canonicalize.movement_rules import MOVE_RULES
from vta_byoc.importers.canonicalize.qdq_rules import QDQ_RULES, fold_floats, merge_repeated
from vta_byoc.ir.bindings import (
    SEPARATOR,
    is_constant,
    known_shape,
    op_name,
    straight_bindings,
    with_main,
)
from vta_byoc.ir.clamps import interval_of_call
from vta_byoc.ir.rewriter import Rewriter, Rule

RESHAPES = frozenset(f"relax.{n}" for n in ("reshape", "flatten", "squeeze", "expand_dims"))
COMMUTATIVE = frozenset(f"relax.{n}" for n in ("add", "multiply", "maximum", "minimum"))
ELEMENTWISE = frozenset(
    f"relax.{n}"
    for n in (
        *("nn.relu", "nn.relu6", "nn.leakyrelu", "nn.silu", "nn.gelu"),
        *("sigmoid", "tanh", "exp", "abs", "negative", "clip"),
    )
)
"""Operators of one tensor, element by element."""
WITH_CONSTANT = COMMUTATIVE | {"relax.subtract", "relax.divide"}


# ---------------------------------------------------------------- constants
def fold_constant(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Operators of constants in NumPy; FoldConstant would compile each of them (0.1 s)."""
    return folded(call)


def folded(call: relax.Call) -> relax.Expr | None:
    """The constant that a call of known type makes of constants; None where it makes none."""
    function = _FOLDERS.get(op_name(call))
    shape = _shape(call)
    if function is None or shape is None:
        return None
    tensors = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
    if not tensors or not all(is_constant(arg) for arg in tensors):
        return None
    result = function(call, shape, *(arg.value.numpy() for arg in tensors))
    dtype = str(call.ty.dtype)  # said aloud: relax.const makes int32 of int64
    return relax.const(np.ascontiguousarray(result, dtype).reshape(shape), dtype)


def _chosen(
    call: relax.Call, shape: tuple[int, ...], condition: np.ndarray, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    return np.where(condition, x, y)


_FOLDERS: dict[str, Callable[..., np.ndarray]] = {
    **{name: lambda call, shape, x: x.reshape(shape) for name in RESHAPES},
    "relax.permute_dims": lambda call, shape, x: x.transpose(_axes(call)),
    "relax.broadcast_to": lambda call, shape, x: np.broadcast_to(x, shape),
    "relax.astype": lambda call, shape, x: x,
    "relax.negative": lambda call, shape, x: -x,
    "relax.sqrt": lambda call, shape, x: np.sqrt(x),
    "relax.less": lambda call, shape, x, y: x < y,
    "relax.where": _chosen,
    "relax.add": lambda call, shape, x, y: x + y,
    "relax.subtract": lambda call, shape, x, y: x - y,
    "relax.multiply": lambda call, shape, x, y: x * y,
}
"""Operator -> (call, shape of the result, arrays) -> the result; cast to the call's dtype."""


# ---------------------------------------------------------------- operators that do nothing
def drop_identity(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """A reshape to the same shape, a permutation to the same order, padding by nothing ..."""
    data = call.args[0]
    return data if _same_type(call, data) and _does_nothing(call) else None


def _same_type(left: relax.Expr, right: relax.Expr) -> bool:
    shape = _shape(left)
    return shape is not None and shape == _shape(right) and left.ty.dtype == right.ty.dtype


def _shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """The shape of a tensor; None if it is not known before the model runs."""
    return known_shape(expr.ty)


def _does_nothing(call: relax.Call) -> bool:
    name, attrs = op_name(call), call.attrs
    if name == "relax.permute_dims":
        return _axes(call) == list(range(call.ty.ndim))
    if name == "relax.strided_slice":
        return len(call.args) < 5 or all(int(step.value) == 1 for step in call.args[4].fields)
    if name == "relax.nn.pad":
        return not any(int(width) for width in attrs.pad_width)
    return True


def drop_single_concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """concat((x,)) is x."""
    parts = call.args[0]
    return parts.fields[0] if isinstance(parts, Tuple) and len(parts.fields) == 1 else None


def constant_last(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """c + x is x + c: the other rules look for constants on the right."""
    left, right = call.args
    if not is_constant(left) or is_constant(right):
        return None
    return relax.Call(call.op, [right, left], call.attrs, call.ty_args)


def merge_additions(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """(x + c) + d is x + (c + d) for constants that do not widen x."""
    inner = rewriter.producer_of(call.args[0], "relax.add")
    if inner is None or not is_constant(call.args[1]) or not is_constant(inner.args[1]):
        return None
    if not _same_type(call, inner) or not _same_type(inner, inner.args[0]):
        return None
    first, second = (value.args[1].value.numpy() for value in (inner, call))
    total = np.asarray(np.float64(first) + second, first.dtype)
    return relax.op.add(inner.args[0], relax.const(total))


def split_as_slices(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """split(x) is a tuple of slices of x, called like the model's outputs: `n`, `n__1` ..."""
    data = call.args[0]
    if not isinstance(call.ty, relax.TupleType):  # one part
        return data if _same_type(call, data) else None
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


# ---------------------------------------------------------------- chains of data movement
def merge_reshapes(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """reshape(squeeze(x)) is one reshape of x."""
    inner, shape = rewriter.producer_of(call.args[0], *RESHAPES), _shape(call)
    return None if inner is None or shape is None else relax.op.reshape(inner.args[0], shape)


def merge_permutations(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """permute(permute(x)) is one permutation of x."""
    inner = rewriter.producer_of(call.args[0], "relax.permute_dims")
    if inner is None:
        return None
    order = _axes(inner)
    return relax.op.permute_dims(inner.args[0], [order[axis] for axis in _axes(call)])


def hoist_permutation(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """permute(f(permute(x))) is f(x) if the permutations cancel and f is elementwise or a pad:
    an island in another layout."""
    inner = rewriter.producer(call.args[0])
    axes = _axes(call)
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
            order = _axes(source)
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
        return is_constant(constant) and _same_type(data, value)
    return name in ELEMENTWISE


def _permuted_constant(arg: relax.Expr, axes: list[int]) -> relax.Expr:
    if not is_constant(arg) or math.prod(arg.value.shape) == 1:
        return arg
    array = arg.value.numpy()
    array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return relax.const(np.ascontiguousarray(array.transpose(axes)))


def _axes(call: relax.Call) -> list[int]:
    """The order of a permutation; without axes it reverses them."""
    rank = call.ty.ndim if isinstance(call.ty, relax.TensorType) else call.args[0].ty.ndim
    if call.attrs.axes is None:
        return list(reversed(range(rank)))
    return [int(axis) % rank for axis in call.attrs.axes]


# ---------------------------------------------------------------- layers
def pad_into_convolution(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """conv(pad(x, 0)) is a convolution with that padding."""
    pad = rewriter.producer_of(call.args[0], "relax.nn.pad")
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    if pad is None or layouts != _CONVOLUTIONS[op_name(call)] or not _pads_zero_space(pad):
        return None
    widths = [int(width) for width in pad.attrs.pad_width][4:]
    extra = widths[0::2] + widths[1::2]
    padding = [int(a) + b for a, b in zip(call.attrs.padding, extra, strict=True)]
    return _with_padding(call, pad.args[0], padding)


def _pads_zero_space(pad: relax.Call) -> bool:
    attrs = pad.attrs
    widths = [int(width) for width in attrs.pad_width]
    is_zero = str(attrs.pad_mode) == "constant" and float(attrs.pad_value) == 0
    return is_zero and not any(widths[:4]) and min(widths) >= 0


def _with_padding(call: relax.Call, data: relax.Expr, padding: Sequence[int]) -> relax.Expr:
    attrs = call.attrs
    function = relax.op.nn.conv1d if op_name(call) == "relax.nn.conv1d" else relax.op.nn.conv2d
    return function(
        data,
        call.args[1],
        strides=attrs.strides,
        padding=list(padding),
        dilation=attrs.dilation,
        groups=attrs.groups,
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout,
        out_dtype=attrs.out_dtype,
    )


_CONVOLUTIONS = {"relax.nn.conv1d": ("NCW", "OIW"), "relax.nn.conv2d": ("NCHW", "OIHW")}


# ---------------------------------------------------------------- pooling and resizing
def mean_of_whole_plane(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Average pooling whose one window is the whole plane, and adaptive pooling to 1 x 1."""
    if str(call.attrs.layout) != "NCHW" or (_shape(call) or ())[2:] != (1, 1):
        return None
    if op_name(call) == "relax.nn.avg_pool2d" and not _covers(call):
        return None
    return relax.op.mean(call.args[0], [2, 3], keepdims=True)


def _covers(call: relax.Call) -> bool:
    attrs = call.attrs
    window = tuple(int(size) for size in attrs.pool_size)
    return window == (_shape(call.args[0]) or ())[2:] and not any(int(p) for p in attrs.padding)


def nearest_as_repeat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Nearest resizing by whole factors repeats rows and columns."""
    attrs = call.attrs
    if str(attrs.method) != "nearest_neighbor" or str(attrs.layout) != "NCHW":
        return None
    old, new = ((_shape(expr) or ())[2:] for expr in (call.args[0], call))
    if len(old) != 2 or len(new) != 2:
        return None
    factors = [b // a for a, b in zip(old, new, strict=True)]
    if not all(_repeats(attrs, a, b) for a, b in zip(old, new, strict=True)):
        return None
    rows = call.args[0]
    if factors[0] > 1:
        rows = relax.op.repeat(rows, factors[0], 2)
    if factors[1] == 1:
        return rows
    if factors[0] > 1:
        rows = rewriter.emit(rows, f"{rewriter.name}__rows")
    return relax.op.repeat(rows, factors[1], 3)


def _repeats(attrs: Attrs, old: int, new: int) -> bool:
    """Whether a resizing from `old` to `new` elements reads each `new // old` times in a row."""
    rounding = _ROUNDING.get(str(attrs.rounding_method))
    if new % old or rounding is None:
        return False
    out, factor = np.arange(new), new // old
    source = {
        "asymmetric": out / factor,
        "half_pixel": (out + 0.5) / factor - 0.5,
        "pytorch_half_pixel": (out + 0.5) / factor - 0.5,
        "tf_half_pixel_for_nn": (out + 0.5) / factor,
    }.get(str(attrs.coordinate_transformation_mode))
    return source is not None and bool((rounding(source) == out // factor).all())


_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round": lambda x: np.rint(x),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x),
}


def resize_to_one(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """With aligned corners TVM divides by a size less one; one row is the first of two."""
    attrs, layout, shape = call.attrs, str(call.attrs.layout), known_shape(call.ty)
    if str(attrs.coordinate_transformation_mode) != "align_corners" or shape is None:
        return None
    axes = [layout.index(axis) for axis in "HW"] if len(layout) == len(shape) else []
    ones = [axis for axis in axes if shape[axis] == 1]
    if not ones:
        return None
    wider = relax.op.image.resize2d(
        call.args[0],
        relax.ShapeExpr([max(shape[axis], 2) for axis in axes]),
        roi=[float(edge) for edge in attrs.roi],
        layout=layout,
        method=attrs.method,
        coordinate_transformation_mode=attrs.coordinate_transformation_mode,
        rounding_method=attrs.rounding_method,
        cubic_alpha=attrs.cubic_alpha,
        cubic_exclude=attrs.cubic_exclude,
        extrapolation_value=attrs.extrapolation_value,
        out_dtype=attrs.out_dtype,
    )
    data = rewriter.as_variable(wider, f"{rewriter.name}{SEPARATOR}resize2d")
    return relax.op.strided_slice(data, ones, [0] * len(ones), [1] * len(ones))


# ---------------------------------------------------------------- clamps
def merge_clamps(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """relu(relu(x)) and clip(relu(x)): a bound that the inner clamp implies goes away."""
    interval = interval_of_call(call)
    inner = rewriter.producer(call.args[0])
    implied = interval_of_call(inner) if isinstance(inner, Call) else None
    if interval is None or implied is None or not _same_type(call, call.args[0]):
        return None
    is_implied = interval[0] <= implied[0] and implied[1] <= interval[1]
    return call.args[0] if is_implied else None


RULES: dict[str, Sequence[Rule]] = {
    **{name: (drop_identity, merge_reshapes) for name in RESHAPES},
    **{name: (constant_last,) for name in COMMUTATIVE},
    "relax.add": (constant_last, merge_additions),
    "relax.broadcast_to": (drop_identity,),
    "relax.split": (split_as_slices,),
    "relax.strided_slice": (drop_identity,),
    "relax.astype": (drop_identity,),
    "relax.nn.pad": (drop_identity,),
    "relax.concat": (drop_single_concat,),
    "relax.permute_dims": (drop_identity, merge_permutations, hoist_permutation),
    **{name: (pad_into_convolution,) for name in _CONVOLUTIONS},
    "relax.nn.avg_pool2d": (mean_of_whole_plane,),
    "relax.nn.adaptive_avg_pool2d": (mean_of_whole_plane,),
    "relax.image.resize2d": (nearest_as_repeat, resize_to_one),
    "relax.nn.relu": (merge_clamps,),
    "relax.nn.relu6": (merge_clamps,),
    "relax.clip": (merge_clamps,),
    "relax.maximum": (constant_last, merge_clamps),
    "relax.minimum": (constant_last, merge_clamps),
}
"""Operator -> its rules, in the order in which they are tried."""


def normalize(mod: tvm.IRModule) -> tvm.IRModule:
    """Apply the rules to `main`, fold constants and batch normalization, until nothing changes;
    remove what nobody reads."""
    mod, before = fold_floats(_rewritten(mod)), 0
    while (count := len(straight_bindings(mod["main"]))) != before:
        mod, before = fold_batch_norm(_rewritten(mod)), count
    return mod


def _rewritten(mod: tvm.IRModule) -> tvm.IRModule:
    mod = merge_repeated(with_main(mod, Rewriter(mod["main"], _rules).run()))
    return relax.transform.DeadCodeElimination()(mod)


def _rules(name: str) -> tuple[Rule, ...]:
    tables = (QDQ_RULES, RULES, AXIS_RULES, MOVE_RULES)
    return (fold_constant, *(rule for table in tables for rule in table.get(name, ())))
