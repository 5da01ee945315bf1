"""Which outputs of a window see the input through a tap, and which see padding alone."""

from __future__ import annotations

import dataclasses

from vta_byoc.workload.workloads import Conv2dWorkload


def outputs_inside(count: int, size: int, step: int, at: int) -> tuple[int, int]:
    """[low, high) of ``count`` outputs that read inside of ``size`` positions.

    Output o reads position ``o * step + at``.
    """
    low = max(0, -(at // step))
    high = min(count, (size - 1 - at) // step + 1)
    return (low, high) if low < high else (0, 0)


def products_inside(
    count: int, size: int, taps: int, step: int = 1, dilation: int = 1, before: int = 0
) -> int:
    """Pairs of ``count`` outputs and ``taps`` taps that read inside of ``size`` positions."""
    boxes = [outputs_inside(count, size, step, tap * dilation - before) for tap in range(taps)]
    return sum(high - low for low, high in boxes)


def blind_taps(
    count: int, size: int, taps: int, step: int, dilation: int, pads: tuple[int, int]
) -> tuple[int, int]:
    """How many first and last taps see padding alone from every output; one is always left.

    A tap goes with a dilation of padding, so there are no more than that holds; negative padding
    holds none.
    """
    seen = [outputs_inside(count, size, step, t * dilation - pads[0]) for t in range(taps)]
    blind = [low == high for low, high in seen]
    most = [max(pad, 0) // dilation for pad in pads]
    first = min(next((t for t in range(taps) if not blind[t]), 0), most[0])
    last = min(next((t for t in range(taps) if not blind[-1 - t]), 0), most[1])
    return first, last


def without_blind_taps(work: Conv2dWorkload) -> tuple[Conv2dWorkload, tuple[slice, slice]]:
    """``work`` with the rows and columns of its kernel that see the input, and which these are.

    A kernel of 3 x 3 whose dilation is the size of the input is one of 1 x 1.
    """
    top, left, bottom, right = work.padding
    whole = slice(None), slice(None)
    (dy, dx), (sy, sx), taps = work.dilation, work.strides, work.kernel
    above, below = blind_taps(work.out_height, work.height, taps[0], sy, dy, (top, bottom))
    before, behind = blind_taps(work.out_width, work.width, taps[1], sx, dx, (left, right))
    if not any((above, below, before, behind)):
        return work, whole
    kernel = (taps[0] - above - below, taps[1] - before - behind)
    padding = (top - above * dy, left - before * dx, bottom - below * dy, right - behind * dx)
    seeing = (slice(above, above + kernel[0]), slice(before, before + kernel[1]))
    return dataclasses.replace(work, kernel=kernel, padding=padding), seeing
