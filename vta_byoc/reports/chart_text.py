"""Text in charts: short names, quantities, escapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Chart = dict[str, Any]
"""``data`` and ``layout`` in Plotly's schema, or a part of them."""
ON_VTA, ON_CPU = "#2f6fb5", "#e08e3c"
NAME_LENGTH = 38
PLOT_WIDTH, CHAR_WIDTH = 1240, 6.0
"""Pixels of a chart on a wide screen and of a letter: for where text has room."""
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(name: str, length: int = NAME_LENGTH, tail: int | None = None) -> str:
    """``name``, its middle left out when it is longer than ``length``.

    Args:
        name: any text.
        length: letters that it may have.
        tail: how many of its last letters stay; half of all when None.
    """
    if len(name) <= length:
        return name
    tail = length // 2 if tail is None else tail
    return f"{name[: length - tail - 1]}…{name[-tail:]}"


def distinct(names: Sequence[str], length: int = NAME_LENGTH) -> list[str]:
    """Short names, cut where most of them stay different: numbers of blocks may be anywhere."""
    tails = (length * part // 8 for part in (4, 3, 5, 2, 6, 1, 7))
    cuts = [[short(name, length, tail) for name in names] for tail in tails]
    return max(cuts, key=lambda texts: len(set(texts)))


def plain(text: str) -> str:
    """``text`` for Plotly, which reads a few HTML tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def quantity(value: float, unit: str = "") -> str:
    """Three digits and a prefix: 534502 is 535 k."""
    for factor, prefix in PREFIXES:
        if abs(value) >= factor * 0.9995:
            scaled = value / factor
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f} {prefix}{unit}"
    return f"{value:.0f} {unit}".rstrip()
