"""QNN operators computed with NumPy: integers exactly, one rounding where a scale changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from relay_numpy_layers import LAYERS, conv, conv_transpose, dense

Attrs = Mapping[str, Any]


def real(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = 0) -> np.ndarray:
    """What integers stand for, float64."""
    spread = [v if v.ndim == 0 else v.reshape([-1 if i == axis % x.ndim else 1
                                               for i in range(x.ndim)])
              for v in (np.float64(scale), np.int64(zero))]  # fmt: skip
    return spread[0] * (x.astype("int64") - spread[1])


def integers(value: np.ndarray, scale: np.ndarray, zero: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest integers, saturated."""
    limits = np.iinfo(dtype)
    scaled = np.floor(np.float64(value) / np.float64(scale) + 0.5) + np.int64(zero)
    return np.clip(scaled, limits.min, limits.max).astype(dtype)


def _quantize(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return integers(x[0], x[1], x[2], a.get("out_dtype", "int8"))


def _dequantize(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    return real(*x, a.get("axis", -1)).astype("float32")


def _requantize(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    value = real(x[0], x[1], x[2], a.get("axis", -1))
    return integers(value, x[3], x[4], a.get("out_dtype", "int8"))


def _layer(function: Callable[..., np.ndarray]) -> Callable[[Sequence[np.ndarray], Attrs], Any]:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        data, weight, data_zero, weight_zero = (v.astype("int64") for v in x[:4])
        if weight_zero.ndim:
            weight_zero = weight_zero.reshape([-1] + [1] * (weight.ndim - 1))
        kept = {name: value for name, value in a.items() if name != "out_dtype"}
        return function([data - data_zero, weight - weight_zero], kept).astype("int32")

    return compute


def _batch_matmul(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    left, right = x[0].astype("int64") - x[2], x[1].astype("int64") - x[3]
    return (left @ right.swapaxes(-1, -2)).astype("int32")


def _binary(function: Callable[..., np.ndarray]) -> Callable[[Sequence[np.ndarray], Attrs], Any]:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        total = function(real(x[0], x[2], x[3]), real(x[1], x[4], x[5]))
        return integers(total, x[6], x[7], str(x[0].dtype))

    return compute


def _unary(function: Callable[..., Any]) -> Callable[[Sequence[np.ndarray], Attrs], Any]:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        return integers(function(real(*x[:3]), a), x[3], x[4], str(x[0].dtype))

    return compute


def _concatenate(x: Sequence[Any], a: Attrs) -> np.ndarray:
    parts = [real(*each) for each in zip(x[0], x[1], x[2], strict=True)]
    return integers(np.concatenate(parts, a.get("axis", 0)), x[3], x[4], str(x[0][0].dtype))


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[float])(x)


_UNARIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{n: getattr(np, n) for n in ("tanh", "exp", "sqrt", "log", "abs")},
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": _erf,
}
QNN: dict[str, Callable[[Sequence[Any], Attrs], Any]] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _layer(conv(2)),
    "qnn.conv2d_transpose": _layer(conv_transpose(2)),
    "qnn.dense": _layer(dense),
    "qnn.batch_matmul": _batch_matmul,
    "qnn.add": _binary(np.add),
    "qnn.subtract": _binary(np.subtract),
    "qnn.mul": _binary(np.multiply),
    **{f"qnn.{n}": _unary(lambda v, a, f=f: f(v)) for n, f in _UNARIES.items()},
    "qnn.leaky_relu": _unary(lambda v, a: np.where(v > 0, v, v * a.get("alpha", 0.25))),
    "qnn.softmax": _unary(lambda v, a: LAYERS["nn.softmax"]([v], a)),
    "qnn.avg_pool2d": _unary(lambda v, a: LAYERS["nn.avg_pool2d"]([v], a)),
    "qnn.concatenate": _concatenate,
}
"""Relay's name -> (operands, stated attributes) -> the value."""
