"""A small run of the mutation benchmark: figures at their targets, mutants of every kind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from draws import draws, least

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.mutation import MUTATIONS, compiled_program, harm, measure, mutate
from vta_byoc.hw.verify.verifier import verify


def test_no_harmful_mutant_is_missed() -> None:
    count, many = draws(30, 60), 60
    tally = measure(count, seed=1)
    assert tally.mutants.total() == count and set(tally.mutants) == set(MUTATIONS)
    assert tally.harmful.total() > least(20, count, many)
    assert tally.wrong.total() > least(5, count, many)
    assert not tally.missed and not tally.unlocated
    assert (tally.false_alarms, tally.unsafe_originals) == (0, 0)


def test_harm_is_seen_without_the_verifier() -> None:
    """Deleted edges of compiled programs: most do harm in some order, and say which."""
    rng = np.random.default_rng(0)
    program, inputs = compiled_program(rng)
    assert harm(program, inputs)[0] == "" and verify(program) == []
    mutants = [mutate(program, "delete_edge", rng) for _ in range(6)]
    reasons = [harm(m.program, inputs, m.index)[0] for m in mutants]
    assert sum(map(bool, reasons)) >= 3
    assert all(verify(m.program) for m in mutants)


def test_mutants_are_reproducible() -> None:
    changes = []
    for _ in range(2):
        rng = np.random.default_rng(3)
        program, _ = compiled_program(rng)
        made = [mutate(program, kind, rng) for kind in MUTATIONS]
        changes.append([(m.kind, m.index, m.change, m.program.digest()) for m in made])
    assert changes[0] == changes[1]
