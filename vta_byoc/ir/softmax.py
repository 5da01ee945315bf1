"""A softmax that stands alone, of int8 scores along one axis, as programs of int32 steps.

It is the softmax of `ir.attention`, whose exponential and reciprocal it shares, without a product
behind it: shares need not be stored and keep 0 to 255.

    raised  score times a power of two, which the exponential asks for
    share   255 * exp(score - largest) and 0.6, rounded down, in 0 to 255
    rate    what a share is multiplied by, from the sum of all shares
    result  share * 128 * rate, shifted

128 times a share is at most 128 times the sum of shares, so that the bounds are those of attention.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from vta_byoc.ir.attention import (
    HALF,
    HALF_BITS,
    LEAST_SHARE,
    MOST_SHARE,
    PART,
    RATE,
    RESULT,
    ROOM,
    SCORE,
    SHARE,
    TOP,
    TOTAL,
    Attention,
    peaks,
    room,
    scaled_scores,
    whole_rates,
    whole_shares,
)
from vta_byoc.ir.programs import Instructions, Writer, run

MOST_SCORE = HALF
"""The largest magnitude of a score."""
MOST_KEYS = 16_000
"""Of more, the sum is so large that a share would be shifted to the right in front of its rate."""


@dataclass(frozen=True)
class Softmax:
    """What a softmax computes, in the numbers of `ir.attention.Attention`.

    Attributes:
        keys: how many elements a sum has.
        numbers: the others, in order, from `shift` on.
    """

    keys: int
    numbers: tuple[int, ...]

    @property
    def attention(self) -> Attention:
        """The numbers by their names."""
        return Attention(self.keys, *self.numbers)

    @property
    def raised(self) -> Instructions:
        """From a SCORE to the one that the others read; nothing where it is not shifted."""
        return scaled_scores(self.attention.shift)

    @property
    def room(self) -> Instructions:
        """From TOP to ROOM."""
        return room(self.attention.width)

    @property
    def share(self) -> Instructions:
        """From a SCORE and the ROOM of its sum to SHARE."""
        n = self.attention
        return whole_shares(n.first, n.level, n.second, n.third, n.fourth)

    @property
    def rate(self) -> Instructions:
        """From TOTAL to RATE."""
        return whole_rates(self.keys, self.attention.multiplier, self.attention.down)

    @property
    def result(self) -> Instructions:
        """From a SHARE and the RATE of its sum to RESULT."""
        n = self.attention
        return softmax_results(n.before, n.behind, n.zero, n.low, n.high)


def softmax_results(before: int, behind: int, zero: int, low: int, high: int) -> Instructions:
    """From a SHARE and the RATE of its sum to RESULT, an int8 value."""
    do = Writer()
    value = do("mul", do("shl", SHARE, HALF_BITS - before), RATE)
    value = do("add", do("shr", value, behind - 1), 2 * zero + 1)
    do("min", do("max", do("shr", value, 1), low), high, RESULT)
    return tuple(do.made)


def softmaxed(scores: np.ndarray, softmax: Softmax, axis: int) -> dict[str, np.ndarray]:
    """Every value that a softmax of int8 `scores` computes along `axis`, int64."""
    found = {SCORE: np.asarray(scores, np.int64)}
    found |= run(softmax.raised, found)
    stages = [found]

    def follow(program: Instructions, given: tuple[str, ...], wanted: str) -> None:
        stages.append(run(program, {name: found[name] for name in given}))
        found[wanted] = stages[-1][wanted]

    found[TOP] = found[SCORE].max(axis, keepdims=True)
    follow(softmax.room, (TOP,), ROOM)
    follow(softmax.share, (SCORE, ROOM), SHARE)
    found[TOTAL] = found[SHARE].sum(axis, keepdims=True)
    follow(softmax.rate, (TOTAL,), RATE)
    follow(softmax.result, (SHARE, RATE), RESULT)
    for number, stage in enumerate(stages[1:]):
        found |= {f"step{number}_{name}": values for name, values in stage.items()}
    return found


@functools.lru_cache(maxsize=256)
def softmax_bound(softmax: Softmax) -> int:
    """No value that a softmax computes is larger, whatever its int8 operand is.

    All distances of a score from the largest and all sums of shares are tried.
    """
    n = softmax.attention
    raised = MOST_SCORE << max(0, -n.shift)
    distances = {SCORE: np.arange(n.width + 1), ROOM: np.zeros(1, np.int64)}
    found = [2 * raised + n.width, *peaks(run(softmax.share, distances))]
    for first in range(LEAST_SHARE, n.most + 1, PART):
        sums = np.arange(first, min(first + PART, n.most + 1))
        rate = run(softmax.rate, {TOTAL: sums})
        most = {SHARE: np.minimum(sums, MOST_SHARE), RATE: rate[RATE]}
        found += peaks(rate) + peaks(run(softmax.result, most))
    return max(found)
