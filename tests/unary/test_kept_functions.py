"""Programs of functions on disk: the same as searched ones, never damaged ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vta_byoc.hw.cache import CACHE_VARIABLE
from vta_byoc.unary import search
from vta_byoc.unary.kept import kept_program
from vta_byoc.unary.program import VALUES, Program
from vta_byoc.unary.target import Target

PROGRAM = Program(left=(("add", 3), ("mul", "self")), op="mul", right=(("max", 0),))
TABLE = np.arange(256)
TARGET = Target(TABLE, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


def must_not_search() -> Program | None:
    raise AssertionError("searched for")


@pytest.mark.parametrize("program", [PROGRAM, Program(), None], ids=["chains", "none", "refused"])
def test_a_kept_program_is_the_searched_one(program: Program | None) -> None:
    assert kept_program(TARGET, True, lambda: program) == program
    assert kept_program(TARGET, True, must_not_search) == program


def test_another_table_tolerance_price_or_machine_is_searched_for() -> None:
    kept_program(TARGET, True, lambda: PROGRAM)
    others = (Target(TABLE[::-1], 1), Target(TABLE, 2), Target(TABLE, 1, worth=4.0))
    for target, multiplies in (*((each, True) for each in others), (TARGET, False)):
        assert kept_program(target, multiplies, lambda: None) is None


@pytest.mark.parametrize("damage", [slice(0), slice(40), slice(1, None)])
def test_a_damaged_entry_is_searched_for_again(folder: Path, damage: slice) -> None:
    kept_program(TARGET, True, lambda: PROGRAM)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[damage])
    assert kept_program(TARGET, True, lambda: Program()) == Program()
    assert kept_program(TARGET, True, must_not_search) == Program()


def test_off_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "off")
    assert kept_program(TARGET, True, lambda: PROGRAM) == PROGRAM
    assert not folder.exists()


def test_what_is_found_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.clip(np.rint(VALUES / (1 + np.exp(-VALUES / 32.0))), -128, 127)
    found = search._found.__wrapped__(tuple(table.astype(int).tolist()), 1, True, 8.0)
    monkeypatch.setattr(search, "_searched", lambda *_: must_not_search())
    again = search._found.__wrapped__(tuple(table.astype(int).tolist()), 1, True, 8.0)
    assert found == again and repr(found) == repr(again)
