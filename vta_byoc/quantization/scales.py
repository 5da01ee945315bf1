"""How real values become integers: scales, shifts and multipliers, each with its bound.

Every choice here is proven for any int8 input; `dialect` says how the results are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.errors import Refusal, VTAError

INT8_LOW, INT8_HIGH = -128, 127
UINT8_ZERO = 128
"""A uint8 value is this much larger than the int8 value that stands for it."""
WEIGHT_HIGH = 127
"""Weights use -127..127, so that a weight and its negation both exist."""
INT32_HIGH = 2**31 - 1
MAX_SHIFT = 31
SILENT_EXPONENT = -7
"""Exponent of a tensor that calibration only ever saw as zero: the scale is 1/128."""
SILENT_SHIFT = 15
"""Such a tensor is not shifted right by more than this."""
EXPONENT_LOW, EXPONENT_HIGH = -60, 100
ALIGN_BITS = 16
"""The coarser operand of an addition is shifted left by at most this much."""
MULTIPLIER_HIGH = 2**15 - 1
"""Multipliers fit the machine's 16-bit immediate."""
MULTIPLIER_BITS = 8
"""A multiplier with fewer bits that is not exact is refused (error above 0.4 %)."""


class Unscalable(Exception):
    """An operator stays float; `refusal` says why."""

    def __init__(self, name: str, reason: str | Refusal) -> None:
        self.refusal = reason if isinstance(reason, Refusal) else Refusal(reason)
        super().__init__(f"{name}: {self.refusal.text}")


INFINITE = "a tensor of it holds infinite values or NaN, as masks do, and int8 has neither"
TOO_LARGE = "a tensor of it reaches {amax:g}, as masks do, and int8 ends at {most:g}"
TOO_FAR = "no shift of 31 bits takes its sums to the scale of its result"


@dataclass(frozen=True)
class Scale:
    """What an int8 value q stands for: `step * (q - zero)`."""

    step: float
    zero: int = 0

    @classmethod
    def power(cls, exponent: int) -> Scale:
        """A power of two, no zero point."""
        return cls(2.0**exponent)

    @property
    def exponent(self) -> int:
        """Of a power of two."""
        mantissa, exponent = math.frexp(self.step)
        assert mantissa == 0.5 and not self.zero, f"{self} is not a power of two"
        return exponent - 1


def spanning(low: float, high: float) -> Scale:
    """The scale whose 256 values reach from `low` to `high`, and 0, which has a value of its own.

    Args:
        low: the least real value; what is above 0 counts as 0.
        high: the largest real value, above `low`; what is below 0 counts as 0.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    step = float(np.float32((high - low) / (INT8_HIGH - INT8_LOW)))
    return Scale(step, round(INT8_LOW - low / step))


def scale_exponent(amax: float, name: str) -> int:
    """The smallest e with 127 * 2**e >= amax, at least -60; -7 if amax is 0.

    Raises:
        Unscalable: amax is infinite or NaN, or needs an exponent above 100.
    """
    if amax == 0:
        return SILENT_EXPONENT
    if not math.isfinite(amax):
        raise Unscalable(name, INFINITE)
    exponent = math.frexp(amax)[1] - 7
    if INT8_HIGH * 2.0**exponent < amax:
        exponent += 1
    if exponent > EXPONENT_HIGH:
        raise Unscalable(name, TOO_LARGE.format(amax=amax, most=INT8_HIGH * 2.0**EXPONENT_HIGH))
    return max(exponent, EXPONENT_LOW)


def quantized(
    values: np.ndarray, scale: Scale, low: int = INT8_LOW, high: int = INT8_HIGH
) -> np.ndarray:
    """`values / step` rounded half to even, plus the zero point, saturated, as int64."""
    return np.clip(np.rint(np.float64(values) / scale.step) + scale.zero, low, high).astype("int64")


@dataclass(frozen=True)
class Rescale:
    """From an int32 accumulator to int8: shift, then saturate to low..high."""

    shift: int
    low: int = INT8_LOW
    high: int = INT8_HIGH

    @property
    def rounding(self) -> int:
        """What is added before a right shift."""
        return 1 << (self.shift - 1) if self.shift > 0 else 0


@dataclass(frozen=True)
class AccumulatorBound:
    """The proof that an int32 accumulator cannot overflow.

    Attributes:
        name: the layer.
        bound: the largest magnitude its value can take, rounding constant included, for any
            int8 input.
        shift: the rescale that follows.
        fix: what the user can do if the bound is too large.
    """

    name: str
    bound: int
    shift: int
    fix: str

    def checked(self) -> AccumulatorBound:
        """The proof itself.

        Raises:
            VTAError: int32 does not hold the bound, or what a left shift makes of it.
        """
        largest = self.bound << max(-self.shift, 0)
        if largest > INT32_HIGH:
            raise VTAError(
                f'layer "{self.name}" can accumulate {largest}; int32 holds {INT32_HIGH}; '
                f"{self.fix}"
            )
        return self


def slope_factor(slope: float) -> tuple[int, int] | None:
    """(m, n) with slope = m / 2**n, exact if n <= 12 suffices, else rounded.

    Returns:
        None if |m| has more than 15 bits.
    """
    shift = 12
    factor = round(slope * 2**shift)
    if abs(factor) > MULTIPLIER_HIGH:
        return None
    while factor % 2 == 0 and shift > 0:
        factor, shift = factor // 2, shift - 1
    return factor, shift
