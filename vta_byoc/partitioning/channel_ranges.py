"""Which ranges of a tensor's channels are stored by themselves: the cheapest of all ways."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from vta_byoc.workload.packing import blocks

MOST_RUNS = 64
"""Of channels with the same readers, in one tensor; one of more is stored whole."""


@dataclass(frozen=True)
class Reads:
    """Channels from ``first`` to before ``last``, and how many of them each reader has."""

    first: int
    last: int
    counts: dict[Hashable, int]


def runs_of(readers: Sequence[frozenset[Hashable]]) -> list[Reads]:
    """Neighbouring channels with the same ``readers``, as long as they are."""
    found, first = [], 0
    for own, channels in itertools.groupby(readers):
        last = first + len(list(channels))
        found.append(Reads(first, last, dict.fromkeys(own, last - first)))
        first = last
    return found


def cheapest_ranges(
    readers: Sequence[frozenset[Hashable]], cost: Callable[[Reads], float]
) -> list[Reads]:
    """The channels in ranges, each of one or more runs, whose sum of ``cost`` is the smallest.

    The first of several that cost the same has the shortest ranges at the end.
    """
    runs = runs_of(readers)
    if len(runs) > MOST_RUNS:
        return [_joined(runs)]
    best: list[tuple[float, list[Reads]]] = [(0.0, [])]
    for end in range(1, len(runs) + 1):
        ways = []
        for begin in range(end):
            whole = _joined(runs[begin:end])
            ways.append((best[begin][0] + cost(whole), [*best[begin][1], whole]))
        best.append(min(ways, key=lambda way: way[0]))
    return best[-1][1]


def _joined(runs: Sequence[Reads]) -> Reads:
    counts: dict[Hashable, int] = {}
    for run in runs:
        for reader, count in run.counts.items():
            counts[reader] = counts.get(reader, 0) + count
    return Reads(runs[0].first, runs[-1].last, counts)


def padded(channels: int, block: int) -> int:
    """The lanes of whole blocks that hold ``channels``."""
    return blocks(channels, block) * block
