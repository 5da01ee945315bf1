"""Copies between DRAM and SRAM: random loops, and what a copy and its transfers leave in SRAM."""

from __future__ import annotations

import itertools

import numpy as np

from vta_byoc.codegen.transfer import Dim, Piece
from vta_byoc.hw.isa import PAD_LIMIT, SIZE_LIMIT

UNTOUCHED = -7
DATA = 1000


def replay(pieces: list[Piece], size: int) -> np.ndarray:
    """SRAM after the transfers: DATA + DRAM index for data, 0 for padding."""
    sram = np.full(size, UNTOUCHED)
    for p in pieces:
        y0, y1, x0, x1 = p.pads
        box = np.zeros((y0 + p.y_size + y1, x0 + p.x_size + x1), int)
        rows = np.arange(p.y_size)[:, None] * p.x_stride
        values = DATA + p.dram + rows + np.arange(p.x_size)
        box[y0 : y0 + p.y_size, x0 : x0 + p.x_size] = 0 if p.zero else values
        sram[p.sram : p.sram + box.size] = box.reshape(-1)
    return sram


def expected(dims: list[Dim], size: int) -> np.ndarray:
    """The same copy, one position at a time."""
    sram = np.full(size, UNTOUCHED)
    for index in itertools.product(*(range(d.total) for d in dims)):
        at = sum(i * d.sram for i, d in zip(index, dims, strict=True))
        inside = all(d.low <= i < d.high for i, d in zip(index, dims, strict=True))
        dram = sum((i - d.low) * d.dram for i, d in zip(index, dims, strict=True))
        sram[at] = DATA + dram if inside else 0
    return sram


def check_fields(pieces: list[Piece]) -> None:
    for p in pieces:
        assert all(0 <= pad <= PAD_LIMIT for pad in p.pads)
        assert 1 <= p.y_size <= SIZE_LIMIT
        assert 1 <= p.x_size <= SIZE_LIMIT
        assert 0 <= p.x_stride <= SIZE_LIMIT
        assert p.zero or p.dram >= 0


def random_dims(rng: np.random.Generator) -> list[Dim]:
    """Up to four loops, innermost dense or strided, any of them padded or wholly padding."""
    dims, sram, dram = [], int(rng.integers(1, 3)), 1
    for level in range(int(rng.integers(1, 5))):
        total = int(rng.choice([1, 2, 3, 5, 20])) if level < 2 else int(rng.integers(1, 4))
        low = int(rng.integers(0, total + 1)) if rng.random() < 0.5 else 0
        high = int(rng.integers(low, total + 1)) if rng.random() < 0.5 else total
        dims.append(Dim(total, low, high, dram, sram))
        gap = int(rng.choice([0, 0, 1, 4, 17]))
        sram = (total - 1) * sram + sram + gap
        dram = max(1, high - low) * dram + int(rng.integers(0, 3))
    order = rng.permutation(len(dims))
    return [dims[k] for k in order]
