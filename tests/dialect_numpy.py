"""The integer dialect in NumPy: slow, obvious, and strict about overflow.

A second opinion on modules that `quantize` writes. Every integer result is computed in int64 and
must fit the dtype that the module declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst, Tuple, TupleGetItem

from vta_byoc.bindings import op_name, static_shape, straight_bindings


def run(mod: tvm.IRModule, *inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Every variable of `main` by name; the result of `main` as "result"."""
    main = mod["main"]
    env: dict[Any, Any] = dict(zip(main.params, inputs, strict=True))
    for binding in straight_bindings(main):
        value = _value(binding.value, env)
        if isinstance(binding.var.ty, relax.TensorType):
            value = _fitted(np.asarray(value), str(binding.var.ty.dtype))
            assert value.shape == static_shape(binding.var), binding.var.name
        env[binding.var] = value
    named = {var.name: value for var, value in env.items()}
    return {**named, "result": _value(main.body.body, env)}


def _fitted(value: np.ndarray, dtype: str) -> np.ndarray:
    if dtype.startswith("int"):
        limits = np.iinfo(dtype)
        assert value.size == 0 or limits.min <= value.min() <= value.max() <= limits.max
    return value.astype(dtype)


def _value(expr: Any, env: dict[Any, Any]) -> Any:
    if isinstance(expr, GenericConst):
        return expr.value.numpy()
    if isinstance(expr, relax.ShapeExpr):
        return tuple(int(dim) for dim in expr.values)
    if isinstance(expr, Tuple):
        return [_value(field, env) for field in expr.fields]
    if isinstance(expr, TupleGetItem):
        return _value(expr.tuple_value, env)[expr.index]
    if isinstance(expr, relax.Call):
        args = [_value(arg, env) for arg in expr.args]
        wide = [_wide(arg) for arg in args]
        return OPS[op_name(expr).removeprefix("relax.")](expr.attrs, *wide)
    return env[expr] if isinstance(expr, relax.Var) else expr.value


def _wide(arg: Any) -> Any:
    if isinstance(arg, np.ndarray) and arg.dtype.kind == "i":
        return arg.astype("int64")
    return [_wide(item) for item in arg] if isinstance(arg, list) else arg


def _conv2d(attrs: Any, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    (sh, sw), (dh, dw) = attrs.strides, attrs.dilation
    kh, kw = w.shape[2:]
    rows = (x.shape[2] - (kh - 1) * dh - 1) // sh + 1
    columns = (x.shape[3] - (kw - 1) * dw - 1) // sw + 1
    groups, per_group = int(attrs.groups), w.shape[0] // int(attrs.groups)
    out = np.zeros((x.shape[0], w.shape[0], rows, columns), x.dtype)
    for o in range(w.shape[0]):
        first = o // per_group * w.shape[1]
        data = x[:, first : first + x.shape[1] // groups]
        for r in range(kh):
            for s in range(kw):
                window = data[:, :, r * dh :, s * dw :][:, :, ::sh, ::sw][:, :, :rows, :columns]
                out[:, o] += np.einsum("nchw,c->nhw", window, w[o, :, r, s])
    return out


def _max_pool2d(attrs: Any, x: np.ndarray) -> np.ndarray:
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=-128)
    (kh, kw), (sh, sw) = attrs.pool_size, attrs.strides
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))
    return windows[:, :, ::sh, ::sw].max(axis=(4, 5))


def _slice(x: np.ndarray, axes: list[int], begin: list[int], end: list[int]) -> np.ndarray:
    for axis, first, last in zip(axes, begin, end, strict=True):
        x = x.take(range(first, last), axis=axis)
    return x


def _axes(attrs: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in attrs.axis)


OPS: dict[str, Callable[..., Any]] = {
    "quantize": lambda a, x, scale, zero: np.clip(np.rint(x / scale), -128, 127),
    "dequantize": lambda a, x, scale, zero: np.float32(x) * scale,
    "nn.conv2d": _conv2d,
    "matmul": lambda a, x, w: x @ w,
    "add": lambda a, x, y: x + y,
    "multiply": lambda a, x, y: x * y,
    "left_shift": lambda a, x, y: x * 2**y,
    "right_shift": lambda a, x, y: np.floor_divide(x, 2**y),
    "maximum": lambda a, x, y: np.maximum(x, y),
    "minimum": lambda a, x, y: np.minimum(x, y),
    "astype": lambda a, x: x,
    "sum": lambda a, x: x.sum(axis=_axes(a), keepdims=bool(a.keepdims)),
    "nn.max_pool2d": _max_pool2d,
    "reshape": lambda a, x, shape: x.reshape(shape),
    "concat": lambda a, parts: np.concatenate(parts, axis=int(a.axis)),
    "permute_dims": lambda a, x: x.transpose(_axes(a)),
    "split": lambda a, x: np.split(x, int(a.indices_or_sections), axis=int(a.axis)),
    "strided_slice": lambda a, x, axes, begin, end: _slice(x, axes, begin, end),
    # Float islands of the tests.
    "abs": lambda a, x: np.abs(x),
    "nn.relu": lambda a, x: np.maximum(x, 0),
    "mean": lambda a, x: x.mean(axis=_axes(a), keepdims=bool(a.keepdims)),
}
