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
    """Values [candidates, 256] and the steps that made them; an immediate for each candidate."""

    value: np.ndarray
    steps: list[tuple[str, Column | str]] = field(default_factory=list)

    @classmethod
    def start(cls, count: int) -> Chain:
        """The int8 values of so many candidates."""
        return cls(np.broadcast_to(VALUES, (count, len(VALUES))))

    def do(self, op: str, by: Column | int) -> Chain:
        """Append a step; returns itself."""
        column = by if isinstance(by, np.ndarray) else np.full(len(self.value), by, np.int64)
        self.value = applied(op, self.value, column[:, None])
        self.steps.append((op, column))
        return self

    def again(self, other: Chain) -> Chain:
        """Append the sum with what `other`, the second chain, has made; returns itself."""
        self.value = self.value + other.value
        self.steps.append(("add", OTHER))
        return self

    def square(self) -> Chain:
        """Append a multiplication by itself; returns itself."""
        self.value = self.value * self.value
        self.steps.append(("mul", SELF))
        return self

    def cut(self, bits: int) -> Chain:
        """Append the right shift after which the values have at most `bits` bits."""
        return self.do("shr", np.maximum(_bits(self.value) - bits, 0))

    def of(self, number: int) -> tuple[Step, ...]:
        """The steps of one candidate, without those that do nothing."""
        found: list[Step] = []
        for op, by in self.steps:
            immediate = by if isinstance(by, str) else int(by[number])
            if (op, immediate) not in (("add", 0), ("shr", 0), ("mul", 1)):
                found.append((op, immediate))
        return tuple(found)


def _bits(value: np.ndarray) -> Column:
    most = np.abs(value).max(axis=1)
    return np.frexp(most.astype(np.float64))[1].astype(np.int64)


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


def tried(form: Form, numbers: np.ndarray, table: np.ndarray) -> Tried:
    """The programs of `form` for each row of `numbers`, float64 [candidates, size] within 0..1."""
    if form.join is None:
        main = _main(form, numbers, table)
        (slope,), level = _linear([main.value], table)
        unit = _scaled(main, slope, np.full(len(numbers), 30))
        after = Chain(main.value)
        return Tried(main, None, None, _finished(after, level, unit))
    if form.join == "even":
        return _even(form, numbers, table)
    second = _second(form, numbers, table)
    main = _main(form, numbers, table)
    if form.join == "mul":
        (slope, gate), level = _linear([main.value * second.value, second.value], table)
        most = np.minimum(14, 14 - np.ceil(np.log2(np.maximum(np.abs(gate), 1e-6))))
        unit = _scaled(main, slope, most.astype(np.int64))
        main.do("add", _immediate(np.ldexp(gate, unit)))
        value = second.value * main.value
    else:
        (slope, ramp), level = _linear([main.value, second.value], table)
        most = np.minimum(10, 14 - np.ceil(np.log2(np.maximum(np.abs(ramp), 1e-6))))
        unit = _scaled(main, slope, most.astype(np.int64))
        second.do("mul", _immediate(np.ldexp(ramp, unit)))
        value = main.value + second.value
    return Tried(second, form.join, main, _finished(Chain(value), level, unit))


def _main(form: Form, numbers: np.ndarray, table: np.ndarray) -> Chain:
    """The chain of squares."""
    chain, low = Chain.start(len(numbers)), numbers[:, 0]
    if form.clip:
        middle, width = _middle(numbers, table)
        chain.do("add", middle).do("max", -width).do("min", width)
    elif form.levels:
        chain.do("add", np.rint(low * 640 - 256).astype(np.int64))
    else:
        first = np.rint(low * 256 - 128).astype(np.int64)
        last = np.rint(numbers[:, 1] * 256 - 128).astype(np.int64)
        return chain.do("max", np.minimum(first, last)).do("min", np.maximum(first, last))
    for number, clamp in enumerate(form.levels):
        if number:
            _lowered(chain, numbers[:, 1 + number] * 2.0 - 0.7)
        _squared(chain, clamp)
    return chain


def _lowered(chain: Chain, share: np.ndarray) -> None:
    """Subtract a share of the largest value."""
    chain.do("add", -_immediate(np.rint(share * chain.value.max(axis=1))))


def _squared(chain: Chain, clamp: str) -> None:
    """Clamp and square."""
    if clamp != "-":
        chain.do("max" if clamp == "p" else "min", 0)
    chain.square().cut(14)


def _even(form: Form, numbers: np.ndarray, table: np.ndarray) -> Tried:
    """A slope above a centre, and a chain of the distance from it.

    Half of the slope, of the other sign, is joined to the slope above the centre: that makes the
    distance, which the chain begins with.
    """
    ramp = ramp_of(tuple(table.tolist()))
    room = int(np.floor(np.log2(IMMEDIATE_HIGH / max(abs(ramp.slope), 1e-3))))
    unit = np.full(len(numbers), min(room, 14))
    half = _immediate(np.rint(np.ldexp(ramp.slope / 2, unit)))
    right = Chain.start(len(numbers)).do("max", ramp.centre).do("mul", 2 * half)
    left = Chain.start(len(numbers)).do("mul", -half)
    chain = Chain(left.value + right.value).cut(BUMP_BITS)
    low, high = chain.value.min(axis=1), chain.value.max(axis=1)
    far = FARTHEST * numbers[:, 0] ** 2 * (high - low)
    chain.do("add", -np.rint(low + far).astype(np.int64))
    for number, clamp in enumerate(form.levels):
        if number:
            _lowered(chain, numbers[:, number])
        _squared(chain, clamp)
    rest = table - np.ldexp(right.value.astype(np.float64), -unit[:, None])
    (factor,), level = _linear([chain.value], rest, _cut(table))
    # in front of the factor the constant takes no shift of its own, where an immediate holds it
    early = np.rint((level + 0.5) / np.where(factor, factor, np.inf))
    early = np.where(np.abs(early) <= IMMEDIATE_HIGH, early, 0.0)
    _scaled(chain.do("add", early.astype(np.int64)), factor, unit)
    late = np.where(early, -0.5, level)
    return Tried(left, "add", right, _finished(chain.again(right), late, unit))


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


def _middle(numbers: np.ndarray, table: np.ndarray) -> tuple[Column, Column]:
    """What is added so that the table is nearly odd, and the limit, of each candidate."""
    near = np.rint(numbers[:, 0] * 4 - 2).astype(np.int64)
    middle = near - centre_of(tuple(table.tolist()))
    return middle, np.rint(numbers[:, 1] * 254 + 1).astype(np.int64)


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


def _second(form: Form, numbers: np.ndarray, table: np.ndarray) -> Chain:
    """The simpler chain: the value moved, within limits, or its positive part."""
    chain = Chain.start(len(numbers))
    if form.clip:
        middle, width = _middle(numbers, table)
        return chain.do("add", middle).do("max", -width).do("min", width)
    chain.do("add", np.rint(numbers[:, -1] * 256 - 128).astype(np.int64))
    return chain.do("max", 0) if form.join == "add" else chain


def _linear(
    columns: list[np.ndarray], table: np.ndarray, cut: np.ndarray | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Factors of `columns` and a constant, float64 [candidates], nearest to `table`.

    Results beyond the ends of the table, which a clamp cuts, count as reached; where it is known
    which do not count, `cut`, bool [256], the table may be one for each candidate.
    """
    count = len(columns[0])
    peaks = [np.maximum(np.abs(c).max(axis=1), 1).astype(np.float64) for c in columns]
    scaled = [c / p[:, None] for c, p in zip(columns, peaks, strict=True)]
    basis = np.stack([*scaled, np.ones((count, len(VALUES)))], axis=1)
    wanted = np.broadcast_to(table, (count, len(VALUES))).astype(np.float64)
    top, bottom = (wanted.max(), wanted.min()) if cut is None else (np.inf, -np.inf)
    weight = np.ones((count, len(VALUES))) * (1.0 if cut is None else ~cut)
    ridge = 1e-7 * len(VALUES) * np.eye(basis.shape[1])
    for turn in range(3):
        heavy = basis * weight[:, None, :]
        products = heavy @ wanted[:, :, None]
        found = np.linalg.solve(heavy @ basis.transpose(0, 2, 1) + ridge, products)
        if turn == 2:
            break
        made = (found.transpose(0, 2, 1) @ basis)[:, 0]
        short = np.abs(np.minimum(np.maximum(made, bottom), top) - wanted)
        beyond = ((made > top) & (wanted == top)) | ((made < bottom) & (wanted == bottom))
        weight = np.where(beyond, 0.0, weight * (0.3 + short))
    factors = [found[:, i, 0] / peak for i, peak in enumerate(peaks)]
    return factors, found[:, -1, 0]


def _immediate(value: np.ndarray) -> Column:
    limit = IMMEDIATE_HIGH
    return np.clip(np.rint(np.nan_to_num(value)), -limit, limit).astype(np.int64)


def _scaled(chain: Chain, slope: np.ndarray, most: Column) -> Column:
    """Multiply by `slope`; gives the number of fraction bits that the values then have.

    These are at most `most`; more are shifted out.
    """
    size = np.frexp(np.abs(slope))[1].astype(np.int64)
    room = 30 - _bits(chain.value)
    bits = np.clip(np.minimum(15, room) - size, 0, 31)
    keep = np.minimum(bits, np.maximum(most, 0))
    bits = np.minimum(bits, keep + SHIFT)
    chain.do("mul", _immediate(np.ldexp(slope, bits)))
    chain.do("shr", bits - keep)
    return keep


def _finished(chain: Chain, level: np.ndarray, unit: Column) -> Chain:
    """Add the constant, round, shift to whole steps and clamp."""
    wide = np.abs(level) + 0.5
    most = np.floor(np.log2(IMMEDIATE_HIGH / np.maximum(wide, 1e-3))).astype(np.int64)
    last = np.clip(np.minimum(unit, most), 0, 15)
    chain.do("shr", unit - last)
    chain.do("add", _immediate(np.ldexp(level + 0.5, last)))
    chain.do("shr", last)
    return chain.do("max", INT8_LOW).do("min", INT8_HIGH)
