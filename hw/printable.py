"""Text from files, made harmless for terminals and pages.

Names of a model may hold escape sequences that colour, move or retitle a terminal, and signs that
turn the direction of what follows.
"""

from __future__ import annotations

import re

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters except tab and line feed, marks of direction, and halves of pairs."""


def printable(text: str) -> str:
    r"""`text` with each harmful character as its escape, as `\x1b`."""
    return _HARMFUL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
