"""Which positions of its input a convolution's tiles stage along one axis."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from vta_byoc.cost.search import Array
from vta_byoc.strategies.conv.window import Window


@dataclass(frozen=True)
class Positions:
    """Of all tiles along an axis: positions read from DRAM, zeros before them, all staged."""

    read: Array
    before: Array
    total: Array


@functools.lru_cache(maxsize=1 << 16)
def positions(window: Window, outs: int, taps: int) -> tuple[int, int, int]:
    """:class:`Positions` of tiles of ``outs`` outputs and ``taps`` taps."""
    read = before = total = 0
    for first_tap in range(0, window.taps, taps):
        origin = window.before - first_tap * window.dilation
        for first, count in window.tiles(outs):
            staged = int(window.extent(count, taps))
            low = first * window.step - origin
            begin = min(staged, max(0, -(low // window.skip)))
            end = min(staged, max(begin, -((low - window.size) // window.skip)))
            read, before, total = read + end - begin, before + begin, total + staged
    return read, before, total


def padded_tiles(window: Window, outs: int) -> int:
    """Tiles of ``outs`` outputs that touch padding, for the whole kernel."""
    extent, count = (window.taps - 1) * window.dilation, 0
    for first, outputs in window.tiles(outs):
        last = first + outputs - 1
        low = first * window.step - window.before
        high = last * window.step - window.before + extent
        count += low < 0 or high >= window.size
    return count
