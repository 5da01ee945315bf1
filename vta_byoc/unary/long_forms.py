"""Forms of four and five squares, for what no shorter form reaches: the hyperbolic tangent.

They cost a search of their own, so that they are tried last.  Their immediates are varied together,
many candidates at a time.
"""

from __future__ import annotations

import numpy as np

from vta_byoc.unary.evolution import evolved
from vta_byoc.unary.forms import Form
from vta_byoc.unary.program import Program
from vta_byoc.unary.target import Target
from vta_byoc.unary.variants import free_of, immediates_of, results_of, with_immediates

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
    best, free = immediates_of(program), free_of(program)
    least = _losses(program, best[None], target)[0]
    for _ in range(TURNS):
        reach = np.maximum(np.abs(best) * 10.0 ** draw.uniform(-4.0, -1.0, (VARIED, 1)), 1.0)
        moved = (draw.random(reach.shape) < 0.5) & free
        drawn = best + np.rint(draw.normal(size=reach.shape) * reach * moved).astype(np.int64)
        losses = _losses(program, drawn, target)
        nearest = int(losses.argmin())
        if losses[nearest] <= least and with_immediates(program, drawn[nearest]).fits:
            best, least = drawn[nearest], losses[nearest]
    return with_immediates(program, best)


def _losses(program: Program, immediates: np.ndarray, target: Target) -> np.ndarray:
    """Of each row of `immediates`, int64 [candidates, steps], what `program` is off with it."""
    return target.losses(results_of(program, immediates), ABOVE)
