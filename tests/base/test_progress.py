"""Bars where somebody looks."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import warnings

import pytest
from rich.console import Console

from vta_byoc.base.progress import shown


def test_who_asks_is_told_and_nobody_else() -> None:
    def given(_done: int, _total: int | None) -> None: ...

    with shown(given, "calibrating") as progress:
        assert progress is given


def test_no_bar_where_nobody_looks() -> None:
    file = io.StringIO()
    with shown(None, "calibrating", Console(file=file)) as progress:
        assert progress is None
    assert file.getvalue() == ""


def test_a_terminal_shows_a_bar_that_goes_away() -> None:
    file = io.StringIO()
    with shown(None, "calibrating", Console(file=file, force_terminal=True, width=80)) as progress:
        assert progress is not None
        progress(3, 4)
    text = file.getvalue()
    assert "calibrating" in text and "3/4" in text
    assert text.endswith("\x1b[2K")


@pytest.mark.parametrize("has_widgets", [False, True])
def test_a_notebook_shows_one_where_it_has_widgets(
    has_widgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ipywidgets Rich would print a warning in place of the bar."""
    found = importlib.machinery.ModuleSpec("ipywidgets", None) if has_widgets else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    console = Console(file=io.StringIO(), force_jupyter=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with shown(None, "calibrating", console) as progress:
            assert (progress is not None) == has_widgets
    assert has_widgets or not said
