"""Which outputs of a window see the input through a tap, and which see padding alone."""

from __future__ import annotations


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
