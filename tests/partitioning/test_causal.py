"""Blocks of keys that a constant mask leaves out for blocks of queries."""

from __future__ import annotations

import numpy as np
import pytest

from vta_byoc.partitioning.causal import seen_blocks

FAR = -(1 << 24)


def masked(seen: np.ndarray, bias: int = 0) -> tuple[int, ...]:
    """Of queries that see some keys, and a bias on all of them."""
    mask = np.where(seen, bias, FAR)[None]
    return seen_blocks(mask, mask == FAR, 16)


def triangle(queries: int, keys: int, further: int = 0) -> np.ndarray:
    return np.tri(queries, keys, further, bool)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (triangle(70, 70), (1, 0)),
        (triangle(32, 32), (1, 0)),
        (triangle(70, 70, 1), (2, 0)),
        (triangle(40, 100, 60), (5, 3)),
        (triangle(40, 100, 20), ()),
        (triangle(70, 64, -3), (1, -1)),
        (triangle(70, 70) & ~triangle(70, 70, -20), (1, -4)),
        (triangle(16, 16), ()),
        (triangle(16, 64), ()),
        (triangle(70, 70, 64), ()),
        (np.ones((70, 70), bool), ()),
    ],
)
def test_blocks_that_are_seen(seen: np.ndarray, wanted: tuple[int, ...]) -> None:
    """(blocks that the first sees, blocks without a mask)."""
    assert masked(seen) == wanted


@pytest.mark.parametrize("heads", [1, 2])
def test_the_window_of_a_decoder_keeps_all_blocks(heads: int) -> None:
    """Its mask is that of another place in each run; heads may share its keys."""
    for place in range(3):
        window = triangle(48, 48)[16 * place : 16 * place + 16]
        assert masked(np.concatenate([window] * heads)) == ()


def test_one_query_that_sees_all_keeps_all_blocks() -> None:
    seen = triangle(70, 70)
    seen[3] = True
    assert masked(seen) == ()


def test_a_bias_is_added_to_all_that_is_seen() -> None:
    assert masked(triangle(70, 70), bias=5) == (1, -4)


def test_one_of_several_masks_keeps_blocks() -> None:
    """What any group sees is computed for all."""
    both = np.stack([triangle(70, 70), triangle(70, 70, 17)])
    mask = np.where(both, 0, FAR)
    assert seen_blocks(mask, mask == FAR, 16) == (3, 0)
