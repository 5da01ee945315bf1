"""Weighted sums of int8 operands in int32: factors, an offset and one shift.

`dialect` says what the steps mean; here they are chosen and proven.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.quantization.requantize import (
    FACTOR_BITS,
    RATIO_LIMIT,
    is_power_of_two,
    scalar_if_equal,
)
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, INT32_HIGH, MAX_SHIFT


@dataclass(frozen=True)
class Precision:
    """How long the constants of a `LinearCombination` may get.

    Attributes:
        factor: the largest factor.
        bits: fraction bits at most.
        offset_bits: fraction bits of the constant where no operand is multiplied, as all ratios are
            powers of two.
    """

    factor: int = (1 << FACTOR_BITS) - 1
    bits: int = MAX_SHIFT
    offset_bits: int = MAX_SHIFT


LONGEST = Precision()


@dataclass(frozen=True, eq=False)
class LinearCombination:
    """`(sum of (factor * operand + moved) + offset) >> shift`, saturated to low..high.

    Attributes:
        factors: int64, one for each operand, scalar or broadcasting.
        moved: int64, one for each operand: its zero point where it is taken off alone, else 0.
        offset: int64; constants, the other zero points and rounding.
        shift: to the left where it is negative.
        bound: of the sum, any input.
    """

    factors: tuple[np.ndarray, ...]
    moved: tuple[np.ndarray, ...]
    offset: np.ndarray
    shift: int
    low: int
    high: int
    bound: int

    @property
    def rounding(self) -> int:
        """What is in `offset` so that the shift rounds half up."""
        return 1 << (self.shift - 1) if self.shift > 0 else 0

    def reduced(self) -> LinearCombination:
        """The same results with the smallest factors: fraction bits that are all 0 are left out."""
        factors, constant, shift = self.factors, self.offset - self.rounding, self.shift
        whole = [*factors, *self.moved, constant]
        if shift < 1 or not any(f.any() for f in factors) or any((v % 2).any() for v in whole):
            return self
        offset = constant // 2 + (1 << shift - 2 if shift > 1 else 0)
        found = LinearCombination(
            tuple(f // 2 for f in factors),
            tuple(m // 2 for m in self.moved),
            offset,
            shift - 1,
            self.low,
            self.high,
            (self.bound + 1) // 2,
        )
        return found.reduced()


@dataclass(frozen=True, eq=False)
class Operand:
    """One term `ratio * (value - zero)`: `ratio` in output steps, `bound` the largest magnitude."""

    ratio: np.ndarray
    zero: int = 0
    bound: int = -INT8_LOW


def linear(
    operands: Sequence[Operand],
    constant: np.ndarray | float = 0.0,
    zero: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
    precision: Precision = LONGEST,
    *,
    apart: bool = False,
) -> LinearCombination:
    """Factors and shift for `round(sum of terms + constant) + zero`; constant in output steps.

    As many fraction bits as int32 holds and `precision` allows; none more than the ratios need.
    Ratios that are powers of two get factors that are, and the part that all have in common is one
    left shift of the sum.

    Args:
        operands: the terms.
        constant: scalar or broadcasting, in steps of the result.
        zero: zero point of the result.
        low: the least result.
        high: the largest result.
        precision: how long factors may be.
        apart: the larger or smaller term is wanted and not the sum: each loses its zero point
            first.
    """
    ratios = [np.asarray(np.clip(op.ratio, -RATIO_LIMIT, RATIO_LIMIT)) for op in operands]
    shifts_only = all(r.ndim == 0 and is_power_of_two(abs(float(r))) for r in ratios)
    span = sum(
        np.abs(r) * (op.bound + abs(op.zero)) for r, op in zip(ratios, operands, strict=True)
    )
    most = span + 4.0 * INT8_HIGH
    offsets = np.asarray(np.clip(constant, -most, most))

    def at(shift: int) -> LinearCombination:
        factors = tuple(np.rint(np.ldexp(r, shift)).astype(np.int64) for r in ratios)
        rounding = 1 << (shift - 1) if shift else 0
        offset = np.rint(np.ldexp(offsets, shift)).astype(np.int64) + (zero << shift) + rounding
        zeros = [-f * op.zero for f, op in zip(factors, operands, strict=True)]
        terms = [np.abs(f) * op.bound for f, op in zip(factors, operands, strict=True)]
        moved = tuple(np.int64(0) * z for z in zeros)
        if apart:
            moved = tuple(zeros)
            terms = [term + np.abs(z) for term, z in zip(terms, zeros, strict=True)]
            largest = np.maximum.reduce(np.broadcast_arrays(*terms))
        else:
            offset = offset + sum(zeros)
            largest = sum(terms, start=np.int64(0))
        bound = int((largest + np.abs(offset)).max())
        return LinearCombination(factors, moved, scalar_if_equal(offset), shift, low, high, bound)

    def fits(found: LinearCombination) -> bool:
        largest = max(int(np.abs(f).max()) for f in found.factors)
        return largest <= precision.factor and found.bound <= INT32_HIGH

    best = at(0)
    for shift in range(1, precision.bits + 1):
        ready = shifts_only and best.shift >= precision.offset_bits
        if _is_exact(best, ratios, [] if ready else [offsets]):
            break
        found = at(shift)
        if not fits(found):
            break
        best = found
    return _left_shifted(best) if shifts_only and len(operands) > 1 else best


def _left_shifted(found: LinearCombination) -> LinearCombination:
    """A sum whose common powers of two are a left shift behind it, if it has no fraction bits."""
    common = 0
    whole = [*found.factors, *found.moved, found.offset]
    while found.shift == 0 and all((v % (2 << common) == 0).all() for v in whole):
        common += 1
    if not common:
        return found
    return dataclasses.replace(
        found,
        factors=tuple(f >> common for f in found.factors),
        moved=tuple(m >> common for m in found.moved),
        offset=found.offset >> common,
        shift=-common,
        bound=found.bound >> common,
    )


def _is_exact(
    found: LinearCombination, ratios: Sequence[np.ndarray], constants: Sequence[np.ndarray]
) -> bool:
    """Whether the ratios and the constants are whole numbers of fraction steps."""
    wanted = [np.ldexp(value, found.shift) for value in (*ratios, *constants)]
    return all(bool((value == np.rint(value)).all()) for value in wanted)
