"""The documentation site: every public name is in the reference, every page is in the contents."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from doc_pages import DOCS

import vta_byoc

PUBLIC = (
    "vta_byoc",
    "vta_byoc.schedule",
    "vta_byoc.extend",
    "vta_byoc.testing",
    "vta_byoc.partition",
    "vta_byoc.scopes",
    "vta_byoc.relay",
)
ROOMS = ("cli", "codegen", "pipeline", "quantize", "strategy")
"""Modules whose `__all__` says what other rooms may use; their users' names are those of PUBLIC."""


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\.\. auto(?:function|class|exception|data):: ([\w.]+)$", page, re.M))
    own = {each.rpartition(".")[2] for each in listed}
    assert set(importlib.import_module(name).__all__) - own == set()


def test_every_module_that_lists_names_is_public_or_known() -> None:
    """So that nothing becomes public without a page of the reference."""
    package = Path(vta_byoc.__file__).parent
    listing = {
        ".".join(("vta_byoc", *path.relative_to(package).with_suffix("").parts))
        for path in (*package.glob("*.py"), *package.glob("*/__init__.py"))
        if re.search(r"^__all__ = ", path.read_text(encoding="utf-8"), re.M)
    }
    known = {*PUBLIC, *(f"vta_byoc.{room}" for room in ROOMS)}
    assert {name.removesuffix(".__init__") for name in listing} == known


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    """Functions and classes; the text of a constant stands below it."""
    module = importlib.import_module(name)
    found = {each: getattr(module, each) for each in module.__all__}
    own = {n: f for n, f in found.items() if callable(f) and hasattr(f, "__module__")}
    silent = {n for n, f in own.items() if f.__module__.startswith("vta_byoc") and not f.__doc__}
    assert silent == set()


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    contents = set(re.findall(r"^[\w/*-]+$", index, re.M))
    pages = {p.relative_to(DOCS).with_suffix("").as_posix() for p in DOCS.rglob("*.md")}
    design = {page for page in pages if page.startswith("design/")}
    assert pages - design - contents == {"index"}
