"""`benchmarks/record.py`: what a run of a part of a benchmark changes, and what it leaves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record
from benchmarks._figures import Figure, report

Run = Callable[..., str]


@pytest.fixture
def recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Records what a benchmark "zoo" would print of these figures; gives what is told."""
    monkeypatch.setattr(record, "RESULTS", tmp_path)

    def run(*figures: Figure, options: tuple[str, ...] = (), code: int = 0, **more: Any) -> str:
        report("zoo", figures, as_json=True, **more)
        printed = capsys.readouterr().out
        done = subprocess.CompletedProcess([], code, printed)
        monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: done)
        record.record("zoo", options)
        return capsys.readouterr().out

    return run


def figures(models: int, share: float, **cycles: int) -> list[Figure]:
    totals = [
        Figure("models", models, "models", total=True),
        Figure.at_least("imported_share", share, "ratio", 1.0, total=True),
    ]
    return totals + [Figure(name, value, "cycles") for name, value in cycles.items()]


def test_a_part_leaves_the_totals(recording: Run) -> None:
    whole = recording(*figures(2, 1.0, a_cycles=10, b_cycles=20))
    assert whole.endswith("zoo.json\n")
    part = figures(1, 0.5, b_cycles=19, c_cycles=5)
    told = recording(*part, options=("--only", "b", "c"), code=1, part=True)
    assert record.recorded("zoo")["models"] == 2
    assert record.recorded("zoo")["imported_share"] == 1.0
    cycles = {k: v for k, v in record.recorded("zoo").items() if k.endswith("_cycles")}
    assert cycles == {"a_cycles": 10, "b_cycles": 19, "c_cycles": 5}
    assert told.splitlines()[-1] == (
        "zoo: of this part alone, not recorded: models 1, imported_share 0.5; record all of zoo"
    )


def test_all_of_it_with_an_option_has_totals(recording: Run) -> None:
    """Options that do not choose a part, such as --jobs."""
    recording(*figures(2, 1.0, a_cycles=10))
    told = recording(*figures(3, 0.9, a_cycles=9), options=("--jobs", "2"), part=False)
    assert record.recorded("zoo")["models"] == 3
    assert record.recorded("zoo")["imported_share"] == 0.9
    assert "not recorded" not in told


def test_a_part_that_is_recorded_first(recording: Run, tmp_path: Path) -> None:
    recording(*figures(1, 1.0, a_cycles=10), options=("--only", "a"), part=True)
    kept = json.loads((tmp_path / "zoo.json").read_text())["figures"]
    assert [figure["name"] for figure in kept] == ["a_cycles"]
    assert set(kept[0]) == set(record.KEPT_KEYS)


def test_a_benchmark_without_totals(recording: Run) -> None:
    """Figures of the same names are replaced, as they were before there were totals."""
    recording(Figure("a", 1, "x"), Figure("b", 2, "x"))
    recording(Figure("b", 3, "x"), options=("--only", "b"))
    values = record.recorded("zoo")
    assert (values["a"], values["b"]) == (1, 3)


def test_a_benchmark_that_breaks(recording: Run) -> None:
    with pytest.raises(SystemExit) as caught:
        recording(Figure("a", 1, "x"), code=2)
    assert str(caught.value) == "zoo.py ended with exit code 2; nothing is recorded"
