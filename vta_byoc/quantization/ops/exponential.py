"""The numbers of attention's integer program: exponential and reciprocal, for any scales."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.errors import Refusal
from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.attention import (
    INVERSE_BITS,
    LEAST_SHARE,
    MOST_SHARE,
    Attention,
)
from vta_byoc.quantization.scales import INT32_HIGH, Scale, Unscalable

REACH = 8.67
"""How far below the largest score, in natural units, the share is 0: about, where it fits best."""
CURVED = 0.5388
"""The part of the curve that is the square; the rest is level."""
SPREADS = (1.0, 2.0, 3.0, 4.0)
"""Standard deviations of normal scores, in natural units, for which shares are to be near."""
EXPECTED_TOPS, EXPECTED_KEYS = (2.1, 2.7, 3.4), 256
"""How far above the mean the largest of so many normal scores may be, in standard deviations."""
MOST_WIDTH, ROUGH_WIDTH = 46_000, 6_000
"""The square of a distance fits int32; below, scores are raised first."""
GOOD_WIDTH = 17_000
MOST_SCORE = 1 << 29
LEAST_TOP = 1 << 12
"""Of the curve: coarser ones are not near enough."""
SHIFTS = ((14, 15), (13, 14, 15), tuple(range(8, 16)))
"""Behind the squares of the curve."""
INSTRUCTION = 1.0
"""A second instruction for a shift is worth so many dB."""
LEAST_QUALITY = 15.0
WIDTHS = np.linspace(0.93, 1.07, 29)
SAMPLES = 800
ONE_SHIFT = 15
LEAST_RATE = 256
"""The reciprocal of the largest sum is rounded to a part of this."""


@dataclass(frozen=True)
class Exponential:
    """See `ir.attention.Attention`.

    Attributes:
        shift: of scores.
        width: of the exponential in shifted scores.
        first: behind the first square.
        level: added there.
        others: behind the other three squares.
        quality: dB of the shares of normal scores, at the worst of `SPREADS`.
    """

    shift: int
    width: int
    first: int
    level: int
    others: tuple[int, int, int]
    quality: float

    @property
    def worth(self) -> float:
        """The quality less what instructions are worth."""
        return self.quality - INSTRUCTION * sum(s > ONE_SHIFT for s in (self.first, *self.others))


@functools.lru_cache(maxsize=256)
def exponential_of(unit: float, bound: int, name: str) -> Exponential:
    """The exponential of scores of `unit`.

    Args:
        unit: the real value of one in a score.
        bound: the largest magnitude of a score.
        name: of the operator, for errors.

    Raises:
        Unscalable: scores are so coarse that no exponential is near enough.
    """
    shift = _shift(REACH / unit, bound)
    per_unit = math.ldexp(1 / unit, -shift)
    found = [
        each
        for others in itertools.product(*SHIFTS)
        if (each := _fitted(per_unit, shift, others)) is not None
    ]
    best = max(found, key=lambda each: each.worth, default=None)
    if best is None or best.quality < LEAST_QUALITY:
        refusal = Refusal(
            "one in its scores is worth",
            f"{unit:.3g} natural units",
            "a softmax in integers takes less than about 1",
            "calibrate it on inputs like those of the model",
        )
        raise Unscalable(name, refusal)
    return best


def _shift(width: float, bound: int) -> int:
    """How far to the right scores go so that a distance's square fits int32, and is not coarse."""
    if width > MOST_WIDTH:
        return math.ceil(math.log2(width / MOST_WIDTH))
    if width >= ROUGH_WIDTH:
        return 0
    room = math.floor(math.log2(MOST_SCORE / max(bound, 1)))
    return -max(0, min(math.floor(math.log2(GOOD_WIDTH / width)), room))


def _fitted(per_unit: float, shift: int, others: tuple[int, int, int]) -> Exponential | None:
    """The best width for some shifts; `per_unit`: shifted scores to a natural unit."""
    total = 4 * others[0] + 2 * others[1] + others[2]
    top = math.floor(((MOST_SHARE + 1) * 2.0**total - 1) ** 0.125)
    if top * top > INT32_HIGH or top < LEAST_TOP:
        return None
    widths = np.unique(np.rint(REACH * per_unit * WIDTHS).astype(np.int64))
    widths = widths[(widths >= 2) & (widths <= MOST_WIDTH)]
    firsts = np.rint(np.log2(np.maximum(widths * widths / (CURVED * top), 2))).astype(np.int64)
    levels = top - (widths * widths >> firsts)
    legal = (levels >= 0) & (levels <= IMMEDIATE_HIGH) & (firsts <= 2 * ONE_SHIFT)
    widths, firsts, levels = widths[legal], firsts[legal], levels[legal]
    if not len(widths):
        return None
    below = np.unique(np.linspace(0, 2 * int(widths.max()), SAMPLES).astype(np.int64))
    value = np.maximum(widths[:, None] - below, 0)
    value = (value * value >> firsts[:, None]) + levels[:, None]
    for behind in others:
        value = value * value
        if value.max() > INT32_HIGH:
            return None
        value >>= behind
    if not LEAST_SHARE <= value[:, 0].min() <= value[:, 0].max() <= MOST_SHARE:
        return None
    quality = _quality(value, below / per_unit)
    k = int(quality.argmax())
    return Exponential(
        shift, int(widths[k]), int(firsts[k]), int(levels[k]), others, float(quality[k])
    )


def _quality(shares: np.ndarray, below: np.ndarray) -> np.ndarray:
    """In dB, of rows of shares `below` the largest score, at the worst of `SPREADS`."""
    exact = np.exp(-below)
    found = []
    for spread in SPREADS:
        signal, noise = 0.0, np.zeros(len(shares))
        for top in EXPECTED_TOPS:
            weights = np.exp(-((below / spread - top) ** 2) / 2)
            weights *= EXPECTED_KEYS / weights.sum()
            weights[0] += 1
            wanted = exact / (weights * exact).sum()
            error = shares / (shares @ weights)[:, None] - wanted
            signal += float((weights * wanted**2).sum())
            noise += error**2 @ weights
        found.append(10 * np.log10(signal / noise))
    worst: np.ndarray = np.min(found, axis=0)
    return worst


# ---------------------------------------------------------------- results
def attention_of(
    keys: int,
    exponential: Exponential,
    values: float,
    target: Scale,
    limits: tuple[int, int],
    name: str,
) -> Attention:
    """The whole program.

    Args:
        keys: how many there are.
        exponential: of the scores.
        values: the step of the values.
        target: the scale of the result.
        limits: the least and the largest result.
        name: of the operator, for errors.

    Raises:
        Unscalable: the result is so much finer or coarser than the values that no rate fits.
    """
    ratio = values / target.step
    behind = math.floor(math.log2((1 << 24) * 0.99 / ratio))
    whole = math.ldexp(ratio, behind)
    before = max(0, math.ceil(math.log2(LEAST_RATE * MOST_SHARE * keys / whole)))
    bits = max(INVERSE_BITS, (MOST_SHARE * keys).bit_length())
    wanted = math.ldexp(whole, before)
    down = bits - 1 - math.floor(math.log2(wanted)) + 14
    multiplier = round(math.ldexp(wanted, down + 1 - bits))
    if multiplier > IMMEDIATE_HIGH:
        down, multiplier = down - 1, round(multiplier / 2)
    if not (2 <= behind <= 30 and 0 <= down <= 30):
        refusal = Refusal(
            "its values are",
            f"{ratio:.3g} times as coarse as its results",
            "2**-6 to 2**22 times is taken",
            "calibrate it on inputs like those of the model",
        )
        raise Unscalable(name, refusal)
    return Attention(
        keys,
        exponential.shift,
        exponential.width,
        exponential.first,
        exponential.level,
        *exponential.others,
        multiplier,
        down,
        before,
        behind,
        target.zero,
        *limits,
    )
