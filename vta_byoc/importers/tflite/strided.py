"""What STRIDED_SLICE takes of each axis, as LiteRT reads its limits and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """What is taken of one axis of the operand.

    Attributes:
        begin, end, step: the limits; negative ones count from the end.
        from_start, to_end: whether `begin` or `end` does not matter.
        shrinks: one element, whose axis is dropped.
    """

    begin: int = 0
    end: int = 0
    step: int = 1
    from_start: bool = True
    to_end: bool = True
    shrinks: bool = False


WHOLE = Part()


def parts_of(
    options: Any, begin: Sequence[int], end: Sequence[int], step: Sequence[int], rank: int
) -> list[Part | None] | None:
    """The entries of a slice, in order: a part of an axis, or None for a new axis of size 1.

    An ellipsis stands for the axes that no other entry names, and for one at least, since LiteRT
    lets it take the axis of the next entry then. Behind all entries are whole axes.

    Args:
        options: StridedSliceOptions of the file's schema; bit i of a mask is of entry i.
        begin: where each entry begins.
        end: where it ends, without that element.
        step: how far it goes from one element to the next.
        rank: of the operand.

    Returns:
        The entries, with one part for each axis; None where they are not that many, or where there
        is more than one ellipsis.
    """
    ellipses = [i for i in range(len(begin)) if options.EllipsisMask() >> i & 1]
    parts: list[Part | None] = []
    for i, limits in enumerate(zip(begin, end, step, strict=True)):
        masks = options.BeginMask(), options.EndMask(), options.ShrinkAxisMask()
        is_new = options.NewAxisMask() >> i & 1 and i not in ellipses
        parts.append(None if is_new else Part(*limits, *(bool(mask >> i & 1) for mask in masks)))
    count = rank + parts.count(None)
    for i in ellipses[:1]:
        parts[i : i + 1] = [WHOLE] * max(1, count + 1 - len(parts))
    parts = [*parts, *[WHOLE] * (count - len(parts))][:count]
    fits = len(ellipses) < 2 and len(parts) - parts.count(None) == rank
    return parts if fits else None
