"""Which layers of a partitioned network are fused schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import tvm

from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategy import Computation
from vta_byoc.workload.workloads import PoolWorkload

CONSUMERS = ("binary", "unary", "leaky", "max pool", "average pool")
"""Kinds of operators that take a producer's tiles."""
PAIR, CHAIN = CHAINS = ("one consumer", "two or more")
"""Layers by how many operators take their producer's tiles, one after the other."""


@dataclass
class Tiles:
    """Layers with several operators: their consumers by kind, producers by strategy, lengths."""

    layers: int = 0
    consumers: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(CONSUMERS, 0)))
    producers: Counter[str] = field(default_factory=Counter)
    chains: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(CHAINS, 0)))

    def add(self, other: Tiles) -> None:
        self.layers += other.layers
        self.consumers.update(other.consumers)
        self.producers.update(other.producers)
        self.chains.update(other.chains)

    @property
    def rarest(self) -> tuple[str, int]:
        """The kind of consumer that was there the fewest times."""
        return min(self.consumers.items(), key=lambda item: item[1])


def tiles_of(mod: tvm.IRModule) -> Tiles:
    """The shared layers of a partitioned module."""
    found = Tiles()
    for func in region_functions(mod).values():
        for step in Region.of(func).steps:
            if len(step.computes) > 1:
                _count(step.computation(mod), found)
    return found


def _count(layer: Computation, found: Tiles) -> None:
    found.layers += 1
    found.producers[layer.strategy.name] += 1
    found.consumers.update(_kind(consumer) for consumer in layer.fused)
    found.chains[PAIR if len(layer.fused) == 1 else CHAIN] += 1


def _kind(consumer: FusedConsumer) -> str:
    work = consumer.work
    if isinstance(work, PoolWorkload):
        return "max pool" if work.kind == "max" else "average pool"
    if work.op is None:
        return "unary"
    one, two = work.prologues
    slopes = one.operand == two.operand and one.steps != two.steps
    return "leaky" if slopes and work.op == "max" else "binary"
