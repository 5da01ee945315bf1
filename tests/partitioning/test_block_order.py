"""The order of channels that leaves the fewest blocks of weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vta_byoc.partitioning.block_order import Side, cheapest_order, cost_of


def shuffled_sides(channels: int, groups: int, block: int = 16) -> list[Side]:
    """Of a shuffle between two convolutions with groups, all of the same number of channels."""
    each = channels // groups
    first, second = np.zeros((2, channels, channels, 1, 1), np.int8)
    for place in range(channels):
        source, target = place % groups * each, place // each * each
        first[place, source : source + each] = 1
        second[target : target + each, place] = 1
    return [Side.of(first, 0, 1, block), Side.of(second, 1, 1, block)]


def test_a_side_is_the_blocks_with_a_weight() -> None:
    weight = np.zeros((4, 40, 1, 2), np.int8)
    weight[1, 3, 0, 1] = weight[1, 39, 0, 0] = weight[3, 17, 0, 0] = 1
    assert Side.of(weight, 0, 7, 16) == Side(7, (*map(frozenset, ((), (0, 2), (), (1,))),))
    assert Side.of(weight, 1, 7, 2).seen[3] == frozenset({0})


PAIRS = {(136, 4): (114, 80), (272, 4): (386, 194), (544, 4): (1478, 678)}
"""By channels and groups: pairs of blocks of both convolutions in the shuffle's order, and left."""


@pytest.mark.parametrize("shape", PAIRS)
def test_shuffles_between_groups(shape: tuple[int, int]) -> None:
    sides = shuffled_sides(*shape)
    order = cheapest_order(sides, 16)
    assert (cost_of(range(shape[0]), sides, 16), cost_of(order, sides, 16)) == PAIRS[shape]


def test_what_no_order_improves_stays() -> None:
    """All channels alike, or all in whole blocks."""
    sides = [Side(1, (frozenset({0, 1}),) * 40)]
    assert cheapest_order(sides, 16) == list(range(40))
    own = tuple(frozenset({channel // 16}) for channel in range(64))
    assert cheapest_order([Side(3, own), Side(1, own)], 16) == list(range(64))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_channel_is_there_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, block = int(rng.integers(1, 70)), int(rng.choice([8, 16]))
    kinds = int(rng.integers(1, 6))
    sides = []
    for _ in range(int(rng.integers(1, 4))):
        own = [frozenset(rng.integers(0, 6, 2).tolist()) for _ in range(kinds)]
        seen = tuple(own[number] for number in rng.integers(0, kinds, channels))
        sides.append(Side(int(rng.integers(1, 9)), seen))
    order = cheapest_order(sides, block)
    assert sorted(order) == list(range(channels))
    assert cost_of(order, sides, block) <= cost_of(range(channels), sides, block)
