"""Numbers as text: counts, megabytes, shares."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def millions(number: int) -> str:
    """In millions with two digits, "" for none."""
    if not number:
        return ""
    return f"{number / 1e6:,.2f}" if number >= 5000 else "< 0.01"


def megabytes(number: int) -> str:
    """Bytes as MB, or kB below one of them."""
    return f"{number / 1e6:,.2f} MB" if number >= 1e6 else f"{number / 1e3:,.1f} kB"


def percent(part: int, whole: int) -> str:
    """The share of integers, rounded down: 100.0 % is all of it and nothing less."""
    return f"{1000 * part // whole / 10:.1f} %"
