"""What is tried many at a time is what each gives by itself."""

from __future__ import annotations

import numpy as np
import pytest

from vta_byoc.ir.chains import OTHER, SELF
from vta_byoc.unary.evolution import _losses
from vta_byoc.unary.fitting import Fit
from vta_byoc.unary.forms import Form, Trials
from vta_byoc.unary.functions import FUNCTIONS, table_of
from vta_byoc.unary.program import VALUES, Program
from vta_byoc.unary.search import FORMS
from vta_byoc.unary.target import Target
from vta_byoc.unary.variants import free_of, immediates_of, results_of, with_immediates

SILU = table_of(FUNCTIONS["silu"], 5 / 127, 0, 5 / 127, 0)
BUMP = Program(
    (("mul", -3),),
    "add",
    (("max", 3), ("mul", 6)),
    (("shr", 1), ("mul", SELF), ("add", OTHER), ("min", 90)),
)
LINE = Program(after=(("mul", 300), ("add", 600), ("shr", 8)))


@pytest.mark.parametrize("program", [BUMP, LINE, Program()], ids=["bump", "line", "none"])
def test_variants_give_what_their_programs_give(program: Program) -> None:
    rows = immediates_of(program) + np.arange(5)[:, None] * free_of(program)
    each = [with_immediates(program, row) for row in rows]
    assert each[0] == program
    results = results_of(program, rows)
    np.testing.assert_array_equal(results, [variant.results() for variant in each])
    for target in (Target(SILU, 1, beyond=(40, 17)), Target(results[0], 20)):
        for loss in (target.squares, target.excess, target.distances):
            alone = [loss(row[None])[0] for row in results]
            np.testing.assert_array_equal(loss(results), alone)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.levels}{form.join}{form.clip}")
def test_results_of_candidates_are_those_of_their_programs(form: Form) -> None:
    trials, target = Trials(form, SILU), Target(SILU, 1)
    numbers = np.random.default_rng(1).random((6, form.size))
    numbers[4] = numbers[1]
    tried = trials.tried(numbers)
    for number, results in enumerate(tried.after.value):
        np.testing.assert_array_equal(tried.program(number).results(), results)
    alone = [_losses(trials, target, {}, row[None])[0] for row in numbers]
    np.testing.assert_array_equal(_losses(trials, target, {}, numbers), alone)


def test_a_line_beyond_the_ends_of_the_table_counts_as_reached() -> None:
    table = np.clip(VALUES * 2 + 3, -128, 127)
    columns = np.stack([VALUES, VALUES * 4])
    (slope,), level = Fit(table).linear([columns], [np.abs(columns).max(axis=1)])
    np.testing.assert_allclose(slope, [2, 0.5], atol=0.02)
    np.testing.assert_allclose(level, 3, atol=0.7)
    for count in (1, 2):
        (own,), _ = Fit(table).linear([columns[:count]], [np.array([128, 512])[:count]])
        np.testing.assert_array_equal(own, slope[:count])
