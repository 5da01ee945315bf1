"""The documentation site: every public name is in the reference, every page is in the contents."""

from __future__ import annotations

import importlib
import re

import pytest
from doc_pages import DOCS

PUBLIC = ("vta_byoc", "vta_byoc.schedule", "vta_byoc.extend", "vta_byoc.relay")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\.\. auto(?:function|class|exception|data):: ([\w.]+)$", page, re.M))
    own = {each.rpartition(".")[2] for each in listed}
    assert set(importlib.import_module(name).__all__) - own == set()


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    contents = set(re.findall(r"^[\w/*-]+$", index, re.M))
    pages = {p.relative_to(DOCS).with_suffix("").as_posix() for p in DOCS.rglob("*.md")}
    design = {page for page in pages if page.startswith("design/")}
    assert pages - design - contents == {"index"}
