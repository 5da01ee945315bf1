"""The integer dialect in NumPy: slow, obvious, and strict about overflow.

A second opinion on modules that `quantize` writes. Every integer result is computed in int64 and
must fit the dtype that the module declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst, Tuple, TupleGetItem

from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings


def run(mod: tvm.IRModule, *inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Every variable of `main` by name; the result of `main` as "result"."""
    env = all_values(mod, *inputs)
    named = {var.name: value for var, value in env.items()}
    return {**named, "result": value_of(mod["main"].body.body, env)}


def all_values(mod: tvm.IRModule, *inputs: np.ndarray) -> dict[Any, Any]:
    """Every variable of `main`."""
    main = mod["main"]
    env: dict[Any, Any] = dict(zip(main.params, inputs, strict=True))
    for binding in straight_bindings(main):
        value = value_of(binding.value, env)
        if isinstance(binding.var.ty, relax.TensorType):
            value = _fitted(np.asarray(value), str(binding.var.ty.dtype))
            assert value.shape == static_shape(binding.var), binding.var.name
        env[binding.var] = value
    return env


def _fitted(value: np.ndarray, dtype: str) -> np.ndarray:
    if dtype.startswith("int"):
        limits = np.iinfo(dtype)
        assert value.size == 0 or limits.min <= value.min() <= value.max() <= limits.max
    return value.astype(dtype)


def value_of(expr: Any, env: dict[Any, Any]) -> Any:
    """The value of an expression whose variables ``env`` has."""
    if isinstance(expr, GenericConst):
        return expr.value.numpy()
    if isinstance(expr, relax.ShapeExpr):
        return tuple(int(dim) for dim in expr.values)
    if isinstance(expr, Tuple):
        return [value_of(field, env) for field in expr.fields]
    if isinstance(expr, TupleGetItem):
        return value_of(expr.tuple_value, env)[expr.index]
    if isinstance(expr, relax.Call):
        args = [value_of(arg, env) for arg in expr.args]
        wide = [_wide(arg) for arg in args]
        return OPS[op_name(expr).removeprefix("relax.")](expr.attrs, *wide)
    return env[expr] if isinstance(expr, relax.Var) else expr.value


def _wide(arg: Any) -> Any:
    """Integers as int64. Floats in memory order: numpy adds them up in the order they lie in."""
    if isinstance(arg, np.ndarray) and arg.dtype.kind == "f":
        return np.asarray(arg, order="C")
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


def _conv1d(attrs: Any, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    left, right = (int(pad) for pad in attrs.padding)
    (stride,), (dilation,), size = attrs.strides, attrs.dilation, w.shape[2]
    x = np.pad(x, [(0, 0), (0, 0), (left, right)])
    width = (x.shape[2] - (size - 1) * dilation - 1) // stride + 1
    groups = int(attrs.groups)
    out = np.zeros((x.shape[0], w.shape[0], width), x.dtype)
    for o in range(w.shape[0]):
        first = o // (w.shape[0] // groups) * w.shape[1]
        for column in range(width):
            window = x[:, first : first + w.shape[1], column * stride :: dilation][:, :, :size]
            out[:, o, column] = (window * w[o]).sum(axis=(1, 2))
    return out


def _conv2d_transpose(attrs: Any, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Every input element adds its multiple of the kernel to the result, which is then cropped."""
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    (sh, sw), (dh, dw), (oh, ow) = attrs.strides, attrs.dilation, attrs.output_padding
    batch, channels, height, width = x.shape
    _, per_group, kh, kw = w.shape
    groups = int(attrs.groups)
    rows, columns = (height - 1) * sh + (kh - 1) * dh + 1, (width - 1) * sw + (kw - 1) * dw + 1
    out = np.zeros((batch, groups * per_group, rows + oh, columns + ow), x.dtype)
    for i in range(channels):
        first = i // (channels // groups) * per_group
        for r in range(kh):
            for s in range(kw):
                target = out[:, first : first + per_group, r * dh :: sh, s * dw :: sw]
                product = x[:, i : i + 1] * w[i, :, r, s].reshape(1, -1, 1, 1)
                target[:, :, :height, :width] += product
    return out[:, :, top : rows + oh - bottom, left : columns + ow - right]


def _max_pool2d(attrs: Any, x: np.ndarray) -> np.ndarray:
    """Ceil mode: one more window where it begins before the padding at the end."""
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    (sh, sw), (dh, dw) = attrs.strides, attrs.dilation
    kh, kw = ((int(k) - 1) * int(d) + 1 for k, d in zip(attrs.pool_size, (dh, dw), strict=True))
    ends = [bottom, right]
    for axis, (before, extent, stride) in enumerate(((top, kh, sh), (left, kw, sw))):
        size = x.shape[2 + axis]
        rest = (size + before + ends[axis] - extent) % stride
        more = stride - rest
        if attrs.ceil_mode and rest and size + ends[axis] + more - extent < size:
            ends[axis] += more
    edges = [(0, 0), (0, 0), (top, ends[0]), (left, ends[1])]
    x = np.pad(x, edges, constant_values=-np.inf if x.dtype.kind == "f" else -128)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))
    return windows[:, :, ::sh, ::sw, ::dh, ::dw].max(axis=(4, 5))


def _avg_pool2d(attrs: Any, x: np.ndarray) -> np.ndarray:
    """Window by window, in float; ceil mode adds a window that begins before the end padding."""
    top, left, bottom, right = (int(pad) for pad in attrs.padding)
    height, width = x.shape[2:]
    sizes = []
    for axis, whole in enumerate((height + top + bottom, width + left + right)):
        extent = (int(attrs.pool_size[axis]) - 1) * int(attrs.dilation[axis]) + 1
        steps = (whole - extent) / int(attrs.strides[axis])
        last = int(np.ceil(steps) if attrs.ceil_mode else np.floor(steps))
        end = x.shape[2 + axis] + (top, left)[axis]
        sizes.append(last + (last * int(attrs.strides[axis]) < end))
    out = np.zeros((*x.shape[:2], *sizes), x.dtype)
    for row, column in np.ndindex(*sizes):
        ys, xs = (
            np.arange(int(size)) * int(d) + place * int(stride) - edge
            for size, d, place, stride, edge in zip(
                attrs.pool_size, attrs.dilation, (row, column), attrs.strides, (top, left),
                strict=True,
            )
        )  # fmt: skip
        inside = x[:, :, ys[(ys >= 0) & (ys < height)]][:, :, :, xs[(xs >= 0) & (xs < width)]]
        whole = ys.size * xs.size
        count = whole if attrs.count_include_pad else max(inside.shape[2] * inside.shape[3], 1)
        out[:, :, row, column] = inside.sum(axis=(2, 3)) / count
    return out


def _slice(
    x: np.ndarray, axes: list[int], begin: list[int], end: list[int], strides: Any = None
) -> np.ndarray:
    for axis, first, last, step in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        x = x.take(range(first, last, step), axis=axis)
    return x


def _sections(value: Any) -> int | list[int]:
    """How many equal parts, or where to cut."""
    return int(value) if isinstance(value, int | tvm.tirx.IntImm) else [int(v) for v in value]


def _pad(attrs: Any, x: np.ndarray) -> np.ndarray:
    widths = np.reshape([int(width) for width in attrs.pad_width], (-1, 2))
    return np.pad(x, widths, constant_values=float(attrs.pad_value))


def _softmax(attrs: Any, x: np.ndarray) -> np.ndarray:
    axis = int(attrs.axis)
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _quantize(dtype: str, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Half to even; saturates."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x / scale) + zero, limits.min, limits.max)


def _dequantize(axis: int, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Scale and zero point of all values, or of each index along ``axis``."""
    shape = [-1 if scale.size > 1 and i == axis else 1 for i in range(x.ndim)]
    return np.float32(np.int64(x) - zero.reshape(shape)) * scale.reshape(shape)


def _axes(attrs: Any) -> tuple[int, ...]:
    return tuple(int(axis) for axis in attrs.axis)


OPS: dict[str, Callable[..., Any]] = {
    "quantize": lambda a, x, scale, zero: _quantize(str(a.out_dtype), x, scale, zero),
    "dequantize": lambda a, x, *params: _dequantize(int(a.axis), x, *params),
    "nn.conv1d": _conv1d,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
    "matmul": lambda a, x, w: x @ w,
    "add": lambda a, x, y: x + y,
    "subtract": lambda a, x, y: x - y,
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
    "permute_dims": lambda a, x: x.transpose([int(axis) for axis in a.axes]),
    "split": lambda a, x: np.split(x, _sections(a.indices_or_sections), axis=int(a.axis)),
    "strided_slice": lambda a, x, *where: _slice(x, *where),
    "repeat": lambda a, x: np.repeat(x, int(a.repeats), axis=int(a.axis)),
    "flip": lambda a, x: np.flip(x, int(a.axis)),
    "take": lambda a, x, indices: np.take(x, indices, axis=int(a.axis)),
    "nn.pad": _pad,
    "expand_dims": lambda a, x: np.expand_dims(x, _axes(a)),
    # Float islands of the tests.
    "abs": lambda a, x: np.abs(x),
    "nn.relu": lambda a, x: np.maximum(x, 0),
    "clip": lambda a, x, low, high: np.clip(x, low, high),
    "nn.avg_pool2d": _avg_pool2d,
    "nn.leakyrelu": lambda a, x: np.where(x > 0, x, x * np.float32(a.alpha)),
    "nn.prelu": lambda a, x, s: np.where(x > 0, x, x * s.reshape(-1, *[1] * (3 - int(a.axis)))),
    "divide": lambda a, x, y: x / y,
    "negative": lambda a, x: -x,
    "tanh": lambda a, x: np.tanh(x),
    "mean": lambda a, x: x.mean(axis=_axes(a), keepdims=bool(a.keepdims)),
    "max": lambda a, x: x.max(axis=_axes(a), keepdims=bool(a.keepdims)),
    "exp": lambda a, x: np.exp(x),
    "log": lambda a, x: np.log(x),
    "sqrt": lambda a, x: np.sqrt(x),
    "sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
    "erf": lambda a, x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "nn.softmax": _softmax,
    "nn.softplus": lambda a, x: np.logaddexp(0, x),
}
