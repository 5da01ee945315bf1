"""Where in SRAM the weights of each kernel lie, so that the next one's do not wait for them.

Every kernel is written for weights from element 0 on.  Weights of neighbours that lie side by side
can be loaded while the kernel before still computes (:mod:`vta_byoc.codegen.early_loads`).
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from vta_byoc.codegen.stream import DRAM, Insn, Interval
from vta_byoc.codegen.uops import Kernel
from vta_byoc.hw.isa import MemType, Opcode

WEIGHTS = "wgt"
"""The space of weights in intervals."""


@dataclass
class _Group:
    """Kernels in a row that have weights in common, and so their places.

    ``size`` elements of SRAM; ``kernels`` are their micro-ops, by which groups are recognised that
    can have these in common.
    """

    streams: list[Sequence[Insn]]
    tensors: set[str]
    size: int
    kernels: Hashable


def place_weights(streams: Sequence[Sequence[Insn]], depth: int) -> None:
    """Move the weights of kernels, each a sequence of instructions, within ``depth`` elements."""
    groups: list[_Group] = []
    for stream in streams:
        group = _group(stream)
        if not group.size:
            continue
        if groups and groups[-1].tensors & group.tensors:
            before = groups[-1]
            before.streams.append(stream)
            before.tensors |= group.tensors
            before.size = max(before.size, group.size)
            before.kernels = (before.kernels, group.kernels)
        else:
            groups.append(group)
    for group, first in zip(groups, places(groups, depth), strict=True):
        for stream in group.streams if first else ():
            _move(stream, first)


def _group(stream: Sequence[Insn]) -> _Group:
    spans = [each for insn in stream for each in (*insn.reads, *insn.writes)]
    size = max((high for space, _, high in spans if space == WEIGHTS), default=0)
    loads = [insn for insn in stream if any(space == WEIGHTS for space, _, _ in insn.writes)]
    tensors = {space for insn in loads for space, _, _ in insn.reads if space.startswith(DRAM)}
    return _Group([stream], tensors, size, frozenset(i.kernel for i in stream if i.kernel))


def places(groups: Sequence[_Group], depth: int) -> list[int]:
    """The first element of each group, chosen from the last one to the first.

    As few elements as possible are those of the next group, then of the first half of the group
    behind that one, which is loaded first.  Of equal choices: where equal micro-ops lie already,
    so that these are loaded once, then the end of SRAM.
    """
    found: list[int] = []  # of the groups behind, nearest last
    twins: dict[Hashable, int] = {}
    for number in range(len(groups) - 1, -1, -1):
        group = groups[number]
        near = [(at, groups[number + 1 + k].size) for k, at in enumerate(found[:-3:-1])]
        spots = {0 if not near else depth - group.size, twins.get(group.kernels, 0), 0}
        spots |= {at + size for at, size in near} | {at - group.size for at, _ in near}
        spots = {at for at in spots if 0 <= at <= depth - group.size}
        key = functools.partial(_cost, group.size, near, twins.get(group.kernels))
        found.append(min(spots, key=key))
        twins[group.kernels] = found[-1]
    return found[::-1]


def _cost(
    size: int, near: Sequence[tuple[int, int]], twin: int | None, at: int
) -> tuple[int, int, bool, int]:
    shared = [
        max(0, min(at + size, first + (length if k == 0 else -(-length // 2))) - max(at, first))
        for k, (first, length) in enumerate(near)
    ]
    following, behind = (*shared, 0, 0)[:2]
    return following, behind, at != twin, -at if near else at


def _move(stream: Sequence[Insn], by: int) -> None:
    for insn in stream:
        if insn.opcode == Opcode.LOAD and insn.fields["mem_type"] == MemType.WGT:
            insn.fields["sram_base"] += by
            insn.writes = [_moved(each, by) for each in insn.writes]
        elif any(space == WEIGHTS for space, _, _ in insn.reads):
            insn.reads = [_moved(each, by) for each in insn.reads]
            if insn.kernel is not None:
                insn.kernel = _kernel(insn.kernel, by)


def _moved(interval: Interval, by: int) -> Interval:
    space, low, high = interval
    return (space, low + by, high + by) if space == WEIGHTS else interval


@functools.lru_cache(maxsize=1 << 12)
def _kernel(kernel: Kernel, by: int) -> Kernel:
    return Kernel((dst, src, wgt + by) for dst, src, wgt in kernel)
