"""The table of strategies, and how a packed PrimFunc names the one that made it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.conv2d_transpose import CONV2D_TRANSPOSE
from vta_byoc.strategies.conv.depthwise import DEPTHWISE
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.fused.consumer import Tail, TailWork
from vta_byoc.strategies.movement.concat import CONCAT
from vta_byoc.strategies.movement.move import MOVE
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategies.te.base import Part, Shared, Strategy
from vta_byoc.strategies.te.kernel import PIN, Chosen, Kernels
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import (
    blocks,
    pack_activation,
    pack_operand,
    pack_weight,
    unpack_activation,
)
from vta_byoc.workload.workloads import Kind, PoolWorkload, Workload, from_json, to_json

__all__ = [
    "DRAM_ACC",
    "DRAM_INP",
    "DRAM_WGT",
    "STRATEGIES",
    "Computation",
    "Part",
    "Strategy",
    "blocks",
    "computation_of",
    "pack_activation",
    "pack_operand",
    "pack_weight",
    "parts_of",
    "strategy_of",
    "unpack_activation",
]

STRATEGY_ATTR = "vta.strategy"
WORKLOAD_ATTR = "vta.workload"


def _naming(strategy: Strategy[Kind]) -> Strategy[Kind]:
    """``strategy`` with a compute whose PrimFuncs name it and their workload."""

    def compute(
        work: Kind, config: VTAConfig, kernels: Kernels | None = None
    ) -> tirx.PrimFunc:
        private = strategy.compute(work, config, kernels).without_attr("global_symbol")
        return private.with_attrs({STRATEGY_ATTR: strategy.name, WORKLOAD_ATTR: to_json(work)})

    return dataclasses.replace(strategy, compute=compute)


STRATEGIES: dict[str, Strategy] = {
    strategy.name: _naming(strategy)
    for strategy in (CONV2D, CONV2D_TRANSPOSE, DEPTHWISE, ELEMENTWISE, POOL, CONCAT, MOVE)
}


def strategy_of(func: tirx.PrimFunc) -> tuple[Strategy, Workload]:
    """The strategy and workload that made the packed PrimFunc ``func``."""
    if func.attrs is None or STRATEGY_ATTR not in func.attrs:
        raise VTAError(
            f"PrimFunc has no {STRATEGY_ATTR} attribute; strategies known: "
            f"{', '.join(STRATEGIES)}; make it with the compute of one of them"
        )
    strategy = STRATEGIES[str(func.attrs[STRATEGY_ATTR])]
    return strategy, from_json(strategy.workload, str(func.attrs[WORKLOAD_ATTR]))


@dataclass(frozen=True)
class Computation:
    """A packed composite: the producer's strategy and workload, and the consumers in its tiles.

    Arguments are the producer's (operands, then constants); then for each consumer its own without
    the one that it takes from the tile.  ``calls``: it is one of that many calls in a row that have
    their weights in common.  ``chosen``: its kernels and who chose them; None asks its strategy.
    """

    strategy: Strategy
    work: Workload
    tails: tuple[Tail, ...] = ()
    calls: int = 1
    chosen: Chosen | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether a user chose its kernels, by name."""
        return self.chosen is not None and self.chosen.origin == PIN

    def kernels(self, config: VTAConfig) -> Kernels:
        """Its kernels; VTAError where none fits."""
        if self.chosen is not None:
            return self.chosen.kernels
        return self.strategy.choose(self.work, config, self.tails, self.calls)

    def by_estimate(self, config: VTAConfig) -> Computation:
        """The same with the kernels that cost least by estimate; VTAError where none fits."""
        free = dataclasses.replace(self, chosen=None)
        return dataclasses.replace(self, chosen=Chosen(free.kernels(config)))

    @property
    def is_plain(self) -> bool:
        """Whether it shares neither tiles nor weights."""
        return not self.tails and self.calls == 1

    def parts(self, config: VTAConfig) -> list[Part]:
        """The scheduled PrimFuncs, in order."""
        if self.is_plain:
            return self.strategy.parts(self.work, config, self.kernels(config))
        return self.shared(config).parts()

    def estimate(self, config: VTAConfig) -> float:
        """Cycles of the chosen tile; VTAError where none fits."""
        if self.is_plain:
            return self.strategy.estimate(self.work, config, self.kernels(config))
        return self.shared(config).cycles

    def shared(self, config: VTAConfig) -> Shared:
        """How consumers share the tiles, and calls the weights."""
        kernels = self.kernels(config)
        if self.calls > 1:
            assert self.strategy.repeated is not None
            return self.strategy.repeated(self.work, self.tails, self.calls, config, kernels)
        assert self.strategy.shared is not None
        return self.strategy.shared(self.work, self.tails, config, kernels)

    def scopes(self) -> tuple[str, ...]:
        """The DRAM scope demanded for each argument."""
        return tuple(scope for own in self.demands() for scope in own)

    def demands(self) -> tuple[tuple[str, ...], ...]:
        """:meth:`scopes` of the producer's arguments, and of each consumer's."""
        found = [self.strategy.scopes(self.work)]
        for tail in self.tails:
            pools = isinstance(tail.work, PoolWorkload)
            own = STRATEGIES["pool" if pools else "elementwise"].scopes(tail.work)
            found.append((*own[: tail.carried], *own[tail.carried + 1 :]))
        return tuple(found)

    def homes(self, config: VTAConfig) -> list[int | None]:
        """As :attr:`Strategy.homes`."""
        return [] if self.tails else self.strategy.homes(self.work, config)


def computation_of(
    funcs: Sequence[tirx.PrimFunc],
    carried: Sequence[int] = (),
    chosen: Chosen | None = None,
) -> Computation:
    """The computation of packed PrimFuncs; each but the first takes argument ``carried`` from the
    tiles of the one before."""
    strategy, work = strategy_of(funcs[0])
    tails = [
        Tail(cast(TailWork, strategy_of(func)[1]), position)
        for func, position in zip(funcs[1:], carried, strict=True)
    ]
    return Computation(strategy, work, tuple(tails), chosen=chosen)


def parts_of(func: tirx.PrimFunc, config: VTAConfig) -> list[Part]:
    """The scheduled PrimFuncs of a packed PrimFunc, in order."""
    return computation_of([func]).parts(config)
