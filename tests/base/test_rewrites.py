"""Switching exact rewrites off, one by one."""

from __future__ import annotations

import re

import pytest

from vta_byoc.base.rewrites import REWRITES, check_rewrites, is_on, switched_off, without
from vta_byoc.hw.errors import VTAError
from vta_byoc.options import BuildOptions


@pytest.fixture(autouse=True)
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("second", "first"):
        monkeypatch.setitem(REWRITES, name, "Does nothing.")


def test_all_are_on() -> None:
    assert switched_off() == ()
    assert is_on("first")


def test_those_switched_off_add_up_and_come_back() -> None:
    with without(["second"]):
        assert not is_on("second")
        with without(["first"]):
            assert switched_off() == ("first", "second")
        assert switched_off() == ("second",)
    assert is_on("second")


def test_they_come_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), without(["first"]):
        1 / 0  # noqa: B018
    assert is_on("first")


def test_a_name_that_does_not_exist_is_refused() -> None:
    text = "there is no rewrite 'frist' to switch off; known: first, second; name one of them"
    with pytest.raises(VTAError, match=f"^{re.escape(text)}$"):
        check_rewrites(["first", "frist"], {"first": "", "second": ""})
    with pytest.raises(VTAError, match="^there is no rewrite 'frist'"):
        BuildOptions(without_rewrites=("frist",))
    with pytest.raises(VTAError, match="^there is no rewrite 'frist'"), without(["frist"]):
        pass


def test_an_empty_table_says_so() -> None:
    with pytest.raises(VTAError, match="known: none; name one of them$"):
        check_rewrites(["first"], {})


def test_every_rewrite_says_what_it_does() -> None:
    for name, text in REWRITES.items():
        assert name.isidentifier()
        assert text.endswith(".")
