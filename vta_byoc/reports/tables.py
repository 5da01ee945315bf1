"""Parts of what is printed: plain tables, aligned lines, numbered notes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vta_byoc.hw.printable import printable

WIDTH = 132
"""Columns of a table that is printed outside of a terminal."""


def plain_table() -> Table:
    """A table without frame: a line below the head, one space between columns."""
    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold"
    )


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


def print_lines(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Aligned `title  text` lines; a long text goes on below its beginning."""
    pairs = list(lines)
    indent = max(len(title) for title, _ in pairs) + 2
    width = max(console.width - indent, 20)
    for title, text in pairs:
        parts = [p for line in text.splitlines() for p in textwrap.wrap(line, width) or [""]]
        for i, part in enumerate(parts):
            head = (title if i == 0 else "").ljust(indent)
            console.print(Text.assemble((head, "bold"), part), soft_wrap=True)


Note = TypeVar("Note")
"""What a row refers to: a text, or a value that is written as one."""


class Notes(list[Note]):
    """What rows refer to by number: texts, or values that are written as text."""

    def number(self, note: Note) -> str:
        """The reference to `note`, "" for no text."""
        if not note:
            return ""
        if note not in self:
            self.append(note)
        return f"[{self.index(note) + 1}]"
