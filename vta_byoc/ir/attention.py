"""Attention of int8 tokens as programs of int32 steps, with bounds that hold for every input.

Scores are sums of products of queries and keys, with a constant mask added where there is one.
Of each query the largest score, exact, is taken off, and what is left goes through an exponential
without a variable shift: with v the distance from where the exponential is 0,

    v       score - largest + width, not below 0: in [0, width] for every input
    curve   v * v >> first, plus level
    share   curve to the eighth power by three squarings, in 0 to 255, less 128 (an int8)

A share is 255 * exp(score - largest) and 0.6, rounded down.  The sums of a query's shares are
between 200 and 255 times the number of keys, so that

    raised  the sum times a power of two (gain), in [2**14, 2**15) behind a shift
    inverse 2**29 / raised, from a line by two Newton steps
    rate    inverse * multiplier * gain, shifted
    result  (sum of share * value) * rate, shifted

No sum of shares times values is larger than 128 times the sum of shares, so that the product with
the rate, which is the quotient of a constant and the same sum, has a bound whatever the scores are.
Shares are stored less 128; 128 times the sums of shares and of values puts that right, exactly.

A mask of run time is int8, HIDDEN or 0; shifted to the left it is added to the scores, so that
what it hides is farther below the largest score than the exponential reaches.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from vta_byoc.ir.programs import Instructions, Writer, run

SCORE, TOP, ROOM, SHARE = "score", "top", "room", "share"
TOTAL, RATE = "total", "rate"
PRODUCT, VALUES, LIFT, RESULT = "product", "values", "lift", "result"
HALF = 128
"""What a share is stored less."""
HALF_BITS = 7
HIDDEN = -128
"""What a mask of run time holds where it hides a key; 0 elsewhere."""
LEAST_SHARE = 200
"""The share of a query's largest score is not less than this."""
MOST_SHARE = 255
MOST_KEYS = 1 << 15
"""With more keys a sum of shares could not be raised by 15 bits."""
INVERSE_BITS = 15
PART = 1 << 16
"""Sums that are tried at once."""
RAISES = (8, 4, 2, 1)


@dataclass(frozen=True)
class Attention:
    """What attention computes, in numbers.

    Attributes:
        keys: how many keys there are.
        shift: what scores are shifted by to the right first, to the left if negative.
        width: how far below the largest a score has the share 0, 2 or more.
        first: the right shift behind the first square, 1 or more.
        level: what is added there.
        second: the right shift behind the second square, 1 or more.
        third: behind the third.
        fourth: behind the fourth, which gives the share.
        multiplier: of the reciprocal, 15 bits.
        down: the right shift of the reciprocal.
        before: the right shift of a sum of products, before the rate.
        behind: the right shift behind the rate, 2 or more.
        zero: the zero point of the result.
        low: the least result.
        high: the largest result.
    """

    keys: int
    shift: int
    width: int
    first: int
    level: int
    second: int
    third: int
    fourth: int
    multiplier: int
    down: int
    before: int
    behind: int
    zero: int
    low: int
    high: int

    @property
    def most(self) -> int:
        """The largest sum of a query's shares."""
        return MOST_SHARE * self.keys

    @property
    def bits(self) -> int:
        """The bits that a raised sum has."""
        return max(INVERSE_BITS, self.most.bit_length())


def scaled_scores(shift: int) -> Instructions:
    """From a SCORE to the one that the others read; nothing where it is not shifted."""
    if not shift:
        return ()
    do = Writer()
    do("shr" if shift > 0 else "shl", SCORE, abs(shift), SCORE)
    return tuple(do.made)


def room(width: int) -> Instructions:
    """From TOP, the largest score of a query, to ROOM."""
    do = Writer()
    half = do("add", do("mul", TOP, -1), width >> 1)
    do("add", half, width - (width >> 1), ROOM)
    return tuple(do.made)


def shares(first: int, level: int, second: int, third: int, fourth: int) -> Instructions:
    """From a SCORE and the ROOM of its query to SHARE, an int8 value."""
    do = Writer()
    do("add", _exponential(do, first, level, second, third, fourth), -HALF, SHARE)
    return tuple(do.made)


def whole_shares(
    first: int, level: int, second: int, third: int, fourth: int
) -> Instructions:
    """The same to a SHARE of 0 to 255, which is not stored."""
    do = Writer()
    _exponential(do, first, level, second, third, fourth, SHARE)
    return tuple(do.made)


def _exponential(
    do: Writer, first: int, level: int, second: int, third: int, fourth: int, name: str = ""
) -> str:
    """From a SCORE and its ROOM to 255 times the exponential of how far below the largest it is."""
    value = do("max", do("add", SCORE, ROOM), 0)
    value = do("add", do("shr", do("mul", value, value), first), level)
    for shift in (second, third):
        value = do("shr", do("mul", value, value), shift)
    return do("shr", do("mul", value, value), fourth, name)


def rates(keys: int, multiplier: int, down: int) -> Instructions:
    """From TOTAL, the sum of a query's stored shares, to RATE."""
    do = Writer()
    return _rate(do, do.plus(TOTAL, HALF * keys), keys, multiplier, down)


def whole_rates(keys: int, multiplier: int, down: int) -> Instructions:
    """The same from the sum of shares of 0 to 255."""
    return _rate(Writer(), TOTAL, keys, multiplier, down)


def _rate(do: Writer, total: str, keys: int, multiplier: int, down: int) -> Instructions:
    gain = ""
    bits = max(INVERSE_BITS, (MOST_SHARE * keys).bit_length())
    for raised in _raises(bits):
        high = do("min", do("shr", total, bits - raised), 1)
        by = do("add", do("mul", high, 1 - (1 << raised)), 1 << raised)
        total = do("mul", total, by)
        gain = do("mul", gain, by) if gain else by
    raised_total = do("shr", total, bits - INVERSE_BITS) if bits > INVERSE_BITS else total
    inverse = do("shr", do("mul", _inverse(do, raised_total), multiplier), 15)
    do("shr", do("mul", inverse, gain), down, RATE)
    return tuple(do.made)


def _raises(bits: int) -> list[int]:
    """By how many bits a sum may be raised, one after the other."""
    return [raised for raised in RAISES if raised <= bits - LEAST_SHARE.bit_length()]


def _inverse(do: Writer, d: str) -> str:
    """2**29 / d, of d in [2**14, 2**15)."""
    line = do("shr", do("mul", d, -15_420), 14)
    x = do("add", do("add", line, 23_130), 23_130)
    for _ in range(2):
        rest = do("mul", do("shr", do("mul", x, d), 15), -1)
        x = do("shr", do("mul", x, do("add", rest, 32_767)), 14)
    return x


def lifts() -> Instructions:
    """From VALUES, the sum of a channel's values over the keys, to LIFT."""
    do = Writer()
    do("shl", VALUES, HALF_BITS, LIFT)
    return tuple(do.made)


def results(before: int, behind: int, zero: int, low: int, high: int) -> Instructions:
    """From a PRODUCT, its channel's LIFT and its query's RATE to RESULT, an int8 value."""
    do = Writer()
    value = do("add", PRODUCT, LIFT)
    value = do("shr", value, before) if before else value
    value = do("shr", do("mul", value, RATE), behind - 1)
    value = do("shr", do("add", value, 2 * zero + 1), 1)
    do("min", do("max", value, low), high, RESULT)
    return tuple(do.made)


# ---------------------------------------------------------------- all of it
def score_steps(numbers: Attention) -> Instructions:
    """`scaled_scores` of `numbers`."""
    return scaled_scores(numbers.shift)


def share_steps(numbers: Attention) -> Instructions:
    """`shares` of `numbers`."""
    return shares(numbers.first, numbers.level, numbers.second, numbers.third, numbers.fourth)


def rate_steps(numbers: Attention) -> Instructions:
    """`rates` of `numbers`."""
    return rates(numbers.keys, numbers.multiplier, numbers.down)


def result_steps(numbers: Attention) -> Instructions:
    """`results` of `numbers`."""
    return results(numbers.before, numbers.behind, numbers.zero, numbers.low, numbers.high)


def attended(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    numbers: Attention,
    mask: np.ndarray | int = 0,
) -> dict[str, np.ndarray]:
    """Every value that attention computes, int64.

    Args:
        query: int8 [..., T, E].
        key: int8 [..., S, E].
        value: int8 [..., S, D].
        numbers: of what is computed.
        mask: integers that broadcast to [..., T, S], added to the scores.
    """
    query, key, value = (np.asarray(x, np.int64) for x in (query, key, value))
    found = {SCORE: query @ np.swapaxes(key, -1, -2) + mask}
    found |= run(scaled_scores(numbers.shift), found)
    found[TOP] = found[SCORE].max(-1, keepdims=True)
    stages = [found]
    programs = [(room(numbers.width), (TOP,)), (share_steps(numbers), (SCORE, ROOM))]
    for program, given in programs:
        stages.append(run(program, {name: found[name] for name in given}))
        found |= {name: stages[-1][name] for name in (ROOM, SHARE) if name in stages[-1]}
    found[TOTAL] = found[SHARE].sum(-1, keepdims=True)
    found[VALUES] = value.sum(-2, keepdims=True)
    found[PRODUCT] = found[SHARE] @ value
    for program, given in (
        (rate_steps(numbers), (TOTAL,)),
        (lifts(), (VALUES,)),
        (result_steps(numbers), (PRODUCT, LIFT, RATE)),
    ):
        stages.append(run(program, {name: found[name] for name in given}))
        found |= {n: stages[-1][n] for n in (RATE, LIFT, RESULT) if n in stages[-1]}
    for number, stage in enumerate(stages[1:]):
        found |= {f"step{number}_{name}": values for name, values in stage.items()}
    return found


def never_seen(mask: np.ndarray, numbers: Attention, depth: int, hidden: int = 0) -> np.ndarray:
    """Where a constant mask gives a key the share 0 for every input, bool [..., T, S].

    Such a key is so far below the largest score of its query, whatever the operands are, that it
    is not the largest and its exponential is exactly 0.

    Args:
        mask: integers [..., T, S], added to the scores.
        numbers: of what is computed.
        depth: channels of a query.
        hidden: the largest magnitude that a mask of run time adds besides.
    """
    bound = depth * HALF * HALF
    zero = {SCORE: np.zeros(1, np.int64), ROOM: np.zeros(1, np.int64)}
    if run(share_steps(numbers), zero)[SHARE][0] != -HALF:
        return np.zeros(mask.shape, bool)
    ends = mask + bound, mask.max(-1, keepdims=True) - bound - hidden
    most, top = (run(score_steps(numbers), {SCORE: end})[SCORE] for end in ends)
    return np.asarray(most - top + numbers.width <= 0)


@functools.lru_cache(maxsize=256)
def bound_of(numbers: Attention, depth: int, mask: int = 0) -> int:
    """No value that attention computes is larger, whatever its int8 operands are.

    All distances of a score from the largest and all sums of shares are tried.

    Args:
        numbers: of what is computed.
        depth: channels of a query.
        mask: the largest magnitude that is added to a score.
    """
    score = depth * HALF * HALF + mask
    widest = (score << max(0, -numbers.shift)) * 2 + numbers.width
    distances = np.arange(numbers.width + 1)
    given = {SCORE: distances, ROOM: np.zeros(1, np.int64)}
    found = [score, widest, *peaks(run(share_steps(numbers), given))]
    shares_of_one = run(share_steps(numbers), given)[SHARE]
    assert shares_of_one.min() >= -HALF and shares_of_one.max() < HALF
    for first in range(LEAST_SHARE, numbers.most + 1, PART):
        found += _sum_peaks(numbers, np.arange(first, min(first + PART, numbers.most + 1)))
    return max(*found, 2 * HALF * HALF * numbers.keys)


def _sum_peaks(numbers: Attention, sums: np.ndarray) -> list[int]:
    """The largest values of what follows `sums` of shares, with the largest sums of values."""
    rate = run(rate_steps(numbers), {TOTAL: sums - HALF * numbers.keys})
    ends = {PRODUCT: HALF * sums, LIFT: np.zeros(1, np.int64), RATE: rate[RATE]}
    return peaks(rate) + peaks(run(result_steps(numbers), ends))


def peaks(values: dict[str, np.ndarray]) -> list[int]:
    """The largest magnitude of each of `values`."""
    return [int(np.abs(value).max()) for value in values.values()]
