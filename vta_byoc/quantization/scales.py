"""How real values become integers: scales, shifts and multipliers, each with its bound.

Every choice here is proven for any int8 input; `dialect` says how the results are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

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
AFFINE_BITS = 12
"""Fraction bits that an int32 value with a multiplier has below its int8 result."""
OFFSET_BITS = 8
"""The same without multiplier: the offset of a result still fits a 16-bit immediate."""


class Unscalable(Exception):
    """An operator stays float; `refusal` says why."""

    def __init__(self, name: str, reason: str | Refusal) -> None:
        self.refusal = reason if isinstance(reason, Refusal) else Refusal(reason)
        super().__init__(f"{name}: {self.refusal.text}")


INFINITE = "a tensor of it holds infinite values or NaN, as masks do, and int8 has neither"
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


def scale_exponent(amax: float, name: str) -> int:
    """The smallest e with 127 * 2**e >= amax, at least -60; -7 if amax is 0.

    Raises:
        Unscalable: amax is infinite or NaN.
        VTAError: amax needs an exponent above 60.
    """
    if amax == 0:
        return SILENT_EXPONENT
    if not math.isfinite(amax):
        raise Unscalable(name, INFINITE)
    exponent = math.frexp(amax)[1] - 7
    if INT8_HIGH * 2.0**exponent < amax:
        exponent += 1
    if exponent > EXPONENT_HIGH:
        raise VTAError(
            f'"{name}" reaches {amax:g}; values up to {INT8_HIGH * 2.0**EXPONENT_HIGH:g} can be '
            "quantized; scale the model's inputs or weights down"
        )
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
class Accumulator:
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

    def checked(self) -> Accumulator:
        largest = self.bound << max(-self.shift, 0)
        if largest > INT32_HIGH:
            raise VTAError(
                f'layer "{self.name}" can accumulate {largest}; int32 holds {INT32_HIGH}; '
                f"{self.fix}"
            )
        return self


def shift_to(acc_exponent: int, amax: float, bound: int, name: str) -> tuple[int, int]:
    """Exponent of the int8 result and the shift that takes an accumulator there.

    The exponent is that of `amax`, with two exceptions that lose nothing: a left shift stops
    before `bound` would leave int32, and a tensor that was always zero is not shifted right by
    more than 15.

    Raises:
        Unscalable: a clamp beyond all that the accumulator can reach decides `amax`.
    """
    shift = scale_exponent(amax, name) - acc_exponent
    if amax == 0:
        shift = min(shift, SILENT_SHIFT)
    shift = max(shift, -MAX_SHIFT)
    while shift < 0 and bound << -shift > INT32_HIGH:
        shift += 1
    if shift > MAX_SHIFT:
        raise Unscalable(name, TOO_FAR)
    return acc_exponent + shift, shift


@dataclass(frozen=True)
class MeanScale:
    """Sums of n int8 values -> their means: multiply, then rescale.

    `multipliers` holds one multiplier for each n that was asked for.
    """

    multipliers: tuple[int, ...]
    rescale: Rescale
    exponent: int
    bound: int


def mean_scale(counts: Iterable[int], exponent: int, amax: float, name: str) -> MeanScale | None:
    """The most precise multipliers and common shift for the means of `counts` values.

    The products stay within int32 for any input (`bound`), the multipliers within 15 bits.
    None if fewer than 8 significant bits are left and the multipliers are not exact: then an
    integer mean would be worse than a float one.
    """
    counts = tuple(counts)
    out_exponent = max(scale_exponent(amax, name), exponent - 14)
    ratios = [Fraction(2) ** (exponent - out_exponent) / count for count in counts]

    def scale(shift: int) -> MeanScale:
        factors = tuple(math.floor(ratio * 2**shift + Fraction(1, 2)) for ratio in ratios)
        largest = max(128 * n * factor for n, factor in zip(counts, factors, strict=True))
        rescale = Rescale(shift)
        return MeanScale(factors, rescale, out_exponent, largest + rescale.rounding)

    shift = MAX_SHIFT
    while shift >= 0 and not _fits(scale(shift)):
        shift -= 1
    if shift < 0:
        return None
    factors = scale(shift).multipliers
    exact = all(f == r * 2**shift for f, r in zip(factors, ratios, strict=True))
    if min(factors) < 2 ** (MULTIPLIER_BITS - 1) and not exact:
        return None
    while any(factors) and all(f % 2 == 0 for f in factors) and shift > 0:
        factors, shift = tuple(f // 2 for f in factors), shift - 1
    bound = max(128 * n * f for n, f in zip(counts, factors, strict=True))
    return MeanScale(factors, Rescale(shift), out_exponent, bound + Rescale(shift).rounding)


def _fits(scale: MeanScale) -> bool:
    return max(scale.multipliers) <= MULTIPLIER_HIGH and scale.bound <= INT32_HIGH


@dataclass(frozen=True)
class AffineScale:
    """int8 x -> int32 factor * x + offset, then shifted right to int8 at 2**exponent.

    Attributes:
        factor: int64, broadcasts against x; a power of two is `1 << left`.
        left: the left shift that replaces the multiplication; None if there has to be one.
        offset: int64, broadcasts against x; the rounding constant is not in it.
    """

    factor: np.ndarray
    left: int | None
    offset: np.ndarray
    shift: int
    exponent: int

    def bound(self) -> int:
        rounding = Rescale(self.shift).rounding
        return int((128 * np.abs(self.factor) + np.abs(self.offset + rounding)).max())


def affine_scale(
    scale: np.ndarray, offset: np.ndarray, exponent: int, amax: float, name: str
) -> AffineScale:
    """For `scale * x + offset`, x int8 at 2**exponent, results up to `amax`; constants float64.

    The int32 value has 8 fraction bits below the result if the scale is one power of two and
    12 otherwise, fewer if the factors would exceed 15 bits or the shift 16.  An offset
    beyond 2**29 is cut: the result saturates either way.
    """
    out = scale_exponent(amax, name)
    one = float(scale.reshape(-1)[0])
    power = math.frexp(one)[1] - 1
    is_power = one > 0 and math.ldexp(1.0, power) == one and bool((scale == one).all())
    if is_power and exponent + power >= out - 2 * ALIGN_BITS:
        inner = exponent + power
        acc = max(min(inner, out - OFFSET_BITS), inner - ALIGN_BITS)
        factor, left = np.array(1 << (inner - acc)), inner - acc
    else:
        largest = float(np.abs(scale).max())
        acc = out - AFFINE_BITS
        if largest:
            acc = max(acc, exponent + math.frexp(largest)[1] - 15)
        factor, left = np.rint(np.ldexp(scale, exponent - acc)).astype("int64"), None
        factor = np.clip(factor, -MULTIPLIER_HIGH, MULTIPLIER_HIGH)
    ints = np.rint(np.clip(np.ldexp(offset, -acc), -(2.0**29), 2.0**29)).astype("int64")
    out = max(out, acc)
    return AffineScale(factor, left, ints, out - acc, out)


def slope_factor(slope: float) -> tuple[int, int] | None:
    """(m, n) with slope = m / 2**n, exact if n <= 12 suffices, else rounded; None if |m| has
    more than 15 bits."""
    shift = 12
    factor = round(slope * 2**shift)
    if abs(factor) > MULTIPLIER_HIGH:
        return None
    while factor % 2 == 0 and shift > 0:
        factor, shift = factor // 2, shift - 1
    return factor, shift
