"""How the outputs of a convolution see its input along an axis, and how tiles divide them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vta_byoc.cost.search import Array, ceil_div
from vta_byoc.workload.workloads import Conv2dWorkload


@dataclass(frozen=True)
class Window:
    """How outputs along one axis see the input: output o reads o * step + tap * dilation - before.

    ``gathered``: rows (columns) that the stride skips are left out of the staged tile.  ``halo``:
    outputs that a tile has in common with the next one.
    """

    out: int
    size: int
    taps: int
    step: int
    dilation: int
    before: int
    gathered: bool = False
    halo: int = 0

    @property
    def stage(self) -> int:
        """Distance of neighbouring outputs in the staged tile."""
        return 1 if self.gathered else self.step

    @property
    def skip(self) -> int:
        """Distance in DRAM of neighbours in the staged tile."""
        return self.step if self.gathered else 1

    def extent(self, outs: Array, taps: Array) -> Array:
        """Staged positions of a tile: its receptive extent."""
        return (outs - 1) * self.stage + (taps - 1) * self.dilation + 1

    @property
    def staged(self) -> int:
        """Staged positions of all outputs."""
        return int(self.extent(self.out, self.taps))

    def tiles(self, outs: int) -> Iterator[tuple[int, int]]:
        """First output and outputs of each tile of ``outs``, the last of which may be smaller."""
        for first in range(0, self.out - self.halo, outs - self.halo):
            yield first, min(outs, self.out - first)

    def count(self, outs: Array) -> Array:
        """Tiles of ``outs`` outputs."""
        return ceil_div(self.out - self.halo, outs - self.halo)

    def computed(self, outs: Array) -> Array:
        """Outputs of all tiles of ``outs``, those of two tiles twice."""
        return self.out + (self.count(outs) - 1) * self.halo

    @property
    def bounds(self) -> tuple[bool, bool]:
        """Whether staged positions lie before the first and behind the last of the input."""
        last = (self.staged - 1) * self.skip - self.before
        return self.before > 0, last >= self.size


def windows(work: Conv2dWorkload, gather: bool) -> tuple[Window, Window]:
    """Rows and columns; rows that the stride skips are never loaded for a kernel of one row."""
    top, left, _, _ = work.padding
    (kh, kw), (sh, sw), (dh, dw) = work.kernel, work.strides, work.dilation
    rows = Window(work.out_height, work.height, kh, sh, dh, top, kh == 1 and sh > 1)
    return rows, Window(work.out_width, work.width, kw, sw, dw, left, gather)
