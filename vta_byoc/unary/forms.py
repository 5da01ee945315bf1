"""Forms of programs with free immediates, tried for many immediates at a time.

A form is a chain of squares, or a chain joined with a second, simpler one.  Its inner numbers are
drawn by the search; those behind the last square enter the result linearly and are found by least
squares, rounded, and then checked like the others: by what the program gives for all 256 values.

SiLU, GELU and softplus are the positive part of their operand and an even function of it, which is
a bump of a few steps near zero: `f(x) - f(-x) = x`.  The form "even" computes the two apart, so
that large operands need no more than the positive part, and the bump no more than a few bits.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW, OTHER, SELF
from vta_byoc.unary.fitting import Fit
from vta_byoc.unary.program import SHIFT, VALUES, Program, Step, applied

ALIKE = 1.5
"""Ramps are about as near as the nearest with so many times its squares."""
UNEVEN = 1.0
"""A table with so many squared steps beside its ramp has no even function in it."""
CENTRES = range(-96, 97)
"""Where a ramp may begin: with at least 31 values on both sides."""
LEAST_PAIRS = 32
"""A table that shows less of a ramp than so many pairs has none."""
BUMP_BITS = 8
"""Bits of the distance that a bump is made of: the fewest that cost no noise to speak of."""
FARTHEST = 3.0
"""A bump ends at most at so many times the largest distance."""
Column = np.ndarray
"""int64 [candidates]: one immediate of each."""


@dataclass
class Chain:
    """Values [candidates, 256] and the steps that made them; an immediate for each candidate.

    What is the same for all candidates may be there once: values [1, 256], one number.
    """

    value: np.ndarray
    steps: list[tuple[str, Column | int | str]] = field(default_factory=list)
    _peak: Column | None = None

    @classmethod
    def start(cls) -> Chain:
        """The int8 values."""
        return cls(VALUES[None])

    def copy(self) -> Chain:
        """A chain that goes on from here by itself."""
        return Chain(self.value, list(self.steps), self._peak)

    @property
    def peak(self) -> Column:
        """The largest magnitude of each candidate's values."""
        if self._peak is None:
            self._peak = np.abs(self.value).max(axis=1)
        return self._peak

    def do(self, op: str, by: Column | int) -> Chain:
        """Append a step; returns itself."""
        self.value = applied(op, self.value, by if isinstance(by, int) else by[:, None])
        self.steps.append((op, by))
        self._peak = None
        return self

    def again(self, other: Chain) -> Chain:
        """Append the sum with what `other`, the second chain, has made; returns itself."""
        self.value = self.value + other.value
        self.steps.append(("add", OTHER))
        self._peak = None
        return self

    def square(self, bits: int) -> Chain:
        """Append a multiplication by itself, and a shift that leaves so many bits at most."""
        peak = self.peak * self.peak
        self.value = self.value * self.value
        self.steps.append(("mul", SELF))
        by = np.maximum(_bits(peak) - bits, 0)
        self.do("shr", by)
        self._peak = peak >> by
        return self

    def of(self, number: int) -> tuple[Step, ...]:
        """The steps of one candidate, without those that do nothing."""
        found: list[Step] = []
        for op, by in self.steps:
            immediate = int(by[number]) if isinstance(by, np.ndarray) else by
            if (op, immediate) not in (("add", 0), ("shr", 0), ("mul", 1)):
                found.append((op, immediate))
        return tuple(found)


def _bits(peak: Column) -> Column:
    """The bits of a magnitude."""
    return np.frexp(peak.astype(np.float64))[1].astype(np.int64)


@dataclass(frozen=True)
class Form:
    """What kind of program is tried.

    Attributes:
        levels: the clamp before each square of the main chain: "p" keeps positive values, "n"
            negative ones, "-" all.  Without any the chain is a straight line.
        join: None, or "mul" or "add" with a second chain; "even": the chain is one of the
            operand's distance from a centre, and the operand's part above that is added to it.
        clip: "mul": whether both chains begin with the value moved by one number and cut to
            the same limits (for odd functions).
    """

    levels: str
    join: str | None = None
    clip: bool = False

    def suits(self, table: np.ndarray) -> bool:
        """Whether int64 `table`, [256], may be of this form.

        A sum with squares of the operand itself is tried where "even" is not.
        """
        if self.join not in ("even", "add") or not self.levels:
            return True
        is_even = ramp_of(tuple(table.tolist())).off < UNEVEN
        return is_even == (self.join == "even")

    @property
    def size(self) -> int:
        """The number of free numbers."""
        if self.join == "even":
            return len(self.levels)
        return (1 + len(self.levels) if self.levels else 2) + (1 if self.join else 0)

    @property
    def least_cycles(self) -> int:
        """About what such a program costs at least, for the order in which forms are tried."""
        if self.join == "even":
            return 14 + 5 * len(self.levels)
        own = 6 + 6 * len(self.levels)
        return own + (0 if self.join is None else 5) + 2 * self.clip


@dataclass
class Tried:
    """Candidates of one form: the results of each and how to write its program."""

    left: Chain
    op: str | None
    right: Chain | None
    after: Chain

    def program(self, number: int) -> Program:
        """The program of one candidate."""
        right = () if self.right is None else self.right.of(number)
        return Program(self.left.of(number), self.op, right, self.after.of(number))


class Trials:
    """Tries candidates of a form for a table, int64 [256]; what all of them share is made once."""

    def __init__(self, form: Form, table: np.ndarray) -> None:
        self.form = form
        self.bump = Bump.of(table) if form.join == "even" else None
        self.fit = Fit(table) if self.bump is None else Fit(self.bump.rest, _cut(table))
        self.centre = centre_of(tuple(table.tolist())) if form.clip else 0

    def first(self, numbers: np.ndarray) -> np.ndarray:
        """The first immediates, int64 [candidates, 1 or more], of each row of `numbers`.

        Programs of a form with one square or none have no other inner numbers.
        """
        first = numbers[:, :1]
        if self.bump is not None:
            low, high = self.bump.distance.value.min(), self.bump.distance.value.max()
            first = -np.rint(low + FARTHEST * first**2 * (high - low))
        elif self.form.clip:
            first = np.rint(numbers[:, :2] * (4, 254) + (-2, 1)) - (self.centre, 0)
        else:
            wide = (640, -256) if self.form.levels else (256, -128)
            last = numbers[:, -1:] if self.form.levels else numbers[:, 1:]
            first = np.rint(np.hstack([first * wide[0] + wide[1], last * 256 - 128]))
        return first.astype(np.int64)

    def tried(self, numbers: np.ndarray) -> Tried:
        """The programs for each row of `numbers`, float64 [candidates, size] within 0..1."""
        first = self.first(numbers).T
        if self.bump is not None:
            return self._even(self.bump, first[0], numbers)
        if self.form.join is None:
            main = self._main(first, numbers)
            (slope,), level = self._fitted(main)
            unit = _scaled(main, slope, 30)
            return Tried(main, None, None, _finished(Chain(main.value), level, unit))
        second, main = self._second(first), self._main(first, numbers)
        if self.form.join == "mul":
            (slope, gate), level = self._fitted(Chain(main.value * second.value), second)
            unit = _scaled(main, slope, _fraction_bits(gate, 14))
            main.do("add", _immediate(np.ldexp(gate, unit)))
            value = second.value * main.value
        else:
            (slope, ramp), level = self._fitted(main, second)
            unit = _scaled(main, slope, _fraction_bits(ramp, 10))
            second.do("mul", _immediate(np.ldexp(ramp, unit)))
            value = main.value + second.value
        return Tried(second, self.form.join, main, _finished(Chain(value), level, unit))

    def _fitted(self, *chains: Chain) -> tuple[list[np.ndarray], np.ndarray]:
        """Factors of chains and a constant."""
        return self.fit.linear([each.value for each in chains], [each.peak for each in chains])

    def _second(self, first: np.ndarray) -> Chain:
        """The simpler chain: the value moved, within limits, or its positive part."""
        if self.form.clip:
            return Chain.start().do("add", first[0]).do("max", -first[1]).do("min", first[1])
        chain = Chain.start().do("add", first[-1])
        return chain.do("max", 0) if self.form.join == "add" else chain

    def _main(self, first: np.ndarray, numbers: np.ndarray) -> Chain:
        """The chain of squares."""
        if self.form.levels:
            chain = self._second(first) if self.form.clip else Chain.start().do("add", first[0])
            return _squared(chain, self.form.levels, numbers[:, 2:].T * 2.0 - 0.7)
        limits = first[:2]
        return Chain.start().do("max", limits.min(axis=0)).do("min", limits.max(axis=0))

    def _even(self, bump: Bump, first: Column, numbers: np.ndarray) -> Tried:
        """A slope above a centre, and a chain of the distance from it."""
        chain = bump.distance.copy().do("add", first)
        _squared(chain, self.form.levels, numbers[:, 1:].T)
        (factor,), level = self._fitted(chain)
        # in front of the factor the constant takes no shift of its own, where an immediate holds it
        early = np.rint((level + 0.5) / np.where(factor, factor, np.inf))
        early = np.where(np.abs(early) <= IMMEDIATE_HIGH, early, 0.0)
        _scaled(chain.do("add", early.astype(np.int64)), factor, bump.unit)
        late = np.where(early, -0.5, level)
        after = _finished(chain.again(bump.right), late, bump.unit)
        return Tried(bump.left, "add", bump.right, after)


def _squared(chain: Chain, levels: str, shares: np.ndarray) -> Chain:
    """Clamp and square for each level; between two, subtract a share of the largest value."""
    for number, clamp in enumerate(levels):
        if number:
            chain.do("add", -_immediate(shares[number - 1] * chain.peak))
        if clamp != "-":
            chain.do("max" if clamp == "p" else "min", 0)
        chain.square(14)
    return chain


@dataclass(frozen=True)
class Bump:
    """What the programs of a table as a ramp and an even function begin with.

    Half of the slope, of the other sign, is joined to the slope above the centre: that makes the
    distance from it.

    Attributes:
        left: half of the slope, of the other sign.
        right: the slope above the centre.
        unit: the fraction bits of both.
        distance: a few bits of the distance.
        rest: what the even function has to give, float64 [256].
    """

    left: Chain
    right: Chain
    unit: int
    distance: Chain
    rest: np.ndarray

    @classmethod
    def of(cls, table: np.ndarray) -> Bump:
        """Of int64 `table`, [256]."""
        ramp = ramp_of(tuple(table.tolist()))
        room = int(np.floor(np.log2(IMMEDIATE_HIGH / max(abs(ramp.slope), 1e-3))))
        unit = min(room, 14)
        half = int(_immediate(np.ldexp(ramp.slope / 2, unit)))
        right = Chain.start().do("max", ramp.centre).do("mul", 2 * half)
        left = Chain.start().do("mul", -half)
        distance = Chain(left.value + right.value)
        distance.do("shr", int(np.maximum(_bits(distance.peak) - BUMP_BITS, 0)[0]))
        rest = table - np.ldexp(right.value[0].astype(np.float64), -unit)
        return cls(left, right, unit, distance, rest)


@dataclass(frozen=True)
class Ramp:
    """A table as a slope above a centre and an even function of the distance from it.

    Attributes:
        centre: the int8 value.
        slope: of the table's steps to the operand's.
        off: the mean square of what the two leave, in squares of a step.
    """

    centre: int
    slope: float
    off: float


@functools.lru_cache(maxsize=64)
def ramp_of(table: tuple[int, ...]) -> Ramp:
    """What comes nearest to a table; of what is about as near, the centre nearest to 0.

    Beyond what has a partner on the other side of the centre, the even function has to be flat.
    """
    wanted = np.array(table, np.float64)
    counts = ~_cut(wanted)
    found = [_ramp(wanted, counts, centre) for centre in CENTRES]
    most = ALIKE * min(ramp.off for ramp in found)
    return min((r for r in found if r.off <= most), key=lambda ramp: abs(ramp.centre))


def _ramp(wanted: np.ndarray, counts: np.ndarray, centre: int) -> Ramp:
    """The ramp about `centre` that is nearest to where `wanted` counts."""
    place = centre - int(VALUES[0])
    reach = min(place, len(wanted) - 1 - place)
    far = np.arange(1, reach + 1)
    odd = wanted[place + far] - wanted[place - far]
    pairs = counts[place + far] & counts[place - far]
    far, odd = far[pairs], odd[pairs]
    if len(far) < LEAST_PAIRS:
        return Ramp(centre, 0.0, math.inf)
    slope = float(odd @ far / (far @ far))
    even = wanted - slope * np.maximum(VALUES - centre, 0)
    alone = counts & (np.abs(VALUES - centre) > reach)
    off = 2 * ((odd - slope * far) ** 2).sum() + ((even[alone] - even[place - reach]) ** 2).sum()
    return Ramp(centre, slope, float(off) / int(counts.sum()))


def _cut(table: np.ndarray) -> np.ndarray:
    """Which results a clamp has cut off from above: the largest one, where several have it."""
    top = table == table.max()
    return top if top.sum() > 2 else np.zeros_like(top)


@functools.lru_cache(maxsize=64)
def centre_of(table: tuple[int, ...]) -> int:
    """The int8 value about which a table is most nearly odd, among the middle half of all."""
    wanted, found = np.array(table, np.float64), {}
    for centre in range(-64, 65):
        place = centre - int(VALUES[0])
        reach = min(place, len(wanted) - 1 - place)
        around = wanted[place - reach : place + reach + 1]
        found[centre] = float(np.abs(around + around[::-1] - 2 * wanted[place]).mean())
    return min(found, key=lambda centre: (found[centre], abs(centre)))


def _within(value: np.ndarray, low: int, high: int) -> np.ndarray:
    """What `np.clip` gives, which takes several times as long for a few numbers."""
    found: np.ndarray = np.minimum(np.maximum(value, low), high)
    return found


def _immediate(value: np.ndarray) -> Column:
    return _within(np.rint(value), -IMMEDIATE_HIGH, IMMEDIATE_HIGH).astype(np.int64)


def _fraction_bits(factor: np.ndarray, most: int) -> Column:
    """With how many fraction bits, at most `most`, an immediate holds `factor`."""
    size = np.ceil(np.log2(np.maximum(np.abs(factor), 1e-6)))
    return np.minimum(most, 14 - size).astype(np.int64)


def _scaled(chain: Chain, slope: np.ndarray, most: Column | int) -> Column:
    """Multiply by `slope`; gives the number of fraction bits that the values then have.

    These are at most `most`; more are shifted out.
    """
    room = np.minimum(15, 30 - _bits(chain.peak))
    bits = _within(room - np.frexp(slope)[1], 0, 31)
    keep = np.minimum(bits, np.maximum(most, 0))
    bits = np.minimum(bits, keep + SHIFT)
    chain.do("mul", _immediate(np.ldexp(slope, bits)))
    chain.do("shr", bits - keep)
    return keep


def _finished(chain: Chain, level: np.ndarray, unit: Column | int) -> Chain:
    """Add the constant, round, shift to whole steps and clamp."""
    wide = np.abs(level) + 0.5
    most = np.floor(np.log2(IMMEDIATE_HIGH / np.maximum(wide, 1e-3))).astype(np.int64)
    last = _within(np.minimum(unit, most), 0, 15)
    chain.do("shr", unit - last)
    chain.do("add", _immediate(np.ldexp(level + 0.5, last)))
    chain.do("shr", last)
    return chain.do("max", INT8_LOW).do("min", INT8_HIGH)
