"""Where the positions of a convolution's result see the same taps, and constants that follow them.

The zero point of the data takes `zero * sum(weights)` of an accumulator, over the taps that are
inside the input.  Behind padding of zeros that is one number a channel in the middle of the result,
and others beside each border: a map (C, H, W) of a few values a channel.
"""

from __future__ import annotations

import itertools

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.packing import pack_operand
from vta_byoc.workload.receptive import outputs_inside
from vta_byoc.workload.workloads import CHANNEL, Conv2dWorkload

Run = tuple[int, int]
"""The first of some rows or columns, and the one behind the last."""
Box = tuple[Run, Run]
"""Rows and columns."""


def runs(work: Conv2dWorkload, axis: int) -> list[Run]:
    """The rows (`axis` 0) or columns of the result, those together that see the same taps."""
    count, size = work.out_shape[2 + axis], (work.height, work.width)[axis]
    ends = {0, count}
    for tap in range(work.kernel[axis]):
        at = tap * work.dilation[axis] - work.padding[axis]
        ends |= {*outputs_inside(count, size, work.strides[axis], at)}
    return list(itertools.pairwise(sorted(ends)))


def middle(work: Conv2dWorkload) -> Box:
    """The longest runs of rows and of columns."""
    rows, cols = (max(runs(work, axis), key=lambda run: run[1] - run[0]) for axis in (0, 1))
    return rows, cols


def boxes(work: Conv2dWorkload) -> list[Box]:
    """The parts of the result whose positions see the same taps, rows first."""
    return list(itertools.product(runs(work, 0), runs(work, 1)))


def border_boxes(work: Conv2dWorkload) -> list[Box]:
    """The parts of the result that see other taps than its middle."""
    inner = middle(work)
    return [box for box in boxes(work) if box != inner]


def apart(work: Conv2dWorkload, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Integers (C, H, W) as those of the middle (C,), and what each border box adds (boxes, C).

    Both are int32; the sums wrap.  None where the values of a box differ, or
    there are none.
    """
    found = []
    for (top, bottom), (left, right) in (middle(work), *border_boxes(work)):
        part = values[:, top:bottom, left:right].reshape(len(values), -1).astype(np.int64)
        if (part != part[:, :1]).any():
            return None
        found.append(part[:, 0])
    inner, *boxes = found
    if not boxes:
        return None
    return inner.astype(np.int32), (np.stack(boxes) - inner).astype(np.int32)


def pack_borders(values: np.ndarray, config: VTAConfig) -> np.ndarray:
    """What each box adds, (boxes, C), as (boxes, C/k, b, k) int32."""
    return np.stack([pack_operand(each, CHANNEL, config) for each in values])
