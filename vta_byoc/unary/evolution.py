"""The free numbers of a form, found by differential evolution from a fixed seed."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from vta_byoc.unary.forms import Form, Trials
from vta_byoc.unary.program import Program
from vta_byoc.unary.target import Target

SEED = 19
POPULATION, ROUNDS, HOPELESS_AFTER = 32, 40, 12
ABOVE = 20.0
"""What the square of a step above the tolerance counts, beside that of one within it."""


def evolved(
    form: Form,
    target: Target,
    hopeless: float = math.inf,
    *,
    seed: int = SEED,
    candidates: int = POPULATION,
    rounds: int = ROUNDS,
) -> Program | None:
    """The best candidate by differential evolution; None where its loss stays above `hopeless`."""
    trials = Trials(form, target.wanted)
    losses = functools.partial(_losses, trials, target, {})
    numbers, turns = _draws(seed, candidates, form.size, rounds)
    loss = losses(numbers)
    for turn, drawn in enumerate(turns):
        best = int(loss.argmin())
        if turn == HOPELESS_AFTER and loss[best] > hopeless:
            return None
        if not loss[best]:
            break
        other = _crossed(drawn, numbers, best)
        after = losses(other)
        numbers = np.where((after < loss)[:, None], other, numbers)
        loss = np.minimum(after, loss)
    best = int(loss.argmin())
    return trials.tried(numbers[best : best + 1]).program(0)


def _losses(
    trials: Trials, target: Target, known: dict[bytes, float], numbers: np.ndarray
) -> np.ndarray:
    """What each candidate is off.

    Forms of few numbers come by the same immediates again and again: `known` has what these are.
    """
    if len(trials.form.levels) > 1:
        return target.losses(trials.tried(numbers).after.value, ABOVE)
    keys = [first.tobytes() for first in trials.first(numbers)]
    new = {key: place for place, key in enumerate(keys) if key not in known}
    if new:
        results = trials.tried(numbers[list(new.values())]).after.value
        known.update(zip(new, target.losses(results, ABOVE).tolist(), strict=True))
    return np.array([known[key] for key in keys])


class _Turn(NamedTuple):
    """What is drawn for the children of all candidates.

    Attributes:
        first: candidates, whose difference from `second` is added.
        second: candidates.
        pull: how far each child is drawn towards the best candidate, [candidates, 1].
        changed: which numbers change, [candidates, size].
    """

    first: np.ndarray
    second: np.ndarray
    pull: np.ndarray
    changed: np.ndarray


@functools.lru_cache(maxsize=32)
def _draws(
    seed: int, candidates: int, size: int, rounds: int
) -> tuple[np.ndarray, tuple[_Turn, ...]]:
    """The candidates to begin with and what each turn draws, the same for all tables."""
    draw = np.random.default_rng(seed)
    numbers = draw.random((candidates, size))
    turns = []
    for _ in range(rounds):
        first, second = draw.permutation(candidates), draw.permutation(candidates)
        pull = draw.random((candidates, 1)) * 0.7
        turns.append(_Turn(first, second, pull, draw.random((candidates, size)) < 0.85))
    return numbers, tuple(turns)


def _crossed(drawn: _Turn, numbers: np.ndarray, best: int) -> np.ndarray:
    """Children of all candidates, drawn towards the best one, within 0..1."""
    apart = numbers[drawn.first] - numbers[drawn.second]
    child = numbers + drawn.pull * (numbers[best] - numbers) + 0.6 * apart
    mixed = np.where(drawn.changed, child, numbers)
    return np.clip(mixed, 0.0, 1.0)
