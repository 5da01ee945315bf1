"""The tuner: candidates of each layer by estimate, timed by the timing simulator.

Each layer that a partitioned network has on VTA is compiled alone, with the schedule it has and
with the candidates that cost least by estimate; the best is kept.  A kernel of a layer with
several is chosen while the others stay as they are.  What is best is an
:class:`~vta_byoc.cost.objective.Objective`: cycles, unless the user says otherwise.
The same network, machine and options give the same result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from vta_byoc.base.jobs import run_in_order
from vta_byoc.base.progress import Progress, shown
from vta_byoc.base.rewrites import switched_off, without
from vta_byoc.cost.objective import Measured, Objective, aiming, current
from vta_byoc.cost.search import cheapest
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.verifier import check
from vta_byoc.ir.bindings import is_constant
from vta_byoc.partitioning.region import region_calls
from vta_byoc.passes.lower_regions import weight_runs_of
from vta_byoc.strategies.te.kernel import PIN, Kernel
from vta_byoc.strategies.te.program_builder import program_builder
from vta_byoc.strategies.te.timed import measured_alone
from vta_byoc.strategy import STRATEGIES, Computation, LayerSchedule
from vta_byoc.tuning.log import Entry, machine_of
from vta_byoc.tuning.schedule import Schedule, layer_steps
from vta_byoc.tuning.schedules import Schedules

CANDIDATES = 8
"""Of a kernel, unless the user says otherwise."""
BY_CYCLES = Objective()
MOST_KERNELS = 8
"""Of a layer that are tuned; those behind stay as they are (a shuffle of channels has hundreds)."""


@dataclass(frozen=True)
class TunableLayer:
    """What one or several layers of a network compute; ``names`` are theirs, in order."""

    names: tuple[str, ...]
    schedule: Schedule


@dataclass(frozen=True)
class Tuned:
    """What became of a layer.

    Attributes:
        layer: which.
        schedule: the best.
        default: what the layer's own schedule takes.
        found: what the best takes.
        timed: programs that were simulated.
        refused: candidates that no program could be made of.
    """

    layer: TunableLayer
    schedule: Schedule
    default: Measured
    found: Measured
    timed: int
    refused: int

    @property
    def calls(self) -> int:
        """How many layers of the network it stands for."""
        return len(self.layer.names)

    @property
    def default_cycles(self) -> int:
        """Simulated, of the layer's own schedule."""
        return self.default.cycles

    @property
    def cycles(self) -> int:
        """Simulated, of the best."""
        return self.found.cycles

    @property
    def gain(self) -> float:
        """The share of cycles that is saved."""
        return 1 - self.cycles / self.default_cycles

    def entry(self, config: VTAConfig) -> Entry:
        """Its line of a log."""
        return Entry(self.schedule, machine_of(config), simulated=self.cycles)

    def to_json(self) -> dict[str, Any]:
        """What `vta-byoc tune --json` says of it."""
        before = self.layer.schedule
        return {
            "layers": list(self.layer.names),
            "computes": before.layer_text,
            "default": {
                "estimated_cycles": before.cycles,
                "simulated_cycles": self.default_cycles,
                "dram_bytes": self.default.dram_bytes,
            },
            "tuned": {
                "estimated_cycles": self.schedule.cycles,
                "simulated_cycles": self.cycles,
                "dram_bytes": self.found.dram_bytes,
                "kernels": [kernel.to_json() for kernel in self.schedule.kernels],
            },
            "gain": self.gain,
            "programs_timed": self.timed,
            "candidates_refused": self.refused,
        }


# ---------------------------------------------------------------- layers
def tunable_layers(mod: tvm.IRModule, config: VTAConfig) -> tuple[list[TunableLayer], list[str]]:
    """The layers of a partitioned module, equal ones together, and the names of those left out.

    Left out are calls in a row that have their weights in common: their tile is one for all of
    them and is chosen with the region.
    """
    runs = _results_of_runs(mod, config)
    found: dict[str, TunableLayer] = {}
    left = []
    for name, (region, step) in layer_steps(mod).items():
        computation = step.computation(mod)
        if (region, step.output) in runs or computation.is_pinned:
            left.append(name)
            continue
        schedule = Schedule.of(computation.by_estimate(config), config)
        known = found.get(schedule.key)
        names = (*known.names, name) if known else (name,)
        found[schedule.key] = TunableLayer(names, schedule)
    return list(found.values()), left


def _results_of_runs(mod: tvm.IRModule, config: VTAConfig) -> set[tuple[str, str]]:
    """Region and result of the steps that have their weights in common with others."""
    found: set[tuple[str, str]] = set()
    for made in region_calls(mod).values():
        args = made.call.args
        constants = {i: arg.value.numpy() for i, arg in enumerate(args) if is_constant(arg)}
        for run in weight_runs_of(mod, made.func, constants, config):
            found.update((made.name, result) for result in run.results)
    return found


# ---------------------------------------------------------------- one layer
def layer_program(computation: Computation, config: VTAConfig) -> Program:
    """The verified program of a layer alone, its constants zero.

    Raises:
        VTAError: no program can be made of its kernels.
    """
    builder = program_builder(config)
    types = _argument_types(computation, config)
    names = [f"argument{i}" for i in range(len(types) - 1)]
    inputs = _inputs(computation)
    for number, (name, (shape, dtype)) in enumerate(zip(names, types, strict=False)):
        if number in inputs:
            builder.symbol(name, "input", shape, dtype)
        else:
            builder.constant(name, np.zeros(shape, dtype))
    for number, each in enumerate(computation.scratch(config)):
        names.append(builder.symbol(f"scratch{number}", "temp", each.shape, each.dtype))
    builder.symbol("result", "output", *types[-1])
    names.append("result")
    for kernel in computation.functions(config):
        builder.layer("layer", kernel.func, [names[i] for i in kernel.args])
    program = builder.finish()
    check(program)
    return program


def _argument_types(computation: Computation, config: VTAConfig) -> list[tuple[list[int], str]]:
    """Shape and dtype of the arguments, in order, and of the result."""
    own = _types(computation.strategy.compute(computation.schedule(config), config))
    for each in computation.fused:
        compute = STRATEGIES[each.strategy].compute(LayerSchedule(each.work), config)
        types = _types(compute)
        own = [*own[:-1], *types[: each.operand], *types[each.operand + 1 :]]
    return own


def _types(func: tvm.tirx.PrimFunc) -> list[tuple[list[int], str]]:
    return [([int(size) for size in param.shape], str(param.dtype)) for param in func.params]


def _inputs(computation: Computation) -> set[int]:
    """Positions of the int8 operands; what is left are constants."""
    requirements = computation.requirements()
    found = set(range(len(computation.work.in_shapes)))
    at = len(requirements[0])
    for each, own in zip(computation.fused, requirements[1:], strict=True):
        found.update(range(at, at + len(each.others)))
        at += len(own)
    return found


def layer_cycles(schedule: Schedule, config: VTAConfig) -> int:
    """Simulated cycles of a layer alone.

    Raises:
        VTAError: no program can be made of its kernels.
    """
    return measured(schedule, config).cycles


def measured(schedule: Schedule, config: VTAConfig) -> Measured:
    """Simulated cycles and DRAM bytes of a layer alone.

    Raises:
        VTAError: no program can be made of its kernels.
    """
    program = layer_program(schedule.computation(PIN), config)
    return measured_alone(program)


def candidates(schedule: Schedule, config: VTAConfig, count: int) -> list[list[Kernel]]:
    """For each kernel at most ``count`` that could take its place, the cheapest by estimate first.

    Groups stay joined as they are.
    """
    found = []
    for kernel, spaces in zip(schedule.kernels, schedule.spaces(config), strict=True):
        space = spaces.of(kernel)
        assert space is not None
        choices = cheapest(space, config, count)
        found.append([dataclasses.replace(kernel, choice=choice) for choice in choices])
    return found


def tune_layer(
    layer: TunableLayer,
    config: VTAConfig,
    count: int = CANDIDATES,
    known: Schedule | None = None,
    objective: Objective = BY_CYCLES,
) -> Tuned:
    """The best schedule of a layer, and the first one of equally good ones.

    Args:
        layer: the layer; its own schedule is timed first.
        config: the machine.
        count: candidates that are timed for each kernel.
        known: what a log has for the layer, timed last.
        objective: what is made small.
    """
    search = _Search(layer.schedule, config, objective)
    found = candidates(layer.schedule, config, count) if count else []
    for number, kernels in enumerate(found[:MOST_KERNELS]):
        for kernel in kernels:
            search.ask(search.best.with_kernel(number, kernel))
    if known is not None:
        search.ask(known)
    return Tuned(
        layer, search.best, search.default, search.found, len(search.asked), search.refused
    )


class _Search:
    """The best schedule so far; ``asked`` are all that were measured, by their kernels."""

    def __init__(self, schedule: Schedule, config: VTAConfig, objective: Objective):
        self.config, self.objective = config, objective
        self.default = measured(schedule, config)
        self.asked = {_text(schedule): (schedule, self.default)}
        self.best, self.found = schedule, self.default
        self.refused = 0

    def ask(self, schedule: Schedule) -> None:
        """Measure ``schedule``, which may change what is best."""
        key = _text(schedule)
        if key in self.asked:
            return
        try:
            schedule.check(self.config, "candidate")
            self.asked[key] = schedule, measured(schedule, self.config)
        except VTAError:
            self.refused += 1
            return
        schedules, found = zip(*self.asked.values(), strict=True)
        number = self.objective.best(found, self.default)
        self.best, self.found = schedules[number], found[number]


def _text(schedule: Schedule) -> str:
    return str([kernel.text for kernel in schedule.kernels])


# ---------------------------------------------------------------- a network
@dataclass(frozen=True)
class _Job:
    """What a worker needs to tune a layer."""

    layer: TunableLayer
    config: VTAConfig
    count: int
    known: Schedule | None
    objective: Objective
    without_rewrites: tuple[str, ...]
    aim: Objective

    def done(self) -> Tuned:
        """The layer tuned."""
        with without(self.without_rewrites), aiming(self.aim):
            return tune_layer(self.layer, self.config, self.count, self.known, self.objective)


def tune(
    layers: Sequence[TunableLayer],
    config: VTAConfig,
    count: int = CANDIDATES,
    known: Mapping[str, Schedule] | None = None,
    progress: Progress | None = None,
    objective: Objective = BY_CYCLES,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[Tuned]:
    """Each of ``layers`` tuned, in order: here, or on other processes where they are named.

    Args:
        layers: as `tunable_layers` finds them.
        config: the machine.
        count: candidates of each kernel.
        known: schedules of a log by key.
        progress: called with the layers that are done and their number; where it is None a bar
            shows them in a terminal and in a notebook.
        objective: what is best.
        scheduler: the address of a Dask scheduler whose workers tune the layers.
        workers: so many processes of this computer do.
    """
    off, aim = switched_off(), current()
    jobs = [
        _Job(layer, config, count, (known or {}).get(layer.schedule.key), objective, off, aim)
        for layer in layers
    ]
    found: Iterator[Tuned] = map(_Job.done, jobs)
    if scheduler is not None or workers is not None:
        found = run_in_order(_Job.done, jobs, scheduler, workers)
    with shown(progress, "tuning") as told:
        for number, tuned in enumerate(found):
            yield tuned
            if told is not None:
                told(number + 1, len(layers))


# ---------------------------------------------------------------- inside of a compilation
def exact_choice(
    count: int,
    config: VTAConfig,
    given: Schedules | None,
    settings: Callable[[], AbstractContextManager[None]],
    partition: Callable[[Schedules | None, bool], Sequence[tvm.transform.Pass]],
) -> tvm.transform.Pass:
    """The pass that partitions with the layers' best schedules, by the compilation's objective.

    Args:
        count: candidates that are timed for each kernel.
        config: the machine.
        given: a log and pins, which overrule what is found.
        settings: what the compilation is done inside of.
        partition: the passes that partition with schedules, for a first time or for good.
    """

    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        first = tvm.transform.Sequential(partition(given, False))(mod)
        own = given or Schedules()
        known = {entry.key for entry in own.entries}
        with settings():
            layers, _ = tunable_layers(first, config)
            results = tune(layers, config, count, progress=_silent, objective=current())
            changed = [each for each in results if each.schedule != each.layer.schedule]
        lines = [each.entry(config) for each in changed]
        entries = (*own.entries, *(line for line in lines if line.key not in known))
        found = dataclasses.replace(own, entries=entries)
        return tvm.transform.Sequential(partition(found, True))(mod)

    return tvm.transform.module_pass(run, opt_level=0, name="vta.ExactChoice")


def _silent(_done: int, _all: int | None) -> None:
    """Tells nobody how far it is."""
