"""Elementwise operators of one int8 operand as functions of 256 values.

What an operator makes of every int8 is computed once; a cheaper way to compute it is taken only
where it gives the same 256 results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.ir.chains import INT8_VALUES
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.workloads import ElementwiseWorkload, Step

MOST_SHIFT = 14
"""Right shifts that are tried; a rounding constant of an immediate goes with them."""
FACTORS = np.arange(-(1 << 7), 1 << 7, dtype=np.int64)
"""The factors of a GEMM weight."""
RAISES = 8
"""Left shifts that are tried are less than this."""
IMMEDIATES = range(-(1 << 15), 1 << 15)


@functools.lru_cache(maxsize=256)
def results_of(work: ElementwiseWorkload) -> tuple[int, ...] | None:
    """What `work` makes of each of `INT8_VALUES`, int32 as the machine wraps it.

    None where it has several operands, or operands that are tensors.
    """
    chains = [each.steps for each in work.prologues] + [work.epilogue.steps]
    if work.operands != 1 or any(not _is_plain(s) for steps in chains for s in steps):
        return None
    values = [_after(INT8_VALUES, each.steps) for each in work.prologues]
    joined = values[0] if work.op is None else _wrapped(OPERATIONS[work.op].exact(*values))
    return tuple(int(v) for v in _after(joined, work.epilogue.steps, values[-1]))


def is_rising(work: ElementwiseWorkload) -> bool:
    """Whether `work` is a function of one int8 operand that never falls where that rises."""
    found = results_of(work)
    return found is not None and bool((np.diff(np.array(found)) >= 0).all())


def _is_plain(step: Step) -> bool:
    """Whether a step reads its value and a number, no tensor."""
    return step.is_square or step.is_other or not isinstance(step.operand, str)


def _after(
    values: np.ndarray, steps: Sequence[Step], other: np.ndarray | None = None
) -> np.ndarray:
    """`values` after `steps`, of which those of OTHER add `other`."""
    for step in steps:
        row = OPERATIONS[step.op]
        if step.is_square:
            operand = values
        elif step.is_other:
            assert other is not None, f"nothing is joined before {steps}"
            operand = other
        else:
            operand = np.full_like(values, int(step.operand))
        values = _wrapped(row.exact(values, operand))
    return values


def _wrapped(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32).astype(np.int64)


@dataclass(frozen=True)
class Bend:
    """A function of two slopes: `(positive(rise * x) << raised) + factor * x + offset) >> shift`.

    `positive` is the larger of a value and 0.
    """

    rise: int
    raised: int
    factor: int
    offset: int
    shift: int

    @property
    def head_steps(self) -> tuple[Step, ...]:
        """What is done to `rise * x`."""
        return (Step("max", 0), *((Step("shl", self.raised),) if self.raised else ()))

    @property
    def last_steps(self) -> tuple[Step, ...]:
        """What is done to the sum of both products."""
        return _rounded(self.offset, self.shift)


@dataclass(frozen=True)
class Slope:
    """The larger of x and `(factor * x + offset) >> shift`: positive values stay."""

    factor: int
    offset: int
    shift: int

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that make the smaller slope of x."""
        scale = (Step("mul", self.factor),) if self.factor != 1 else ()
        return (*scale, *_rounded(self.offset, self.shift))


def _rounded(offset: int, shift: int) -> tuple[Step, ...]:
    add = (Step("add", offset),) if offset else ()
    return (*add, *((Step("shr", shift),) if shift else ()))


@functools.lru_cache(maxsize=256)
def bend_of(results: tuple[int, ...]) -> Bend | None:
    """The cheapest bend that gives `results` for `INT8_VALUES`; None where there is none."""
    wanted, found = np.array(results), []
    below, above = INT8_VALUES <= 0, INT8_VALUES >= 0
    for shift in range(MOST_SHIFT + 1):
        least, most = _offsets(wanted, below, FACTORS, shift)
        for at in np.flatnonzero((least <= most) & (FACTORS != 0)):
            factor = int(FACTORS[at])
            for raised in range(RAISES):
                fast = _offsets(wanted, above, (FACTORS << raised) + factor, shift)
                low, high = np.maximum(fast[0], least[at]), np.minimum(fast[1], most[at])
                for rise in FACTORS[(low <= high) & (FACTORS > 0)].tolist():
                    place = rise - int(FACTORS[0])
                    offset = _nearest(int(low[place]), int(high[place]))
                    if offset in IMMEDIATES:
                        found.append(Bend(rise, raised, factor, offset, shift))
        if found:
            break  # a larger shift costs no less
    return min(found, key=lambda b: (len(b.head_steps) + len(b.last_steps), b.rise), default=None)


@functools.lru_cache(maxsize=256)
def slope_of(results: tuple[int, ...]) -> Slope | None:
    """The slope that gives `results` for `INT8_VALUES`, by the smallest shift; None without one."""
    wanted = np.array(results)
    if (wanted[INT8_VALUES >= 0] != INT8_VALUES[INT8_VALUES >= 0]).any():
        return None
    for shift in range(MOST_SHIFT + 1):
        low, high = _offsets(wanted, INT8_VALUES < 0, FACTORS, shift)
        for at in np.flatnonzero((low <= high) & (FACTORS > 0)):
            found = Slope(int(FACTORS[at]), _nearest(int(low[at]), int(high[at])), shift)
            made = (INT8_VALUES * found.factor + found.offset) >> shift
            if found.offset in IMMEDIATES and (np.maximum(INT8_VALUES, made) == wanted).all():
                return found
    return None


def _offsets(
    wanted: np.ndarray, which: np.ndarray, factors: np.ndarray, shift: int
) -> tuple[np.ndarray, np.ndarray]:
    """For each factor the least and the largest offset that give what is wanted of some values."""
    products = factors[:, None] * INT8_VALUES[which][None]
    low = (wanted[which] << shift)[None] - products
    return low.max(axis=1), low.min(axis=1) + (1 << shift) - 1


def _nearest(low: int, high: int) -> int:
    """The number from `low` to `high` that is nearest to 0."""
    return min(max(low, 0), high)
