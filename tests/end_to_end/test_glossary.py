"""docs/glossary.md: whole rows in order, terms once, options and links that exist."""

from __future__ import annotations

import re
from pathlib import Path

from doc_pages import DOCS

PAGE = (DOCS / "glossary.md").read_text(encoding="utf-8")
CLI = Path(__file__).resolve().parents[2] / "vta_byoc" / "cli"


def rows() -> list[list[list[str]]]:
    """The cells of each section's table."""
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    cells = [
        [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in text.splitlines()
            if line.startswith("| ") and not line.startswith("| term |")
        ]
        for text in sections
    ]
    return cells


def test_rows_are_whole_and_terms_are_in_order() -> None:
    terms = []
    for table in rows():
        assert table
        assert all(len(row) == 4 and all(row) for row in table)
        names = [row[0].casefold() for row in table]
        assert names == sorted(names)
        terms += names
    assert len(terms) == len(set(terms))


def test_options_exist() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in CLI.glob("*.py"))
    for option in re.findall(r"`(?:[\w-]+ )*(--[a-z][a-z-]*)", PAGE):
        assert f'"{option}"' in sources, option


def test_links_exist() -> None:
    for name, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", PAGE):
        text = (DOCS / name).read_text(encoding="utf-8")
        headings = [
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        ]
        assert not anchor or anchor in headings, (name, anchor)
