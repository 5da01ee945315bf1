"""The digest of the commit log: a set of written lanes in 64 bits.

A lane is one number of a memory as ``RunResult`` shows it: flat index and value.  The digest of a
set is the exclusive or of the digests of its lanes, so an implementation may write in any order;
the empty set gives 0.  The arithmetic never leaves 64 bits: compilers that know no wrapping
multiplication and hardware with a 32 by 32 multiplier compute it alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

HALF_MASK = 0xFFFFFFFF
ROUND_KEYS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
"""One multiplier a round: odd, without structure (the primes of xxHash32)."""
SALTS: Mapping[str, int] = {
    "uop": 0x243F6A88,
    "inp": 0x85A308D3,
    "wgt": 0x13198A2E,
    "acc": 0x03707344,
    "dram": 0xA4093822,
}
"""Tells the memories apart: 32 bits of pi each."""


def mix(space: str, index: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Digest of each lane, uint64: a Feistel network over (index, value), so one-to-one.

    Args:
        space: a key of SALTS.
        index: flat lane indices, integers; their low 32 bits count.
        value: the lanes' contents, integers; their low 32 bits count.
    """
    mask = np.uint64(HALF_MASK)
    high = (index.astype(np.uint64) & mask) ^ np.uint64(SALTS[space])
    low = value.astype(np.int64).view(np.uint64) & mask
    for key in ROUND_KEYS:
        product = low * np.uint64(key) + np.uint64(key)
        high, low = low, high ^ (product >> np.uint64(32)) ^ (product & mask)
    return (high << np.uint64(32)) | low


def digest_of(space: str, index: np.ndarray, value: np.ndarray) -> int:
    """The digest of a set of lanes, each of which is given once."""
    return int(np.bitwise_xor.reduce(mix(space, index, value), initial=np.uint64(0)))
