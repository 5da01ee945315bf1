"""What the zero point of a layer's data adds to its sums, beside borders too.

With a zero point z the accumulator is `sum(w * q) - z * sum(w)` over the taps that are inside the
input.  Padding writes 0, not z, so beside a border the second sum has fewer terms: the bias
then has one value for each position (a map), which the machine loads like any int32 operand.
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.ir.bindings import static_shape
from vta_byoc.quantization.ops.anchors import Anchor


def per_position(values: np.ndarray, rank: int) -> np.ndarray:
    """One value per channel, so that it broadcasts against [channels, positions ...]."""
    return values if values.ndim == 0 else values.reshape(-1, *[1] * (rank - 1))


def border_sums(
    anchor: Anchor, weight: np.ndarray, call: relax.Call, out: tuple[int, ...]
) -> np.ndarray:
    """The sum of the weights whose taps lie inside the input, int64.

    Its shape is [channels] where it is the same everywhere, else [channels, positions ...].
    """
    attrs, rank = call.attrs, weight.ndim - 2
    if rank == 0:
        return weight.astype("int64").sum(axis=0)
    taps = _channel_taps(anchor, weight.astype("int64"), attrs)
    sizes = static_shape(call.args[0])[2:]
    for axis in reversed(range(rank)):
        inside = _inside(anchor, attrs, axis, sizes[axis], weight.shape[2 + axis], out[2 + axis])
        taps = np.moveaxis(np.tensordot(taps, inside, axes=([1 + axis], [1])), -1, 1 + axis)
    first = taps.reshape(len(taps), -1)[:, 0]
    same = (taps == per_position(first, taps.ndim)).all()
    return first if same else taps


def _channel_taps(anchor: Anchor, weight: np.ndarray, attrs: Attrs) -> np.ndarray:
    """Weights summed over the input channels of each output channel: [channels, kernel ...]."""
    if not anchor.shares_axis:
        return weight.sum(axis=1)
    groups = int(attrs.groups)
    whole = weight.reshape(groups, -1, *weight.shape[1:]).sum(axis=1)
    return whole.reshape(-1, *weight.shape[2:])


def _inside(
    anchor: Anchor, attrs: Attrs, axis: int, size: int, kernel: int, out: int
) -> np.ndarray:
    """Whether tap k of output position p reads the input, int64 [out, kernel]."""
    stride, dilation = int(attrs.strides[axis]), int(attrs.dilation[axis])
    before = int(attrs.padding[axis])
    positions, taps = np.arange(out)[:, None], np.arange(kernel)[None, :] * dilation
    if not anchor.shares_axis:
        read = positions * stride + taps - before
        return np.asarray((read >= 0) & (read < size), np.int64)
    read = positions + before - taps
    return np.asarray((read % stride == 0) & (read >= 0) & (read < size * stride), np.int64)
