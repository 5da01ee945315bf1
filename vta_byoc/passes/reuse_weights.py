"""Weights that calls in a row have in common: loaded by the first, found in SRAM by the others.

Steps of a region that follow each other and multiply by the same constant are one run where the
tile that is best for all of them together leaves all weights in SRAM.  The tile chooser decides
that (``calls`` of its space): a tile that keeps the weights pays for them once a run, any other
once a call.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tvm

from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.region import Region, RegionStep
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import Computation
from vta_byoc.workload.memory import DRAM_WGT
from vta_byoc.workload.workloads import Epilogue, MoveWorkload


@dataclass(frozen=True)
class WeightRun:
    """Steps in a row that load their weights once.

    Attributes:
        weights: the constant, as the first step reads it.
        results: of the steps, in order.
        chosen: the schedule of each step as a call of the run.
    """

    weights: str
    results: tuple[str, ...]
    chosen: tuple[Chosen, ...] = field(default=(), compare=False, repr=False)

    @property
    def calls(self) -> int:
        """How many steps they are."""
        return len(self.results)


def weight_runs(
    mod: tvm.IRModule, region: Region, same: Mapping[str, str], config: VTAConfig
) -> list[WeightRun]:
    """The runs of ``region``; ``same`` names for each constant the one that stands for it."""
    found = []
    for steps in _alike(mod, region.steps, same):
        weights = _weights_of(steps[0], steps[0].computation(mod))
        if len(steps) > 1 and weights is not None:
            chosen = _kept(mod, steps, config)
            if chosen is not None:
                found.append(WeightRun(weights, tuple(step.output for step in steps), chosen))
    return found


def computation_in(mod: tvm.IRModule, step: RegionStep, runs: Sequence[WeightRun]) -> Computation:
    """What ``step`` computes, as one call of its run where it is in one."""
    computation = step.computation(mod)
    for run in runs:
        if step.output in run.results:
            chosen = run.chosen[run.results.index(step.output)]
            return dataclasses.replace(computation, weight_batch=run.calls, chosen=chosen)
    return computation


def _alike(
    mod: tvm.IRModule, steps: Sequence[RegionStep], same: Mapping[str, str]
) -> Iterator[list[RegionStep]]:
    """Steps in a row of the same weights, equal but for what is done to their accumulators."""

    def key(step: RegionStep) -> object:
        computation = step.computation(mod)
        weights = _weights_of(step, computation)
        if weights is None or weights not in same:
            return step.output
        end, fused = computation.work.epilogue, len(computation.fused)
        assert not isinstance(computation.work, MoveWorkload), "copies have no weights in common"
        work = dataclasses.replace(computation.work, epilogue=Epilogue(dtype=end.dtype))
        return computation.strategy.name, work, end.tensors, fused, same[weights]

    for _, run in itertools.groupby(steps, key):
        yield list(run)


def _weights_of(step: RegionStep, computation: Computation) -> str | None:
    """The argument of ``step`` that calls can have in common.

    There is none where a user chose the tile: it is for one call.
    """
    if not computation.strategy.reuses_weights or computation.is_pinned:
        return None
    return step.args[computation.strategy.scopes(computation.work).index(DRAM_WGT)]


def _kept(
    mod: tvm.IRModule, steps: Sequence[RegionStep], config: VTAConfig
) -> tuple[Chosen, ...] | None:
    """The schedules of ``steps`` where all take one tile that leaves the weights in SRAM."""
    calls = [dataclasses.replace(s.computation(mod), weight_batch=len(steps)) for s in steps]
    calls = [call.by_estimate(config) for call in calls]
    keeps = [call.strategy.kept_tile(call.schedule(config), config) for call in calls]
    first = keeps[0]
    if first is None or any(
        k is None or (k.tile, k.variant, k.slots) != (first.tile, first.variant, first.slots)
        for k in keeps
    ):
        return None
    return tuple(call.chosen for call in calls if call.chosen is not None)
