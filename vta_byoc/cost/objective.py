"""What the choice of tiles and tuning make small: cycles, DRAM bytes, or both by weight.

The choice of tiles goes by estimates and asks `current`, what a compilation was given; tuning goes
by what was simulated.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError

CYCLES, DRAM_BYTES, BOTH = OBJECTIVES = ("cycles", "dram-bytes", "both")


@dataclass(frozen=True)
class Measured:
    """What the timing simulator and the counters say of one schedule of a layer, or a program.

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
        cycles_limit: schedules that take more cycles than the fewest, and more by this share, are
            left out; None: whatever is best may take any number of cycles.

    Raises:
        VTAError: no such objective, or a share that is none.
    """

    name: str = CYCLES
    bytes_weight: float = 0.5
    tolerance: float = 0.0
    cycles_limit: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise VTAError(
                f"objective {self.name!r} is none; known: {', '.join(OBJECTIVES)}; choose one"
            )
        for what, value in (
            ("bytes weight", self.bytes_weight),
            ("tolerance", self.tolerance),
            ("cycles limit", self.cycles_limit),
        ):
            if value is not None and not 0 <= value <= 1:
                raise VTAError(f"{what} {value}; it is a share from 0 to 1; give another")

    @property
    def weight(self) -> float:
        """The share of DRAM bytes in what is made small."""
        return {CYCLES: 0.0, DRAM_BYTES: 1.0, BOTH: self.bytes_weight}[self.name]

    def most_cycles(self, fewest: float) -> float:
        """The cycles that a schedule may take where the fastest takes ``fewest``."""
        return math.inf if self.cycles_limit is None else (1 + self.cycles_limit) * fewest

    def score(self, found: Measured, default: Measured) -> float:
        """What is made small: 1 for the default schedule."""
        cycles = found.cycles / default.cycles
        nbytes = found.dram_bytes / max(default.dram_bytes, 1)
        return (1 - self.weight) * cycles + self.weight * nbytes

    def best(self, found: Sequence[Measured], default: Measured) -> int:
        """The number of the first of the best of ``found``, of which there is one at least."""
        most = self.most_cycles(min(each.cycles for each in found))
        scores = [self.score(each, default) if each.cycles <= most else math.inf for each in found]
        limit = (1 + self.tolerance) * min(scores)
        near = [number for number, score in enumerate(scores) if score <= limit]
        first, then = ("dram_bytes", "cycles") if self.tolerance else ("cycles", "dram_bytes")
        return min(near, key=lambda i: (getattr(found[i], first), getattr(found[i], then)))


# ---------------------------------------------------------------- what a compilation was given
TOLERANCE = 0.01
"""With "cycles": of tiles that cost at most so much more than the cheapest, that of least traffic.

Without it ResNet-18 saves 0.3 % of its cycles and moves twice the bytes.
"""
CYCLES_LIMIT = 0.02
"""With "both": tiles that cost more than the cheapest, and more by this share, are left out.

docs/cost-model.md says what it makes of ResNet-18.
"""
NAMED = {
    CYCLES: Objective(CYCLES, tolerance=TOLERANCE),
    DRAM_BYTES: Objective(DRAM_BYTES),
    BOTH: Objective(BOTH, cycles_limit=CYCLES_LIMIT),
}
"""What the choice of tiles takes a name for, with nothing else said."""
DEFAULT = NAMED[BOTH]
"""By which tiles are chosen unless the user says otherwise."""
_CURRENT: ContextVar[Objective] = ContextVar("vta_byoc.cost.objective", default=DEFAULT)


def current() -> Objective:
    """By which tiles are to be chosen here."""
    return _CURRENT.get()


@contextlib.contextmanager
def aiming(objective: Objective) -> Iterator[None]:
    """Choose tiles by `objective` meanwhile."""
    token = _CURRENT.set(objective)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def objective_of(given: Objective | str) -> Objective:
    """An objective, or that of a name with nothing else said.

    Raises:
        VTAError: no such name, or a value that is neither.
    """
    if isinstance(given, Objective):
        return given
    if not isinstance(given, str):
        raise VTAError(
            f"objective {given!r} is none; known: {', '.join(OBJECTIVES)}; give a name, or an "
            "Objective with a bytes weight"
        )
    return NAMED.get(given) or Objective(given)
