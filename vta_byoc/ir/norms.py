"""Normalizations of int8 tokens as programs of int32 steps, with bounds that hold for every input.

A token is what one sum over the channels reads.  From its sum and its sum of squares a program
makes the mean and the reciprocal of the root of the squared deviations; a second one applies them
to every element.  With d the deviation of an element from the mean and D the sum of all d * d plus
epsilon, the steps of a layer normalization compute

    near    the mean as an integer, from the sum times 2**s / C
    rest    sum - C * near, exact
    mean    64 * near + 64 * rest / C, exact for a token of equal elements
    D       squares - (sum + rest) * near - rest * rest / C: no product of these leaves int32, and
            D is no less than exact
    raised  D * gain * gain in [2**28, 2**30), gain a power of two
    root    2**29 / sqrt(raised) in [2**14, 2**15), from a parabola by two Newton steps
    rate    root * gain >> 6, which is 2**23 / sqrt(D)
    result  (64 * x - mean) * rate >> 15, which is 2**14 * d / sqrt(D)

As d * d <= D, the product with the rate is at most 2**29, and what the rounding of the mean adds,
whatever the rate is.  A root-mean-square normalization is the same without a mean and its 64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.programs import Instructions, Writer, run

MEAN_BITS = 6
"""Fraction bits of the mean."""
UNIT_BITS = 14
"""The normalized value of an element is `2**UNIT_BITS * d / sqrt(D)`."""
PEAK = 16_900
"""No normalized value before its factor is larger than this: 2**14, and what the mean rounds."""
TOKEN_PEAK = 1_110_000_000
"""No value of a token's program is larger: `raised` is below 2**30, the largest is the square of
the rest, at most (C / 2 + 1 %)**2, times 2**32 / C / 2**ceil(log2(C)); of more than `MOST_CHANNELS`
elements the mean times the sum."""
MOST_CHANNELS = 1 << 14
"""With more channels a product of sums could leave int32, unless these are divided."""
MOST_ELEMENTS = 1 << 16
"""Of so many the squared deviations from a mean fit the 30 bits that `statistics` raises."""
SUM, SQUARES, X = "sum", "squares", "x"
MEAN, RATE = "mean", "rate"
FACTOR, OFFSET = "factor", "offset"
RAISES = (16, 8, 4, 2)
SEED = (13_423, -26_913, 21_879)
"""Of the parabola in d that starts the root."""


def statistics(channels: int, epsilon: int, *, centred: bool) -> Instructions:
    """From the sums of a token to MEAN (its opposite) and RATE.

    Args:
        channels: how many elements a token has.
        epsilon: what is added to the squared deviations; 0 makes them 1 at least.
        centred: whether the mean is taken off; else there is no MEAN and no SUM is read.
    """
    do = Writer()
    total = _deviations(do, channels) if centred else SQUARES
    total = do("add", total, epsilon) if epsilon else do("max", total, 1)
    gain = ""
    for raised in RAISES:
        half = 1 << (raised // 2)
        high = do("min", do("shr", total, 30 - raised), 1)
        by = do("add", do("mul", high, 1 - half), half)
        total = do("mul", do("mul", total, by), by)
        gain = do("mul", gain, by) if gain else by
    root = _root(do, do("shr", total, 15))
    if not centred:
        do("mul", root, gain, RATE)
        return tuple(do.made)
    do("shr", do("mul", root, gain), MEAN_BITS, RATE)
    return tuple(do.made)


def _deviations(do: Writer, channels: int) -> str:
    """The sum of the squared deviations from the mean.

    Of more than `MOST_CHANNELS` elements the sum and the rest are divided by `2**lost` where they
    are multiplied by an inverse.
    """
    lost = max(0, math.ceil(math.log2(channels / MOST_CHANNELS)))
    high, low = divmod(channels, 1 << lost)
    bits, inverse = inverse_of(channels / (1 << lost))
    total = do("shr", SUM, lost) if lost else SUM
    near = do("shr", do("add", do("shr", do("mul", total, inverse), bits - 1), 1), 1)
    taken = do("mul", near, -high)
    taken = do("shl", taken, lost) if lost else taken
    rest = do("add", do("add", taken, do("mul", near, -low)) if low else taken, SUM)
    bits, inverse = rest_inverse_of(channels / (1 << lost))
    short = do("shr", rest, lost) if lost else rest
    part = do("shr", do("mul", short, -inverse), bits - MEAN_BITS - 1)
    part = do("shr", do("add", part, 1), 1)
    do("add", do("mul", near, -1 << MEAN_BITS), part, MEAN)
    crossed = do("mul", do("add", rest, SUM), near)
    about = do("add", do("mul", crossed, -1), SQUARES)
    over = do("shr", do("mul", do("mul", short, short), inverse), bits)
    over = do("mul", over, -1 << lost)
    return do("add", over, about)


def _root(do: Writer, d: str) -> str:
    """2**21.5 / sqrt(d), of d in [2**13, 2**15)."""
    square, slope, level = SEED
    y = do("add", do("shr", do("mul", d, square), 15), slope)
    y = do("shr", do("mul", y, d), 14)
    y = do("add", do("add", y, level), level)
    for _ in range(2):
        v = do("shr", do("mul", do("shr", do("mul", y, y), 15), d), 15)
        v = do("add", do("mul", v, -1), 3 << 13)
        y = do("min", do("shr", do("mul", y, v), 14), IMMEDIATE_HIGH)
    return y


def inverse_of(channels: float) -> tuple[int, int]:
    """(bits, 2**bits / channels), by which a sum of int8 may be multiplied within int32."""
    bits = min(23, 14 + int(math.log2(channels)))
    inverse = min(round((1 << bits) / channels), IMMEDIATE_HIGH)
    return bits, inverse


def rest_inverse_of(channels: float) -> tuple[int, int]:
    """The same, rounded down, for the square of a rest of half the channels."""
    bits = min(14 + int(math.log2(channels)), 32 - math.ceil(math.log2(channels)))
    return bits, min(int((1 << bits) // channels), IMMEDIATE_HIGH)


def elements(shift: int, low: int, high: int, *, centred: bool) -> Instructions:
    """From an element X and the statistics of its token to the result, an int8 value."""
    do = Writer()
    value = do("add", do("shl", X, MEAN_BITS), MEAN) if centred else X
    value = do("shr", do("mul", value, RATE), 15)
    value = do("add", do("mul", value, FACTOR), OFFSET)
    value = do("max", do("shr", value, shift), low)
    do("min", value, high, "result")
    return tuple(do.made)


def most_elements(*, centred: bool) -> int:
    """How many elements are normalized together; without a mean the squares have no bit to lose."""
    return MOST_ELEMENTS if centred else MOST_CHANNELS


@dataclass(frozen=True)
class Norm:
    """A normalization in numbers.

    Attributes:
        channels: how many elements a token has.
        centred: whether the mean is taken off.
        epsilon: added to the sum of the squared deviations.
        factor: int64, () or [channels]: what a normalized value is multiplied by.
        offset: int64, () or [channels]: what is added to the product.
        shift: the right shift that follows.
        low: the least result.
        high: the largest result.
    """

    channels: int
    centred: bool
    epsilon: int
    factor: np.ndarray
    offset: np.ndarray
    shift: int
    low: int
    high: int

    @property
    def bound(self) -> int:
        """No accumulator is larger than this."""
        most = np.abs(self.factor).max(initial=0) * PEAK + np.abs(self.offset).max(initial=0)
        return max(int(most), TOKEN_PEAK)


def normalized(
    x: np.ndarray, norm: Norm, *, statistics_only: bool = False
) -> dict[str, np.ndarray]:
    """Every value that a normalization of int8 [tokens, channels] computes, int64."""
    wide = np.asarray(x, np.int64)
    sums = {
        SUM: wide.sum(-1, keepdims=True),
        SQUARES: (wide * wide).sum(-1, keepdims=True),
    }
    found = run(statistics(norm.channels, norm.epsilon, centred=norm.centred), sums)
    if statistics_only:
        return found
    given = {name: found[name] for name in (MEAN, RATE) if name in found}
    given |= {X: wide, FACTOR: norm.factor, OFFSET: norm.offset}
    last = run(elements(norm.shift, norm.low, norm.high, centred=norm.centred), given)
    return found | {f"element_{name}": value for name, value in last.items()}
