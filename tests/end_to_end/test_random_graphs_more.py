"""The other half of the networks of `test_random_graphs.py`: a file runs in one process."""

from __future__ import annotations

import pytest
from network_hunt import Tally, try_network
from test_random_graphs import CHUNK, HALF, NETWORKS, check_tally

SEEDS = range(HALF, NETWORKS)
TALLY = Tally()


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_networks_equal_the_reference(first: int) -> None:
    for seed in range(first, first + CHUNK):
        try_network(seed, TALLY)


def test_the_table_was_used() -> None:
    check_tally(TALLY)
