"""The code blocks of README and docs, and what becomes of each when the documentation is checked.

A block is code of a kind, or text (an output, a diagram, a directive):

- `cells`: run when the site is built, by MyST-NB;
- `python` and `shell`: run by `run_blocks.py`, page by page, in a folder of their own;
- `stated`: not run, for the reason that the comment before it states: `<!-- not run: REASON -->`.

Comments before a block say what it needs, and no reader of the rendered page sees them:

- `<!-- beside it: COMMAND -->` before a shell block: a command, such as a server, that runs
  meanwhile. The block begins when the command has printed a line, and its end ends the command.
- `<!-- where there is: NAME ... -->`: the block runs where these extras of the package, or
  programs, are installed.
- `<!-- printed by: COMMAND -->` before text: an output, compared with what the command prints
  (`outputs.py`); the command is one of the shell blocks before, or runs for this alone.
- `<!-- not printed: REASON -->` before text below a shell block: why it is no output of it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("vta-byoc", "python", "make", "pip", "cmake", ".venv/bin/python")
"""What a line of a shell block begins with."""
_SAYS = {
    "reason": "not run",
    "beside": "beside it",
    "needs": "where there is",
    "printed_by": "printed by",
    "not_printed": "not printed",
}
"""What comments say: the field of a block, and the words before the colon."""
_FRONT_MATTER = re.compile(r"\A---\n(?:.*\n)*?---\n")


@dataclass(frozen=True)
class Block:
    """One block: its page, the number of its first line of code, its kind and its code.

    Attributes:
        reason: why it is not run; "" of blocks that run, and of text.
        beside: the command that runs while the block does; "" of most blocks.
        needs: extras and programs without which it is left out; "" of most blocks.
        printed_by: the command whose output a text is; "" of other texts.
        not_printed: why a text below commands is not what they print.
        info: what stands behind the fence, as `json`; "" of indented blocks.
    """

    page: str
    line: int
    kind: str
    code: str
    reason: str = ""
    beside: str = ""
    needs: str = ""
    printed_by: str = ""
    not_printed: str = ""
    info: str = ""

    @property
    def where(self) -> str:
        """Page and line, as editors take them."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README and every page of the site."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order, text included."""
    text = page.read_text(encoding="utf-8")
    header = _FRONT_MATTER.match(text)
    # As many lines as before, so that numbers are those of the file.
    body = _FRONT_MATTER.sub("\n" * header[0].count("\n"), text) if header else text
    name, found, says = page.relative_to(ROOT).as_posix(), [], dict[str, str]()
    for token in MarkdownIt("commonmark").parse(body):
        if token.type in ("fence", "code_block"):
            kind = _kind(token)
            if "reason" in says and kind != "text":
                kind = "stated"
            line = (token.map or [0])[0] + (2 if token.type == "fence" else 1)
            found.append(Block(name, line, kind, token.content, info=token.info.strip(), **says))
            says = {}
        elif token.type == "html_block":
            says |= _said(token.content.strip())
    return found


def _said(comment: str) -> dict[str, str]:
    """The field that a comment fills, with what it says on one line; none for other comments."""
    for field, words in _SAYS.items():
        if said := re.match(rf"^<!-- {words}: (.+?) -->$", comment, re.DOTALL):
            return {field: " ".join(said[1].split())}
    return {}


def _kind(token: Token) -> str:
    info = token.info.split()[0] if token.info.strip() else ""
    if token.type == "fence" and info:
        known = {"{code-cell}": "cells", "python": "python", "sh": "shell"}
        return known.get(info, "text")
    lines = [line for line in token.content.splitlines() if line.strip()]
    if any(line.split()[0] in COMMANDS for line in lines if not line[0].isspace()):
        return "shell"
    return "unmarked Python" if _is_python(token.content) else "text"


def _is_python(code: str) -> bool:
    """Whether text without a mark is a script: it parses, and imports or assigns."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return False
    return any(isinstance(each, (ast.Import, ast.ImportFrom, ast.Assign)) for each in body)


def all_blocks() -> list[Block]:
    """The blocks of every page."""
    return [block for page in pages() for block in blocks(page)]
