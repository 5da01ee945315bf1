"""Parts of what is printed: plain tables, aligned lines, numbered notes, numbers with units."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def plain_table() -> Table:
    """A table without frame: a line below the head, one space between columns."""
    return Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="bold"
    )


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


class Notes(list[str]):
    """Texts that rows refer to by number."""

    def number(self, text: str) -> str:
        """The reference to `text`, "" for no text."""
        if not text:
            return ""
        if text not in self:
            self.append(text)
        return f"[{self.index(text) + 1}]"
