"""The geometry of max pooling, and what a tiling costs."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vta_byoc.cost.dma import alu_cost, kernel_size
from vta_byoc.cost.search import Array, ResourceUsage, Space, Staged, ceil_div
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.phases import Taps
from vta_byoc.strategies.te.window import SPACE, Sliding, per_channel
from vta_byoc.workload.memory import ACC, WGT
from vta_byoc.workload.workloads import PoolWorkload

ROWS_FIRST, COLUMNS_FIRST = "rows first", "columns first"
KERNEL_COPIES = 1.7
"""How often a kernel is loaded, about: less than once for each slot (MOST_SLOTS), as those that
work on a line alone, which has one slot, are loaded once."""


@dataclass(frozen=True)
class MaxPool:
    """A max pool: its windows, which axis comes first and what may not win.

    ``negative``: zero is more than some results; ``signed``: so is padding, and there is some.
    """

    sliding: Sliding
    first: str
    split: bool
    negative: bool
    signed: bool
    taps: Mapping[str, Taps]

    @classmethod
    def of(
        cls, work: PoolWorkload, config: VTAConfig, variant: str, taps: tuple[int, int]
    ) -> MaxPool:
        """The pool of a tile whose reduction steps have ``taps`` rows and columns of taps."""
        sliding = sliding_of(work, config)
        windows = {"h": sliding.rows, "w": sliding.cols}
        pads = any(any(window.pads) for window in windows.values())
        empty = any(window.empty for window in windows.values())
        each = {a: Taps.of(windows[a], n) for a, n in zip("hw", taps, strict=True)}
        split = taps != (sliding.rows.taps, sliding.cols.taps)
        first = "h" if variant == ROWS_FIRST else "w"
        negative = work.low < 0 or empty
        return cls(sliding, first, split, negative, pads and negative, each)

    @property
    def second(self) -> str:
        """The axis that comes second, "h" or "w"."""
        return "w" if self.first == "h" else "h"

    @property
    def in_place(self) -> bool:
        """Whether the second axis ends in the lines of its home."""
        return not self.split and self.taps[self.second].private


def sliding_of(work: PoolWorkload, config: VTAConfig) -> Sliding:
    """The windows of ``work``."""
    return Sliding.of(work.window, config, per_channel(work.epilogue.tensors))


# ---------------------------------------------------------------- tiles
def max_space(work: PoolWorkload, config: VTAConfig) -> Space:
    """All tilings."""
    sliding = sliding_of(work, config)
    usage = functools.partial(_usage, work, sliding, config)
    variants = (ROWS_FIRST, COLUMNS_FIRST)
    return Space("a max pool", sliding.axes, variants, usage)


def _usage(
    work: PoolWorkload,
    sliding: Sliding,
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    variant: str,
) -> ResourceUsage:
    """Taps of a step decide the nests: one count for each pair of them, selected by ``tile``."""
    found: list[Array] = [np.float64(0)] * 6
    for kh, kw in itertools.product(tile["kh"].reshape(-1), tile["kw"].reshape(-1)):
        counts = _counts(MaxPool.of(work, config, variant, (int(kh), int(kw))), config, tile)
        here = (tile["kh"] == kh) & (tile["kw"] == kw)
        found = [np.where(here, new, old) for new, old in zip(counts, found, strict=True)]
    gemm, gemms, alu, alus, beside, kernel = found
    tiles = sliding.tiles(tile)
    operands = sliding.operands(work.epilogue, tile, config)
    staged = (
        sliding.staged(tile, config),
        Staged(ACC, tile["c"] * tile["h"] * tile["w"], tiles),
        Staged(ACC, beside, 1),
        Staged(WGT, 1, 1, float(config.wgt_elem_bytes), 1),
        *operands,
    )
    cycles, count = alu_cost(work.epilogue.steps, config)
    return ResourceUsage(
        staged=staged,
        tiles=tiles,
        gemm=gemm,
        gemm_starts=tiles * gemms,
        alu=alu + sliding.vectors * cycles,
        alu_starts=tiles * (alus + count),
        uops=np.minimum(tiles, MOST_SLOTS) * kernel,
        kernels=np.minimum(tiles, KERNEL_COPIES) * (gemms + alus) + len(operands),
        stored=sliding.vectors * config.out_elem_bytes,
        stores=sliding.stores(tile),
    )


def _counts(pool: MaxPool, config: VTAConfig, tile: Mapping[str, np.ndarray]) -> tuple[Array, ...]:
    """What the nests of a tiling take.

    GEMM cycles and instructions of a tile, ALU cycles and instructions of a tile, elements of ACC
    beside the result's, micro-ops.
    """
    first, second = pool.taps[pool.first], pool.taps[pool.second]
    planes = float(pool.sliding.images * pool.sliding.planes)
    n_first = ceil_div(first.window.out, tile[pool.first])
    n_second = ceil_div(second.window.out, tile[pool.second])
    steps = float(pool.sliding.steps({"kh": pool.taps["h"].count, "kw": pool.taps["w"].count}))
    tensor, imm = config.timing.alu_tensor_cycles, config.timing.alu_imm_cycles
    outs, lines_out = float(first.window.out), float(second.window.out)
    shares = [taps.window.share if pool.signed else 1.0 for taps in (first, second)]
    gemm: Array = 0
    alu: Array = 0
    beside: Array = 0
    most: Array = 0
    gemms: Array = 0
    alus: Array = 0
    phases = first.phases(first.others)
    for phase, (low, high) in second.phases(second.every).items():
        lines = lines_out + n_second * (high - low)
        wide = sum(outs + n_first * (b - a) for a, b in phases.values())
        gemm = gemm + 2 * planes * lines * (outs + wide)
        alu = alu + planes * lines * outs * len(first.others) * tensor * shares[0]
        gemms, alus = gemms + 2 + 2 * len(phases), alus + len(first.others)
        if not (pool.in_place and phase == second.phase(second.home)):
            beside = beside + tile["c"] * tile[pool.first] * (tile[pool.second] + high - low)
        extra = sum(tile[pool.first] + b - a for a, b in phases.values())
        most = np.maximum(most, tile["c"] * extra * (tile[pool.second] + high - low))
    vectors = pool.sliding.vectors
    taps = second.count if pool.split else len(second.others)
    start: Array = 0
    if not pool.in_place:
        start = vectors * (1 + (imm if pool.split else tensor))
        alus += 1 if pool.split else 2
    gemm, gemms, alu = gemm * steps, gemms * steps, alu * steps
    alu = alu + vectors * taps * tensor * steps * shares[1] + start
    alus = (alus + taps) * steps
    kernel = (gemms + alus) * kernel_size([tile[axis] for axis in SPACE])
    return gemm, gemms, alu, alus, beside + most, kernel
