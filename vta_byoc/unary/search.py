"""The program of the lowest price for a table: few cycles, results near, the same each time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vta_byoc.base.choices import FUNCTION_WORTH
from vta_byoc.unary.evolution import SEED, evolved
from vta_byoc.unary.forms import Form
from vta_byoc.unary.gates import clamped_late, refitted
from vta_byoc.unary.kept import kept_program
from vta_byoc.unary.long_forms import long_program
from vta_byoc.unary.program import Program, Step
from vta_byoc.unary.target import ROUNDING, Target
from vta_byoc.unary.variants import free_of, immediates_of, results_of, with_immediates

FALLS = 8.0
"""A form is left after `HOPELESS_AFTER` rounds if it costs too much even with so much less loss."""
HOPELESS = 4.5
"""A candidate that is so many steps off is not brought within the tolerance."""
IMPROVED = 4
"""Of so many forms, those that look cheapest, the best candidate is improved."""
NEAR = 0.25
"""Programs with less noise than this, in that of rounding, are near enough as they are."""

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
            *(Form(levels, "even") for levels in ("n", "n-", "n--")),
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
        noise: the mean square of the differences, in that of rounding, operands beyond the ends
            included.
    """

    program: Program
    error: int
    exact: float
    noise: float


def found_for(
    table: np.ndarray,
    tolerance: int = 1,
    multiplies: bool = True,
    worth: float = FUNCTION_WORTH,
    beyond: tuple[int, int] = (0, 0),
) -> Found | None:
    """The program found for `table` whose price is lowest: its cycles and its noise.

    Args:
        table: int8 results of the values -128 to 127, [256].
        tolerance: the largest difference, in steps of the result.
        multiplies: whether the machine's ALU has MUL.
        worth: cycles a vector that half of the noise of the results is worth.
        beyond: how many operands beyond -128, and beyond 127, read as these.

    Returns:
        None where no program of the forms that are tried is near enough.
    """
    return _found(tuple(int(v) for v in table), tolerance, multiplies, float(worth), beyond)


@functools.lru_cache(maxsize=1024)
def _found(
    table: tuple[int, ...],
    tolerance: int,
    multiplies: bool,
    worth: float,
    beyond: tuple[int, int] = (0, 0),
) -> Found | None:
    target = Target(np.array(table, np.int64), tolerance, worth, beyond)
    search = functools.partial(_searched, target, multiplies)
    best = kept_program(target, multiplies, search)
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


# ---------------------------------------------------------------- a form's free numbers
def _cheapest(target: Target, best: Program | None) -> Program | None:
    """The program of the lowest price: `best`, or one of the forms that look cheaper."""
    found: list[tuple[float, int, Form, Program]] = []
    most = target.price(best)
    for form in FORMS:
        if form.least_cycles >= most:
            break
        if not form.suits(target.wanted):
            continue
        halvings = (most - form.least_cycles) / target.worth if target.worth else math.inf
        near = evolved(form, target, FALLS * ROUNDING * (2.0 ** min(halvings, 40.0) - 1.0))
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
    """The nearest of `found` that can be brought within the tolerance, or one of a long form."""
    nearest = sorted(found, key=target.distance)
    if not nearest:
        return None
    for near in nearest:
        if target.distance(near) > HOPELESS:
            break
        program = _swept(near, target.distances, target.tolerance + 1)
        if target.distance(program) < target.tolerance + REACH:
            program = _drawn(program, target.excess, DRAWS)
        if target.takes(program):
            return _improved(program, target)
    if not target.tolerance or target.distance(nearest[0]) > HOPELESS:
        return None
    long = long_program(target)
    return None if long is None else _improved(long, target)


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
TOGETHER = 16
"""So many drawn changes are tried at a time."""

Loss: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""Of each row of results, [candidates, 256], what it is off."""


def _improved(program: Program, target: Target) -> Program:
    """`program` brought within the tolerance if it is beyond, shortened, and brought nearer."""
    if not target.takes(program):
        program = _swept(program, target.distances, target.tolerance + 1)
        if not target.takes(program):
            return program
    program = _nearer(_shortened(program, target), target)
    late = clamped_late(program) if target.noise(program) > NEAR else None
    if late is None:
        return program
    late = min([late, *refitted(late, target.wanted)], key=target.noise)
    late = _swept(late, target.distances)
    if not target.takes(late):
        return program
    return min(program, _nearer(_shortened(late, target), target), key=target.price)


def _nearer(program: Program, target: Target) -> Program:
    """`program` after changes of its immediates that lower the squares of its differences."""
    return _drawn(_swept(program, target.squares), target.squares, MORE_DRAWS)


def _swept(program: Program, loss: Loss, enough: float = 1e-9) -> Program:
    """`program` after single changes of its immediates, as long as each lowers the loss."""
    best = immediates_of(program)
    least = loss(results_of(program, best[None]))[0]
    for _ in range(MOST_SWEEPS):
        before = least
        for place in np.flatnonzero(free_of(program)):
            if least < enough:
                return program
            tries = np.tile(best, (len(CHANGES), 1))
            tries[:, place] += CHANGES
            losses = loss(results_of(program, tries))
            nearest = int(losses.argmin())
            if losses[nearest] < least:
                changed = with_immediates(program, tries[nearest])
                if changed.fits:
                    program, best, least = changed, tries[nearest], losses[nearest]
        if least == before:
            break
    return program


def _drawn(program: Program, loss: Loss, draws: int) -> Program:
    """`program` after drawn changes of several immediates at once.

    Each draw changes what is best by then: of those that are tried together, all behind the first
    that is as near are tried again from there.
    """
    best, free = immediates_of(program), free_of(program)
    sizes, normals = _changes(int(free.sum()), draws)
    least = loss(results_of(program, best[None]))[0]
    place = 0
    while place < draws and least:
        some = slice(place, place + TOGETHER)
        reach = np.maximum(np.abs(best[free]) * sizes[some], 1.0)
        tries = np.tile(best, (len(reach), 1))
        tries[:, free] += np.rint(normals[some] * reach).astype(np.int64)
        losses = loss(results_of(program, tries))
        place += len(tries)
        near = np.flatnonzero((losses <= least) & (tries != best).any(axis=1))
        for number in near.tolist():
            changed = with_immediates(program, tries[number])
            if changed.fits:
                program, best, least = changed, tries[number], losses[number]
                place += number + 1 - len(tries)
                break
    return program


@functools.lru_cache(maxsize=32)
def _changes(free: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """The size of each draw, [draws, 1], and what it changes so many immediates by."""
    draw = np.random.default_rng(SEED)
    sizes, normals = np.empty((draws, 1)), np.zeros((draws, free))
    for size, changes in zip(sizes, normals, strict=True):
        size[0] = 10.0 ** draw.uniform(-4.0, -1.0)
        for place in range(free):
            if draw.random() < 0.5:
                changes[place] = draw.normal()
    return sizes, normals


def _shortened(program: Program, target: Target) -> Program:
    """`program` without the steps that lower its price where they are left out."""
    place, least = len(program.steps), target.price(program)
    while place:
        place -= 1
        if place >= len(program.steps) or isinstance(program.steps[place][1], str):
            continue
        shorter = _replaced(program, place, ())
        price = target.price(shorter)
        if price < least:
            program, least = shorter, price
    return program
