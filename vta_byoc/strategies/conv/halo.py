"""Which positions of its input a convolution's tiles stage along one axis."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

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
    firsts, counts = _tiles(window, outs)
    steps = np.arange(0, window.taps, taps)[:, None]
    staged = window.extent(counts, taps)
    low = firsts * window.step - window.before + steps * window.dilation
    begin = np.minimum(staged, np.maximum(0, -(low // window.skip)))
    end = np.minimum(staged, np.maximum(begin, -((low - window.size) // window.skip)))
    total = len(steps) * int(np.sum(staged))
    return int((end - begin).sum()), int(begin.sum()), total


def padded_tiles(window: Window, outs: int) -> int:
    """Tiles of ``outs`` outputs that touch padding, for the whole kernel."""
    firsts, counts = _tiles(window, outs)
    low = firsts * window.step - window.before
    high = low + (counts - 1) * window.step + (window.taps - 1) * window.dilation
    return int(((low < 0) | (high >= window.size)).sum())


def _tiles(window: Window, outs: int) -> tuple[np.ndarray, np.ndarray]:
    """First output and outputs of each tile."""
    firsts, counts = zip(*window.tiles(outs), strict=True)
    return np.array(firsts), np.array(counts)
