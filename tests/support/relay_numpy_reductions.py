"""Reductions of Relay computed with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]
Compute = Callable[[Sequence[Any], Attrs], Any]


def _axes(x: np.ndarray, a: Attrs) -> tuple[int, ...]:
    axis = a.get("axis")
    axis = [axis] if isinstance(axis, int) else axis
    axes = range(x.ndim) if axis is None else [i % x.ndim for i in axis]
    return tuple(i for i in range(x.ndim) if (i in axes) != bool(a.get("exclude")))


def _reduce(function: Callable[..., np.ndarray]) -> Compute:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        data = x[0].astype("float64") if x[0].dtype.kind == "f" else x[0]
        found = function(data, axis=_axes(data, a), keepdims=bool(a.get("keepdims")))
        return np.asarray(found).astype(x[0].dtype)

    return compute


def _arg(sign: int) -> Compute:
    def compute(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
        axes = _axes(x[0], a)
        others = [i for i in range(x[0].ndim) if i not in axes]
        moved = x[0].transpose([*others, *axes]).reshape([x[0].shape[i] for i in others] + [-1])
        if a.get("select_last_index"):
            found = moved.shape[-1] - 1 - np.argmax(sign * moved[..., ::-1], -1)
        else:
            found = np.argmax(sign * moved, -1)
        if a.get("keepdims"):
            found = found.reshape([1 if i in axes else d for i, d in enumerate(x[0].shape)])
        return np.asarray(found).astype("int32")

    return compute


def _variance(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    axes = _axes(x[0], a)
    total = ((x[0].astype("float64") - x[1]) ** 2).sum(axis=axes, keepdims=bool(a.get("keepdims")))
    count = math.prod(x[0].shape[i] for i in axes) - bool(a.get("unbiased"))
    return np.asarray(total / count).astype(x[0].dtype)


def _logsumexp(x: Sequence[np.ndarray], a: Attrs) -> np.ndarray:
    total = np.exp(x[0].astype("float64")).sum(_axes(x[0], a), keepdims=bool(a.get("keepdims")))
    return np.asarray(np.log(total)).astype(x[0].dtype)


REDUCTIONS: dict[str, Compute] = {
    **{n: _reduce(getattr(np, n)) for n in ("sum", "mean", "prod", "max", "min", "all", "any")},
    "argmax": _arg(1),
    "argmin": _arg(-1),
    "variance": _variance,
    "logsumexp": _logsumexp,
}
"""Relay's name -> (operands, stated attributes) -> the value."""
