"""What every strategy has: it chooses a schedule, and everything else follows from that schedule.

    schedule = CONV2D.choose(LayerWork(work), config)      # once; a value
    CONV2D.compute(schedule, config)                   # what is computed, on packed tensors
    CONV2D.constants(schedule, given, config)          # its packed constants
    CONV2D.functions(schedule, config)                 # its loop nests, one PrimFunc a kernel
    CONV2D.estimate(schedule, config)                  # cycles

A strategy is a subclass of :class:`Strategy`, or of :class:`SingleKernelStrategy` where one loop
nest computes the whole result, and one instance of it in `vta_byoc.strategy.STRATEGIES`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import numpy as np
from tvm import tirx

from vta_byoc.base.rewrites import switched_off
from vta_byoc.cost.objective import DRAM_BYTES, Objective, current
from vta_byoc.cost.search import Choice, best, with_slots
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.fused.consumer import FusedConsumer, refuse_pools
from vta_byoc.strategies.fused.implied import without_implied_clamps
from vta_byoc.strategies.fused.schedule import with_fused
from vta_byoc.strategies.fused.tile import Roles
from vta_byoc.strategies.te.definition import epilogue_constants
from vta_byoc.strategies.te.kept_choices import kept_choice
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.strategies.te.timed import cycles_alone
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.texts import workload_attr
from vta_byoc.workload.workloads import Kind

STRATEGY_ATTR = "vta.strategy"
"""Of a packed PrimFunc: the name of the strategy that made it."""
WORKLOAD_ATTR = "vta.workload"
"""Of a packed PrimFunc: the text of its workload."""
OWN = "vta_byoc.strategies."
"""The package of the strategies whose choices are kept on disk."""
CHOSEN = 4096
"""Schedules that are kept instead of being searched for again."""
SURELY = 0.05
"""A tile that costs less than another by this share takes fewer cycles; estimates err by less."""
UNTIMED = 0.8
"""A batch that costs this share of what its images cost alone takes fewer cycles, without doubt."""


@dataclass(frozen=True)
class KernelFunction:
    """A scheduled PrimFunc of a composite.

    ``args`` are positions among the composite's arguments, behind which are the tensors of
    :meth:`Strategy.scratch`; -1 is its result.  Where a parameter is only a part of the tensor it
    is bound to, ``func`` says so by views (`codegen.with_views`).
    """

    func: tirx.PrimFunc
    args: tuple[int, ...]


@dataclass(frozen=True)
class ScratchTensor:
    """A DRAM tensor that one kernel of a layer stores and a later one of it loads."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    scope: str = DRAM_INP


@dataclass(frozen=True)
class LayerWork(Generic[Kind]):
    """What one layer computes.

    Attributes:
        work: its workload.
        fused: the operators that take its result from the accumulators, tile by tile.
        weight_batch: it is one of that many calls in a row that load their weights once.
    """

    work: Kind
    fused: tuple[FusedConsumer, ...] = ()
    weight_batch: int = 1


@dataclass(frozen=True)
class LayerSchedule(LayerWork[Kind]):
    """How one layer is computed: chosen once, and what all later questions are asked about.

    Attributes:
        kernels: its loop nests with their tilings; none of a fused consumer, which goes by its
            producer's.
    """

    kernels: Kernels = ()


class Strategy(ABC, Generic[Kind]):
    """How one kind of composite becomes instructions.

    Attributes:
        name: its name; that of the composite is ``vta.<name>``.
        workload: the class of its workloads.
        fuses: its accumulators keep its result until they are stored, so that consumers can be
            fused into it.
        fuses_pools: these consumers may be pools, as its tiles are rows and columns.
        reuses_weights: calls in a row can load their weights once.
    """

    name: ClassVar[str]
    workload: type[Kind]
    fuses: ClassVar[bool] = False
    fuses_pools: ClassVar[bool] = False
    reuses_weights: ClassVar[bool] = False

    # ---------------------------------------------------------------- choosing
    def spaces(self, layer: LayerWork[Kind], config: VTAConfig) -> tuple[KernelSpace, ...]:
        """What each kernel could be.

        Raises:
            VTAError: the machine cannot compute the layer in this way.
        """
        if not self.fuses_pools:
            refuse_pools(layer.fused, self.name)
        return self.kernel_spaces(layer, config)

    def choose(self, layer: LayerWork[Kind], config: VTAConfig) -> LayerSchedule[Kind]:
        """The schedule that costs least by estimate.

        Raises:
            VTAError: the machine cannot compute the layer in this way, or no tile fits its SRAM.
        """
        work = self.costs_like(layer.work, config)
        plain = LayerWork(work, layer.fused, layer.weight_batch)
        kernels = _cheapest(self, plain, config, switched_off(), current())
        return LayerSchedule(layer.work, layer.fused, layer.weight_batch, kernels)

    def costs_like(self, work: Kind, _config: VTAConfig) -> Kind:
        """The workload that stands for all that have the tilings and costs of ``work``.

        Only one of them is searched for. By default ``work`` itself.
        """
        return work

    def estimate(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> float:
        """Cycles that the tile chooser expects of one call."""
        return sum(kernel.choice.cycles for kernel in schedule.kernels)

    @abstractmethod
    def kernel_spaces(self, layer: LayerWork[Kind], config: VTAConfig) -> tuple[KernelSpace, ...]:
        """What :meth:`spaces` gives, of consumers that are allowed."""

    def bias_forms(
        self, _work: Kind, _given: Mapping[str, np.ndarray], _config: VTAConfig
    ) -> list[tuple[Kind, dict[str, np.ndarray]]]:
        """The layer with its bias as a product or in boxes, where that can be, and its arrays."""
        return []

    def cheapest(self, layer: LayerWork[Kind], config: VTAConfig) -> Kernels:
        """The kernels of :meth:`choose`: of each space the tiling that costs least."""
        return tuple(cheapest_of(space, config) for space in self.spaces(layer, config))

    # ---------------------------------------------------------------- what is computed
    def compute(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> tirx.PrimFunc:
        """The packed PrimFunc that defines the result; it runs as it is on llvm.

        Its parameters are the operands, the constants in the order of :meth:`constants`, and the
        result.  It names the strategy and the workload.
        """
        private = self.definition(schedule, config).without_attr("global_symbol")
        workload = workload_attr(schedule.work)
        return private.with_attrs({STRATEGY_ATTR: self.name, WORKLOAD_ATTR: workload})

    @abstractmethod
    def definition(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> tirx.PrimFunc:
        """What :meth:`compute` gives, without names."""

    def scopes(self, work: Kind) -> tuple[str, ...]:
        """The DRAM scope that each argument is required in: operands, then constants."""
        return (
            *(DRAM_INP for _ in work.in_shapes),
            *self.weight_scopes(work),
            *(DRAM_ACC for _ in self.tensors(work)),
        )

    def constants(
        self,
        schedule: LayerSchedule[Kind],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The packed constant arguments, of the arrays that the partition table read.

        Those are "weight" where the layer has one, and "operand0", "operand1", ... for the tensor
        operands of its steps.
        """
        operands = epilogue_constants(self.tensors(schedule.work), given, config)
        return [*self.weights(schedule, given, config), *operands]

    def tensors(self, work: Kind) -> tuple[str, ...]:
        """Kinds of the tensor operands of all steps, in order."""
        return work.epilogue.tensors

    def weight_scopes(self, _work: Kind) -> tuple[str, ...]:
        """The DRAM scopes of :meth:`weights`."""
        return (DRAM_WGT,)

    @abstractmethod
    def weights(
        self,
        schedule: LayerSchedule[Kind],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The packed constants before the tensor operands."""

    # ---------------------------------------------------------------- how it is computed
    @abstractmethod
    def functions(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> list[KernelFunction]:
        """The scheduled PrimFuncs that compute the layer, in order.

        The composite's arguments are those of :meth:`compute`; then for each fused consumer its
        int8 operands from DRAM, its weights and its tensor operands.
        """

    def scratch(
        self, _schedule: LayerSchedule[Kind], _config: VTAConfig
    ) -> tuple[ScratchTensor, ...]:
        """The tensors that kernels of the layer hand each other through DRAM."""
        return ()

    def in_place_offsets(self, _work: Kind, _config: VTAConfig) -> list[int | None]:
        """For each operand the scalar offset in the result where its producer may store it.

        A kernel that copies such an operand is not needed then; None where it must be copied.
        """
        return []

    def kept_tile(self, _schedule: LayerSchedule[Kind], _config: VTAConfig) -> Choice | None:
        """The tile, where it leaves all weights in SRAM for the next call of the same tile."""
        return None


class SingleKernelStrategy(Strategy[Kind]):
    """A strategy whose result one loop nest computes."""

    roles: ClassVar[Roles]
    """Dimensions of the scheduled PrimFunc's result, where consumers can be fused."""

    @abstractmethod
    def scheduled(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> tirx.PrimFunc:
        """The nests of the layer without its fused consumers."""

    def functions(self, schedule: LayerSchedule[Kind], config: VTAConfig) -> list[KernelFunction]:
        """One PrimFunc, whose parameters are the composite's arguments."""
        work = without_implied_clamps(schedule.work, schedule.fused)
        func = self.scheduled(dataclasses.replace(schedule, work=work), config)
        if schedule.fused:
            func = with_fused(func, schedule.fused, self.roles, config, work)
        return [KernelFunction(func, (*range(len(func.params) - 1), -1))]


@functools.lru_cache(maxsize=CHOSEN)
def _cheapest(
    strategy: Strategy[Any],
    layer: LayerWork[Any],
    config: VTAConfig,
    off: tuple[str, ...],
    aim: Objective,
) -> Kernels:
    """What the strategy chooses by ``aim``; ``off`` are the rewrites that it then does without."""
    kind = type(strategy)
    if not kind.__module__.startswith(OWN):  # the sources of others are not in the key
        return _searched(strategy, layer, config)
    asked = repr((kind.__module__, kind.__qualname__, strategy.name, layer, off, aim))
    return kept_choice(asked, config, functools.partial(_searched, strategy, layer, config))


def _searched(strategy: Strategy[Any], layer: LayerWork[Any], config: VTAConfig) -> Kernels:
    """The kernels that cost least; of a batch those of one image, unless others cost clearly less.

    With the tiles of one image a batch takes no more cycles an image than an image alone. Tiles of
    less traffic may, as the objective allows.
    """
    found = strategy.cheapest(layer, config)
    one = _of_one_image(layer, config)
    if one is None or current().name == DRAM_BYTES:
        return found
    try:
        alone = strategy.choose(one, config).kernels
        repeated = _repeated(strategy, layer, alone, config)
    except VTAError:  # an image alone may be refused, as too small for what is fused into it
        return found
    if found == repeated:
        return found
    clearly = _estimated(found) <= (1 - SURELY) * _estimated(repeated)
    picks = (found, repeated) if clearly else (repeated, found)
    if layer.weight_batch > 1:  # a call alone says nothing of weights that are loaded once
        return picks[0]
    images = -(-layer.work.batch // config.batch)
    if _estimated(picks[0]) <= UNTIMED * images * _estimated(alone):
        return picks[0]
    limit = images * _timed(strategy, one, alone, config)
    return _no_slower(strategy, layer, picks, limit, config)


def _estimated(kernels: Kernels) -> float:
    return sum(kernel.choice.cycles for kernel in kernels)


def _no_slower(
    strategy: Strategy[Any],
    layer: LayerWork[Any],
    picks: Sequence[Kernels],
    limit: float,
    config: VTAConfig,
) -> Kernels:
    """The first of ``picks`` that takes at most ``limit`` cycles as simulated, or the fastest.

    Estimates of two tiles that are close may be in the wrong order.
    """
    timed: list[tuple[float, Kernels]] = []
    for kernels in picks:
        if math.isfinite(_estimated(kernels)):
            timed.append((_timed(strategy, layer, kernels, config), kernels))
            if timed[-1][0] <= limit:
                return kernels
    return min(timed, key=lambda pair: pair[0])[1]


def _timed(
    strategy: Strategy[Any], layer: LayerWork[Any], kernels: Kernels, config: VTAConfig
) -> float:
    """Simulated cycles of a layer alone, infinite where no program can be made of it."""
    schedule = LayerSchedule(layer.work, layer.fused, layer.weight_batch, kernels)
    try:
        functions = strategy.functions(schedule, config)
        return cycles_alone([(each.func, each.args) for each in functions], config)
    except VTAError:
        return math.inf


def _of_one_image(layer: LayerWork[Any], config: VTAConfig) -> LayerWork[Any] | None:
    """The same layer of the fewest images that the machine computes at once; None if it is."""
    works = [layer.work, *(consumer.work for consumer in layer.fused)]
    if any(getattr(work, "batch", 0) <= config.batch for work in works):
        return None
    work, *consumers = (dataclasses.replace(work, batch=config.batch) for work in works)
    fused = zip(layer.fused, consumers, strict=True)
    again = tuple(dataclasses.replace(consumer, work=own) for consumer, own in fused)
    return dataclasses.replace(layer, work=work, fused=again)


def _repeated(
    strategy: Strategy[Any], layer: LayerWork[Any], kernels: Kernels, config: VTAConfig
) -> Kernels:
    """The tiles of one image for all of ``layer``: as often as it has images, what one image does.

    Loops of a batch that do so may have an order of another name, and a buffer that one image fills
    once another number of slots. The cycles are infinite where nothing does.
    """
    spaces, times = strategy.spaces(layer, config), -(-layer.work.batch // config.batch)
    if len(spaces) != len(kernels):
        return tuple(_costing(kernel, math.inf) for kernel in kernels)
    return tuple(_as_often(*pair, times, config) for pair in zip(spaces, kernels, strict=True))


def _as_often(space: KernelSpace, kernel: Kernel, times: int, config: VTAConfig) -> Kernel:
    """A kernel of the same tile, of its order if one costs ``times`` as much at the most."""
    tiles, own, most = space.of(kernel), kernel.choice, times * kernel.choice.cycles
    if tiles is None or tiles.axes.keys() != own.tile.keys():
        return _costing(kernel, math.inf)
    some = range(MOST_SLOTS, 0, -1)
    slots = [(inp, wgt, acc) for inp in some for wgt in some for acc in some]
    found: list[Choice] = []
    for variant in sorted(tiles.variants, key=lambda variant: variant != own.variant):
        found += with_slots(tiles, config, dataclasses.replace(own, variant=variant), slots)
        if variant == own.variant and any(choice.cycles <= most for choice in found):
            break
    cheapest = min(found, key=lambda c: (c.cycles > most, c.variant != own.variant, c.cycles))
    return dataclasses.replace(kernel, choice=cheapest)


def _costing(kernel: Kernel, cycles: float) -> Kernel:
    return dataclasses.replace(kernel, choice=dataclasses.replace(kernel.choice, cycles=cycles))


def cheapest_of(space: KernelSpace, config: VTAConfig) -> Kernel:
    """The tiling of a space without a choice of groupings that costs least by estimate."""
    ((grouping, tiles),) = space.candidates
    return Kernel(best(tiles, config), grouping)
