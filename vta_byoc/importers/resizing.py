"""Resizing as ONNX and PyTorch define it, where TVM's operator does not: a product for each axis.

TVM steps through an axis by the ratio of its sizes.  A scale that gives no whole size is not that
ratio; filters before shrinking (antialias) and some places of samples are unknown to TVM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import static_shape

CUBIC = -0.75
"""The coefficient of cubic interpolation that ONNX and PyTorch use where none is given."""
FILTERED_CUBIC = -0.5
"""That of PyTorch with antialias."""


@dataclass(frozen=True)
class Axis:
    """How one axis is resized.

    Attributes:
        size: of the operand.
        result: the size of the result.
        scale: of the result to the operand; the result's size is a part of it.
        places: of the samples, as ONNX calls them: `half_pixel`, `pytorch_half_pixel`,
            `half_pixel_symmetric`, `align_corners` or `asymmetric`.
    """

    size: int
    result: int
    scale: float
    places: str = "half_pixel"

    def samples(self) -> np.ndarray:
        """The place in the operand of each element of the result, in the precision of runtimes."""
        x, scale = np.arange(self.result, dtype=np.float32), np.float32(self.scale)
        half, size, result = np.float32(0.5), np.float32(self.size), np.float32(self.result)
        if self.places == "asymmetric":
            return x / scale
        if self.places == "align_corners":
            return x * (size - 1) / np.maximum(result - 1, 1)
        if self.places == "pytorch_half_pixel" and self.result == 1:
            return np.zeros(1, np.float32)
        begin = np.float32(0)
        if self.places == "half_pixel_symmetric":
            begin = size / 2 * (1 - result / (scale * size))
        return begin + (x + half) / scale - half

    def nearest(self, rounding: str) -> np.ndarray:
        """Which element of the operand each one of the result is; `rounding` as in ONNX."""
        return np.clip(ROUNDED[rounding](self.samples()), 0, self.size - 1).astype("int64")

    def weights(self, filtered: Filter, antialias: bool, exclude_outside: bool) -> np.ndarray:
        """(size, result): what each element of the operand adds to each one of the result."""
        samples = self.samples()
        first, step = np.floor(samples), min(self.scale, 1.0) if antialias else 1.0
        start = math.floor(-filtered.reach / step) + 1
        taps = np.arange(start, 2 - start)[:, None]
        values = filtered.value((taps - (samples - first)) * step)
        places = (first + taps).astype("int64")
        if exclude_outside:
            values = np.where((places >= 0) & (places < self.size), values, 0)
        if antialias or exclude_outside:
            values = values / values.sum(axis=0)
        result = np.zeros((self.size, self.result))
        columns = np.broadcast_to(np.arange(self.result), places.shape)
        np.add.at(result, (np.clip(places, 0, self.size - 1), columns), values)
        return result


@dataclass(frozen=True)
class Filter:
    """An interpolation: what it multiplies an element at a distance by, and how far it reaches."""

    reach: int
    value: Callable[[np.ndarray], np.ndarray]


LINEAR = Filter(1, lambda distance: np.maximum(1 - np.abs(distance), 0))


def cubic(a: float = CUBIC) -> Filter:
    """Cubic convolution with the coefficient `a`."""

    def value(distance: np.ndarray) -> np.ndarray:
        x = np.abs(distance)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * x * a - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0))

    return Filter(2, value)


ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
}


def multiplied(
    emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr, matrices: Mapping[int, np.ndarray]
) -> relax.Expr:
    """`x` with axes multiplied by matrices (size, result).

    Args:
        emit: binds a call to a variable.
        x: the tensor.
        matrices: axis -> its matrix.
    """
    rank = len(static_shape(x))
    for axis, matrix in matrices.items():
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        turned = x if axis == rank - 1 else emit(relax.op.permute_dims(x, order))
        product = emit(relax.op.matmul(turned, relax.const(matrix.astype("float32"))))
        x = product if axis == rank - 1 else emit(relax.op.permute_dims(product, order))
    return x
