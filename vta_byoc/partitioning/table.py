"""The table of patterns."""

from __future__ import annotations

from vta_byoc.hw.registry import Registry
from vta_byoc.partitioning import (
    appended,
    attention,
    elementwise,
    joined_moves,
    layers,
    moved,
    movement,
    norms,
    pooling,
    products,
    shuffled,
    softmax,
    token_moves,
)
from vta_byoc.partitioning.entry import PatternEntry

PATTERNS: Registry[PatternEntry] = Registry("pattern")
"""Composite name -> its row."""
for _entry in (
    *appended.ENTRIES,
    *attention.ENTRIES,  # of sums and products, which others take too
    *softmax.ENTRIES,  # of maxima and sums
    *norms.ENTRIES,  # of sums, which pooling takes too
    *pooling.ENTRIES,  # averages are convolutions of ones: before the layers
    *shuffled.ENTRIES,  # with a part of what layers and movement take
    *layers.ENTRIES,
    *products.ENTRIES,
    *elementwise.ENTRIES,
    *token_moves.ENTRIES,  # before those that would leave them to the CPU
    *joined_moves.ENTRIES,  # with a part of what movement takes
    *movement.ENTRIES,
    *moved.ENTRIES,
):
    PATTERNS.add(_entry.name, _entry)


def entries() -> list[PatternEntry]:
    """The rows in the order in which they take operators.

    Those of plug-ins come first, as the compiler's would leave them nothing; movement comes last,
    where the others are known.
    """
    ordered = sorted(PATTERNS, key=PATTERNS.is_built_in)
    return [PATTERNS[name] for name in ordered]
