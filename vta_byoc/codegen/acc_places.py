"""Where in SRAM the accumulators of each kernel lie, so that the next one waits for no STORE.

Every kernel is written for accumulators from element 0 on.  The first tile of a kernel is cleared
while the last tile of the one before is still stored: where both have one place, the compute queue
waits for that STORE, and the LOADs behind it wait too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from vta_byoc.codegen.stream import Insn, Interval
from vta_byoc.codegen.uops import Kernel
from vta_byoc.hw.isa import MEMORY_TYPES, MemType, Opcode

ACCUMULATORS = "acc"
"""The space of accumulators in intervals."""
Span = tuple[int, int]


@dataclass(frozen=True)
class _Tiles:
    """The accumulators of a kernel.

    ``end`` is one past the last; ``first`` and ``last`` are those of its first and of its last
    tile; ``tensors`` are loaded into some.
    """

    end: int
    first: Span
    last: Span
    tensors: frozenset[str]


def place_accumulators(streams: Sequence[Sequence[Insn]], depth: int) -> None:
    """Move the accumulators of kernels, each a sequence of instructions, within ``depth`` elements.

    Kernels in a row that load one tensor have one place, so that it is loaded once.
    """
    before, at = None, 0
    for stream in streams:
        tiles = _tiles(stream)
        if tiles is None:
            continue
        most = depth - tiles.end
        if before is None or not before.tensors & tiles.tensors:
            taken = (0, 0) if before is None else (before.last[0] + at, before.last[1] + at)
            at = place(tiles.first, taken, most)
        at = min(at, most)
        if at:
            _move(stream, at)
        before = tiles


def place(first: Span, taken: Span, most: int) -> int:
    """How far accumulators move, by ``most`` at the most: the ``first`` tile avoids what is taken.

    Of equal choices the lowest.
    """
    spots = {at for at in (0, taken[0] - first[1], taken[1] - first[0]) if 0 <= at <= most}
    return min(spots, key=lambda at: (_common(first[0] + at, first[1] + at, *taken), at))


def _common(low: int, high: int, begin: int, end: int) -> int:
    return max(0, min(high, end) - max(low, begin))


def _tiles(stream: Sequence[Insn]) -> _Tiles | None:
    """None of a kernel that clears no accumulators, or stores none."""
    stores = [number for number, insn in enumerate(stream) if insn.opcode == Opcode.STORE]
    resets = [number for number, insn in enumerate(stream) if insn.fields.get("reset")]
    if not stores or not resets:
        return None
    tensors = {space for insn in stream if _loads(insn) for space, _, _ in insn.reads}
    first, last = _span(stream[: stores[0] + 1]), _span(stream[resets[-1] :])
    return _Tiles(_span(stream)[1], first, last, frozenset(tensors))


def _loads(insn: Insn) -> bool:
    return insn.opcode == Opcode.LOAD and insn.writes[0][0] == ACCUMULATORS


def _span(insns: Sequence[Insn]) -> Span:
    """From the first to one past the last accumulator that is read or written."""
    spans = [each for insn in insns for each in (*insn.reads, *insn.writes)]
    found = [(low, high) for space, low, high in spans if space == ACCUMULATORS]
    return min(low for low, _ in found), max(high for _, high in found)


# ---------------------------------------------------------------- moving
def _move(stream: Sequence[Insn], by: int) -> None:
    for insn in stream:
        insn.reads = [_moved(each, by) for each in insn.reads]
        insn.writes = [_moved(each, by) for each in insn.writes]
        if insn.kernel is not None:
            insn.kernel = _kernel(insn.kernel, by, by if insn.opcode == Opcode.ALU else 0)
        elif MEMORY_TYPES[MemType(insn.fields["mem_type"])].sram == ACCUMULATORS:
            insn.fields["sram_base"] += by


def _moved(interval: Interval, by: int) -> Interval:
    space, low, high = interval
    return (space, low + by, high + by) if space == ACCUMULATORS else interval


@functools.lru_cache(maxsize=1 << 12)
def _kernel(kernel: Kernel, dst_by: int, src_by: int) -> Kernel:
    return Kernel((dst + dst_by, src + src_by, wgt) for dst, src, wgt in kernel)
