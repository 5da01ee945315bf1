"""Chunks of a tile, by which a fused consumer's other operand is staged."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from vta_byoc.hw.config import VTAConfig

CHUNK_SHARE = 4
"""A chunk takes at most this part of the input or the accumulator buffer."""


def chunk_limit(config: VTAConfig) -> int:
    """Elements of a chunk, at most."""
    return max(1, min(config.inp_depth, config.acc_depth) // CHUNK_SHARE)


def peeled(extents: Sequence[int], limit: int) -> int:
    """How many of the outermost loops run over chunks of at most ``limit`` elements."""
    count = 0
    while math.prod(extents[count:]) > limit:
        count += 1
    return count


@functools.cache
def divisor(number: int, most: int) -> int:
    """The largest divisor of ``number`` that is at most ``most``; 1 where there is none."""
    return max(d for d in range(1, max(1, min(number, most)) + 1) if number % d == 0)
