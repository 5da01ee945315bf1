"""The places of a pool's maxima, which TVM does not compute, by the elements of each window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import constant_of, static_shape


@dataclass(frozen=True)
class Windows:
    """The windows of a pool.

    Attributes:
        sizes: of the axes that are pooled, the last ones of a tensor.
        starts: of each axis: where its windows begin, in padding below 0.
        kernel: elements of a window along each axis.
        dilation: their distance along each axis.
    """

    sizes: tuple[int, ...]
    starts: tuple[np.ndarray, ...]
    kernel: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilation: Sequence[int],
        pads: Sequence[tuple[int, int]],
        is_ceil: bool,
    ) -> Windows:
        """Those of a pool with `pads` in front of and behind each axis.

        With `is_ceil` the last window may reach beyond what pads behind, but not begin there.
        """
        starts = []
        for axis, size in enumerate(sizes):
            room = size + sum(pads[axis]) - dilation[axis] * (kernel[axis] - 1) - 1
            count = (-(-room // strides[axis]) if is_ceil else room // strides[axis]) + 1
            begin = np.arange(count) * strides[axis] - pads[axis][0]
            starts.append(begin[begin < size])
        return cls(tuple(sizes), tuple(starts), tuple(kernel), tuple(dilation))

    def elements(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each tap of each window, (windows, taps): its element of a plane, if it has one.

        Returns:
            The numbers of the elements, row by row, 0 for a tap on padding; and whether there is
            one.
        """
        flat, is_inside = np.zeros((1, 1), "int64"), np.ones((1, 1), bool)
        axes = zip(self.sizes, self.starts, self.kernel, self.dilation, strict=True)
        for size, starts, taps, apart in axes:
            at = starts[:, None] + np.arange(taps) * apart
            inside = (at >= 0) & (at < size)
            flat = _crossed(flat * size, np.where(inside, at, 0), np.add)
            is_inside = _crossed(is_inside, inside, np.logical_and)
        return np.where(is_inside, flat, 0), is_inside


def _crossed(left: np.ndarray, right: np.ndarray, op: np.ufunc) -> np.ndarray:
    """Every window and tap of one axis with every one of the next."""
    both = op(left[:, None, :, None], right[None, :, None, :])
    return both.reshape(len(left) * len(right), -1)


def places(data: relax.Expr, windows: Windows, numbers: np.ndarray | None = None) -> relax.Expr:
    """The number of the first largest element of each window, int64.

    Args:
        data: (..., *sizes), the planes that are pooled.
        windows: of the pool.
        numbers: of the elements of a plane, (elements,); row by row from 0 when None.

    Returns:
        (..., *windows of each axis). Not of maxima that may have been rounded: of the data itself.
    """
    flat, is_inside = windows.elements()
    count, taps = flat.shape
    lead = static_shape(data)[: -len(windows.sizes)]
    rows = relax.op.reshape(data, (math.prod(lead), math.prod(windows.sizes)))
    each = relax.op.take(rows, constant_of(flat.reshape(-1)), 1)
    each = relax.op.reshape(each, (math.prod(lead), count, taps))
    least = constant_of(_least(str(data.ty.dtype)))
    best = relax.op.argmax(relax.op.where(constant_of(is_inside), each, least), 2)
    of_tap = (flat if numbers is None else numbers[flat]).reshape(-1)
    at = relax.op.add(best, constant_of(np.arange(count) * taps))
    found = relax.op.take(constant_of(of_tap), at, 0)
    return relax.op.reshape(found, (*lead, *map(len, windows.starts)))


def _least(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    return np.asarray(np.finfo(kind).min if kind.kind == "f" else np.iinfo(kind).min, kind)
