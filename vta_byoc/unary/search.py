"""The cheapest program that gives a table within a tolerance, found the same way every time."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW, SELF
from vta_byoc.unary.forms import Form, tried
from vta_byoc.unary.program import Program, Step

SEED = 19
POPULATION, ROUNDS, HOPELESS_AFTER = 32, 50, 15
HOPELESS = 9.0
"""A form whose best candidate is still so many steps off after `HOPELESS_AFTER` rounds is left."""

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
    """

    program: Program
    error: int
    exact: float


def found_for(table: np.ndarray, tolerance: int = 1, multiplies: bool = True) -> Found | None:
    """The cheapest program found that gives `table` within `tolerance` steps for all 256 values.

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
    wanted = np.array(table, np.int64)
    best: Program | None = None
    for program in _programs(wanted, tolerance, multiplies):
        if best is None or program.cycles() < best.cycles():
            best = program
    if best is None:
        return None
    off = np.abs(best.results() - wanted)
    return Found(best, int(off.max()), float((off == 0).mean()))


def _programs(wanted: np.ndarray, tolerance: int, multiplies: bool) -> Iterator[Program]:
    """Programs within the tolerance, as long as a form may give a cheaper one."""
    least = 1 << 30
    clamps = Program(after=(("max", int(wanted.min())), ("min", int(wanted.max()))))
    if _error(clamps, wanted) <= tolerance:
        yield _shortened(clamps, wanted, 0)
        return
    for form in FORMS if multiplies else ():
        if form.least_cycles >= least:
            return
        near = _evolved(form, wanted, tolerance)
        if near is None:
            continue
        program = _polished(near, wanted, tolerance)
        if _error(program, wanted) <= tolerance and program.fits:
            program = _refined(_shortened(program, wanted, tolerance), wanted)
            least = min(least, program.cycles())
            yield program


def _error(program: Program, wanted: np.ndarray) -> int:
    return int(np.abs(program.results() - wanted).max())


# ---------------------------------------------------------------- a form's free numbers
def _evolved(form: Form, wanted: np.ndarray, tolerance: int) -> Program | None:
    """The best candidate by differential evolution; None where the form is hopeless."""
    draw = np.random.default_rng(SEED)
    numbers = draw.random((POPULATION, form.size))
    loss = _losses(form, numbers, wanted, tolerance)
    for turn in range(ROUNDS):
        best = int(loss.argmin())
        if loss[best] < tolerance + 1 or (turn == HOPELESS_AFTER and loss[best] > HOPELESS):
            break
        other = _crossed(draw, numbers, best)
        after = _losses(form, other, wanted, tolerance)
        numbers = np.where((after < loss)[:, None], other, numbers)
        loss = np.minimum(after, loss)
    best = int(loss.argmin())
    if loss[best] > HOPELESS / 2:
        return None
    return tried(form, numbers[best : best + 1], wanted).program(0)


def _losses(form: Form, numbers: np.ndarray, wanted: np.ndarray, tolerance: int) -> np.ndarray:
    """Of each candidate: the largest error in steps, and the share of too large ones."""
    off = np.abs(tried(form, numbers, wanted).after.value - wanted)
    above = np.maximum(off - tolerance, 0)
    return off.max(axis=1) + 0.99 * (above > 0).mean(axis=1)


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
    every = program.steps
    parts = []
    first = 0
    for chain in (program.left, program.right, program.after):
        here = place - first
        inside = 0 <= here < len(chain)
        parts.append((*chain[:here], *steps, *chain[here + 1 :]) if inside else chain)
        first += len(chain)
    assert 0 <= place < len(every)
    return replace(program, left=parts[0], right=parts[1], after=parts[2])


CHANGES = (1, -1, 2, -2, 5, -5, 16, -16, 64, -64, 300, -300)
"""What is tried to be added to an immediate; shifts are left as they are."""
MOST_SWEEPS, REFINING_SWEEPS = 8, 4
REACH, DRAWS = 2.3, 1500
"""From so near, in steps above the tolerance, so many changes are drawn."""


def _polished(program: Program, wanted: np.ndarray, tolerance: int) -> Program:
    """`program` after single changes of its immediates, as long as each comes nearer."""
    loss = _distance(program, wanted)
    for _ in range(MOST_SWEEPS):
        if loss < tolerance + 1:
            break
        before = loss
        for place, (op, by) in enumerate(program.steps):
            if op == "shr" or isinstance(by, str):
                continue
            tries = [_replaced(program, place, ((op, by + change),)) for change in CHANGES]
            found = min(tries, key=lambda each: _distance(each, wanted))
            if _distance(found, wanted) < loss:
                program, loss = found, _distance(found, wanted)
        if loss == before:
            break
    return _drawn(program, wanted, tolerance) if loss < tolerance + REACH else program


def _drawn(program: Program, wanted: np.ndarray, tolerance: int) -> Program:
    """`program` after drawn changes of several immediates at once."""
    draw = np.random.default_rng(SEED)
    loss = _excess(program, wanted, tolerance)
    free = [
        place
        for place, (op, by) in enumerate(program.steps)
        if op != "shr" and not isinstance(by, str)
    ]
    for _ in range(DRAWS):
        if not loss:
            break
        size, changed = 10.0 ** draw.uniform(-4.0, -1.0), program
        for place in free:
            if draw.random() < 0.5:
                op, by = changed.steps[place]
                by = int(by)
                by += int(np.rint(draw.normal() * max(abs(by) * size, 1.0)))
                changed = _replaced(changed, place, ((op, by),))
        found = _excess(changed, wanted, tolerance)
        if found <= loss:
            program, loss = changed, found
    return program


def _excess(program: Program, wanted: np.ndarray, tolerance: int) -> int:
    """The squares of what is above the tolerance, all in all."""
    return int((np.maximum(np.abs(program.results() - wanted) - tolerance, 0) ** 2).sum())


def _distance(program: Program, wanted: np.ndarray) -> float:
    off = np.abs(program.results() - wanted)
    worst = off.max()
    return float(worst + (off == worst).mean())


def _refined(program: Program, wanted: np.ndarray) -> Program:
    """`program` after single changes that give more exact results and no larger error."""
    loss = _spread(program, wanted)
    for _ in range(REFINING_SWEEPS):
        before = loss
        for place, (op, by) in enumerate(program.steps):
            if op == "shr" or isinstance(by, str):
                continue
            tries = [_replaced(program, place, ((op, by + change),)) for change in CHANGES]
            best = min(tries, key=lambda each: _spread(each, wanted))
            if _spread(best, wanted) < loss and best.fits and _is_int8(best.results()):
                program, loss = best, _spread(best, wanted)
        if loss == before:
            break
    return program


def _spread(program: Program, wanted: np.ndarray) -> tuple[int, int]:
    """The largest error, and the sum of all."""
    off = np.abs(program.results() - wanted)
    return int(off.max()), int(off.sum())


def _is_int8(results: np.ndarray) -> bool:
    return bool(results.min() >= INT8_LOW and results.max() <= INT8_HIGH)


def _shortened(program: Program, wanted: np.ndarray, tolerance: int) -> Program:
    """`program` without the steps that the tolerance does not need."""
    place = len(program.steps)
    while place:
        place -= 1
        if place >= len(program.steps) or program.steps[place][1] == SELF:
            continue
        shorter = _replaced(program, place, ())
        results = shorter.results()
        is_near = np.abs(results - wanted).max() <= tolerance
        if is_near and _is_int8(results) and shorter.fits:
            program = shorter
    return program
