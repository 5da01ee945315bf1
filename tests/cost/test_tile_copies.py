"""DMA instructions of a tensor that is copied tile by tile, counted for many tiles at once."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vta_byoc.cost.dma import Run, copy_count, tile_copies

Sizes = list[int]


def one_by_one(sizes: Sizes, tile: Sizes, store: bool) -> int:
    """Each tile by itself: the last ones are smaller, and keep the place of a whole one."""
    strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
    pitches = [math.prod(tile[k + 1 :]) for k in range(len(tile))]
    total = 0
    for starts in itertools.product(
        *(range(0, size, own) for size, own in zip(sizes, tile, strict=True))
    ):
        there = zip(sizes, tile, starts, strict=True)
        extents = [min(own, size - start) for size, own, start in there]
        runs = [Run(*each) for each in zip(extents, strides, pitches, strict=True)]
        total += int(copy_count(runs[::-1], store))
    return total


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.data(), st.booleans())
def test_as_tile_by_tile(sizes: Sizes, data: st.DataObject, store: bool) -> None:
    tile = [data.draw(st.integers(1, size)) for size in sizes]
    assert tile_copies(sizes, tile, store) == one_by_one(sizes, tile, store)


@pytest.mark.parametrize("store", [False, True])
def test_all_tiles_at_once(store: bool) -> None:
    """Arrays of the axes of a space, one of which no tile cuts."""
    sizes = [3, 1, 5, 4]
    grid = np.ix_([1, 2, 3], [1], [1, 2, 3, 5], [1, 2, 4])
    found = tile_copies(sizes, grid, store)
    assert found.shape == (3, 1, 4, 3)
    for place in np.ndindex(found.shape):
        tile = [int(axis.reshape(-1)[at]) for axis, at in zip(grid, place, strict=True)]
        assert found[place] == one_by_one(sizes, tile, store)


def test_an_axis_that_is_kept_whole_is_a_number() -> None:
    found = tile_copies([6, 5], [np.array([1, 4, 6]), 5])
    assert found.tolist() == [one_by_one([6, 5], [rows, 5], False) for rows in (1, 4, 6)]
