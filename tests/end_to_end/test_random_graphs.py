"""Half of the random ONNX networks on five machines, from import to the simulator, bit for bit.

Some of them again with DRAM scopes only, without memory scopes, and with random legal demands.
`test_random_graphs_more.py` runs the other half, at the same time; `make fuzz` runs all that these
are chosen from (network_seeds.py) and hunts on.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from draws import draws, least
from network_demands import AGAINST_COST, INJECTED, TAKEN_OUT
from network_hunt import DEMANDED, MACHINES, PUBLIC, Tally, machine_of, try_network, way_of
from network_runs import demanded, public, short, short_and_dram, short_and_off
from network_seeds import CHOSEN, DRAWN

from vta_byoc.partitioning.table import entries

NETWORKS = draws(CHOSEN, tuple(range(DRAWN)))
MANY = 250
"""Networks that must show the numbers below; fewer must show as much less."""
CHUNK = 10
LEAST_HITS = 9
"""Of every entry of the partition table, by MANY; a shuffle of single channels is none."""
LEAST_SHARE = 95
"""Percent of the networks with work for VTA."""
LEAST_SHARING = 75
"""Networks with a layer of several operators, of MANY."""
LEAST_TILES = 8
"""Fused consumers of each kind, and layers of each length, of MANY."""
LEAST_DEMANDS = {INJECTED: 12, TAKEN_OUT: 4}
"""Of MANY, by what came of them; rarer outcomes are tests of test_random_demands.py."""
ELSEWHERE = (
    *("vta.matmul2", "vta.transpose", "vta.norm", "vta.attention", "vta.softmax"),
    *("vta.token_concat", "vta.token_slice"),
    *("vta.conv2d_shuffled", "vta.append"),
)
"""Entries that are drawn in test_products.py, test_norms.py, test_attention.py and
test_token_moves.py, on machines that take them; one that is a choice by cost, whose cases are in
test_geometries.py; and the cache of a decoder, in test_decoding.py."""
SEEDS = NETWORKS[1::2]
TALLY = Tally()


def chunks(seeds: Sequence[int]) -> list[Sequence[int]]:
    """The networks of each test."""
    return [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]


def check_tally(tally: Tally, networks: int) -> None:
    """What one half of so many networks has to show; prints its histograms."""
    if tally.networks < networks:
        pytest.skip("not all networks ran in this process")
    print(tally)
    assert tally.share >= LEAST_SHARE
    name, hits = min(
        ((n, h) for n, h in tally.hits.items() if n not in ELSEWHERE), key=lambda found: found[1]
    )
    assert hits >= least(LEAST_HITS, networks, MANY), f"{name}: {tally.hits}"
    assert set(tally.hits) == {entry.name for entry in entries()}
    assert tally.sharing >= least(LEAST_SHARING, networks, MANY)
    for kind, count in (tally.tiles.consumers | tally.tiles.chains).items():
        assert count >= least(LEAST_TILES, networks, MANY), f"{kind}: {tally.tiles}"
    for what, count in LEAST_DEMANDS.items():
        assert tally.demands[what] >= least(count, networks, MANY), f"{what}: {tally.demands}"


@pytest.mark.parametrize("seeds", chunks(SEEDS), ids=lambda seeds: str(seeds[0]))
def test_networks_equal_the_reference(seeds: Sequence[int]) -> None:
    for seed in seeds:
        try_network(seed, TALLY)


def test_the_table_was_used() -> None:
    check_tally(TALLY, len(SEEDS))
    assert TALLY.demands[AGAINST_COST]


def test_ways_and_machines() -> None:
    """Drawn networks take turns, and go each way on every machine; so do those that are chosen."""
    public_on = [machine_of(seed) for seed in range(DRAWN) if way_of(seed) is public]
    assert len(public_on) == DRAWN // PUBLIC
    assert set(public_on) == set(MACHINES) and len(MACHINES) >= 4
    demanded_on = [machine_of(seed) for seed in range(DRAWN) if way_of(seed) is demanded]
    assert len(demanded_on) == DRAWN // len(MACHINES) // DEMANDED * len(MACHINES)
    assert set(demanded_on) == set(MACHINES)
    ways = {(way_of(seed), machine_of(seed)) for seed in NETWORKS}
    all_ways = (public, demanded, short, short_and_dram, short_and_off)
    assert ways == set(itertools.product(all_ways, MACHINES))
