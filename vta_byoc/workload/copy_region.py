"""Boxes of vectors: what a data movement copies from where to where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Where the vectors of a box come from, for its indices in [low, high).

    Index i is vector ``start + sum((i - low) * steps)`` of operand number ``operand``; a step of 0
    repeats it, along an axis that is covered.  ``lanes``: the channel lane of the source for each
    lane of the result, -1 for none (other sources of the box may fill it); empty: all as they are.
    """

    operand: int
    start: int
    steps: Ints
    low: Ints
    high: Ints
    lanes: Ints = ()


@dataclass(frozen=True)
class CopyRegion:
    """``size`` vectors of the result: index i is vector ``start + sum(i * steps)``.

    What no source covers is zero; where several do, they fill different lanes.
    """

    size: Ints
    start: int
    steps: Ints
    sources: tuple[Source, ...]


def read_box(value: CopyRegion | Mapping[str, object]) -> CopyRegion:
    """A box, or one as JSON reads it."""
    if isinstance(value, CopyRegion):
        return value
    fields: Mapping[str, Any] = value
    sources = tuple(
        Source(s["operand"], s["start"], *(tuple(s[n]) for n in ("steps", "low", "high", "lanes")))
        for s in fields["sources"]
    )
    return CopyRegion(tuple(fields["size"]), fields["start"], tuple(fields["steps"]), sources)


def merged(box: CopyRegion) -> CopyRegion:
    """The same box with as few axes as possible."""
    axes = [d for d in range(len(box.size)) if box.size[d] > 1 or _partial(box, d)]
    box = _chosen(box, axes or [0])
    for d in range(len(box.size) - 2, -1, -1):
        inner = box.size[d + 1]
        follows = [box.steps[d] == inner * box.steps[d + 1]]
        follows += [s.steps[d] == inner * s.steps[d + 1] for s in box.sources]
        if all(follows) and not _partial(box, d + 1):
            box = _joined(box, d)
    return box


def _partial(box: CopyRegion, axis: int) -> bool:
    """Whether a source covers only a part of ``axis``."""
    return any((s.low[axis], s.high[axis]) != (0, box.size[axis]) for s in box.sources)


def _chosen(box: CopyRegion, axes: Sequence[int]) -> CopyRegion:
    def of(values: Ints) -> Ints:
        return tuple(values[d] for d in axes)

    sources = tuple(
        Source(s.operand, s.start, of(s.steps), of(s.low), of(s.high), s.lanes) for s in box.sources
    )
    return CopyRegion(of(box.size), box.start, of(box.steps), sources)


def _joined(box: CopyRegion, d: int) -> CopyRegion:
    """Axes ``d`` and ``d + 1`` as one."""
    inner = box.size[d + 1]

    def steps(values: Ints) -> Ints:
        return (*values[:d], *values[d + 1 :])

    def scaled(values: Ints) -> Ints:
        return (*values[:d], values[d] * inner, *values[d + 2 :])

    sources = tuple(
        Source(s.operand, s.start, steps(s.steps), scaled(s.low), scaled(s.high), s.lanes)
        for s in box.sources
    )
    return CopyRegion(scaled(box.size), box.start, steps(box.steps), sources)
