"""The table of patterns."""

from __future__ import annotations

from vta_byoc.partitioning import elementwise, layers, movement, pooling
from vta_byoc.partitioning.entry import PatternEntry

TABLE: tuple[PatternEntry, ...] = (
    *pooling.ENTRIES,  # averages are convolutions of ones: before the layers
    *layers.ENTRIES,
    *elementwise.ENTRIES,
    *movement.ENTRIES,
)
"""Earlier entries take their operators first; movement comes last, where the others are known."""


def entry_of(composite: str) -> PatternEntry:
    """The table's row of a composite name."""
    return next(e for e in TABLE if e.name == composite)
