"""The taps of a sliding window along one axis, by phase of the stride."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vta_byoc.strategies.te.window import Window


@dataclass(frozen=True)
class Taps:
    """The taps of one axis in a reduction step, by phase of the stride."""

    window: Window
    count: int
    home: int

    @classmethod
    def of(cls, window: Window, count: int) -> Taps:
        """With the home that leaves the fewest phases to others and is inside the input."""
        if count < window.taps:
            return cls(window, count, 0)  # the home of every step
        choices = [cls(window, count, home) for home in range(count)]
        seen = Counter(choice.phase(choice.home) for choice in choices)
        return min(choices, key=lambda t: (seen[t.phase(t.home)] > 1, t.home_pads, t.home))

    @property
    def home_pads(self) -> bool:
        """Whether the home may lie in padding."""
        return self.pads(self.home) != (False, False)

    def pads(self, tap: int) -> tuple[bool, bool]:
        """Whether ``tap`` of any step may lie before and behind the input."""
        last = self.window.taps - self.count + tap
        return self.window.lowest(tap) < 0, self.window.highest(last) >= self.window.size

    @property
    def others(self) -> list[int]:
        """All taps but the home."""
        return [tap for tap in range(self.count) if tap != self.home]

    @property
    def every(self) -> list[int]:
        """All taps of a step."""
        return list(range(self.count))

    def phase(self, tap: int) -> int:
        """The position within a stride that ``tap`` sees."""
        return tap * self.window.dilation % self.window.step

    def offset(self, tap: int) -> int:
        """Whole strides from an output to ``tap``."""
        return tap * self.window.dilation // self.window.step

    def phases(self, taps: Sequence[int]) -> dict[int, tuple[int, int]]:
        """First and last offset of each phase of ``taps``."""
        found: dict[int, tuple[int, int]] = {}
        for tap in taps:
            offset = self.offset(tap)
            low, high = found.get(self.phase(tap), (offset, offset))
            found[self.phase(tap)] = min(low, offset), max(high, offset)
        return found

    @property
    def private(self) -> bool:
        """Whether no other tap sees the home's phase."""
        return self.phase(self.home) not in self.phases(self.others)
