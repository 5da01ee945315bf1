"""Outputs that pages show, compared with what the commands print.

What is shown is a part of what is printed: its words in the same order, with none between, but
where a line of `...` leaves some out. Spaces, line ends and rulers are of the width of a terminal
and not compared; times and paths are those of a computer, and any stands for any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TIME = re.compile(r"\b\d+(?:\.\d+)? ?(?:s|ms|us|µs|ns|min)\b")
_PATH = re.compile(r"(?<![\w.])/[\w.-]+(?:/[\w.-]+)+")
_RULER = re.compile(r"[─━│┃═-]{3,}|[│┃]")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
LEFT_OUT = "..."


def difference(shown: str, printed: str) -> str:
    """Where an output that a page shows leaves what its command prints; "" where it does not.

    Args:
        shown: the block of the page.
        printed: stdout and stderr of the command.

    Returns:
        The first words that are not printed behind those before them, and what is.
    """
    there, at = _words(printed), 0
    for part in re.split(rf"^\s*{re.escape(LEFT_OUT)}\s*$", shown, flags=re.M):
        words = _words(part)
        found = _find(words, there, at)
        if found < 0:
            return _told(words, there, at)
        at = found + len(words)
    return ""


def _words(text: str) -> list[str]:
    """The words of a text without what differs from one computer to the next."""
    plain = _RULER.sub(" ", _ESCAPE.sub("", text))
    return _PATH.sub("PATH", _TIME.sub("TIME", plain)).split()


def _find(words: Sequence[str], there: Sequence[str], start: int) -> int:
    """Where the words stand, at `start` or later; -1 where they do not."""
    last = len(there) - len(words)
    places = range(start, last + 1)
    return next((i for i in places if list(there[i : i + len(words)]) == list(words)), -1)


def _told(words: Sequence[str], there: Sequence[str], start: int) -> str:
    """The longest beginning that is printed, and how the two go on."""
    length = next(n for n in range(len(words), -1, -1) if _find(words[:n], there, start) >= 0)
    at = _find(words[:length], there, start) + length
    ahead = lambda found, i: " ".join(found[i : i + 12]) or "its end"  # noqa: E731
    return (
        f"after {' '.join(words[max(0, length - 6) : length])!r} the page shows "
        f"{ahead(words, length)!r}, printed is {ahead(there, at)!r}; correct the page"
    )


__all__ = ["LEFT_OUT", "difference"]
