"""The free numbers of a form, found by differential evolution from a fixed seed."""

from __future__ import annotations

import math

import numpy as np

from vta_byoc.unary.forms import Form, tried
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
    draw = np.random.default_rng(seed)
    numbers = draw.random((candidates, form.size))
    loss = _losses(form, numbers, target)
    for turn in range(rounds):
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
    """What each candidate is off."""
    return target.losses(tried(form, numbers, target.wanted).after.value, ABOVE)


def _crossed(draw: np.random.Generator, numbers: np.ndarray, best: int) -> np.ndarray:
    """Children of all candidates, drawn towards the best one, within 0..1."""
    count = len(numbers)
    first, second = (numbers[draw.permutation(count)] for _ in range(2))
    pull = draw.random((count, 1)) * 0.7
    child = numbers + pull * (numbers[best] - numbers) + 0.6 * (first - second)
    mixed = np.where(draw.random(numbers.shape) < 0.85, child, numbers)
    return np.clip(mixed, 0.0, 1.0)
