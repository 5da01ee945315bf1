"""Text in figures: short names, quantities, escapes."""

from __future__ import annotations

from typing import Any

Figure = dict[str, Any]
"""``data`` and ``layout`` in Plotly's schema, or a part of them."""
ON_VTA, ON_CPU = "#2f6fb5", "#e08e3c"
NAME_LENGTH = 38
PLOT_WIDTH, CHAR_WIDTH = 1240, 6.0
"""Pixels of a figure on a wide screen and of a letter: for where text has room."""
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(name: str, length: int = NAME_LENGTH) -> str:
    """``name``, its middle left out when it is longer than ``length``."""
    if len(name) <= length:
        return name
    tail = length // 2
    return f"{name[: length - tail - 1]}…{name[-tail:]}"


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
