"""Tiles of a convolution whose result is pooled in windows that overlap or are padded.

A tile is one of the pool's result.  The convolution computes what its windows see; rows and columns
that two tiles see are computed twice, those that none sees are not computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.cost.search import Array
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.conv.window import Window
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.fused.overlapping import overlap_of, taps_of
from vta_byoc.strategies.te.window import Window as Windows
from vta_byoc.strategies.te.window import windows_of
from vta_byoc.workload.workloads import Conv2dWorkload, PoolWorkload

POOLED = "pooled"
"""The stage of the largest value of each window."""


@dataclass(frozen=True)
class MaximaCost:
    """What the maxima of all tiles take.

    Attributes:
        alu: cycles of the ALU.
        resets: micro-ops that clear a copy.
        alu_nests: ALU nests of a tile.
        resets_nests: reset nests of a tile.
        beside: accumulators of a tile besides those of the convolution.
    """

    alu: Array
    resets: Array
    alu_nests: int
    reset_nests: int
    beside: Array


@dataclass(frozen=True)
class PooledTiles:
    """How a pool sees the result of a convolution.

    Attributes:
        work: the pool.
        convolution: the one that computes what all windows see, and no more.
    """

    work: PoolWorkload
    convolution: Conv2dWorkload

    @classmethod
    def of(cls, work: Conv2dWorkload, fused: Sequence[FusedConsumer]) -> PooledTiles | None:
        """Of the pool in `fused` that needs such tiles; None where there is none.

        Raises:
            VTAError: there is one that cannot be computed so.
        """
        pool = overlap_of(work, fused)
        if pool is None:
            return None
        padding: list[int] = []
        behind: list[int] = []
        for axis, window in enumerate(windows_of(pool.window)):
            stride, size = work.strides[axis], (work.height, work.width)[axis]
            before = work.padding[axis] + window.before * stride
            seen = int(window.extent(window.out, window.taps))
            padding.append(before)
            behind.append((seen - 1) * stride + work.extent[axis] - size - before)
        pads = (padding[0], padding[1], behind[0], behind[1])
        return cls(pool, dataclasses.replace(work, padding=pads))

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the pool's result."""
        return self.work.out_shape[2], self.work.out_shape[3]

    @property
    def windows(self) -> tuple[Windows, Windows]:
        """Of the pool: rows and columns."""
        return windows_of(self.work.window)

    def computed(self, tile: Mapping[str, Array]) -> dict[str, Array]:
        """`tile` of the pool's result with the outputs of the convolution that it sees."""
        rows, cols = self.windows
        seen = {"oh": rows.extent(tile["oh"], rows.taps), "ow": cols.extent(tile["ow"], cols.taps)}
        return {**tile, **seen}

    def with_halos(self, rows: Window, cols: Window) -> tuple[Window, Window]:
        """Rows and columns of the convolution, of which tiles have some in common."""
        halos = [int(each.extent(1, each.taps)) - each.step for each in self.windows]
        return (
            dataclasses.replace(rows, halo=halos[0]),
            dataclasses.replace(cols, halo=halos[1]),
        )

    def maxima(self, tile: Mapping[str, Array], planes: float, config: VTAConfig) -> MaximaCost:
        """What the maxima take, of `tile` of the pool's result.

        Args:
            tile: sizes by axis.
            planes: vectors of one position.
            config: the machine.
        """
        time = config.timing
        (height, width), (rows, cols) = self.size, self.windows
        across = taps_of(cols)
        assert across is not None
        copies = not across.private
        seen = rows.extent(tile["oh"], rows.taps)
        tiles = -(-height // tile["oh"])
        halo = int(rows.extent(1, rows.taps)) - rows.step
        most = min(rows.size, rows.highest() + 1) - rows.lowest()
        lines = planes * width * (most + (tiles - 1) * halo)
        results = planes * height * width
        maxima = lines * (cols.taps - 1) * cols.share + results * (rows.taps - 1) * rows.share
        copied = results + lines * copies
        blocks = tile["n"] * tile["g"] * tile["co"]
        return MaximaCost(
            alu=(maxima + copied) * time.alu_tensor_cycles,
            resets=copied,
            alu_nests=rows.taps + cols.taps - 1 + copies,
            reset_nests=1 + copies,
            beside=blocks * tile["ow"] * (tile["oh"] + copies * seen),
        )


def pooled_stage(acc: te.Tensor, pool: PooledTiles) -> te.Tensor:
    """The first and the last of what each window sees in `acc`, which says what a tile needs.

    The nests that compute the maxima of all take its place (`vta_byoc.strategies.fused`).
    """
    rows, cols = pool.windows

    def largest(n: Var, g: Var, o: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        row, col = h * rows.step, w * cols.step
        below, right = row + rows.extent(1, rows.taps) - 1, col + cols.extent(1, cols.taps) - 1
        return tirx.max(acc[n, g, o, row, col, b, k], acc[n, g, o, below, right, b, k])

    images, groups, blocks, _, _, b, k = acc.shape
    return te.compute((images, groups, blocks, *pool.size, b, k), largest, name=POOLED)
