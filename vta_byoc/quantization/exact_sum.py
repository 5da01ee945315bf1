"""A runtime's sum of two int8 tensors to the bit, proven by trying all 65,536 pairs.

`((x * first >> cut) + (y * second >> cut) + offset) >> shift`: all zero points and the rounding are
in the offset. Factors are within a few units of the nearest ones; which of them agree with the
runtime, and with which offset, the pairs tell: each says from where to where the offset may be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, INT32_HIGH, MAX_SHIFT

VALUES = np.arange(INT8_LOW, INT8_HIGH + 1, dtype=np.int64)
"""Every int8 value."""
NEAR = tuple(sorted(itertools.product(range(-2, 3), repeat=2), key=lambda d: abs(d[0]) + abs(d[1])))
"""What is added to the nearest factors."""
CUTS = (0, 1, 2)
"""Bits by which products are cut before they are added; each costs a cycle for both operands."""
SHIFTS = 3
"""Shifts that are tried, from the longest that int32 holds."""


@dataclass(frozen=True)
class ExactSum:
    """The constants of the module's docstring, saturated to low..high; `bound` of the sum."""

    factors: tuple[int, int]
    cut: int
    offset: int
    shift: int
    low: int
    high: int
    bound: int


def exact_sum(
    both: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ratios: tuple[float, float],
    low: int,
    high: int,
) -> ExactSum | None:
    """The constants with which a sum has the runtime's result for every pair.

    Args:
        both: the runtime's arithmetic of two int64 arrays that broadcast.
        ratios: result steps of one in each operand; the second is negative in a difference.
        low: the least result.
        high: the largest result.

    Returns:
        None where none are found within int32.
    """
    wanted = np.clip(both(VALUES[:, None], VALUES[None, :]), low, high)
    for cut in CUTS:
        longest = _longest(ratios, cut)
        for shift in range(longest, max(longest - SHIFTS, 0), -1):
            nearest = [round(ratio * 2.0 ** (shift + cut)) for ratio in ratios]
            for away in NEAR:
                factors = (nearest[0] + away[0], nearest[1] + away[1])
                found = _with_factors(wanted, factors, cut, shift, low, high)
                if found is not None:
                    return found
    return None


def _longest(ratios: tuple[float, float], cut: int) -> int:
    """The longest last shift for which int32 may hold everything."""
    span = 2 * -INT8_LOW * sum(abs(r) for r in ratios) + -INT8_LOW
    single = -INT8_LOW * max(abs(r) for r in ratios) * 2.0**cut
    return min(int(np.floor(np.log2(INT32_HIGH / max(span, single)))), MAX_SHIFT)


def _with_factors(
    wanted: np.ndarray, factors: tuple[int, int], cut: int, shift: int, low: int, high: int
) -> ExactSum | None:
    """The sum with these factors, where an offset has all results within int32."""
    terms = [VALUES * factor for factor in factors]
    if max(int(np.abs(term).max()) for term in terms) > INT32_HIGH:
        return None
    total = (terms[0] >> cut)[:, None] + (terms[1] >> cut)[None, :]
    start = (wanted << shift) - total
    least = int(np.where(wanted > low, start, -INT32_HIGH).max())
    most = int(np.where(wanted < high, start + (1 << shift) - 1, INT32_HIGH).min())
    if least > most:
        return None
    offset = (max(least, -INT32_HIGH) + min(most, INT32_HIGH)) // 2
    bound = int(max(np.abs(total).max(), np.abs(total + offset).max()))
    if bound > INT32_HIGH:
        return None
    return ExactSum(factors, cut, offset, shift, low, high, bound)
