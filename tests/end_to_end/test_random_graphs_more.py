"""The other half of the networks of `test_random_graphs.py`: a file runs in one process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from network_hunt import Tally, try_network
from test_random_graphs import NETWORKS, check_tally, chunks

SEEDS = NETWORKS[::2]
TALLY = Tally()


@pytest.mark.parametrize("seeds", chunks(SEEDS), ids=lambda seeds: str(seeds[0]))
def test_networks_equal_the_reference(seeds: Sequence[int]) -> None:
    for seed in seeds:
        try_network(seed, TALLY)


def test_the_table_was_used() -> None:
    check_tally(TALLY, len(SEEDS))
