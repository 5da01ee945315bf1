"""Hardware loops and micro-op kernels.

A GEMM or ALU nest has up to six loops over SRAM elements; the hardware runs two, the rest becomes
the micro-op kernel.  Kernels are shared, split when they exceed the buffer, and reloaded when the
buffer had to be emptied.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import LOOP_BITS, VTAConfig
from vta_byoc.hw.isa import ISA

LOOP_LIMIT = (1 << LOOP_BITS) - 1
FAR = 1 << 62
Kernel = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class LoopDim:
    """One loop over SRAM elements: strides of (dst, src, wgt) in elements."""

    extent: int
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class FoldMode:
    """How loops become hardware loops and kernels.

    ``best`` picks the two loops that leave the smallest kernel and shares equal kernels.  The
    published tutorials instead took the two outermost loops, whatever distance that leaves between
    equal destinations, left the reset's loops unfused and kept one kernel per site: that mode
    reproduces their micro-op bytes.
    """

    name: str = "best"
    outermost: bool = False
    fuse_reset: bool = True
    share_sites: bool = True


BEST = FoldMode()
PUBLISHED = FoldMode("published", outermost=True, fuse_reset=False, share_sites=False)


@dataclass(frozen=True)
class Folded:
    """A nest as one instruction: up to two hardware loops around a kernel."""

    loops: tuple[LoopDim, ...]
    kernel: Kernel

    @property
    def steps(self) -> int:
        """Micro-ops executed."""
        return math.prod(d.extent for d in self.loops) * len(self.kernel)


def fuse(dims: Sequence[LoopDim]) -> list[LoopDim]:
    """Drop unit loops and merge neighbours that walk every operand as one loop."""
    out: list[LoopDim] = []
    for d in dims:
        if d.extent == 1:
            continue
        last = out[-1] if out else None
        if last and all(o == d.extent * s for o, s in zip(last.strides, d.strides, strict=True)):
            out[-1] = LoopDim(last.extent * d.extent, d.strides)
        else:
            out.append(d)
    return out


def fold(
    config: VTAConfig,
    dims: Sequence[LoopDim],
    base: tuple[int, int, int],
    mode: FoldMode = BEST,
    *,
    distance: int = 1,
) -> Iterator[Folded]:
    """Instructions that together run ``dims`` (already fused) from SRAM indices ``base``."""
    for k, d in enumerate(dims):
        if d.extent > LOOP_LIMIT:
            yield from _halves(config, dims, k, base, mode, distance)
            return
    hw = _choose(tuple(dims), mode, distance)
    if hw is None:
        k = next((k for k, d in enumerate(dims) if d.strides[0] == 0), 0)
        for i in range(dims[k].extent):
            yield from fold(
                config, _without(dims, k), _shift(base, dims[k], i), mode, distance=distance
            )
        return
    rest = [d for k, d in enumerate(dims) if k not in hw]
    if math.prod(d.extent for d in rest) > config.uop_depth:
        largest = max((d.extent, k) for k, d in enumerate(dims) if k not in hw)[1]
        yield from _halves(config, dims, largest, base, mode, distance)
        return
    yield Folded(tuple(dims[k] for k in hw), _kernel(rest, base))


def _halves(
    config: VTAConfig,
    dims: Sequence[LoopDim],
    k: int,
    base: tuple[int, int, int],
    mode: FoldMode,
    distance: int,
) -> Iterator[Folded]:
    half = (dims[k].extent + 1) // 2
    for start, count in ((0, half), (half, dims[k].extent - half)):
        part = [*dims[:k], LoopDim(count, dims[k].strides), *dims[k + 1 :]]
        part = [d for d in part if d.extent > 1]
        yield from fold(config, part, _shift(base, dims[k], start), mode, distance=distance)


def _without(dims: Sequence[LoopDim], k: int) -> list[LoopDim]:
    return [*dims[:k], *dims[k + 1 :]]


def _shift(base: tuple[int, int, int], dim: LoopDim, count: int) -> tuple[int, int, int]:
    dst, src, wgt = (b + count * s for b, s in zip(base, dim.strides, strict=True))
    return dst, src, wgt


def _kernel(rest: Sequence[LoopDim], base: tuple[int, int, int]) -> Kernel:
    """All micro-ops of ``rest``; loops that leave dst alone (reductions) go outermost."""
    kernel = [base]
    for d in _kernel_order(rest):
        kernel = [_shift(at, d, i) for at in kernel for i in range(d.extent)]
    return tuple(kernel)


def _kernel_order(rest: Sequence[LoopDim]) -> list[LoopDim]:
    return sorted(rest, key=lambda d: d.strides[0] != 0)


@functools.lru_cache(maxsize=4096)
def _choose(dims: tuple[LoopDim, ...], mode: FoldMode, distance: int) -> tuple[int, ...] | None:
    """Indices of the hardware loops, or None when no choice keeps equal destinations apart."""
    legal = [k for k, d in enumerate(dims) if min(d.strides) >= 0]
    if mode.outermost:
        return tuple(legal[:2])
    pairs = list(itertools.combinations(legal, min(2, len(legal))))
    pairs.sort(key=lambda p: -math.prod(dims[k].extent for k in p))
    return next((p for p in pairs if dst_distance(dims, p) >= distance), None)


def dst_distance(dims: Sequence[LoopDim], hw: Sequence[int]) -> int:
    """Smallest number of micro-ops between two that write the same element (huge when none)."""
    rest = [d for k, d in enumerate(dims) if k not in hw]
    order = [dims[k] for k in hw] + _kernel_order(rest)
    if _injective([d for d in order if d.strides[0]]):
        still = [k for k, d in enumerate(order) if not d.strides[0] and d.extent > 1]
        return math.prod(d.extent for d in order[still[-1] + 1 :]) if still else FAR
    seq = np.zeros(1, np.int64)
    for d in order:
        seq = (seq[:, None] + np.arange(d.extent) * d.strides[0]).reshape(-1)
    where = np.argsort(seq, kind="stable")
    same = np.diff(seq[where]) == 0
    return int(np.diff(where)[same].min()) if same.any() else FAR


def _injective(dims: Sequence[LoopDim]) -> bool:
    """Whether different loop values give different destinations (strides nest)."""
    span = 0
    for d in sorted(dims, key=lambda d: abs(d.strides[0])):
        if abs(d.strides[0]) <= span:
            return False
        span += (d.extent - 1) * abs(d.strides[0])
    return True


class UopBuffer:
    """Contents of the micro-op SRAM while a stream is written, and the micro-ops in DRAM."""

    def __init__(self, config: VTAConfig, mode: FoldMode):
        self._isa = ISA.of(config)
        self._mode = mode
        self._depth = config.uop_depth
        self._resident: dict[object, int] = {}
        self._stored: dict[Kernel, int] = {}
        self._top = 0
        self.words: list[int] = []

    def place(self, kernel: Kernel, site: object) -> tuple[int, tuple[int, int] | None]:
        """SRAM index of ``kernel`` and, if it must be loaded, its (DRAM index, length)."""
        key = kernel if self._mode.share_sites else (site, kernel)
        if key in self._resident:
            return self._resident[key], None
        if self._top + len(kernel) > self._depth:
            self._resident.clear()
            self._top = 0
        at = self._top
        self._resident[key] = at
        self._top += len(kernel)
        if kernel not in self._stored:
            self._stored[kernel] = len(self.words)
            self.words += [self._isa.encode_uop(*u) for u in kernel]
        return at, (self._stored[kernel], len(kernel))
