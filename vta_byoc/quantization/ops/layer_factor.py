"""A layer's factor without a multiplier: in its weights, or as a sum of shifts.

Both give int8 `round(sum(real * (x - zero)) + bias) + zero of the result`, where `real` are the
weights in steps of the result. `dialect` says what the steps mean; here they are chosen and proven:
`bound` holds for any input, and `error` is the largest distance from the exact value in steps of
the result, before it is rounded, of any input whose result does not saturate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.base.choices import APPROXIMATE, DIGITS, SHIFTS
from vta_byoc.base.int8_digits import MOST_OF_TWO, split
from vta_byoc.ir.chains import KEPT
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.ops.anchors import Anchor, channel_absmax, per_weight
from vta_byoc.quantization.ops.borders import border_sums, per_position
from vta_byoc.quantization.requantize import FixedPoint, Steps, half, scalar_if_equal
from vta_byoc.quantization.scales import (
    INT8_HIGH,
    INT8_LOW,
    INT32_HIGH,
    MAX_SHIFT,
    WEIGHT_HIGH,
    Scale,
)

MOST_ERROR = 1.0
"""Steps of the result: a form beyond this is not exact enough, as a result would be two off."""
CLOSE = 0.25
"""One shift serves all channels where the error stays below this, or is not twice as large."""
SHIFT_ERROR = 2.0**-6
"""Steps of the result: what the nearest sum of shifts may be away from the factor."""
USEFUL = 258.0
"""Steps of the result: no sum beyond this and the bias gives a result that does not saturate."""
KEPT_BITS = 8
"""Bits that a sum of shifts keeps below a step of the result, where int32 has room."""
ERROR_BITS = 16
"""Rounding errors of weights are summed up as integers of so many fraction bits, rounded up."""
MOST_BITS = 24
"""Fraction bits of a factor from 1 to 2, whose bits are the terms of its sum."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """A layer in one of the forms.

    Attributes:
        weight: integers of one or two int8 digits, in the layout of the float weights.
        bias: int64 [channels] or [channels, positions ...].
        rescale: what follows; no multiplication.
    """

    form: str
    weight: np.ndarray
    bias: np.ndarray
    rescale: FixedPoint
    error: float

    @property
    def proof(self) -> tuple[int, int]:
        """The bound of the accumulator for any input, and its shift."""
        return self.rescale.bound, self.rescale.shift

    def write(
        self, anchor: Anchor, attrs: Attrs, name: str
    ) -> Callable[[DialectWriter, relax.Expr], relax.Var]:
        """Writes it on its data."""
        return lambda write, data: anchor.write(
            write, data, self.weight, self.bias, attrs, self.rescale, name
        )


@dataclass(frozen=True, eq=False)
class Source:
    """A layer in real numbers.

    Attributes:
        call: the float operator, of the kind `anchor`.
        out: shape of its result.
        real: float64 weights in steps of the result for each step of the data.
        bias: float64 [channels], in steps of the result.
        scale: of the data; its zero point counts, its step is in `real`.
        zero, low, high: zero point and limits of the result.
        saturates: whether results beyond int8 are cut, and a bias with them.
    """

    anchor: Anchor
    call: relax.Call
    out: tuple[int, ...]
    real: np.ndarray
    bias: np.ndarray
    scale: Scale
    zero: int = 0
    low: int = INT8_LOW
    high: int = INT8_HIGH
    saturates: bool = True

    @property
    def attrs(self) -> Attrs:
        """The attributes of the float operator."""
        return self.call.attrs

    @property
    def unit(self) -> np.ndarray:
        """What int8 weights of each channel would count, in steps of the result."""
        return channel_absmax(self.anchor, self.real, self.attrs) / WEIGHT_HIGH

    @property
    def span(self) -> int:
        """The largest distance of int8 data from its zero point."""
        return max(INT8_HIGH - self.scale.zero, self.scale.zero - INT8_LOW)

    def bounds(self, weight: np.ndarray) -> np.ndarray:
        """int64 [channels]: the largest magnitude of sums of int8 data times integer weights."""
        return self.anchor.taps(np.abs(weight), self.attrs) * -INT8_LOW

    def zeros(self, weight: np.ndarray) -> np.ndarray:
        """What the zero point of the data adds to sums: [channels] or [channels, positions ...]."""
        if not self.scale.zero:
            return np.zeros(len(self.bias), np.int64)
        return self.scale.zero * border_sums(self.anchor, weight, self.call, self.out)

    def clipped_bias(self) -> np.ndarray:
        """The bias, cut where every result saturates."""
        if not self.saturates:
            return self.bias
        most = self.anchor.taps(np.ceil(np.abs(self.real)).astype(np.int64), self.attrs) * self.span
        return np.clip(self.bias, -(most + 512.0), most + 512.0)


def candidates(
    source: Source, ints: np.ndarray | None, ratio: np.ndarray | None, wanted: str | None
) -> list[Scaled]:
    """The layer in the form that is `wanted`, or else in those that are exact enough.

    `ints`, `ratio`: int8 weights and the factor of their sums, () or [channels], where there are.
    """
    if wanted == APPROXIMATE:
        found = [in_weights(source, APPROXIMATE)]
        if found[0] is not None:
            return [found[0]]
    forms = [in_weights(source, DIGITS)]
    if ints is not None and ratio is not None:
        forms.append(as_shifts(source, ints, ratio))
    exact = [form for form in forms if form is not None and form.error <= MOST_ERROR]
    return [form for form in exact if form.form == wanted] or exact


# ---------------------------------------------------------------- in the weights
def in_weights(source: Source, form: str) -> Scaled | None:
    """The factor in the weights, with as many fraction bits as they and int32 hold.

    Weights of two digits are behind one shift where that is close enough; those of one digit are
    behind a shift for each channel.

    Returns:
        None without any fraction bits.
    """
    apart = _most_bits(source, form, per_channel=True)
    if form != DIGITS or apart is None:
        return apart
    common = _most_bits(source, form, per_channel=False)
    close = common is not None and common.error <= max(CLOSE, 2 * apart.error)
    return common if close else apart


def _most_bits(source: Source, form: str, per_channel: bool) -> Scaled | None:
    """With the most fraction bits, of all channels or of each."""
    shift = _first_shift(source, form, per_channel)
    if shift.min() < 0:
        return None
    while True:
        found, bounds = _with_shift(source, form, shift)
        if bounds.max() <= INT32_HIGH:
            return found
        over = bounds > INT32_HIGH if shift.ndim else np.array(True)
        if (shift[over] == 0).any():
            return None
        shift = shift - over


def _first_shift(source: Source, form: str, per_channel: bool) -> np.ndarray:
    """The most fraction bits with which weights fit their digits, () or [channels]."""
    absmax = channel_absmax(source.anchor, source.real, source.attrs)
    most = MOST_OF_TWO if form == DIGITS else WEIGHT_HIGH
    if not per_channel:
        absmax = np.asarray(absmax.max(initial=0))
    least = most * 2.0**-MAX_SHIFT
    # half a unit of rounding stays within the digits
    shift = np.floor(np.log2((most + 0.49) / np.maximum(absmax, least)))
    return scalar_if_equal(np.clip(shift, -1, MAX_SHIFT).astype(np.int64))


def _with_shift(source: Source, form: str, shift: np.ndarray) -> tuple[Scaled, np.ndarray]:
    """With so many fraction bits of the weights, () or [channels]; and each channel's bound."""
    spread = per_weight(source.anchor, np.ldexp(1.0, shift), source.real.shape, source.attrs)
    exact = source.real * spread
    weight = np.rint(exact).astype(np.int64)
    rounding = half(shift)
    constant = np.rint(np.ldexp(source.clipped_bias(), shift)).astype(np.int64)
    constant = constant + (np.int64(source.zero) << shift) + rounding
    zeros = source.zeros(weight)
    bias = per_position(constant, zeros.ndim) - zeros
    sums = source.bounds(weight)
    if form == DIGITS:
        high, low = split(weight)
        sums = source.bounds(high << 8) + source.bounds(low)
    bounds = sums + bias_absmax(bias)
    bound = int(bounds.max())
    steps: Steps = (("right_shift", shift),) if shift.any() else ()
    rescale = FixedPoint(np.array(0), steps, source.low, source.high, bound)
    errors = np.ceil(np.abs(exact - weight) * 2.0**ERROR_BITS).astype(np.int64)
    error = source.anchor.taps(errors, source.attrs) * source.span * 2.0**-ERROR_BITS + 0.5
    return Scaled(form, weight, bias, rescale, float(np.ldexp(error, -shift).max())), bounds


def bias_absmax(bias: np.ndarray) -> np.ndarray:
    """The largest magnitude of each channel of a bias [channels] or [channels, positions ...]."""
    return np.abs(bias).reshape(len(bias), -1).max(axis=1)


# ---------------------------------------------------------------- sums of shifts
@dataclass(frozen=True, eq=False)
class ShiftSum:
    """A factor as `2**-shift` times a sum of powers of two from 1 to 2.

    `(value >> first) + value`, `(that >> second) + value` and so on for all of `shifts`, () or
    [channels] each; then right by `shift`.
    """

    shifts: tuple[np.ndarray, ...]
    shift: np.ndarray

    def factor(self) -> np.ndarray:
        """The sum, from 1 to 2."""
        total = np.float64(1)
        for amount in self.shifts:
            total = total * np.ldexp(1.0, -amount) + 1
        return np.asarray(total)

    def floors(self) -> np.ndarray:
        """What all floors of the shifts take away at most, in units of the value."""
        lost = np.float64(0)
        for amount in self.shifts:
            part = np.ldexp(1.0, -amount)
            lost = lost * part + 1 - part
        return np.asarray(lost)

    def bound(self, values: np.ndarray) -> np.ndarray:
        """The largest magnitude of any partial sum for magnitudes up to `values`."""
        most = total = values
        for amount in self.shifts:
            total = (total >> amount) + 1 + values
            most = np.maximum(most, total)
        return most


def shift_sum(factor: np.ndarray, tolerance: float) -> ShiftSum:
    """The fewest powers of two whose sum is within a relative `tolerance` of `factor`.

    `factor` is float64 > 0, () or [channels]; channels that need fewer terms than others repeat
    halves of their last one.
    """
    fraction, exponent = np.frexp(np.asarray(factor, np.float64))
    terms = [_terms(float(m) * 2, tolerance) for m in np.ravel(fraction)]
    count = max(len(places) for _, places in terms)
    terms = [_padded(*term, count) for term in terms]
    carried = np.array([carry for carry, _ in terms]).reshape(np.shape(factor))
    gaps = np.diff(np.array([places for _, places in terms]), axis=1)[:, ::-1]
    shifts = [scalar_if_equal(gap.reshape(np.shape(factor))) for gap in gaps.T]
    return ShiftSum(tuple(shifts), scalar_if_equal(1 - exponent.astype(np.int64) - carried))


def _terms(value: float, tolerance: float) -> tuple[int, list[int]]:
    """`value` from 1 to 2 as `2**carry` times the sum of `2**-place`, places rising from 0.

    In an interval the number with the fewest bits set ends where its ends part.
    """
    one = 1 << MOST_BITS
    low = max(one, math.ceil(value * (1 - tolerance) * one))
    high = math.floor(value * (1 + tolerance) * one)
    if high >= 2 * one:
        return 1, [0]
    low = min(low, high)
    best = low
    if low != high:
        bit = (low ^ high).bit_length() - 1
        prefix = (high >> bit) << bit
        best = low if low == prefix ^ (1 << bit) else prefix
    return 0, [MOST_BITS - bit for bit in range(MOST_BITS, -1, -1) if best >> bit & 1]


def _padded(carry: int, places: list[int], count: int) -> tuple[int, list[int]]:
    """The same sum of `count` terms: the last one is twice its half."""
    if len(places) == 1 < count:
        carry, places = carry - 1, [0, 0]
    while len(places) < count:
        *places, last = places
        places += [last + 1, last + 1]
    return carry, places


def as_shifts(source: Source, ints: np.ndarray, ratio: np.ndarray) -> Scaled | None:
    """The factor `ratio`, () or [channels], of int8 weights `ints` as a sum of shifts.

    Returns:
        None where int32 does not hold it.
    """
    if (ratio <= 0).any():
        return None
    most = ratio * source.anchor.taps(np.abs(ints), source.attrs) * source.span
    useful = np.minimum(most, USEFUL + np.abs(source.clipped_bias()))
    tolerance = SHIFT_ERROR / float(useful.max(initial=1))
    found = shift_sum(ratio, min(tolerance, 2.0**-4))
    left = int(max(0, KEPT_BITS - int(found.shift.min())))
    while left >= 0:
        scaled = _summed(source, ints, ratio, found, left, useful)
        if scaled is not None:
            return scaled
        left -= 1
    return None


def _summed(
    source: Source,
    ints: np.ndarray,
    ratio: np.ndarray,
    found: ShiftSum,
    left: int,
    useful: np.ndarray,
) -> Scaled | None:
    """With the accumulator shifted `left` before the sum; None where that leaves int32."""
    shift = found.shift + left
    if shift.min() < 0 or shift.max() > MAX_SHIFT:
        return None
    factor = np.ldexp(found.factor(), left)
    zeros = source.zeros(ints)
    rounding = half(shift)
    constant = np.ldexp(source.clipped_bias() + source.zero, shift) + rounding + found.floors() / 2
    factors = np.broadcast_to(factor, source.bias.shape)
    constant = per_position(constant, zeros.ndim) - per_position(factors, zeros.ndim) * zeros
    constant = np.rint(constant).astype(np.int64)
    bounds = source.bounds(ints) << left
    bound = int((found.bound(bounds) + bias_absmax(constant)).max())
    if bound > INT32_HIGH:
        return None
    steps: list[tuple[str, np.ndarray | str]] = [("left_shift", np.array(left))] if left else []
    steps += [("keep", KEPT)] if found.shifts else []
    for amount in found.shifts:
        steps += [("right_shift", amount), ("add", KEPT)]
    steps.append(("add", constant))
    steps += [("right_shift", shift)] if shift.any() else []
    rescale = FixedPoint(np.array(0), tuple(steps), source.low, source.high, bound)
    away = np.abs(np.ldexp(found.factor(), -found.shift) / ratio - 1) * useful
    error = away + np.ldexp(found.floors() / 2 + 0.5, -shift)
    none = np.zeros(len(source.bias), np.int64)
    return Scaled(SHIFTS, ints, none, rescale, float(error.max()))


# ---------------------------------------------------------------- results that stay int32
def as_int32(source: Source) -> tuple[Scaled, float] | None:
    """Weights of two digits for a result that floats read, and its step in units of `source`.

    Returns:
        None where int32 leaves them less than one digit, beside a large bias.
    """
    absmax = float(np.abs(source.real).max(initial=0)) or 1.0
    unit = absmax / MOST_OF_TWO
    while absmax / unit >= WEIGHT_HIGH:
        each = dataclasses.replace(source, real=source.real / unit, bias=source.bias / unit)
        found, _ = _with_shift(each, DIGITS, np.array(0))
        if found.rescale.bound <= INT32_HIGH:
            return found, unit
        unit *= 2
    return None
