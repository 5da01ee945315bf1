"""Rescaling by any real factor in int32: a pre-shift, a clamp, a 15-bit product and a shift.

`dialect` says what the steps mean; here they are chosen and proven.  Constants are scalars () or
arrays that broadcast against the value they are applied to (one value per channel, mostly).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, INT32_HIGH, MAX_SHIFT

NARROW, WIDE = (15, 30), (16, 31)
"""Bits that an accumulator is cut to, and of its product with the factor. Clamps of 15 bits are
immediates, which is enough where half of the range of int8 is used."""
MOST_FACTOR_BITS = 20
IMMEDIATE_BITS = IMMEDIATE_HIGH.bit_length()
SPLIT_SHIFT = 7
"""A last shift is split so that its rounding constant and a zero point fit an immediate."""
COMMON_ERROR = 1.01 * 2.0**-7
"""One last shift serves all channels where that costs no more than this of an output step."""
MIDDLE_ERROR = 2.0**-9
"""The middle of the result's range is moved to 0 by the bias where rounding it there costs no more
than this."""
REST_ERROR, REST_BITS = 2.0**-9, 16
"""What rounding a bias took from a result is added behind the multiplication where it is more than
so many steps, as a constant of so many fraction bits; that costs a cycle."""
FACTOR_BITS = 21
"""Bits of the factors that int8 operands are multiplied by."""
RATIO_LOW, RATIO_HIGH = 2.0**-60, 2.0**15
RATIO_LIMIT = 2.0**20

Steps = tuple[tuple[str, "np.ndarray | str"], ...]
"""(Relax operator, constant int64), in order; ("keep", KEPT) keeps the value, which ("add", KEPT)
adds again."""


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """How an int32 value becomes int8: add `offset`, do `steps`, saturate to low..high.

    Attributes:
        offset: int64, broadcasts against the value; zero point and rounding constants.
        steps: what follows.
        low, high: int8 limits of the result.
        bound: the largest magnitude before the first step, any input.
    """

    offset: np.ndarray
    steps: Steps
    low: int
    high: int
    bound: int

    @property
    def shift(self) -> int:
        """The largest number of bits that are shifted out; negative where all are shifted in."""
        bits = {"left_shift": 0, "right_shift": 0}
        for op, by in self.steps:
            if op in bits and not isinstance(by, str):
                bits[op] += int(by.max())
        return bits["right_shift"] or -bits["left_shift"]

    @property
    def multiplies(self) -> bool:
        """Whether a step needs a multiplier."""
        return any(op == "multiply" for op, _ in self.steps)

    def plus(self, constant: int) -> FixedPoint:
        """The same with `constant` added to the value first; `bound` must cover it."""
        return dataclasses.replace(self, offset=self.offset + constant)


def requantizer(
    ratio: np.ndarray,
    bounds: np.ndarray,
    zero: int = 0,
    low: int = INT8_LOW,
    high: int = INT8_HIGH,
    rest: np.ndarray | float = 0.0,
) -> FixedPoint:
    """From accumulators of magnitude `bounds` to int8 `round(ratio * (value + rest)) + zero`.

    Args:
        ratio: float64 > 0, scalar or one per channel: accumulator step over result step.
        bounds: int64, scalar or one per channel: the largest magnitude for any input.
        zero: zero point of the result.
        low: the least result.
        high: the largest result.
        rest: float64, scalar or one per channel: what rounding a bias took from the values. It is
            added behind the multiplication where it counts.

    The result of exact powers of two is exact (a half rounds up). Otherwise a value that does not
    saturate keeps 14 to 17 bits and the factor 13 to 15; less than 0.1 % of results differ by one
    from exact rounding.
    """
    bounds = np.broadcast_to(bounds.max(), ratio.shape) if bounds.size != ratio.size else bounds
    exact = _power_of_two(ratio, bounds, zero, low, high, bool(np.any(rest)))
    if exact is not None:
        return exact
    ratio = np.asarray(np.clip(ratio, RATIO_LOW, RATIO_HIGH), np.float64)
    middle = (low + high + 1) // 2
    offset = _in_bias(ratio, bounds, zero - middle)
    after = zero if offset is None else middle
    offset = np.zeros(ratio.shape, np.int64) if offset is None else offset
    lack = rest * ratio + (zero - after) - offset * ratio
    offset = offset + np.rint(lack / ratio).astype(np.int64)
    lack = lack - np.rint(lack / ratio) * ratio
    outputs = float(max(high - after, after - low))
    most = bounds + (np.abs(offset) if ratio.ndim else np.abs(offset).max())
    split = NARROW if outputs <= -INT8_LOW // 2 else WIDE
    found = _scaled(ratio, most, outputs, split)
    if found.shift.ndim and split is WIDE:
        found = _scaled(ratio, most, outputs, NARROW)
    total = offset + found.rounding
    bound = int((bounds + np.abs(total)).max())
    counts = np.abs(lack).max() > REST_ERROR
    steps = found.steps(after, lack if counts else None)
    return FixedPoint(scalar_if_equal(total), steps, low, high, bound)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """A shift of the accumulator, a clamp (0: needless), a factor and the shift behind it."""

    pre: np.ndarray
    clamp: int
    factor: np.ndarray
    shift: np.ndarray

    @property
    def rounding(self) -> np.ndarray:
        """What is added before the first shift."""
        return half(self.pre)

    def steps(self, zero: int, lack: np.ndarray | None) -> Steps:
        """In order; `zero` is added at the end, and `lack`, in output steps."""
        steps: list[tuple[str, np.ndarray]] = []
        if self.pre.any():
            steps.append(("right_shift", scalar_if_equal(self.pre)))
        if self.clamp:
            steps += [("maximum", np.array(-self.clamp)), ("minimum", np.array(self.clamp))]
        if (self.factor != 1).any():
            steps.append(("multiply", self.factor))
        if lack is not None and self.shift.min() > 1:
            return (*steps, *_precise_shift(self.shift, zero, lack))
        return (*steps, *_last_shift(self.shift, zero))


def _scaled(
    ratio: np.ndarray, bounds: np.ndarray, outputs: float, split: tuple[int, int]
) -> _Scaled:
    """Accumulators cut to so many bits where they saturate at `outputs`; factors of the rest."""
    bits, total = split
    useful = np.minimum(bounds, np.ceil((outputs + 1) / ratio))
    pre = np.maximum(_bits(useful) - bits, 0)
    rounding = half(pre)
    most = (1 << bits) - 1
    needs_clamp = bool(((bounds + rounding >> pre) > most).any())
    kept = np.full(pre.shape, bits) if needs_clamp else _bits((bounds + rounding) >> pre)
    factor, shift = _factors(
        ratio * 2.0**pre,
        np.minimum(outputs, bounds * ratio),
        np.minimum(total - kept, MOST_FACTOR_BITS),
    )
    return _Scaled(pre, most if needs_clamp else 0, factor, shift)


def _power_of_two(
    ratio: np.ndarray, bounds: np.ndarray, zero: int, low: int, high: int, has_rest: bool
) -> FixedPoint | None:
    """Only shifts, where every factor is a power of two and int32 holds what they make.

    A shift to the left is refused beside a zero point or a rest of the bias, which it enlarges.
    """
    mantissa, exponent = np.frexp(ratio)
    shift = scalar_if_equal(1 - exponent.astype(np.int64))
    if (mantissa != 0.5).any() or shift.max() > MAX_SHIFT:
        return None
    left = max(0, -int(shift.min()))
    if left:
        return None if zero or has_rest else _left_shift(shift + left, left, bounds, low, high)
    offset = (np.int64(zero) << shift) + half(shift)
    bound = int((bounds + np.abs(offset)).max())
    if bound > INT32_HIGH and zero:
        return None
    steps = (("right_shift", shift),) if shift.any() else ()
    return FixedPoint(scalar_if_equal(offset), steps, low, high, bound)


def _left_shift(
    shift: np.ndarray, left: int, bounds: np.ndarray, low: int, high: int
) -> FixedPoint | None:
    """All channels to the left, then each to the right by `shift`, where int32 holds that."""
    bound, rounding = int(bounds.max()), half(shift)
    if left > MAX_SHIFT or (bound << left) + int(rounding.max()) > INT32_HIGH:
        return None
    steps: list[tuple[str, np.ndarray]] = [("left_shift", np.array(left))]
    if shift.any():
        steps += [("add", rounding), ("right_shift", shift)]
    return FixedPoint(np.array(0), tuple(steps), low, high, bound)


def half(shift: np.ndarray) -> np.ndarray:
    """What is added before a right shift so that it rounds half up, int64."""
    return np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)


def _in_bias(ratio: np.ndarray, bounds: np.ndarray, constant: int) -> np.ndarray | None:
    """What is added to a result in units of the accumulator, where that is precise and fits."""
    offset = constant / ratio
    is_precise = not constant or ratio.max() <= 2 * MIDDLE_ERROR
    if not is_precise or (np.abs(offset) + bounds).max() >= INT32_HIGH // 2:
        return None
    return np.rint(offset).astype(np.int64)


def _factors(
    ratio: np.ndarray, outputs: np.ndarray, bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Factors of `bits` and the right shifts after them, one for all channels if possible.

    `outputs`: the largest results, in output steps, that do not saturate.
    """
    single = np.minimum(bits - np.frexp(ratio)[1], 30).astype(np.int64)
    over = np.rint(np.ldexp(ratio, single)) >= np.int64(1) << bits
    single = np.maximum(single - over, 0)
    common = single.min()
    factor = np.rint(np.ldexp(ratio, common)).astype(np.int64)
    error = np.abs(np.ldexp(factor.astype(np.float64), -common) / ratio - 1) * outputs
    if error.max() > COMMON_ERROR:
        return np.rint(np.ldexp(ratio, single)).astype(np.int64), single
    while common > 0 and not (factor % 2).any() and factor.any():
        factor, common = factor // 2, common - 1
    return scalar_if_equal(factor), np.array(common)


def _last_shift(shift: np.ndarray, zero: int) -> list[tuple[str, np.ndarray]]:
    """Round, shift right and add `zero`; the constants fit an immediate if one shift serves all.

    A first part of the shift leaves room for them.
    """
    first = np.maximum(shift.min() - (SPLIT_SHIFT if zero or shift.ndim else IMMEDIATE_BITS), 0)
    rest = shift - first
    offset = half(rest)
    steps = [("right_shift", np.asarray(first))] if first else []
    wide = shift.ndim and zero  # a zero point that is shifted by many bits would leave int32
    if not wide:
        offset = offset + (np.int64(zero) << rest)
    if offset.any():
        steps.append(("add", scalar_if_equal(offset)))
    if rest.any():
        steps.append(("right_shift", scalar_if_equal(rest)))
    if wide:
        steps.append(("add", np.array(zero)))
    return steps


def _precise_shift(shift: np.ndarray, zero: int, lack: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The same with `lack` output steps, less than one, added.

    The constants have 16 fraction bits and fit no immediate; the first part of the shift keeps the
    sum within int32.
    """
    first = np.maximum(shift.min() - REST_BITS, 1)
    rest = shift - first
    offset = np.rint(np.ldexp(lack, rest)).astype(np.int64) + (np.int64(1) << (rest - 1))
    small = rest.max() <= REST_BITS
    if small:
        offset = offset + (np.int64(zero) << rest)
    steps = [("right_shift", np.asarray(first)), ("add", scalar_if_equal(offset))]
    steps.append(("right_shift", scalar_if_equal(rest)))
    return steps if small or not zero else [*steps, ("add", np.array(zero))]


def _bits(values: np.ndarray) -> np.ndarray:
    """Bits of non-negative whole numbers."""
    return np.where(values > 0, np.frexp(np.float64(values))[1], 0).astype(np.int64)


def scalar_if_equal(values: np.ndarray) -> np.ndarray:
    """One number where all are equal."""
    values = np.asarray(values, np.int64)
    first = values.reshape(-1)[0]
    return np.array(first) if bool((values == first).all()) else values


def is_power_of_two(value: float) -> bool:
    """Whether a positive number is a power of two."""
    return value > 0 and math.frexp(value)[0] == 0.5
