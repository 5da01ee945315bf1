"""A runtime's rescale to the bit: int32 steps with the runtime's result for every sum there can be.

A rescale to int8 rises with the sum, so that it is told by its *thresholds*: the least sums that
give -127, -126 and so on to 127. Steps that rise too are the same function if they agree on both
sides of every threshold; that is tried, for every channel, and is the proof.

The steps. A sum `v` has up to 20 bits and needs a factor of about 25 to meet all thresholds, more
than a product of int32 holds. It is multiplied in two parts, the second nested in the first:

    w = v * first + more          30 bits
    w + ((w >> cut) * second >> down)
    >> shift

which is `v * first * (1 + second / 2**(cut + down))`; what the inner shifts drop is far below a
threshold's margin. Sums that are short enough need the first part only. A sum whose result would
saturate is clamped first where int32 needs that. TFLite rounds halves away from zero and rounds
twice, so that its thresholds of negative sums lie apart: `w >> 31` (-1 or 0) times `jump` moves
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vta_byoc.ir.chains import KEPT
from vta_byoc.quantization.requantize import FixedPoint, Steps, scalar_if_equal
from vta_byoc.quantization.runtime_arithmetic import Rounding
from vta_byoc.quantization.scales import INT32_HIGH

END_SHIFT = 7
"""A zero point is added between the last so many bits of the shift, where it is an immediate."""
SIGN_SHIFT = 31


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Where a rescale changes: int64 [channels, results above the least].

    Attributes:
        at: the least sum with the result `low + 1 + i`; beyond `bound` where there is none.
        bound: int64 [channels]: the largest magnitude of the sums.
        low, high: the least and the largest result.
    """

    at: np.ndarray
    bound: np.ndarray
    low: int
    high: int

    @property
    def results(self) -> np.ndarray:
        """The result of each column."""
        return np.arange(self.low + 1, self.high + 1, dtype=np.int64)

    @property
    def above(self) -> np.ndarray:
        """Whether a sum with that result, or a larger one, exists."""
        return self.at <= self.bound[:, None]

    @property
    def below(self) -> np.ndarray:
        """Whether a sum with a smaller result exists."""
        return (self.at + self.bound[:, None]) > 0

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The sums between which the result changes, [channels] each; all others saturate."""
        bound = self.bound
        return np.maximum(self.at[:, 0] - 1, -bound), np.minimum(self.at[:, -1], bound)


def thresholds(rounding: Rounding, bound: np.ndarray, low: int, high: int) -> Thresholds:
    """The thresholds of a rescale that rises, by bisection in all channels at once."""
    results = np.arange(low + 1, high + 1, dtype=np.int64)
    below = np.broadcast_to(-bound[:, None] - 1, (len(bound), len(results))).copy()
    reached = np.broadcast_to(bound[:, None] + 1, below.shape).copy()
    while (reached - below > 1).any():
        middle = (below + reached) >> 1
        # beyond the ends nothing is evaluated: the sums there do not exist
        inside = np.clip(middle, -bound[:, None], bound[:, None])
        is_up = np.where(middle > bound[:, None], True, results <= rounding(inside.T).T)
        is_up &= middle >= -bound[:, None]
        below, reached = np.where(is_up, below, middle), np.where(is_up, middle, reached)
    return Thresholds(reached, bound, low, high)


@dataclass(frozen=True, eq=False)
class ExactPoint:
    """The steps of the module's docstring; constants of channels are int64 [channels].

    Attributes:
        offset: added to the sum before anything else.
        clamp: the sums that are kept, None where int32 holds all.
        first, more: the first factor and what is added to the product.
        jump: taken from negative products, None where there are none.
        second: the second factor, None where one is enough.
        cut, down, shift: bits that are dropped before and behind it, and at the end.
        after: added to the result: the zero point, where it is not in `offset`.
    """

    offset: np.ndarray
    clamp: tuple[np.ndarray, np.ndarray] | None
    first: np.ndarray
    more: np.ndarray
    jump: np.ndarray | None
    second: np.ndarray | None
    cut: int
    down: int
    shift: int
    after: int | None = None

    @property
    def steps(self) -> Steps:
        """As `FixedPoint` has them."""
        found: list[tuple[str, np.ndarray | str]] = []
        if self.clamp is not None:
            found += [("maximum", scalar_if_equal(self.clamp[0]))]
            found += [("minimum", scalar_if_equal(self.clamp[1]))]
        found += [("multiply", scalar_if_equal(self.first))]
        found += [("add", scalar_if_equal(self.more))] if self.more.any() else []
        if self.second is not None:
            found.append(("keep", KEPT))
            if self.jump is not None:
                found += [("right_shift", np.array(SIGN_SHIFT))]
                found += [("multiply", scalar_if_equal(self.jump)), ("add", KEPT)]
            found += [("right_shift", np.array(self.cut))]
            found += [("multiply", scalar_if_equal(self.second))]
            found += [("right_shift", np.array(self.down))] if self.down else []
            found.append(("add", KEPT))
        return (*found, *self._end())

    def _end(self) -> Steps:
        """The last shift, with the zero point and half a step between its parts."""
        if self.after is None:
            return (("right_shift", np.array(self.shift)),) if self.shift else ()
        rest = min(END_SHIFT, self.shift)
        constant = (self.after << rest) + (1 << rest >> 1)
        found: list[tuple[str, np.ndarray | str]] = []
        found += [("right_shift", np.array(self.shift - rest))] if self.shift > rest else []
        found.append(("add", np.array(constant)))
        found += [("right_shift", np.array(rest))] if rest else []
        return tuple(found)

    def run(self, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Results of int64 `sums` [channels, n], not saturated, and the largest magnitude met."""
        value, kept = sums + self.offset[:, None], sums
        most = np.abs(value)
        for op, by in self.steps:
            if op == "keep":
                kept = value
                continue
            operand = kept if isinstance(by, str) else by[:, None] if by.ndim else by
            value = OPERATIONS[op](value, operand)
            most = np.maximum(most, np.abs(value))
        return value, most

    def fixed_point(self, low: int, high: int, bounds: np.ndarray) -> FixedPoint:
        """As the quantizer writes it; `bounds` [channels] of the sums."""
        bound = int((bounds + np.abs(self.offset)).max())
        return FixedPoint(scalar_if_equal(self.offset), self.steps, low, high, bound)


OPERATIONS = {
    "add": np.add,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "right_shift": np.right_shift,
}
"""The operators of the steps, on int64."""


def proven(point: ExactPoint, wanted: Thresholds) -> np.ndarray:
    """Whether each channel has the runtime's result for all sums, within int32, bool [channels].

    Both functions rise: the steps, as no factor and no jump is negative.
    """
    ends = np.stack([-wanted.bound, wanted.bound], axis=1)
    _, most = point.run(ends)
    fits = (most <= INT32_HIGH).all(axis=1)
    up, _ = point.run(np.clip(wanted.at, -wanted.bound[:, None], wanted.bound[:, None]))
    down, _ = point.run(np.clip(wanted.at - 1, -wanted.bound[:, None], wanted.bound[:, None]))
    results = wanted.results
    good = ((up >= results) | ~wanted.above) & ((down < results) | ~wanted.below)
    rises = [point.first, point.second, point.jump]
    signs = np.all([(f >= 0) for f in rises if f is not None], axis=0)
    return np.asarray(fits & signs & good.all(axis=1))
