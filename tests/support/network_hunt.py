"""Random networks by seed: which machine and which way, and what a failure shrinks to."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.database import InMemoryExampleDatabase
from layer_runs import machines
from network_runs import Outcome, demanded, public, short, short_and_dram, short_and_off
from network_tiles import Tiles
from random_graphs import Network, networks

from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.table import entries

MACHINES = machines()
CORES = {"chisel": VTAConfig.preset("chisel")}
"""Machines that take their turn only when they are asked for."""
PUBLIC = 40
"""One network of so many takes the public way."""
AGAIN = 12
"""Of so many networks one also runs with DRAM scopes only, and one without memory scopes."""
DEMANDED = 8
"""One network of so many also runs with random demands."""
CHOICES = 4_096
"""Bytes that a network's choices are read from; more than the largest needs."""
SHRINKING = 30.0
"""Seconds to look for a smaller network that fails."""
Way = Callable[[Network, VTAConfig], Outcome]


class Disagreement(AssertionError):
    """A network does not compile, or computes something else than its reference."""


@dataclass
class Tally:
    """What a number of networks were made of and came to.

    Attributes:
        networks: how many.
        with_region: how many of them have work for VTA.
        kinds: of operators, as drawn.
        hits: of the entries of the partition table.
        sharing: how many have a layer of several operators; ``tiles``: what these are.
        demands: injected, by what came of them.
    """

    networks: int = 0
    with_region: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=lambda: Counter({e.name: 0 for e in entries()}))
    sharing: int = 0
    tiles: Tiles = field(default_factory=Tiles)
    demands: Counter[str] = field(default_factory=Counter)

    def add(self, network: Network, outcome: Outcome) -> None:
        self.networks += 1
        self.with_region += outcome.regions > 0
        self.kinds.update(network.kinds)
        self.hits.update(outcome.hits)
        self.sharing += outcome.tiles.layers > 0
        self.tiles.add(outcome.tiles)
        self.demands.update(outcome.demands)

    @property
    def share(self) -> float:
        """Percent of the networks that have a region."""
        return 100 * self.with_region / max(self.networks, 1)

    @property
    def rarest(self) -> tuple[str, int]:
        """The entry of the table with the fewest hits."""
        return min(self.hits.items(), key=lambda item: item[1])

    def __str__(self) -> str:
        """The histograms."""
        head = (
            f"{self.networks} networks, {self.share:.1f} % with a region; {self.sharing} share "
            f"tiles in {self.tiles.layers} layers"
        )
        counts = (", ".join(f"{k} {n}" for k, n in c.most_common()) for c in self.counters)
        return "\n".join((head, *counts))

    @property
    def counters(self) -> tuple[Counter[str], ...]:
        """All that is counted by name."""
        tiles = (self.tiles.consumers, self.tiles.producers, self.tiles.chains)
        return (self.hits, self.kinds, *tiles, self.demands)


def machine_of(seed: int) -> str:
    """Machines in turn."""
    return list(MACHINES)[seed % len(MACHINES)]


def way_of(seed: int) -> Way:
    """Each way on every machine in turn."""
    turn = seed // len(MACHINES)
    if turn % PUBLIC == 0:
        return public
    if turn % DEMANDED == DEMANDED - 3:  # a turn of no other way
        return demanded
    return {AGAIN // 2: short_and_dram, AGAIN - 1: short_and_off}.get(turn % AGAIN, short)


def try_network(seed: int, tally: Tally, machine: str | None = None) -> None:
    """Compile and run the network of ``seed``, on ``machine`` where one is named.

    Raises:
        Disagreement: with the seed, and the operators of the smallest network that fails alike.
    """
    name = machine or machine_of(seed)
    hunt = _Hunt(way_of(seed), {**MACHINES, **CORES}[name], tally)
    try:
        hunt.one(np.random.default_rng(seed).bytes(CHOICES))
    except Exception as error:
        if not hunt.failed:
            raise  # the maker of networks is broken
        smallest = hunt.smallest()
        kind = type(error).__name__
        where = f"seed {seed}, machine {name}, {way_of(seed).__name__} way"
        text = f"{where}: {kind}: {str(error).strip()}\nsmallest network: {smallest!r}"
        raise Disagreement(text) from error


class _Hunt:
    """One network, and what hypothesis makes of it if it fails; all that did are in ``failed``."""

    def __init__(self, way: Way, config: VTAConfig, tally: Tally) -> None:
        self._way, self._config, self._tally = way, config, tally
        self.failed: list[Network] = []
        self._end = float("inf")
        quiet = settings(
            database=InMemoryExampleDatabase(),  # how `one` hands a failure to `smallest`
            phases=(Phase.reuse, Phase.shrink),
            derandomize=False,  # the profile of CI machines would forbid the database
            deadline=None,
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        self._test: Any = quiet(given(networks())(self._try))

    def one(self, choices: bytes) -> None:
        """Try the network that ``choices`` make."""
        canonical = self._test.hypothesis.fuzz_one_input(choices)
        assert canonical is not None, "more choices than bytes"

    def smallest(self) -> Network:
        """The smallest network found that fails."""
        self._end = time.monotonic() + SHRINKING
        with contextlib.suppress(Exception):  # the failure, or that it is gone after the time
            self._test()
        return min(self.failed, key=lambda n: (len(n.model.graph.node), len(repr(n))))

    def _try(self, network: Network) -> None:
        if time.monotonic() > self._end:
            return
        try:
            outcome = self._way(network, self._config)
        except Exception:
            self.failed.append(network)
            raise
        self._tally.add(network, outcome)
