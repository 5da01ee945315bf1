"""The documentation site: reference and contents are whole, and ways through it are short."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from blocks import blocks
from doc_pages import DOCS
from messages import GROUPS, messages_by_group

import vta_byoc

ROOT = DOCS.parent
LINK = re.compile(r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)")
PUBLIC = (
    "vta_byoc",
    "vta_byoc.schedule",
    "vta_byoc.extend",
    "vta_byoc.extend.composites",
    "vta_byoc.extend.rules",
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
        for path in (
            *package.glob("*.py"),
            *package.glob("*/__init__.py"),
            *package.glob("extend/[!_]*.py"),
        )
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
    # The contents of these two folders are patterns.
    listed = {page for page in pages if page.startswith(("design/", "how-to/"))}
    assert pages - listed - contents == {"index"}
    assert {"design/*", "how-to/index"} <= contents


def pages_to(start: Path, wanted: str) -> list[Path]:
    """The shortest way from a page to one whose code that runs contains a text, both included."""
    ways, seen = [[start]], {start}
    for way in ways:
        if any(wanted in b.code for b in blocks(way[-1]) if b.kind in ("cells", "python")):
            return way
        for link in LINK.findall(way[-1].read_text(encoding="utf-8")):
            page = (way[-1].parent / link).resolve()
            if page.is_file() and page not in seen:
                seen.add(page)
                ways.append([*way, page])
    raise AssertionError(f"no link leads from {start} to {wanted}")


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_an_own_operator_is_three_pages_away(start: str) -> None:
    way = pages_to(ROOT / start, "register_kernel(")
    assert len(way) <= 3, way


def test_tutorials_and_how_to_pages_run() -> None:
    """Each has code that runs; tutorials draw where time goes, or count what is moved."""
    for page in [*DOCS.glob("tutorials/*.md"), *DOCS.glob("how-to/*.md")]:
        if page.name != "index.md":
            assert any(b.kind in ("cells", "python") for b in blocks(page)), page
    for page in DOCS.glob("tutorials/*.md"):
        text = page.read_text(encoding="utf-8")
        assert "drawings.timeline(" in text and "counters" in text and "cycles" in text, page


def test_messages_are_grouped_with_their_next_steps() -> None:
    groups = messages_by_group()
    # A new room belongs to a group.
    assert [title for title, _ in groups] == [title for title, _, _ in GROUPS]
    texts = [message for found in groups.values() for message in found]
    assert len(texts) > 450
    # What a tile would need says what to change; `partition.next_step` adds that of the placer's,
    # the verdict on a part that of the clock's; the importer of PyTorch later is read by TVM alone.
    silent = [m for m in texts if not m.fix and not m.wrong.startswith("need ")]
    placer = "vta_byoc.partitioning.placer"
    others = ["hw.rtl.clock", "vta_byoc.base.torch_later"]
    assert sorted(m.module for m in silent) == [*others, placer, placer]
    (place,) = (m for m in texts if m.module == "vta_byoc.cli.place")
    assert place.wrong == "--fail-under ⟨least⟩; a share is 0 to 100 percent"
    assert place.fix == "for example 99"
