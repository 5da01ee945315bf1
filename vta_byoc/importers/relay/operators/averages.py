"""Averages of integers over windows: sums that are divided and cut towards zero.

TVM's own pooling of int32 makes int64 and says int32; here the windows are summed slice by slice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from tvm import relax

from vta_byoc.importers.relay.operators.entry import Site


def integer_average(s: Site, axes: int, layout: str) -> relax.Expr:
    """Average pooling of an integer tensor, in its own type.

    Args:
        s: the call that is read.
        axes: how many axes the plane has.
        layout: of the data; the axes of the plane are the ones that are neither N nor C.
    """
    places = [i for i, axis in enumerate(layout) if axis not in "NC"]
    shape, size = s.shape(), s.integers("pool_size", axes)
    strides, dilation = s.integers("strides", axes), s.integers("dilation", axes)
    pads = s.padding(axes)
    before, after = pads[:axes], pads[axes:]
    outs, behind = [], []
    for i, place in enumerate(places):
        room = shape[place] + before[i] + after[i] - (size[i] - 1) * dilation[i] - 1
        steps = -(-room // strides[i]) if s.flag("ceil_mode") else room // strides[i]
        outs.append(steps + 1)
        missing = steps * strides[i] + (size[i] - 1) * dilation[i] + 1 - shape[place] - before[i]
        behind.append(max(after[i], missing))
    wide = _padded(s, places, before, behind)
    total: relax.Expr | None = None
    for at in itertools.product(*(range(k) for k in size)):
        begin = [at[i] * dilation[i] for i in range(axes)]
        end = [begin[i] + (outs[i] - 1) * strides[i] + 1 for i in range(axes)]
        part = s.emit(relax.op.strided_slice(wide, places, begin, end, strides), "window")
        total = part if total is None else s.emit(relax.op.add(total, part), "sum")
    counts = np.ones([1] * len(layout), np.int64)
    for i, place in enumerate(places):
        edges = (shape[place], before[i], after[i]) if s.flag("count_include_pad") else (
            shape[place], 0, 0)  # fmt: skip
        row = _counts(edges, before[i], size[i], strides[i], dilation[i], outs[i])
        counts = counts * row.reshape([-1 if j == place else 1 for j in range(len(layout))])
    return relax.op.divide(total, relax.const(counts.astype(s.dtype()), s.dtype()))


def _padded(
    s: Site, places: Sequence[int], before: Sequence[int], behind: Sequence[int]
) -> relax.Expr:
    if not any([*before, *behind]):
        return s.tensor(0)
    widths = [0] * (2 * len(s.shape()))
    for i, place in enumerate(places):
        widths[2 * place : 2 * place + 2] = [before[i], behind[i]]
    return s.emit(relax.op.nn.pad(s.tensor(0), widths), "padded")


def _counts(
    edges: tuple[int, int, int], before: int, size: int, stride: int, dilation: int, outs: int
) -> np.ndarray:
    """How many places of each window lie on the plane, or on its counted padding.

    Args:
        edges: the size of the plane, and how much before and behind it counts.
        before: the padding before the plane.
        size: of the window.
        stride: between windows.
        dilation: between places of a window.
        outs: how many windows there are.
    """
    plane, first, last = edges
    starts = np.arange(outs) * stride - before
    points = starts[:, None] + np.arange(size) * dilation
    return np.maximum(((points >= -first) & (points < plane + last)).sum(1), 1)
