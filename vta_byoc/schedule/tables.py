"""Tables for terminals and notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from vta_byoc.base.printable import printable
from vta_byoc.reports.tables import plain_table

WIDTH = 132
"""Columns of a table that is printed outside of a terminal."""


def text_of(table: Table, *lines: str) -> str:
    """A table and ``lines`` below it as plain text."""
    console = Console(width=WIDTH, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(table)
    rows = [line.rstrip() for line in capture.get().splitlines()]
    return "\n".join([*rows, *map(printable, lines)]) + "\n"


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; columns whose cells are numbers are set to the right."""
    listed = [[printable(cell) for cell in row] for row in rows]
    table = plain_table()
    for number, title in enumerate(columns):
        cells = [row[number] for row in listed]
        table.add_column(title, justify="right" if _numeric(cells) else "left")
    for row in listed:
        table.add_row(*row)
    return table


def _numeric(cells: Sequence[str]) -> bool:
    return all(not cell or cell[0].isdigit() for cell in cells)


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
