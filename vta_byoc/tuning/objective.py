"""What tuning makes small: simulated cycles, DRAM bytes, or both by weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError

CYCLES, DRAM_BYTES, BOTH = OBJECTIVES = ("cycles", "dram-bytes", "both")


@dataclass(frozen=True)
class Measured:
    """What the timing simulator and the counters say of one schedule of a layer, alone.

    Attributes:
        cycles: simulated.
        dram_bytes: loaded and stored, micro-ops included.
    """

    cycles: int
    dram_bytes: int


@dataclass(frozen=True)
class Objective:
    """Which of a layer's schedules is the best.

    Attributes:
        name: one of OBJECTIVES.
        bytes_weight: with "both" the share of DRAM bytes in what is made small, 0 to 1; cycles have
            the rest. Each is counted in parts of what the default schedule takes.
        tolerance: schedules that are at most this share worse than the best count as equal, and
            that of fewest DRAM bytes is taken, among equal ones that of fewest cycles.

    Raises:
        VTAError: no such objective, or a share that is none.
    """

    name: str = CYCLES
    bytes_weight: float = 0.5
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise VTAError(
                f"objective {self.name!r} is none; known: {', '.join(OBJECTIVES)}; choose one"
            )
        for what, value in (("bytes weight", self.bytes_weight), ("tolerance", self.tolerance)):
            if not 0 <= value <= 1:
                raise VTAError(f"{what} {value}; it is a share from 0 to 1; give another")

    def score(self, found: Measured, default: Measured) -> float:
        """What is made small: 1 for the default schedule."""
        weight = {CYCLES: 0.0, DRAM_BYTES: 1.0, BOTH: self.bytes_weight}[self.name]
        cycles = found.cycles / default.cycles
        return (1 - weight) * cycles + weight * found.dram_bytes / max(default.dram_bytes, 1)

    def best(self, found: Sequence[Measured], default: Measured) -> int:
        """The number of the first of the best of ``found``, of which there is one at least."""
        scores = [self.score(each, default) for each in found]
        limit = (1 + self.tolerance) * min(scores)
        near = [number for number, score in enumerate(scores) if score <= limit]
        first, then = ("dram_bytes", "cycles") if self.tolerance else ("cycles", "dram_bytes")
        return min(near, key=lambda i: (getattr(found[i], first), getattr(found[i], then)))
