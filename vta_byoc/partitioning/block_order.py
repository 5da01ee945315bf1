"""In which order channels between convolutions have their weights in the fewest blocks.

A channel is computed of some input blocks and read for some output blocks, those with a weight
that is not zero.  A block of channels is computed of, and read for, what any of its channels is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vta_byoc.workload.packing import blocks

MOST_KINDS = 256
"""Of channels, to fill blocks from: 16 groups on both sides; of more it takes too long."""
Kind: TypeAlias = tuple[frozenset[int], ...]
"""Of a channel, by convolution: the blocks on its other side that have a weight of the channel."""


@dataclass(frozen=True)
class Side:
    """A convolution that computes the channels, or reads them.

    Attributes:
        cycles: of a pair of blocks.
        seen: of each channel the blocks, on the other side, that have a weight of it.
    """

    cycles: int
    seen: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, weight: np.ndarray, axis: int, cycles: int, block: int) -> Side:
        """Of weights (O, I, KH, KW) whose ``axis``, 0 or 1, are the channels."""
        there = np.asarray(np.moveaxis(weight, axis, 0).any(axis=(2, 3)))
        first = np.arange(0, there.shape[1], block)
        found = map(np.flatnonzero, np.logical_or.reduceat(there, first, axis=1))
        return cls(cycles, tuple(frozenset(numbers.tolist()) for numbers in found))


def cheapest_order(sides: Sequence[Side], block: int) -> list[int]:
    """The channels in the order that costs least of some; of equal ones the first.

    Tried are the channels as they are; those alike for one side together, and those alike for the
    others up and down within them; and block by block those that add the fewest pairs.
    """
    kinds = list(zip(*(side.seen for side in sides), strict=True))
    cycles = [side.cycles for side in sides]
    orders = [list(range(len(kinds)))]
    if len(set(kinds)) == 1:  # as behind and in front of weights without zeros
        return orders[0]
    orders += [_in_turns(kinds, number) for number in range(len(sides))]
    if len(set(kinds)) <= MOST_KINDS:
        orders.append(_by_block(kinds, cycles, block))
    return min(orders, key=lambda order: cost_of(order, sides, block))


def cost_of(order: Sequence[int], sides: Sequence[Side], block: int) -> int:
    """Cycles of the products of all blocks that the channels in ``order`` make."""
    return sum(
        side.cycles * len(frozenset().union(*(side.seen[c] for c in order[first : first + block])))
        for side in sides
        for first in range(0, blocks(len(order), block) * block, block)
    )


def _in_turns(kinds: Sequence[Kind], number: int) -> list[int]:
    """By what side ``number`` sees, then by what the others do, in every second run backwards."""

    def first(channel: int) -> list[int]:
        return sorted(kinds[channel][number])

    def rest(channel: int) -> list[list[int]]:
        return [sorted(seen) for at, seen in enumerate(kinds[channel]) if at != number]

    found: list[int] = []
    runs = itertools.groupby(sorted(range(len(kinds)), key=first), first)
    for turn, (_, run) in enumerate(runs):
        found += sorted(run, key=rest, reverse=bool(turn % 2))
    return found


def _by_block(kinds: Sequence[Kind], cycles: Sequence[int], block: int) -> list[int]:
    """Fill one block after the other by channels of the kind that adds least for each of them."""
    left: dict[Kind, list[int]] = {}
    for channel, kind in enumerate(kinds):
        left.setdefault(kind, []).append(channel)
    found: list[int] = []
    while left:
        seen, room = (frozenset[int](),) * len(cycles), block
        while room and left:
            kind = min(left, key=functools.partial(_added, left, seen, cycles, room))
            taken, rest = left[kind][:room], left[kind][room:]
            seen = tuple(there | own for there, own in zip(seen, kind, strict=True))
            room -= len(taken)
            found += taken
            left = {**left, kind: rest} if rest else {k: v for k, v in left.items() if k != kind}
    return found


def _added(
    left: Mapping[Kind, Sequence[int]],
    seen: Kind,
    cycles: Sequence[int],
    room: int,
    kind: Kind,
) -> float:
    """Cycles of each channel of a kind that a block with ``room`` for more takes."""
    pairs = zip(cycles, kind, seen, strict=True)
    return sum(each * len(own - there) for each, own, there in pairs) / min(room, len(left[kind]))
