"""Tables that a notebook shows: what `_repr_html_` of programs, machines and runs returns."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from vta_byoc.hw.printable import printable

SHOWN = 60
"""Rows of a long table in a notebook."""


def first_rows(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The first SHOWN rows, and one that says how many more there are."""
    rest = len(rows) - SHOWN
    if rest <= 0:
        return list(rows)
    return [*rows[:SHOWN], (f"and {rest:,} more", *[""] * (len(rows[0]) - 1))]


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a caption as HTML that a notebook shows."""
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f"<table><caption>{_text(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _text(cell: str) -> str:
    return html.escape(printable(cell))
