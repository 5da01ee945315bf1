"""A table in Markdown, of what the code's tables hold."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The lines of a table; texts may hold anything, on several lines too."""
    cells = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(_cell(c) for c in row) + " |" for row in cells) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()) or " "
