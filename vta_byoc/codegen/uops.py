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

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, LOOP_LIMIT

FAR = 1 << 62
Base = tuple[int, int, int]


class Kernel(tuple[Base, ...]):
    """Micro-ops (dst, src, wgt).  Kernels are keys again and again: the hash is computed once."""

    def __hash__(self) -> int:
        known = self.__dict__.get("hash")
        if known is None:
            known = self.__dict__["hash"] = super().__hash__()
        return int(known)


@dataclass(frozen=True)
class LoopDim:
    """One loop over SRAM elements: strides of (dst, src, wgt) in elements."""

    extent: int
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class LoopCompression:
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


BEST = LoopCompression()
TUTORIALS = LoopCompression("tutorials", outermost=True, fuse_reset=False, share_sites=False)


@dataclass(frozen=True)
class CompressedNest:
    """A nest as one instruction: up to two hardware loops around a kernel.

    ``spans`` are [low, high) of the SRAM elements of each operand.
    """

    loops: tuple[LoopDim, ...]
    kernel: Kernel
    spans: tuple[tuple[int, int], ...]

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


def compress(
    config: VTAConfig,
    dims: Sequence[LoopDim],
    base: Base,
    mode: LoopCompression = BEST,
    *,
    distance: int = 1,
) -> Iterator[CompressedNest]:
    """Instructions that together run ``dims`` (already fused) from SRAM indices ``base``."""
    dims = tuple(dims)
    hw, split = _plan(dims, mode, distance, config.uop_depth)
    if split is None:
        rest = [d for k, d in enumerate(dims) if k not in hw]
        loops = tuple(dims[k] for k in hw)
        yield CompressedNest(loops, _kernel(rest, base), _spans(dims, base))
        return
    k, size = split
    for start in range(0, dims[k].extent, size):
        part = _resized(dims, k, min(size, dims[k].extent - start))
        yield from compress(config, part, _shift(base, dims[k], start), mode, distance=distance)


def compressed_count(config: VTAConfig, dims: Sequence[LoopDim], distance: int) -> tuple[int, int]:
    """(instructions, micro-ops of their kernels) that :func:`compress` makes of any ``dims``.

    For tile choosers: nothing is enumerated, and equal questions are answered from memory.
    """
    return _count(tuple(fuse(dims)), distance, config.uop_depth)


@functools.lru_cache(maxsize=1 << 16)
def _count(dims: tuple[LoopDim, ...], distance: int, depth: int) -> tuple[int, int]:
    hw, split = _plan(dims, BEST, distance, depth)
    if split is None:
        return 1, math.prod(d.extent for k, d in enumerate(dims) if k not in hw)
    k, size = split
    whole, rest = divmod(dims[k].extent, size)
    insns, uops = (whole * n for n in _count(_resized(dims, k, size), distance, depth))
    if rest:
        more = _count(_resized(dims, k, rest), distance, depth)
        insns, uops = insns + more[0], uops + more[1]
    return insns, uops


@functools.lru_cache(maxsize=1 << 14)
def _plan(
    dims: tuple[LoopDim, ...], mode: LoopCompression, distance: int, depth: int
) -> tuple[tuple[int, ...], tuple[int, int] | None]:
    """The hardware loops, or a loop that must be split first, and into which turns."""
    for k, d in enumerate(dims):
        if d.extent > LOOP_LIMIT:
            return (), (k, (d.extent + 1) // 2)
    hw = _choose(dims, mode, distance)
    if hw is None:
        k = next((k for k, d in enumerate(dims) if d.strides[0] == 0), 0)
        return (), (k, 1)
    rest = [(d.extent, k) for k, d in enumerate(dims) if k not in hw]
    if math.prod(extent for extent, _ in rest) > depth:
        extent, k = max(rest)
        return (), (k, (extent + 1) // 2)
    return hw, None


def _resized(dims: tuple[LoopDim, ...], k: int, extent: int) -> tuple[LoopDim, ...]:
    """``dims`` with ``extent`` turns of loop ``k``."""
    kept = (LoopDim(extent, dims[k].strides),) if extent > 1 else ()
    return (*dims[:k], *kept, *dims[k + 1 :])


def _shift(base: Base, dim: LoopDim, count: int) -> Base:
    dst, src, wgt = (b + count * s for b, s in zip(base, dim.strides, strict=True))
    return dst, src, wgt


def _kernel(rest: Sequence[LoopDim], base: Base) -> Kernel:
    """All micro-ops of ``rest``; loops that leave dst alone (reductions) go outermost."""
    at = np.array([base])
    for d in _kernel_order(rest):
        at = (at[:, None] + np.arange(d.extent)[:, None] * d.strides).reshape(-1, 3)
    return Kernel(map(tuple, at.tolist()))


def _spans(dims: Sequence[LoopDim], base: Base) -> tuple[tuple[int, int], ...]:
    reach = [[(d.extent - 1) * stride for stride in d.strides] for d in dims]
    return tuple(
        (b + sum(min(0, r[k]) for r in reach), b + sum(max(0, r[k]) for r in reach) + 1)
        for k, b in enumerate(base)
    )


def _kernel_order(rest: Sequence[LoopDim]) -> list[LoopDim]:
    return sorted(rest, key=lambda d: d.strides[0] != 0)


def _choose(
    dims: tuple[LoopDim, ...], mode: LoopCompression, distance: int
) -> tuple[int, ...] | None:
    """Indices of the hardware loops, or None when no choice keeps equal destinations apart."""
    legal = [k for k, d in enumerate(dims) if min(d.strides) >= 0]
    if mode.outermost:
        return tuple(legal[:2])
    pairs = list(itertools.combinations(legal, min(2, len(legal))))
    pairs.sort(key=lambda p: -math.prod(dims[k].extent for k in p))
    # the order of steps is free: where few destinations repeat too soon, the loops change places
    for turned in (False, True):
        for pair in pairs:
            order = pair[::-1] if turned else pair
            if dst_distance(dims, order) >= distance:
                return order
    return None


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

    def __init__(self, config: VTAConfig, mode: LoopCompression):
        self._isa = ISA.of(config)
        self._mode = mode
        self._depth = config.uop_depth
        self._resident: dict[object, int] = {}
        self._stored: dict[Sequence[Base], int] = {}
        self._top = 0
        self.words: list[int] = []

    def place(self, kernel: Sequence[Base], site: object) -> tuple[int, tuple[int, int] | None]:
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
            self.words += self._encoded(kernel)
        return at, (self._stored[kernel], len(kernel))

    def _encoded(self, kernel: Sequence[Base]) -> list[int]:
        values = np.array(kernel, np.int64)
        words = np.zeros(len(values), np.int64)
        for column, f in zip(values.T, self._isa.uop, strict=True):
            if column.min() < f.low or column.max() > f.high:
                return [self._isa.encode_uop(*uop) for uop in kernel]
            words |= column << f.lsb
        return list(words.tolist())
