"""A run of mutants in pieces: what is kept, and what is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks._kept_verdicts import Kept, State
from benchmarks._mutant_places import Mutant
from benchmarks._mutant_runs import BUILD_SECONDS, NO_TESTS, SLACK_SECONDS, Baseline

MUTANT = {"room": "rtl", "line": 3}
OLD = State("modules", {"tests/test_a.py": "1", "tests/test_b.py": "2"})
SLOW, QUICK, BUILDS = "tests/test_a.py::slow", "tests/test_b.py::quick", "test_core_device.py::x"
CLEAN = Baseline(
    {SLOW: 8.0, QUICK: 1.0, BUILDS: 0.1},
    {("m.py", 3): frozenset({SLOW, QUICK}), ("m.py", 4): frozenset({"", SLOW})},
)


def test_test_files_that_are_other_new_or_gone_have_changed() -> None:
    assert OLD.changed(OLD.files) == []
    now = State("modules", {"tests/test_a.py": "1", "tests/test_b.py": "3", "tests/test_c.py": "4"})
    assert sorted(now.changed(OLD.files)) == ["tests/test_b.py", "tests/test_c.py"]
    assert State("modules", {"tests/test_a.py": "1"}).changed(OLD.files) == ["tests/test_b.py"]


@pytest.mark.parametrize("outcome", ("survived", "equivalent", "killed", "timeout"))
def test_a_verdict_is_of_a_module_and_but_for_a_killed_mutant_of_its_room(
    outcome: str, tmp_path: Path
) -> None:
    kept = Kept(tmp_path / "log")
    assert kept.verdict(MUTANT, "module", OLD) is None
    kept.keep_verdict(MUTANT, "module", OLD, outcome, "test")
    found = kept.verdict(MUTANT, "module", OLD)
    assert found is not None and (found["outcome"], found["files"]) == (outcome, OLD.files)
    assert kept.verdict(MUTANT, "another", OLD) is None
    assert kept.verdict({**MUTANT, "line": 4}, "module", OLD) is None
    other = kept.verdict(MUTANT, "module", State("others", OLD.files))
    assert (other is not None) == (outcome in ("killed", "timeout"))


def test_a_baseline_is_of_the_modules_and_renewed_by_files(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.keep_baseline("rtl", OLD, CLEAN.facts())
    facts = kept.baseline("rtl", State("modules", {}))
    assert facts is not None and facts["files"] == OLD.files
    assert Baseline.of_facts(facts) == CLEAN
    assert kept.baseline("rtl", State("others", OLD.files)) is None
    left = CLEAN.without(["tests/test_b.py"])
    assert left.seconds == {SLOW: 8.0, BUILDS: 0.1}
    assert left.tests_of == {("m.py", 3): {SLOW}, ("m.py", 4): {"", SLOW}}
    new = Baseline({QUICK: 2.0}, {("m.py", 3): frozenset({QUICK}), ("m.py", 9): frozenset({QUICK})})
    both = left.beside(new)
    assert both.seconds == {SLOW: 8.0, BUILDS: 0.1, QUICK: 2.0}
    assert both.tests_of == {**CLEAN.tests_of, ("m.py", 9): {QUICK}}
    assert NO_TESTS.beside(CLEAN) == CLEAN


def test_tests_run_by_what_they_take_with_a_build_where_they_come_first() -> None:
    def mutant(room: str, line: int) -> Mutant:
        return Mutant(room, "m.py", line, "operator", 0, "before", "after")

    assert CLEAN.of(mutant("codegen", 3)) == [QUICK, SLOW]
    assert CLEAN.of(mutant("codegen", 4)) == [BUILDS, QUICK, SLOW]
    assert CLEAN.of(mutant("rtl", 4)) == [QUICK, SLOW, BUILDS]
    assert CLEAN.limits("rtl", [QUICK, BUILDS]) == {
        QUICK: 3 + SLACK_SECONDS,
        BUILDS: round(3 * (BUILD_SECONDS + 0.1)) + SLACK_SECONDS,
    }
