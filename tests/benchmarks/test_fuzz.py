"""Random correct programs: all simulators agree, in any order; `make fuzz` hunts on."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from draws import draws

from benchmarks import fuzz
from vta_byoc.hw.isa import Opcode
from vta_byoc.hw.reference.interleaving import POLICIES

PROGRAMS = draws(1_000, 4_000)
SHARE = -(-PROGRAMS // len(fuzz.MACHINES))


@pytest.mark.parametrize("machine", fuzz.MACHINES)
def test_simulators_agree(machine: str) -> None:
    total: Counter[str] = Counter()
    for seed in range(SHARE):
        total += fuzz.try_program(machine, seed)
    print(machine, dict(sorted(total.items())))
    assert total["programs"] == SHARE
    for name in (*(op.name for op in Opcode), *(f"order {p}" for p in POLICIES)):
        assert total[name] >= SHARE // 10, name


def test_machines_cover_batches_and_blocks() -> None:
    assert {c.batch for c in fuzz.MACHINES.values()} == {1, 2, 4}
    assert {c.block for c in fuzz.MACHINES.values()} == {8, 16, 32}


def test_cases_take_machines_in_turn() -> None:
    first = list(itertools.islice(fuzz.cases(7), len(fuzz.MACHINES) + 2))
    assert [m for m, _ in first] == [*fuzz.MACHINES, *list(fuzz.MACHINES)[:2]]
    assert [s for _, s in first] == list(range(7, 9 + len(fuzz.MACHINES)))


def test_a_disagreement_names_machine_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fuzz.numpy_model.run_stream

    def wrong(*args: object) -> object:
        result = honest(*args)  # type: ignore[arg-type]
        result.arena[-1] ^= 1
        return result

    monkeypatch.setattr(fuzz.numpy_model, "run_stream", wrong)
    with pytest.raises(fuzz.Disagreement) as err:
        fuzz.try_program("1x16", 3)
    assert str(err.value).startswith("machine 1x16, seed 3: numpy model: 1 of ")
    with pytest.raises(fuzz.Disagreement, match="machine 4x8, seed 5: order .*: 2 of 4 values"):
        fuzz._same("machine 4x8, seed 5: order random", np.zeros(4), np.array([0, 1, 0, 1]))


def test_the_hunt_counts_and_names_what_it_finds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(machine: str, seed: int) -> Counter[str]:
        raise fuzz.Disagreement(f"machine {machine}, seed {seed}: found")

    monkeypatch.setattr(fuzz, "try_program", broken)
    monkeypatch.setattr("sys.argv", ["fuzz.py", "--json", "--seed", "9"])
    assert fuzz.main() == 1
    out, err = capsys.readouterr()
    figures = {f["name"]: f for f in json.loads(out)["figures"]}
    assert (figures["disagreements"]["value"], figures["disagreements"]["ok"]) == (1, False)
    assert err == "error: machine 1x16, seed 9: found\n"
