"""Constants of `exact_point`'s steps, searched: cheapest form first, every channel proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.quantization.exact_point import (
    SIGN_SHIFT,
    ExactPoint,
    Thresholds,
    proven,
    thresholds,
)
from vta_byoc.quantization.runtime_arithmetic import Rounding
from vta_byoc.quantization.scales import INT32_HIGH

MOST = 1 << 30
"""No constant exceeds this, so that what it is added to fits int32."""
PARTS = ((15, 1 << 15), (15, 1 << 16), (14, 1 << 17), (16, 1 << 15))
"""Bits that are left of a product, and what the second factor stays below; the first choice is an
immediate."""
SHIFTS = 4
"""Shifts that are tried, from the longest that int32 holds."""
NEAR = tuple(sorted(range(-6, 7), key=abs))
"""Second factors that are tried beside the nearest one."""
FIRSTS = 6
"""First factors that are tried below the largest."""
ROUNDS = 3
"""How often what is added is moved to the middle of its room."""
HOPELESS = 0.6
"""Where half of the second factors leave this share of channels, the others are not tried."""
SLOPES, SLOPE_BITS = 129, 22
"""Slopes that are tried within one part in 2**22 of the ratio before a longer search."""
FEW, APART = 16, 0.6
"""So many thresholds on either side tell that they lie so many sums apart."""


def exact_point(
    rounding: Rounding,
    bound: np.ndarray,
    zero: int,
    low: int,
    high: int,
    *,
    most_parts: int = 2,
) -> ExactPoint | None:
    """Steps with the results of `rounding` for every sum, cheapest form first.

    Args:
        rounding: the runtime's arithmetic; it takes [..., channels].
        bound: int64 [channels]: the largest magnitude of the sums.
        zero: zero point of the result.
        low: the least result, -128 or what a clamp says.
        high: the largest result.
        most_parts: of the multiplication: 1 or 2.

    Returns:
        None where no such steps are found within int32.
    """
    if low >= high:
        return None
    ratio = np.broadcast_to(rounding.ratio, bound.shape)
    if (ratio <= 0).any():
        return None
    wanted = thresholds(rounding, bound, low, high)
    for parts in (PARTS[:1], PARTS[1:]) if most_parts > 1 else ((),):
        if parts == PARTS[1:] and not _lies_on_lines(wanted, ratio, zero):
            return None
        for form in _forms(wanted, ratio, zero):
            for shift in form.shifts():
                found = form.one_part(shift) or form.two_parts(shift, parts)
                if found is not None:
                    return found
    return None


def _forms(wanted: Thresholds, ratio: np.ndarray, zero: int) -> Iterator[_Form]:
    """Without a clamp and with; the zero point in the offset, or behind; then with a jump."""
    offset = np.rint((zero + 0.5) / ratio)
    is_small = bool((np.abs(offset) + wanted.bound < MOST).all())
    offset = np.where(is_small, offset, 0).astype(np.int64)
    none = np.zeros_like(offset)
    sides = wanted.results <= zero
    changes = wanted.above & wanted.below
    is_split = bool((changes[:, sides].any(axis=1) & changes[:, ~sides].any(axis=1)).any())
    if not is_split or not _lies_apart(wanted, ratio, zero):
        for is_clamped in (False, True):
            yield _Form(wanted, ratio, zero, offset if is_small else none, is_clamped, False)
    if is_split:
        for is_clamped in (False, True):
            yield _Form(wanted, ratio, zero, none, is_clamped, True)


def _lies_on_lines(wanted: Thresholds, ratio: np.ndarray, zero: int) -> bool:
    """Whether every channel's thresholds lie on one line for each sign, as far as slopes tell.

    Slopes near `ratio` are tried; results on a line leave room for what is added to it.
    """
    sides = (wanted.results <= zero, wanted.results > zero)
    widest = np.full(len(ratio), -np.inf)
    for away in np.linspace(-1, 1, SLOPES) * 2.0**-SLOPE_BITS:
        slope = (ratio * (1 + away))[:, None]
        width = np.full(len(ratio), np.inf)
        for side in sides:
            least = np.where(wanted.above & side, wanted.results - slope * wanted.at, -np.inf)
            most = np.where(wanted.below & side, wanted.results - slope * (wanted.at - 1), np.inf)
            width = np.minimum(width, most.min(axis=1) - least.max(axis=1))
        widest = np.maximum(widest, width)
    return bool((widest > 0).all())


def _lies_apart(wanted: Thresholds, ratio: np.ndarray, zero: int) -> bool:
    """Whether the thresholds of negative sums clearly lie on another line in some channel.

    On one line all are half a sum, on average, behind where the result changes.
    """
    behind = wanted.at - (wanted.results - zero - 0.5) / ratio[:, None]
    changes = wanted.above & wanted.below
    means = []
    for side in (wanted.results <= zero, wanted.results > zero):
        there = changes & side
        count = there.sum(axis=1)
        total = np.where(there, behind, 0).sum(axis=1)
        means.append(np.where(count < FEW, np.nan, total / np.maximum(count, 1)))
    return bool((np.abs(means[0] - means[1]) > APART).any())


@dataclass(frozen=True, eq=False)
class _Form:
    """Which parts the steps have; their constants are searched."""

    wanted: Thresholds
    ratio: np.ndarray
    zero: int
    offset: np.ndarray
    is_clamped: bool
    jumps: bool

    @property
    def after(self) -> int | None:
        return None if self.offset.any() else self.zero

    @property
    def clamp(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The sums with their offset that do not saturate, and one more on both sides."""
        if not self.is_clamped:
            return None
        least, most = (end + self.offset for end in self.wanted.ends)
        immediate = least.min() >= IMMEDIATE_LOW and most.max() <= IMMEDIATE_HIGH
        if immediate:
            least, most = np.full_like(least, least.min()), np.full_like(most, most.max())
        return least, most

    @property
    def reach(self) -> np.ndarray:
        """int64 [channels]: the largest magnitude that is multiplied."""
        clamp = self.clamp
        if clamp is None:
            return self.wanted.bound + np.abs(self.offset)
        return np.maximum(np.abs(clamp[0]), np.abs(clamp[1]))

    @property
    def is_needed(self) -> np.ndarray:
        """Whether the result of a channel changes at all, bool [channels]."""
        return (self.wanted.above & self.wanted.below).any(axis=1)

    def shifts(self) -> range:
        """Last shifts, from the longest for which int32 holds the products."""
        most = float((self.reach * self.ratio)[self.is_needed].max(initial=2.0**-20))
        longest = int(np.floor(np.log2((INT32_HIGH - (INT32_HIGH >> 5)) / most)))
        longest = min(longest, SIGN_SHIFT)
        return range(longest, max(longest - SHIFTS, 0), -1)

    def one_part(self, shift: int) -> ExactPoint | None:
        """One multiplication, where it is precise enough."""
        if self.jumps:
            return None
        slope = np.ldexp(self.ratio, shift)
        search = _Search(self, self._start(shift))
        for away in (0, -1, 1):
            if search.is_done:
                break
            search.try_first(np.maximum(np.rint(slope) + away, 0).astype(np.int64))
        return search.result()

    def two_parts(self, shift: int, parts: Sequence[tuple[int, int]]) -> ExactPoint | None:
        """Two multiplications, the second nested, with the bits of one of `parts`."""
        for bits, most in parts:
            for below in (1, 3, FIRSTS) if self.jumps else (0, 1, 3):
                found = self._in_two_parts(shift, bits, most, below)
                if found is not None:
                    return found
        return None

    def _in_two_parts(self, shift: int, bits: int, most: int, below: int) -> ExactPoint | None:
        """`bits` are left of the first product for a second factor up to `most`.

        The first factor is at most so many `below` the largest.
        """
        slope = np.ldexp(self.ratio, shift)
        whole = np.floor(slope).astype(np.int64)
        firsts = [whole - j for j in range(int(self.jumps), below + 1)]
        rest = (slope / np.maximum(firsts[-1], 1) - 1)[self.is_needed].max(initial=2.0**-30)
        total = int(np.floor(np.log2((most - len(NEAR)) / max(float(rest), 2.0**-30))))
        reach = int((self.reach * np.maximum(whole, 1))[self.is_needed].max(initial=1))
        cut = max(reach.bit_length() - bits, 0)
        down = total - cut
        if not 0 <= down <= SIGN_SHIFT:
            return None
        start = replace(self._start(shift), second=whole * 0, cut=cut, down=down)
        search = _Search(self, start)
        for first in firsts:
            rest_of = np.ldexp(slope / np.maximum(first, 1) - 1, total)
            for number, near in enumerate(NEAR):
                if number == len(NEAR) // 2 and search.is_hopeless:
                    return None
                if not search.is_done:
                    second = np.maximum(np.rint(rest_of) + near, 0).astype(np.int64)
                    search.try_both(np.maximum(first, 0), second, total)
        return search.result()

    def _start(self, shift: int) -> ExactPoint:
        none = np.zeros_like(self.offset)
        jump = none if self.jumps else None
        clamp, after = self.clamp, self.after
        return ExactPoint(self.offset, clamp, none, none, jump, None, 0, 0, shift, after)


class _Search:
    """Constants channel by channel: those that are proven are kept."""

    def __init__(self, form: _Form, start: ExactPoint) -> None:
        self.form = form
        self.start = start
        self.left = np.arange(len(form.ratio))
        names = ("first", "more", "jump", "second")
        self.found = {n: getattr(start, n).copy() for n in names if getattr(start, n) is not None}

    @property
    def is_done(self) -> bool:
        return not len(self.left)

    @property
    def is_hopeless(self) -> bool:
        """Whether so few channels have their constants that the others will not get them."""
        return len(self.left) > len(self.form.ratio) * HOPELESS

    def result(self) -> ExactPoint | None:
        """The steps, where every channel has its constants."""
        return replace(self.start, **self.found) if self.is_done else None

    def try_first(self, first: np.ndarray) -> None:
        """A first factor [channels], alone."""
        point, wanted = self._of_left({"first": first})
        low, high = _room(point, wanted)
        self._keep(replace(point, more=np.clip((low + high) >> 1, -MOST, MOST)), wanted)

    def try_both(self, first: np.ndarray, second: np.ndarray, total: int) -> None:
        """A first and a second factor, [channels] each; what is added to them comes closer."""
        point, wanted = self._of_left({"first": first, "second": second})
        for _ in range(ROUNDS):
            assert point.second is not None
            point = _closer(point, wanted, np.ldexp(point.second.astype(np.float64), -total))
            left = self._keep(point, wanted)
            if not left.any():
                return
            point, wanted = _only(point, left), _chosen(wanted, left)

    def _of_left(self, constants: dict[str, Any]) -> tuple[ExactPoint, Thresholds]:
        """The steps of the channels that have no constants yet, and their thresholds."""
        point = replace(self.start, **constants)
        return _only(point, self.left), _chosen(self.form.wanted, self.left)

    def _keep(self, point: ExactPoint, wanted: Thresholds) -> np.ndarray:
        """Keep the channels of `point` that are proven; which are not, bool."""
        good = proven(point, wanted)
        for name, values in self.found.items():
            values[self.left[good]] = getattr(point, name)[good]
        self.left = self.left[~good]
        return ~good


def _only(point: ExactPoint, chosen: np.ndarray) -> ExactPoint:
    """The steps of some channels."""
    names = ("offset", "first", "more", "jump", "second")
    values: dict[str, Any] = {
        name: getattr(point, name)[chosen] for name in names if getattr(point, name) is not None
    }
    clamp = None if point.clamp is None else (point.clamp[0][chosen], point.clamp[1][chosen])
    return replace(point, clamp=clamp, **values)


def _chosen(wanted: Thresholds, chosen: np.ndarray) -> Thresholds:
    """The thresholds of some channels."""
    return replace(wanted, at=wanted.at[chosen], bound=wanted.bound[chosen])


def _closer(point: ExactPoint, wanted: Thresholds, part: np.ndarray) -> ExactPoint:
    """The steps with the sum, and the jump, moved to the middle of their room.

    `part` is what the second factor adds, float64 [channels].
    """
    if point.jump is None:
        low, high = _room(point, wanted)
        more = point.more + np.rint((low + high) / 2 / (1 + part)).astype(np.int64)
        return replace(point, more=np.clip(more, -MOST, MOST))
    is_negative = wanted.results <= (point.after or 0)
    low, high = _room(point, wanted, ~is_negative)
    more = point.more + np.rint((low + high) / 2 / (1 + part)).astype(np.int64)
    least, most = _room(point, wanted, is_negative)
    apart = (low + high - least - most) / 2
    away = np.where(part > 0, apart / np.maximum(part, 2.0**-40), 0)
    jump = np.clip(np.rint(point.jump + away), 0, MOST).astype(np.int64)
    return replace(point, more=np.clip(more, -MOST, MOST), jump=jump)


def _room(
    point: ExactPoint, wanted: Thresholds, chosen: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What may be added before the last shift, int64 [channels] from and to; empty if crossed.

    `chosen`: the results that count, all by default.
    """
    bare = replace(point, after=None, shift=0)
    goal = wanted.results - (0 if point.after is None else point.after)
    target = (goal << point.shift) - (0 if point.after is None else 1 << point.shift >> 1)
    limit = wanted.bound[:, None]
    counts = np.ones(len(goal), bool) if chosen is None else chosen
    up, _ = bare.run(np.clip(wanted.at, -limit, limit))
    down, _ = bare.run(np.clip(wanted.at - 1, -limit, limit))
    least = np.where(wanted.above & counts, target - up, -MOST).max(axis=1)
    most = np.where(wanted.below & counts, target - down - 1, MOST).min(axis=1)
    least = np.where(least == -MOST, np.minimum(most, 0), least)
    return least, np.where(most == MOST, np.maximum(least, 0), most)
