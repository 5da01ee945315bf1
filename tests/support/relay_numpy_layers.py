"""Layers, pooling and resizing of Relay computed with NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def listed(value: Any, count: int) -> list[int]:
    """One number for each axis."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


def edges(a: Attrs, axes: int) -> list[tuple[int, int]]:
    """Padding before and behind each axis."""
    pads = listed(a.get("padding", [0] * axes), axes)
    pads = pads * 2 if len(pads) == axes else pads
    return list(zip(pads[:axes], pads[axes:], strict=True))


def wide(x: np.ndarray) -> np.ndarray:
    """For sums: float64, or int64."""
    return x.astype("float64" if x.dtype.kind == "f" else "int64")


def planes_first(x: np.ndarray, layout: str, target: str) -> np.ndarray:
    """The axes of `layout` in the order of `target`."""
    return x.transpose([layout.index(axis) for axis in target])


def conv(axes: int) -> Callable[[Sequence[np.ndarray], Attrs], np.ndarray]:
    """A convolution: a sum over the positions of the kernel."""
    space = "DHW"[3 - axes :]

    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        layout = a.get("data_layout", "NC" + space)
        kernel = a.get("kernel_layout", "OI" + space)
        data = planes_first(wide(x[0]), layout, "NC" + space)
        weight = planes_first(wide(x[1]), kernel, "OI" + space)
        groups, strides = a.get("groups", 1), listed(a.get("strides", [1] * axes), axes)
        dilation = listed(a.get("dilation", [1] * axes), axes)
        data = np.pad(data, [(0, 0), (0, 0), *edges(a, axes)])
        sizes = [
            (data.shape[2 + i] - (weight.shape[2 + i] - 1) * dilation[i] - 1) // strides[i] + 1
            for i in range(axes)
        ]
        out = np.zeros((data.shape[0], weight.shape[0], *sizes), data.dtype)
        per = weight.shape[0] // groups
        for at in itertools.product(*(range(k) for k in weight.shape[2:])):
            cut = tuple(
                slice(at[i] * dilation[i], at[i] * dilation[i] + sizes[i] * strides[i], strides[i])
                for i in range(axes)
            )
            part = data[(slice(None), slice(None), *cut)]
            part = part[tuple([slice(None)] * 2 + [slice(s) for s in sizes])]
            for g in range(groups):
                inputs = part[:, g * weight.shape[1] : (g + 1) * weight.shape[1]]
                factors = weight[(slice(g * per, (g + 1) * per), slice(None), *at)]
                out[:, g * per : (g + 1) * per] += np.einsum("nc...,oc->no...", inputs, factors)
        result = planes_first(out, "NC" + space, layout)
        return result.astype(a.get("out_dtype") or x[0].dtype)

    return compute


def conv_transpose(axes: int) -> Callable[[Sequence[np.ndarray], Attrs], np.ndarray]:
    """A transposed convolution: every input is spread over its window."""
    space = "DHW"[3 - axes :]

    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        layout = a.get("data_layout", "NC" + space)
        data = planes_first(wide(x[0]), layout, "NC" + space)
        weight = planes_first(wide(x[1]), a.get("kernel_layout", "IO" + space), "IO" + space)
        groups, strides = a.get("groups", 1), listed(a.get("strides", [1] * axes), axes)
        extra = listed(a.get("output_padding", [0] * axes), axes)
        n, channels, *plane = data.shape
        per_in, per_out, *kernel = channels // groups, *weight.shape[1:]
        whole = [(plane[i] - 1) * strides[i] + kernel[i] + extra[i] for i in range(axes)]
        out = np.zeros((n, per_out * groups, *whole), data.dtype)
        for at in itertools.product(*(range(k) for k in kernel)):
            cut = tuple(
                slice(at[i], at[i] + plane[i] * strides[i], strides[i]) for i in range(axes)
            )
            for g in range(groups):
                inputs = data[:, g * per_in : (g + 1) * per_in]
                factors = weight[(slice(g * per_in, (g + 1) * per_in), slice(None), *at)]
                place = (slice(None), slice(g * per_out, (g + 1) * per_out), *cut)
                part = np.einsum("nc...,co->no...", inputs, factors)
                room = out[place].shape[2:]
                out[place] += part[(slice(None), slice(None), *(slice(r) for r in room))]
        pads = edges(a, axes)
        kept = tuple(slice(b, size - e) for (b, e), size in zip(pads, whole, strict=True))
        result = planes_first(out[(slice(None), slice(None), *kept)], "NC" + space, layout)
        return result.astype(a.get("out_dtype") or x[0].dtype)

    return compute


def dense(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    """Rows times the transposed weights."""
    return (wide(x[0]) @ wide(x[1]).T).astype(a.get("out_dtype") or x[0].dtype)


def _matmul(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    left = wide(x[0]).swapaxes(-1, -2) if a.get("transpose_a") else wide(x[0])
    right = wide(x[1]).swapaxes(-1, -2) if a.get("transpose_b") else wide(x[1])
    if "transpose_b" not in a and right.shape[-2] != left.shape[-1]:
        right = right.swapaxes(-1, -2)
    return (left @ right).astype(a.get("out_dtype") or x[0].dtype)


def _pool(axes: int, average: bool) -> Callable[[Sequence[np.ndarray], Attrs], np.ndarray]:
    space = "DHW"[3 - axes :]

    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        layout = a.get("layout", "NC" + space)
        data = planes_first(x[0], layout, "NC" + space)
        size = listed(a["pool_size"], axes)
        strides = listed(a.get("strides", [1] * axes), axes)
        dilation = listed(a.get("dilation", [1] * axes), axes)
        pads, plane = edges(a, axes), data.shape[2:]
        rounded = math.ceil if a.get("ceil_mode") else math.floor
        reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
        outs = [rounded((plane[i] + sum(pads[i]) - reach[i]) / strides[i]) + 1
                for i in range(axes)]  # fmt: skip
        result = np.zeros((*data.shape[:2], *outs), wide(data).dtype)
        for at in itertools.product(*(range(o) for o in outs)):
            result[(..., *at)] = _window(data, at, a, average, size, strides, dilation, pads)
        moved = planes_first(result, "NC" + space, layout)
        return moved.astype(x[0].dtype)

    return compute


def _window(data: np.ndarray, at: Sequence[int], a: Attrs, average: bool, size: Sequence[int],
            strides: Sequence[int], dilation: Sequence[int],
            pads: Sequence[tuple[int, int]]) -> np.ndarray:  # fmt: skip
    """One result of a pooling for all images and channels."""
    plane, indices, counted = data.shape[2:], [], 1
    for i, place in enumerate(at):
        start = place * strides[i] - pads[i][0]
        points = [start + k * dilation[i] for k in range(size[i])]
        indices.append([p for p in points if 0 <= p < plane[i]])
        counted *= sum(p < plane[i] + pads[i][1] for p in points)
    part = wide(data[np.ix_(range(data.shape[0]), range(data.shape[1]), *indices)])
    axes = tuple(range(2, data.ndim))
    if not average:
        return part.max(axes)
    count = counted if a.get("count_include_pad") else math.prod(len(i) for i in indices)
    total = part.sum(axes)
    return total / count if data.dtype.kind == "f" else np.trunc(total / count)


def _global(function: Callable[..., np.ndarray]) -> Callable[[Sequence[np.ndarray], Attrs], Any]:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        axes = tuple(a.get("layout", "NCHW").index(axis) for axis in "HW")
        return function(wide(x[0]), axis=axes, keepdims=True).astype(x[0].dtype)

    return compute


def _adaptive(function: Callable[..., np.ndarray]) -> Callable[[Sequence[np.ndarray], Attrs], Any]:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        layout = a.get("layout", "NCHW")
        data = planes_first(wide(x[0]), layout, "NCHW")
        size = listed(a.get("output_size") or data.shape[2:], 2)
        rows, columns = (
            [range(i * whole // part, -(-(i + 1) * whole // part)) for i in range(part)]
            for whole, part in zip(data.shape[2:], size, strict=True)
        )
        out = np.empty((*data.shape[:2], *size))
        for i, j in itertools.product(range(size[0]), range(size[1])):
            cut = data[:, :, rows[i].start : rows[i].stop, columns[j].start : columns[j].stop]
            out[:, :, i, j] = function(cut, axis=(2, 3))
        return planes_first(out, "NCHW", layout).astype(x[0].dtype)

    return compute


# ---------------------------------------------------------------- normalization
def _channels(value: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return value.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _batch_norm(x: Sequence[np.ndarray], a: Attrs) -> tuple[np.ndarray, ...]:
    data, gamma, beta, mean, variance = x
    axis, rank = a.get("axis", 1), data.ndim
    spread = [_channels(v.astype("float64"), axis, rank) for v in (gamma, beta, mean, variance)]
    normal = (data - spread[2]) / np.sqrt(spread[3] + a.get("epsilon", 1e-5))
    normal = normal * spread[0] if a.get("scale", True) else normal
    normal = normal + spread[1] if a.get("center", True) else normal
    return normal.astype(data.dtype), mean, variance


def _normalized(data: np.ndarray, axes: tuple[int, ...], a: Attrs) -> np.ndarray:
    mean = data.mean(axes, keepdims=True)
    return (data - mean) / np.sqrt(data.var(axes, keepdims=True) + a.get("epsilon", 1e-5))


def _scaled(normal: np.ndarray, x: Sequence[np.ndarray], axis: int, a: Attrs) -> np.ndarray:
    if a.get("scale", True):
        normal = normal * _channels(x[1], axis, normal.ndim)
    if a.get("center", True):
        normal = normal + _channels(x[2], axis, normal.ndim)
    return normal.astype(x[0].dtype)


def _layer_norm(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis = a.get("axis", -1)
    return _scaled(_normalized(wide(x[0]), (axis,), a), x, axis, a)


def _instance_norm(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis = a.get("axis", 1)
    axes = tuple(i for i in range(1, x[0].ndim) if i != axis)
    return _scaled(_normalized(wide(x[0]), axes, a), x, axis, a)


def _group_norm(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis, groups = a.get("axis", 1), a["num_groups"]
    data = np.moveaxis(wide(x[0]), axis, 1)
    apart = data.reshape(data.shape[0], groups, -1)
    normal = _normalized(apart, (2,), a).reshape(data.shape)
    return _scaled(np.moveaxis(normal, 1, axis), x, axis, a)


def _l2_normalize(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axes = None if a.get("axis") is None else tuple(a["axis"])
    total = (wide(x[0]) ** 2).sum(axes, keepdims=True)
    return (x[0] / np.sqrt(np.maximum(total, a.get("eps", 0)))).astype(x[0].dtype)


def _lrn(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    size, axis = a.get("size", 5), a.get("axis", 1)
    data = np.moveaxis(wide(x[0]), axis, 0)
    out = np.empty_like(data)
    for c in range(len(data)):
        near = data[max(0, c - size // 2) : c + size // 2 + 1]
        base = a.get("bias", 2.0) + a.get("alpha", 1e-4) / size * (near**2).sum(0)
        out[c] = data[c] / base ** a.get("beta", 0.75)
    return np.moveaxis(out, 0, axis).astype(x[0].dtype)


def _softmax(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axis = a.get("axis", -1)
    powers = np.exp(wide(x[0]) - x[0].max(axis, keepdims=True))
    return (powers / powers.sum(axis, keepdims=True)).astype(x[0].dtype)


def _log_softmax(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return np.log(_softmax([wide(x[0])], a)).astype(x[0].dtype)


def _bias_add(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return (x[0] + _channels(x[1], a.get("axis", 1), x[0].ndim)).astype(x[0].dtype)


# ---------------------------------------------------------------- images
def _source(place: int, old: int, new: int, mode: str) -> float:
    """Where a pixel comes from, in float32 as TVM computes it."""
    scale = np.float32(old) / np.float32(new)
    if mode == "half_pixel":
        return float(np.float32(np.float32(place + 0.5) * scale) - np.float32(0.5))
    if mode == "pytorch_half_pixel":
        return _source(place, old, new, "half_pixel") if new > 1 else 0.0
    if mode == "align_corners":
        return 0.0 if new == 1 else float(np.float32(old - 1) / np.float32(new - 1) * place)
    return float(scale * np.float32(place))


def _nearest(at: float, mode: str, rounding: str) -> int:
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    rules = {
        "round": lambda v: math.floor(v + 0.5) if v % 1 != 0.5 else 2 * round(v / 2),
        "floor": lambda v: math.floor(v + 1e-5),
        "ceil": lambda v: math.ceil(v - 1e-5),
        "round_prefer_floor": lambda v: math.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: math.floor(v + 0.5),
    }
    return rules[rounding](at)


def _taps(
    at: float, method: str, mode: str, rounding: str, alpha: float
) -> list[tuple[int, float]]:
    """The rows that make a row, and their shares."""
    if method == "nearest_neighbor":
        return [(_nearest(at, mode, rounding), 1.0)]
    low = math.floor(at)
    t = at - low
    if method in ("linear", "bilinear"):
        return [(low, 1 - t), (low + 1, t)]
    shares = [
        alpha * (t**3 - 2 * t**2 + t),
        (alpha + 2) * t**3 - (3 + alpha) * t**2 + 1,
        -(alpha + 2) * t**3 + (3 + 2 * alpha) * t**2 - alpha * t,
        -alpha * t**3 + alpha * t**2,
    ]
    return [(low - 1 + i, share) for i, share in enumerate(shares)]


def resize(x: np.ndarray, size: Sequence[int], a: Attrs, mode: str) -> np.ndarray:
    """Rows, then columns."""
    layout = a.get("layout", "NCHW")
    for axis, new in zip((layout.index("H"), layout.index("W")), size, strict=True):
        old, rows = x.shape[axis], []
        for place in range(new):
            at = _source(place, old, new, mode)
            taps = _taps(at, a.get("method", "linear"), mode, a.get("rounding_method", ""),
                         a.get("cubic_alpha", -0.5))  # fmt: skip
            picked = [np.take(wide(x), min(max(i, 0), old - 1), axis) * share for i, share in taps]
            rows.append(sum(picked))
        x = np.stack(rows, axis)
    return x


def _resize2d(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    mode = a.get("coordinate_transformation_mode", "half_pixel")
    return resize(x[0], a["size"], a, mode).astype(x[0].dtype)


def _upsampling(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    layout = a.get("layout", "NCHW")
    size = [
        round(x[0].shape[layout.index(axis)] * a.get(scale, 1.0))
        for axis, scale in (("H", "scale_h"), ("W", "scale_w"))
    ]
    attrs = {"method": "nearest_neighbor", **a}
    attrs["method"] = {"bicubic": "cubic"}.get(attrs["method"], attrs["method"])
    mode = "align_corners" if a.get("align_corners") else "asymmetric"
    return resize(x[0], size, attrs, mode).astype(x[0].dtype)


LAYERS: dict[str, Callable[[Sequence[Any], Attrs], Any]] = {
    **{f"nn.conv{axes}d": conv(axes) for axes in (1, 2, 3)},
    **{f"nn.conv{axes}d_transpose": conv_transpose(axes) for axes in (1, 2)},
    "nn.dense": dense,
    "nn.matmul": lambda x, a: _matmul(x, {"transpose_b": False, **a}),
    "nn.batch_matmul": _matmul,
    "nn.bias_add": _bias_add,
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.lrn": _lrn,
    "nn.softmax": _softmax,
    "nn.fast_softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "nn.dropout": lambda x, a: (x[0], np.ones_like(x[0])),
    **{f"nn.max_pool{axes}d": _pool(axes, average=False) for axes in (1, 2)},
    **{f"nn.avg_pool{axes}d": _pool(axes, average=True) for axes in (1, 2)},
    "nn.global_avg_pool2d": _global(np.mean),
    "nn.global_max_pool2d": _global(np.max),
    "nn.adaptive_avg_pool2d": _adaptive(np.mean),
    "nn.adaptive_max_pool2d": _adaptive(np.max),
    "image.resize2d": _resize2d,
    "image.resize": _resize2d,
    "nn.upsampling": _upsampling,
}
"""Relay's name -> (operands, stated attributes) -> the value."""
