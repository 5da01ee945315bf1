"""The table of strategies, and how a packed PrimFunc names the one that made it."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.hw.registry import Registry
from vta_byoc.strategies.attention.attention import ATTENTION
from vta_byoc.strategies.attention.transpose import TRANSPOSE
from vta_byoc.strategies.base import (
    STRATEGY_ATTR,
    WORKLOAD_ATTR,
    KernelFunction,
    LayerSchedule,
    LayerWork,
    ScratchTensor,
    Strategy,
)
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.strategies.conv.conv2d_transpose import CONV2D_TRANSPOSE
from vta_byoc.strategies.conv.depthwise import DEPTHWISE
from vta_byoc.strategies.conv.matmul2 import MATMUL2
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.fused.consumer import ConsumerWork, FusedConsumer
from vta_byoc.strategies.movement.concat import CONCAT
from vta_byoc.strategies.movement.join import JOIN
from vta_byoc.strategies.movement.move import MOVE
from vta_byoc.strategies.norms.norm import GROUP_NORM, NORM
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategies.softmax.softmax import SOFTMAX
from vta_byoc.strategies.te.kernel import PIN, Chosen, Kernels
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import (
    blocks,
    pack_activation,
    pack_operand,
    pack_weight,
    unpack_activation,
)
from vta_byoc.workload.texts import workload_of
from vta_byoc.workload.workloads import Kind, Workload

__all__ = [
    "DRAM_ACC",
    "DRAM_INP",
    "DRAM_WGT",
    "STRATEGIES",
    "STRATEGY_ATTR",
    "WORKLOAD_ATTR",
    "Computation",
    "KernelFunction",
    "LayerSchedule",
    "LayerWork",
    "Strategy",
    "blocks",
    "computation_of",
    "estimated_by",
    "pack_activation",
    "pack_operand",
    "pack_weight",
    "strategy_of",
    "unpack_activation",
]

STRATEGIES: Registry[Strategy] = Registry("strategy")
"""Name -> strategy."""
for _strategy in (
    *(CONV2D, CONV2D_TRANSPOSE, DEPTHWISE, MATMUL2, TRANSPOSE),
    *(ELEMENTWISE, POOL, NORM, GROUP_NORM, SOFTMAX, ATTENTION, CONCAT, MOVE, JOIN),
):
    STRATEGIES.add(_strategy.name, _strategy)


def estimated_by(
    strategy: Strategy[Kind], schedule: LayerSchedule[Kind], config: VTAConfig
) -> float:
    """The cycles that `strategy` estimates of one call.

    Raises:
        VTAError: they are no finite number of 0 or more; who registered the strategy is named.
    """
    cycles = strategy.estimate(schedule, config)
    if not (isinstance(cycles, numbers.Real) and 0 <= cycles < math.inf):
        raise VTAError(
            Refusal(
                f'strategy "{strategy.name}" of {STRATEGIES.by(strategy.name)} estimates',
                f"{cycles} cycles",
                "a finite number of 0 or more is taken",
                "repair its estimate",
            )
        )
    return cycles


def strategy_of(func: tirx.PrimFunc) -> tuple[Strategy, Workload]:
    """The strategy and workload that made the packed PrimFunc ``func``."""
    if func.attrs is None or STRATEGY_ATTR not in func.attrs:
        raise VTAError(
            f"PrimFunc has no {STRATEGY_ATTR} attribute; strategies known: "
            f"{', '.join(STRATEGIES)}; make it with the compute of one of them"
        )
    strategy = STRATEGIES[str(func.attrs[STRATEGY_ATTR])]
    return strategy, workload_of(strategy.workload, func.attrs[WORKLOAD_ATTR])


@dataclass(frozen=True)
class Computation:
    """A packed composite: the producer's strategy and workload, and the consumers fused into it.

    Arguments are the producer's (operands, then constants); then for each consumer its own without
    the fused operand.  ``weight_batch``: it is one of that many calls in a row that load their
    weights once.  ``chosen``: its kernels and who chose them; None asks its strategy.
    """

    strategy: Strategy
    work: Workload
    fused: tuple[FusedConsumer, ...] = ()
    weight_batch: int = 1
    chosen: Chosen | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether a user chose its kernels, by name."""
        return self.chosen is not None and self.chosen.origin == PIN

    def schedule(self, config: VTAConfig) -> LayerSchedule[Any]:
        """How it is computed; VTAError where nothing fits."""
        if self.chosen is None:
            layer = LayerWork(self.work, self.fused, self.weight_batch)
            return self.strategy.choose(layer, config)
        kernels = self.chosen.kernels
        return LayerSchedule(self.work, self.fused, self.weight_batch, kernels)

    def kernels(self, config: VTAConfig) -> Kernels:
        """Its kernels; VTAError where none fits."""
        return self.schedule(config).kernels

    def by_estimate(self, config: VTAConfig) -> Computation:
        """The same with the kernels that cost least by estimate; VTAError where none fits."""
        free = dataclasses.replace(self, chosen=None)
        return dataclasses.replace(self, chosen=Chosen(free.kernels(config)))

    def functions(self, config: VTAConfig) -> list[KernelFunction]:
        """The scheduled PrimFuncs, in order."""
        return self.strategy.functions(self.schedule(config), config)

    def scratch(self, config: VTAConfig) -> tuple[ScratchTensor, ...]:
        """The tensors that its kernels hand each other through DRAM."""
        return self.strategy.scratch(self.schedule(config), config)

    def estimate(self, config: VTAConfig) -> float:
        """Cycles of the chosen tile; VTAError where none fits."""
        return estimated_by(self.strategy, self.schedule(config), config)

    def scopes(self) -> tuple[str, ...]:
        """The DRAM scope that each argument is required in."""
        return tuple(scope for own in self.requirements() for scope in own)

    def requirements(self) -> tuple[tuple[str, ...], ...]:
        """:meth:`scopes` of the producer's arguments, and of each consumer's."""
        found = [self.strategy.scopes(self.work)]
        for consumer in self.fused:
            own = STRATEGIES[consumer.strategy].scopes(consumer.work)
            found.append((*own[: consumer.operand], *own[consumer.operand + 1 :]))
        return tuple(found)

    def in_place_offsets(self, config: VTAConfig) -> list[int | None]:
        """As :meth:`Strategy.in_place_offsets`; no operand of a fused schedule is copied."""
        return [] if self.fused else self.strategy.in_place_offsets(self.work, config)


def computation_of(
    funcs: Sequence[tirx.PrimFunc],
    operands: Sequence[int] = (),
    chosen: Chosen | None = None,
) -> Computation:
    """The computation of packed PrimFuncs.

    Each but the first is fused into the one before it: it takes argument ``operands`` from there.
    """
    strategy, work = strategy_of(funcs[0])
    fused = [
        FusedConsumer(cast(ConsumerWork, strategy_of(func)[1]), position)
        for func, position in zip(funcs[1:], operands, strict=True)
    ]
    return Computation(strategy, work, tuple(fused), chosen=chosen)
