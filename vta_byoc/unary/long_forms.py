"""Forms of four and five squares, for what no shorter form reaches: the hyperbolic tangent.

They cost a search of their own, so that they are tried last.  Their immediates are varied together,
many candidates at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vta_byoc.ir.chains import SELF
from vta_byoc.unary.evolution import evolved
from vta_byoc.unary.forms import Form
from vta_byoc.unary.program import VALUES, Program, Step, applied
from vta_byoc.unary.target import Target

LONG_FORMS = tuple(Form("-" * squares, "mul", clip=True) for squares in (4, 5))
SEEDS = (1, 2)
CANDIDATES, ROUNDS = 48, 80
"""Of the evolution of a form."""
VARIED, TURNS = 64, 200
"""So many candidates are drawn around the best one, so many times."""
ABOVE = 160.0
"""What the square of a step above the tolerance counts: more than while a form evolves."""


def long_program(target: Target) -> Program | None:
    """A program of a long form that `target` takes, the shorter form first; None without one."""
    for form in LONG_FORMS:
        for seed in SEEDS:
            near = evolved(form, target, seed=seed, candidates=CANDIDATES, rounds=ROUNDS)
            found = None if near is None else varied(near, target, seed)
            if found is not None and target.takes(found):
                return found
    return None


def varied(program: Program, target: Target, seed: int) -> Program:
    """`program` with the immediates nearest to `target` of those drawn around the best so far.

    Args:
        program: immediates to begin with.
        target: what is wanted; squares above its tolerance count most.
        seed: of the draws.
    """
    draw = np.random.default_rng(seed)
    best = np.array([0 if by == SELF else int(by) for _, by in program.steps], np.int64)
    free = np.array([op != "shr" and by != SELF for op, by in program.steps])
    least = _losses(program, best[None], target)[0]
    for _ in range(TURNS):
        reach = np.maximum(np.abs(best) * 10.0 ** draw.uniform(-4.0, -1.0, (VARIED, 1)), 1.0)
        moved = (draw.random(reach.shape) < 0.5) & free
        drawn = best + np.rint(draw.normal(size=reach.shape) * reach * moved).astype(np.int64)
        losses = _losses(program, drawn, target)
        nearest = int(losses.argmin())
        if losses[nearest] <= least and _with(program, drawn[nearest]).fits:
            best, least = drawn[nearest], losses[nearest]
    return _with(program, best)


def _losses(program: Program, immediates: np.ndarray, target: Target) -> np.ndarray:
    """Of each row of `immediates`, int64 [candidates, steps], what `program` is off with it."""
    return target.losses(_results(program, immediates), ABOVE)


def _results(program: Program, immediates: np.ndarray) -> np.ndarray:
    """What `program` gives with each row of `immediates`: int64 [candidates, 256]."""
    values = np.broadcast_to(VALUES, (len(immediates), len(VALUES)))
    columns = immediates.T[:, :, None]
    right, after = len(program.left), len(program.left) + len(program.right)

    def run(value: np.ndarray, steps: Sequence[Step], first: int) -> np.ndarray:
        for place, (op, by) in enumerate(steps, first):
            value = applied(op, value, value if by == SELF else columns[place])
        return value

    found = run(values, program.left, 0)
    if program.op is not None:
        found = applied(program.op, found, run(values, program.right, right))
    return run(found, program.after, after)


def _with(program: Program, immediates: np.ndarray) -> Program:
    """`program` with other immediates, squares as they are."""
    numbers = zip(program.steps, immediates.tolist(), strict=True)
    steps = tuple((op, by if by == SELF else number) for (op, by), number in numbers)
    right, after = len(program.left), len(program.left) + len(program.right)
    return replace(program, left=steps[:right], right=steps[right:after], after=steps[after:])
