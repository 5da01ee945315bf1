"""Functions of one int8 operand as programs of the ALU: error, cycles a vector, time to find them.

    python benchmarks/unary.py          # 12 functions at 5 ranges, with MUL and without

Each function is tabulated at symmetric scales that reach the largest magnitude of operand and
result; every program is tried for all 256 values. Functions that have no program within a step are
counted: they stay on the host.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from _figures import Figure, arguments, report

from vta_byoc.hw.cache import CACHE_VARIABLE, OFF
from vta_byoc.unary.functions import FUNCTIONS, table_of
from vta_byoc.unary.search import Found, found_for

NAMES = (
    "relu6",
    "hard_sigmoid",
    "hard_swish",
    "sigmoid",
    "silu",
    "tanh",
    "gelu",
    "elu",
    "softplus",
    "exp",
    "erf",
    "leaky",
)
RANGES = (1.5, 3.0, 5.0, 8.0, 16.0)
"""Largest magnitudes of the operand."""
MOST_CYCLES, MOST_SECONDS = 24.0, 2.0


@dataclass(frozen=True)
class Case:
    """One table: what was found for it, and the processor's seconds that took."""

    name: str
    reach: float
    found: Found | None
    seconds: float


def case(name: str, reach: float, multiplies: bool) -> Case:
    """One function at operands up to `reach`."""
    function = FUNCTIONS[name]
    real = np.abs(function(np.linspace(-reach, reach, 2001))).max()
    table = table_of(function, reach / 127, 0, float(real) / 127, 0)
    start = time.process_time()
    found = found_for(table, 1, multiplies)
    return Case(name, reach, found, time.process_time() - start)


def figures(cases: Sequence[Case], prefix: str = "") -> list[Figure]:
    """The figures of one kind of machine."""
    have = [each.found for each in cases if each.found is not None]
    share = 100.0 * len(have) / len(cases)
    rows = [Figure(f"{prefix}programs_share", share, "%", bound=100.0)]
    if not have:
        return rows
    worst = max(found.error for found in have)
    exact = 100.0 * float(np.mean([found.exact for found in have]))
    mean = float(np.mean([found.program.cycles() for found in have]))
    slowest = max(each.seconds for each in cases)
    return [
        *rows,
        Figure.at_most(f"{prefix}worst_error_steps", worst, "steps", 1),
        Figure(f"{prefix}exact_share", exact, "%", bound=100.0),
        Figure.at_most(f"{prefix}mean_cycles_a_vector", mean, "cycles", MOST_CYCLES),
        Figure.at_most(f"{prefix}search_seconds", slowest, "s", MOST_SECONDS),
    ]


def by_function(cases: Sequence[Case]) -> list[Figure]:
    """Mean cycles of each function's programs."""
    rows = []
    for name in NAMES:
        have = [c.found.program.cycles() for c in cases if c.name == name and c.found is not None]
        if have:
            rows.append(Figure(f"{name}_cycles_a_vector", float(np.mean(have)), "cycles"))
    return rows


def main() -> int:
    """Measure and print."""
    args = arguments(__doc__.splitlines()[0]).parse_args()
    os.environ[CACHE_VARIABLE] = OFF  # what is measured is the search
    with_mul = [case(name, reach, True) for name in NAMES for reach in RANGES]
    without = [case(name, reach, False) for name in NAMES for reach in RANGES]
    rows = [*figures(with_mul), *by_function(with_mul), *figures(without, "without_mul_")]
    return report("unary", rows, args.json)


if __name__ == "__main__":
    raise SystemExit(main())
