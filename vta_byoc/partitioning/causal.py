"""Which blocks of keys no query of a block sees behind a constant mask."""

from __future__ import annotations

import numpy as np


def seen_blocks(mask: np.ndarray, hidden: np.ndarray, block: int) -> tuple[int, ...]:
    """`AttentionWorkload.causal`; empty where all blocks of keys are seen.

    Nothing is left out where no query sees the last keys: it may be the window of a decoder, which
    has the mask of another place in each run.

    Args:
        mask: what is added to scores, [masks, queries, keys].
        hidden: where a key has the share 0, of the same shape.
        block: queries and keys of a block.
    """
    _, queries, keys = mask.shape
    rows = [slice(first, first + block) for first in range(0, queries, block)]
    seen = max(_ends(~hidden[:, each], block)[1] - number for number, each in enumerate(rows))
    count = -(-keys // block)
    if max(1, seen) >= count or _ends(~hidden, block)[1] < count:
        return ()
    clear = min(_ends(mask[:, each] != 0, block)[0] - number for number, each in enumerate(rows))
    return max(1, seen), clear


def _ends(some: np.ndarray, block: int) -> tuple[int, int]:
    """The first block of keys of which any is in `some`, and the one behind the last."""
    places = np.flatnonzero(some.any((0, 1)))
    if not len(places):
        return some.shape[-1], 0
    return int(places[0]) // block, int(places[-1]) // block + 1
