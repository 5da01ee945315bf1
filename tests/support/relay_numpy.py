"""Relay computed with NumPy, operator by operator: a second opinion of the reader.

It shares the parser with the reader, nothing else.  Integers are exact and wrap as their types do;
sums of floats are made in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from relay_numpy_layers import LAYERS
from relay_numpy_qnn import QNN
from relay_numpy_reductions import REDUCTIONS

from vta_byoc.importers.relay import graph

Attrs = Mapping[str, Any]
Compute = Callable[[Sequence[Any], Attrs], Any]


def evaluate(
    module: graph.Module, feed: Mapping[str, np.ndarray], seen: dict[int, Any] | None = None
) -> list[np.ndarray]:
    """The results of `main`; `seen` gets every value by the `id` of its expression."""
    main = module.functions["main"]
    env = {id(param): feed[param.name] for param in main.params}
    with np.errstate(all="ignore"):
        return _flat(_body(module, main, env, seen))


def _flat(value: Any) -> list[np.ndarray]:
    return [v for item in value for v in _flat(item)] if isinstance(value, tuple) else [value]


def _body(module: graph.Module, function: graph.Function, env: dict[int, Any], seen: Any) -> Any:
    for expr in graph.in_order(function.body):
        if id(expr) not in env:
            env[id(expr)] = _value(module, expr, env, seen)
            if seen is not None:
                seen[id(expr)] = env[id(expr)]
    return env[id(function.body)]


def _value(module: graph.Module, expr: graph.Expr, env: dict[int, Any], seen: Any) -> Any:
    if isinstance(expr, graph.Constant):
        return expr.array
    if isinstance(expr, graph.Tuple):
        return tuple(env[id(item)] for item in expr.fields)
    if isinstance(expr, graph.Projection):
        return env[id(expr.value)][expr.index]
    if not isinstance(expr, graph.Call):
        return None
    args = [env[id(arg)] for arg in expr.args]
    if isinstance(expr.op, str):
        return OPERATORS[expr.op](args, expr.attrs)
    callee = module.functions[expr.op.name] if isinstance(expr.op, graph.GlobalName) else expr.op
    inner = {id(p): a for p, a in zip(callee.params, args, strict=True)}
    return _body(module, callee, inner, seen)


# ---------------------------------------------------------------- elementwise
def _unary(function: Callable[[np.ndarray], np.ndarray]) -> Compute:
    return lambda x, a: np.asarray(function(x[0])).astype(x[0].dtype)


def _binary(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Compute:
    return lambda x, a: np.asarray(function(*x)).astype(x[0].dtype)


def _compare(function: Callable[..., np.ndarray]) -> Compute:
    return lambda x, a: np.asarray(function(*x))


def _divide(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    if x[0].dtype.kind == "f":
        return x[0] / x[1]
    quotient = np.abs(x[0].astype("int64")) // np.abs(x[1].astype("int64"))
    return (quotient * np.sign(x[0]) * np.sign(x[1])).astype(x[0].dtype)


def half_away(x: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    wide = x.astype("float64")
    return np.sign(wide) * np.floor(np.abs(wide) + 0.5)


def _clip(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    low, high = float(a.get("a_min", 0)), float(a.get("a_max", 0))
    if x[0].dtype.kind == "f":
        return np.maximum(np.minimum(x[0], np.float32(high)), np.float32(low))
    wide = x[0].astype("int64")
    return np.maximum(np.minimum(wide, math.trunc(high)), math.trunc(low)).astype(x[0].dtype)


def _cast(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return x[0].astype(a["dtype"])


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)


def _prelu(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis = a.get("axis", 1)
    slope = x[1].reshape([-1 if i == axis else 1 for i in range(x[0].ndim)])
    return np.where(x[0] > 0, x[0], x[0] * slope)


def _fixed_point(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    right = 31 - a["shift"]
    wide = x[0].astype("int64") * a["multiplier"]
    return ((wide + (1 << (right - 1))) >> right).astype(x[0].dtype)


# ---------------------------------------------------------------- movement
def _reshape(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    asked, old, new, at = list(a["newshape"]), list(x[0].shape), [], 0
    if a.get("reverse"):
        turned = _reshape([np.empty(old[::-1])], {"newshape": asked[::-1]})
        return x[0].reshape(turned.shape[::-1])
    while asked:
        item = asked.pop(0)
        if item == 0:
            item = old[at]
        elif item == -2:
            new += old[at:]
            at = len(old)
            continue
        elif item == -3:
            item = old[at] * old[at + 1]
            at += 1
        elif item == -4:
            left, right = asked.pop(0), asked.pop(0)
            left = old[at] // right if left == -1 else left
            right = old[at] // left if right == -1 else right
            new.append(left)
            item = right
        new.append(item)
        at += 1
    return x[0].reshape(new)


def _expand_dims(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    value = x[0]
    for _ in range(a.get("num_newaxis", 1)):
        value = np.expand_dims(value, a["axis"])
    return value


def _slice(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    begin, end, strides = a["begin"], a["end"], a.get("strides", [1])
    strides = list(strides) * len(begin) if len(strides) == 1 else strides
    cut = [slice(None)] * x[0].ndim
    axes = a.get("axes") or range(len(begin))
    for axis, b, e, s in zip(axes, begin, end, strides, strict=True):
        if a.get("slice_mode") == "size":
            b = b % x[0].shape[axis]
            e, s = (x[0].shape[axis] if e == -1 else b + e), 1
        indices = list(range(*slice(b, e, s).indices(x[0].shape[axis])))
        cut[axis] = slice(None)
        x = [np.take(x[0], indices, axis)]
    return x[0]


def _split(x: Sequence[np.ndarray], a: Attrs) -> tuple[np.ndarray, ...]:
    return tuple(np.split(x[0], a["indices_or_sections"], a.get("axis", 0)))


def _take(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    mode = {"fast": "raise"}.get(a.get("mode", "clip"), a.get("mode", "clip"))
    return np.take(x[0], x[1], a.get("axis"), mode=mode)


def _pad(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    mode = a.get("pad_mode", "constant")
    if mode != "constant":
        return np.pad(x[0], a["pad_width"], mode)
    value = x[1] if len(x) > 1 else a.get("pad_value", 0.0)
    return np.pad(x[0], a["pad_width"], constant_values=value)


def _mirror_pad(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return np.pad(x[0], a["pad_width"], a.get("mode", "SYMMETRIC").lower())


def _depth_to_space(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    last, block = a.get("layout", "NCHW") == "NHWC", a["block_size"]
    data = np.moveaxis(x[0], 3, 1) if last else x[0]
    n, c, h, w = data.shape
    out = np.empty((n, c // block**2, h * block, w * block), data.dtype)
    depth = c // block**2
    for channel in range(depth):
        for row in range(block):
            for column in range(block):
                place = row * block + column
                crd = a.get("mode", "DCR") == "CRD"
                source = channel * block**2 + place if crd else place * depth + channel
                out[:, channel, row::block, column::block] = data[:, source]
    return np.moveaxis(out, 1, 3) if last else out


def _space_to_depth(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    last, block = a.get("layout", "NCHW") == "NHWC", a["block_size"]
    data = np.moveaxis(x[0], 3, 1) if last else x[0]
    parts = [data[:, :, r::block, c::block] for r in range(block) for c in range(block)]
    out = np.concatenate(parts, 1)
    return np.moveaxis(out, 1, 3) if last else out


def _one_hot(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis = a.get("axis", -1)
    axis = x[0].ndim if axis == -1 else axis
    hit = np.stack([x[0] == k for k in range(a["depth"])], axis)
    return np.where(hit, x[1], x[2]).astype(a["dtype"])


def _gather_nd(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    if not a.get("batch_dims"):
        return x[0][tuple(x[1])]
    rows = [x[0][n][tuple(x[1][:, n])] for n in range(x[0].shape[0])]
    return np.stack(rows)


def _topk(x: Sequence[np.ndarray], a: Attrs) -> Any:
    axis, k = a.get("axis", -1), a.get("k", 1)
    sign = 1 if a.get("is_ascend") else -1
    order = np.argsort(sign * x[0], axis, kind="stable")
    order = np.take(order, range(k if k > 0 else x[0].shape[axis]), axis)
    values = np.take_along_axis(x[0], order, axis)
    kinds = {"values": values, "indices": order.astype(a.get("dtype", "int32"))}
    both = (values, order.astype(a.get("dtype", "int32")))
    return kinds.get(a.get("ret_type", "both"), both)


def _argsort(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    sign = 1 if a.get("is_ascend", True) else -1
    order = np.argsort(sign * x[0], a.get("axis", -1), kind="stable")
    return order.astype(a.get("dtype") or "int32")


def _sort(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    value = np.sort(x[0], a.get("axis", -1))
    return value if a.get("is_ascend", True) else np.flip(value, a.get("axis", -1))


def _cumsum(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis = a.get("axis")
    data = x[0].reshape(-1) if axis is None else x[0]
    total = np.cumsum(data, axis or 0, dtype="float64" if data.dtype.kind == "f" else None)
    total = total - data if a.get("exclusive") else total
    return total.astype(a.get("dtype") or x[0].dtype)


def _slice_like(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axes = a.get("axes") or range(x[1].ndim)
    value = x[0]
    for axis in axes:
        value = np.take(value, range(x[1].shape[axis]), axis)
    return value


def _layout_transform(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return np.einsum(f"{a['src_layout']}->{a['dst_layout']}", x[0])


def _full(value: float | None) -> Compute:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        fill = x[0] if value is None else value
        return np.full(a["shape"], fill, a.get("dtype") or "float32")

    return compute


_FLOATS = ("abs", "ceil", "exp", "floor", "log", "negative", "sign", "sqrt", "tanh", "trunc")
_MORE = ("sin", "cos", "tan", "sinh", "cosh", "log2", "log10")
_INVERSE = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh}
OPERATORS: dict[str, Compute] = {
    **LAYERS,
    **QNN,
    **REDUCTIONS,
    **{n: _unary(getattr(np, n)) for n in (*_FLOATS, *_MORE)},
    **{n: _unary(f) for n, f in {**_INVERSE, "acosh": np.arccosh, "atanh": np.arctanh}.items()},
    **{n: _unary(np.exp) for n in ("fast_exp",)},
    **{n: _unary(np.tanh) for n in ("fast_tanh",)},
    **{n: _unary(_erf) for n in ("erf", "fast_erf")},
    "rsqrt": _unary(lambda x: 1 / np.sqrt(x)),
    "sigmoid": _unary(lambda x: 1 / (1 + np.exp(-x.astype("float64")))),
    "round": _unary(half_away),
    "logical_not": _compare(np.logical_not),
    "bitwise_not": _unary(np.invert),
    "isnan": _compare(np.isnan),
    "isfinite": _compare(np.isfinite),
    "isinf": _compare(np.isinf),
    **{n: _binary(getattr(np, n)) for n in ("add", "subtract", "multiply", "maximum", "minimum")},
    **{n: _binary(getattr(np, n)) for n in ("power", "floor_divide", "left_shift", "right_shift")},
    **{n: _binary(getattr(np, n)) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{n: _compare(getattr(np, n)) for n in ("equal", "not_equal", "less", "less_equal")},
    **{n: _compare(getattr(np, n)) for n in ("greater", "greater_equal", "logical_and")},
    **{n: _compare(getattr(np, n)) for n in ("logical_or", "logical_xor")},
    "divide": _divide,
    "mod": _binary(np.fmod),
    "floor_mod": _binary(np.mod),
    "clip": _clip,
    "cast": _cast,
    "cast_like": lambda x, a: x[0].astype(x[1].dtype),
    "where": lambda x, a: np.where(x[0] != 0, x[1], x[2]),
    "fixed_point_multiply": _fixed_point,
    "nn.relu": lambda x, a: np.maximum(x[0], np.zeros((), x[0].dtype)),
    "nn.leaky_relu": lambda x, a: np.where(x[0] > 0, x[0], x[0] * np.float32(a.get("alpha", 0.25))),
    "nn.prelu": _prelu,
    **{
        n: lambda x, a: x[0]
        for n in ("copy", "on_device", "annotation.stop_fusion", "annotation.cast_hint",
                  "annotation.compiler_begin", "annotation.compiler_end", "annotation.checkpoint",
                  "annotation.bitpack_start", "annotation.bitpack_end")
    },
    "reshape": _reshape,
    "contrib_reverse_reshape": lambda x, a: _reshape(x, {**a, "reverse": True}),
    "reshape_like": lambda x, a: x[0].reshape(x[1].shape),
    "squeeze": lambda x, a: np.squeeze(x[0], None if a.get("axis") is None else tuple(a["axis"])),
    "expand_dims": _expand_dims,
    "transpose": lambda x, a: np.transpose(x[0], a.get("axes")),
    "nn.batch_flatten": lambda x, a: x[0].reshape(len(x[0]), -1),
    "layout_transform": _layout_transform,
    "broadcast_to": lambda x, a: np.broadcast_to(x[0], a["shape"]),
    "broadcast_to_like": lambda x, a: np.broadcast_to(x[0], x[1].shape),
    "concatenate": lambda x, a: np.concatenate(x[0], a.get("axis", 0)),
    "stack": lambda x, a: np.stack(x[0], a.get("axis", 0)),
    "split": _split,
    "strided_slice": _slice,
    "slice_like": _slice_like,
    "tile": lambda x, a: np.tile(x[0], a["reps"]),
    "repeat": lambda x, a: np.repeat(x[0], a["repeats"], a["axis"]),
    "reverse": lambda x, a: np.flip(x[0], a["axis"]),
    "nn.pad": _pad,
    "nn.mirror_pad": _mirror_pad,
    "nn.depth_to_space": _depth_to_space,
    "nn.space_to_depth": _space_to_depth,
    "take": _take,
    "gather": lambda x, a: np.take_along_axis(x[0], x[1], a.get("axis", 0)),
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "topk": _topk,
    "argsort": _argsort,
    "sort": _sort,
    "cumsum": _cumsum,
    "full": _full(None),
    "zeros": _full(0.0),
    "ones": _full(1.0),
    "full_like": lambda x, a: np.full_like(x[0], x[1]),
    "zeros_like": lambda x, a: np.zeros_like(x[0]),
    "ones_like": lambda x, a: np.ones_like(x[0]),
    "arange": lambda x, a: np.arange(*(v.item() for v in x)).astype(a["dtype"]),
    "shape_of": lambda x, a: np.array(x[0].shape, a.get("dtype") or "int32"),
    "ndarray_size": lambda x, a: np.array(x[0].size, a.get("dtype") or "int32"),
}  # fmt: skip
"""Relay's name -> (operands, stated attributes) -> the value."""
