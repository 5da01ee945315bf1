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
from vta_byoc.workload.workloads import CHANNEL, Conv2dWorkload

Run = tuple[int, int]
"""The first of some rows or columns, and the one behind the last."""
Box = tuple[Run, Run]
"""Rows and columns."""


def runs(work: Conv2dWorkload, axis: int) -> list[Run]:
    """The rows (`axis` 0) or columns of the result, those together that see the same taps."""
    count, taps = work.out_shape[2 + axis], work.kernel[axis]
    read = np.arange(count)[:, None] * work.strides[axis] - work.padding[axis]
    read = read + np.arange(taps)[None, :] * work.dilation[axis]
    inside = (read >= 0) & (read < (work.height, work.width)[axis])
    changes = np.flatnonzero((inside[1:] != inside[:-1]).any(axis=1)) + 1
    return list(itertools.pairwise([0, *changes.tolist(), count]))


def middle(work: Conv2dWorkload) -> Box:
    """The longest runs of rows and of columns."""
    rows, cols = (max(runs(work, axis), key=lambda run: run[1] - run[0]) for axis in (0, 1))
    return rows, cols


def border_boxes(work: Conv2dWorkload) -> list[Box]:
    """The parts of the result that see other taps than its middle."""
    whole = itertools.product(runs(work, 0), runs(work, 1))
    return [box for box in whole if box != middle(work)]


def apart(work: Conv2dWorkload, values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Integers (C, H, W) as those of the middle (C,), and what each border box adds (boxes, C).

    Both are int32; the sums wrap.  None where the values of a box differ.
    """

    def of(box: Box) -> np.ndarray | None:
        (top, bottom), (left, right) = box
        part = values[:, top:bottom, left:right].reshape(len(values), -1)
        return part[:, 0].astype(np.int64) if (part == part[:, :1]).all() else None

    inner, boxes = of(middle(work)), [of(box) for box in border_boxes(work)]
    if inner is None or not boxes:
        return None
    added = []
    for each in boxes:
        if each is None:
            return None
        added.append(each - inner)
    return inner.astype(np.int32), np.stack(added).astype(np.int32)


def pack_borders(values: np.ndarray, config: VTAConfig) -> np.ndarray:
    """What each box adds, (boxes, C), as (boxes, C/k, b, k) int32."""
    return np.stack([pack_operand(each, CHANNEL, config) for each in values])
