"""The program of the lowest price for a table: few cycles, results near, the same each time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW, SELF
from vta_byoc.unary.forms import Form, tried
from vta_byoc.unary.gates import clamped_late, refitted
from vta_byoc.unary.kept import kept_program
from vta_byoc.unary.program import Program, Step

SEED = 19
POPULATION, ROUNDS, HOPELESS_AFTER = 32, 40, 12
ABOVE = 20.0
"""What the square of a step above the tolerance counts, beside that of one within it."""
FALLS = 8.0
"""A form is left after `HOPELESS_AFTER` rounds if it costs too much even with so much less loss."""
HOPELESS = 4.5
"""A candidate that is so many steps off is not brought within the tolerance."""
IMPROVED = 4
"""Of so many forms, those that look cheapest, the best candidate is improved."""
ROUNDING = 1.0 / 12.0
"""The mean square of the error of rounding to whole steps, in squares of a step."""
NEAR = 0.25
"""Programs with less noise than this, in that of rounding, are near enough as they are."""
DOUBLING = 4.0
"""So many cycles a vector are paid for half the noise of a function's result.

The noise is that of rounding and that of results which differ from the table.  With 4, a program
is not much longer than the shortest within the tolerance, and hard swish, which is the basis of
MobileNetV3, is exact (`docs/design/038-near-functions.md`).
"""

FORMS = tuple(
    sorted(
        [
            Form(""),
            *(Form(levels) for levels in ("p", "n", "-", "pn", "pp", "nn", "--")),
            Form("", "mul"),
            *(Form(levels, "mul") for levels in ("p", "n", "-", "pn", "nn", "pp", "--")),
            *(Form(levels, "mul", clip=True) for levels in ("-", "--", "---", "-n-")),
            Form("", "add"),
            *(Form(levels, "add") for levels in ("p", "n", "-", "pn", "nn", "pp", "-n")),
        ],
        key=lambda form: form.least_cycles,
    )
)
"""Every form that is tried, the cheapest first."""


@dataclass(frozen=True)
class Found:
    """A program and how far it is from the table.

    Attributes:
        program: what was found.
        error: the largest difference from the table, in steps, over all 256 values.
        exact: the share of the 256 values with the table's result.
        noise: the mean square of the differences, in that of rounding.
    """

    program: Program
    error: int
    exact: float
    noise: float


def found_for(table: np.ndarray, tolerance: int = 1, multiplies: bool = True) -> Found | None:
    """The program found for `table` whose price is lowest: its cycles and its noise.

    Args:
        table: int8 results of the values -128 to 127, [256].
        tolerance: the largest difference, in steps of the result.
        multiplies: whether the machine's ALU has MUL.

    Returns:
        None where no program of the forms that are tried is near enough.
    """
    return _found(tuple(int(v) for v in table), tolerance, multiplies)


@functools.lru_cache(maxsize=1024)
def _found(table: tuple[int, ...], tolerance: int, multiplies: bool) -> Found | None:
    target = Target(np.array(table, np.int64), tolerance)
    search = functools.partial(_searched, target, multiplies)
    best = kept_program(table, tolerance, multiplies, search)
    if best is None:
        return None
    off = target.off(best)
    return Found(best, int(off.max()), float((off == 0).mean()), target.noise(best))


def _searched(target: Target, multiplies: bool) -> Program | None:
    """The program of the lowest price that is near enough."""
    low, high = int(target.wanted.min()), int(target.wanted.max())
    clamps = Program(after=(("max", low), ("min", high)))
    best = _shortened(clamps, target) if target.takes(clamps) else None
    return _cheapest(target, best) if multiplies else best


@dataclass(frozen=True)
class Target:
    """What a program has to give.

    Attributes:
        wanted: int64 results of the values -128 to 127, [256].
        tolerance: the largest difference, in steps.
    """

    wanted: np.ndarray
    tolerance: int

    def off(self, program: Program) -> np.ndarray:
        """By how many steps each of the 256 results differs."""
        return np.abs(program.results() - self.wanted)

    def reached(self, results: np.ndarray) -> bool:
        """Whether results are int8 values within the tolerance."""
        is_int8 = results.min() >= INT8_LOW and results.max() <= INT8_HIGH
        return bool(is_int8 and np.abs(results - self.wanted).max() <= self.tolerance)

    def takes(self, program: Program) -> bool:
        """Whether the program's results are such, and no value overflows on the way."""
        return self.reached(program.results()) and program.fits

    def noise(self, program: Program) -> float:
        """The mean square of the differences, in that of rounding."""
        return float((self.off(program) ** 2).mean()) / ROUNDING

    def estimate(self, program: Program) -> float:
        """Cycles a vector, and `DOUBLING` for each doubling of the rounding's noise."""
        return program.cycles() + DOUBLING * math.log2(1.0 + self.noise(program))

    def price(self, program: Program | None) -> float:
        """The estimate of a program that can be taken, infinite of any other."""
        return self.estimate(program) if program and self.takes(program) else math.inf

    def excess(self, program: Program) -> int:
        """The squares of what is above the tolerance, all in all."""
        return int((np.maximum(self.off(program) - self.tolerance, 0) ** 2).sum())

    def squares(self, program: Program) -> float:
        """The squares of all differences; infinite where a result is not within the tolerance."""
        results = program.results()
        return float(((results - self.wanted) ** 2).sum()) if self.reached(results) else math.inf

    def distance(self, program: Program) -> float:
        """The largest difference, and the share of the results that differ by so much."""
        off = self.off(program)
        worst = off.max()
        return float(worst + (off == worst).mean())


# ---------------------------------------------------------------- a form's free numbers
def _cheapest(target: Target, best: Program | None) -> Program | None:
    """The program of the lowest price: `best`, or one of the forms that look cheaper."""
    found: list[tuple[float, int, Form, Program]] = []
    most = target.price(best)
    for form in FORMS:
        if form.least_cycles >= most:
            break
        worth = (most - form.least_cycles) / DOUBLING
        near = _evolved(form, target, FALLS * ROUNDING * (2.0 ** min(worth, 40.0) - 1.0))
        if near is not None:
            found.append((target.estimate(near), len(found), form, near))
            most = min(most, target.price(near))
    found.sort(key=lambda each: each[:2])
    for _, _, form, near in found[:IMPROVED]:
        if form.least_cycles < target.price(best):
            program = _improved(near, target)
            best = program if target.price(program) < target.price(best) else best
    return best or _reached([near for *_, near in found], target)


def _reached(found: Sequence[Program], target: Target) -> Program | None:
    """The nearest of `found` that many drawn changes bring within the tolerance."""
    for near in sorted(found, key=target.distance):
        if target.distance(near) > HOPELESS:
            break
        program = _swept(near, target.distance, target.tolerance + 1)
        if target.distance(program) < target.tolerance + REACH:
            program = _drawn(program, target.excess, DRAWS)
        if target.takes(program):
            return _improved(program, target)
    return None


def _evolved(form: Form, target: Target, hopeless: float) -> Program | None:
    """The best candidate by differential evolution; None where its loss stays above `hopeless`."""
    draw = np.random.default_rng(SEED)
    numbers = draw.random((POPULATION, form.size))
    loss = _losses(form, numbers, target)
    for turn in range(ROUNDS):
        best = int(loss.argmin())
        if turn == HOPELESS_AFTER and loss[best] > hopeless:
            return None
        if not loss[best]:
            break
        other = _crossed(draw, numbers, best)
        after = _losses(form, other, target)
        numbers = np.where((after < loss)[:, None], other, numbers)
        loss = np.minimum(after, loss)
    best = int(loss.argmin())
    return tried(form, numbers[best : best + 1], target.wanted).program(0)


def _losses(form: Form, numbers: np.ndarray, target: Target) -> np.ndarray:
    """Of each candidate: the mean square of its error in steps, that above the tolerance most."""
    off = np.abs(tried(form, numbers, target.wanted).after.value - target.wanted)
    above = np.maximum(off - target.tolerance, 0)
    return (off**2).mean(axis=1) + ABOVE * (above**2).mean(axis=1)


def _crossed(draw: np.random.Generator, numbers: np.ndarray, best: int) -> np.ndarray:
    """Children of all candidates, drawn towards the best one, within 0..1."""
    count = len(numbers)
    first, second = (numbers[draw.permutation(count)] for _ in range(2))
    pull = draw.random((count, 1)) * 0.7
    child = numbers + pull * (numbers[best] - numbers) + 0.6 * (first - second)
    mixed = np.where(draw.random(numbers.shape) < 0.85, child, numbers)
    return np.clip(mixed, 0.0, 1.0)


# ---------------------------------------------------------------- one program
def _replaced(program: Program, place: int, steps: tuple[Step, ...]) -> Program:
    """`program` with `steps` instead of its step number `place`."""
    left, right, after = program.left, program.right, program.after
    if place < len(left):
        left = (*left[:place], *steps, *left[place + 1 :])
    elif (place := place - len(left)) < len(right):
        right = (*right[:place], *steps, *right[place + 1 :])
    else:
        place -= len(right)
        after = (*after[:place], *steps, *after[place + 1 :])
    return Program(left, program.op, right, after)


CHANGES = (1, -1, 2, -2, 5, -5, 16, -16, 64, -64, 300, -300)
"""What is tried to be added to an immediate; shifts are left as they are."""
MOST_SWEEPS = 6
REACH, DRAWS, MORE_DRAWS = 2.3, 1500, 300
"""From so near, in steps above the tolerance, so many changes are drawn; so many at the end."""

Loss: TypeAlias = Callable[[Program], float]


def _improved(program: Program, target: Target) -> Program:
    """`program` brought within the tolerance if it is beyond, shortened, and brought nearer."""
    if not target.takes(program):
        program = _swept(program, target.distance, target.tolerance + 1)
        if not target.takes(program):
            return program
    program = _nearer(_shortened(program, target), target)
    late = clamped_late(program) if target.noise(program) > NEAR else None
    if late is None:
        return program
    late = min([late, *refitted(late, target.wanted)], key=target.noise)
    late = _swept(late, target.distance)
    if not target.takes(late):
        return program
    return min(program, _nearer(_shortened(late, target), target), key=target.price)


def _nearer(program: Program, target: Target) -> Program:
    """`program` after changes of its immediates that lower the squares of its differences."""
    return _drawn(_swept(program, target.squares), target.squares, MORE_DRAWS)


def _free(program: Program) -> list[int]:
    """The places of the steps with an immediate that is no shift."""
    return [
        place
        for place, (op, by) in enumerate(program.steps)
        if op != "shr" and not isinstance(by, str)
    ]


def _swept(program: Program, loss: Loss, enough: float = 1e-9) -> Program:
    """`program` after single changes of its immediates, as long as each lowers the loss."""
    least = loss(program)
    for _ in range(MOST_SWEEPS):
        before = least
        for place in _free(program):
            if least < enough:
                return program
            op, by = program.steps[place]
            tries = [_replaced(program, place, ((op, int(by) + change),)) for change in CHANGES]
            losses = [loss(each) for each in tries]
            nearest = tries[losses.index(min(losses))]
            if min(losses) < least and nearest.fits:
                program, least = nearest, min(losses)
        if least == before:
            break
    return program


def _drawn(program: Program, loss: Loss, draws: int) -> Program:
    """`program` after drawn changes of several immediates at once."""
    draw = np.random.default_rng(SEED)
    least, free = loss(program), _free(program)
    for _ in range(draws):
        if not least:
            break
        size, changed = 10.0 ** draw.uniform(-4.0, -1.0), program
        for place in free:
            if draw.random() < 0.5:
                op, by = changed.steps[place]
                by = int(by)
                by += int(np.rint(draw.normal() * max(abs(by) * size, 1.0)))
                changed = _replaced(changed, place, ((op, by),))
        found = loss(changed)
        if found <= least and changed.fits:
            program, least = changed, found
    return program


def _shortened(program: Program, target: Target) -> Program:
    """`program` without the steps that lower its price where they are left out."""
    place = len(program.steps)
    while place:
        place -= 1
        if place >= len(program.steps) or program.steps[place][1] == SELF:
            continue
        shorter = _replaced(program, place, ())
        if target.price(shorter) < target.price(program):
            program = shorter
    return program
