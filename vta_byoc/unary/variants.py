"""Programs that differ by their immediates, many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vta_byoc.ir.chains import OTHER
from vta_byoc.unary.program import VALUES, Program, Step, applied


def immediates_of(program: Program) -> np.ndarray:
    """The immediates of the steps, int64 [steps]; 0 where a step has none."""
    return np.array([0 if isinstance(by, str) else by for _, by in program.steps], np.int64)


def free_of(program: Program) -> np.ndarray:
    """Which steps have an immediate that is no shift, bool [steps]."""
    return np.array([op != "shr" and not isinstance(by, str) for op, by in program.steps], bool)


def results_of(program: Program, immediates: np.ndarray) -> np.ndarray:
    """What `program` gives with each row of `immediates`, int64 [candidates, steps].

    int64 [candidates, 256].
    """
    values = np.broadcast_to(VALUES, (len(immediates), len(VALUES)))
    columns = immediates.T[:, :, None]
    right, after = len(program.left), len(program.left) + len(program.right)

    def run(value: np.ndarray, steps: Sequence[Step], first: int) -> np.ndarray:
        for place, (op, by) in enumerate(steps, first):
            own = columns[place] if not isinstance(by, str) else other if by == OTHER else value
            value = applied(op, value, own)
        return value

    found, other = run(values, program.left, 0), values
    if program.op is not None:
        other = run(values, program.right, right)
        found = applied(program.op, found, other)
    return run(found, program.after, after)


def with_immediates(program: Program, immediates: np.ndarray) -> Program:
    """`program` with other immediates, int64 [steps]; steps without one as they are."""
    numbers = zip(program.steps, immediates.tolist(), strict=True)
    steps = tuple((op, by if isinstance(by, str) else number) for (op, by), number in numbers)
    right, after = len(program.left), len(program.left) + len(program.right)
    return replace(program, left=steps[:right], right=steps[right:after], after=steps[after:])
