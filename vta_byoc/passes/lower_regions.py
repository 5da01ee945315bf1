"""Regions to Programs inside a Relax module that any TVM runtime can run.

Each call to a region becomes a call of its program (:mod:`vta_byoc.passes.program_call`).
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax
from tvm.ir import TupleGetItem

from vta_byoc.base.rewrites import is_on
from vta_byoc.codegen import BEST, LoopCompression, ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.arena import Lifetime
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.devices import Driver
from vta_byoc.hw.verify.verifier import check
from vta_byoc.ir.bindings import FunctionWriter, is_constant, straight_bindings, substituted
from vta_byoc.ir.legality import LOWERED, PLACED, REGIONS_ATTR, VM
from vta_byoc.ir.names import SCRATCH
from vta_byoc.ir.stage import Stage
from vta_byoc.ir.states import initial_states
from vta_byoc.partitioning.appended import APPENDED
from vta_byoc.partitioning.region import (
    Region,
    RegionCall,
    RegionStep,
    region_calls,
    region_functions,
)
from vta_byoc.passes.appended_results import InState, appended_results
from vta_byoc.passes.early_kernels import Launch, launches
from vta_byoc.passes.kept_programs import asked_of, kept_program
from vta_byoc.passes.kernels_once import KernelsOnce
from vta_byoc.passes.layer_order import best_order, longest_path_first
from vta_byoc.passes.program_call import ProgramCall
from vta_byoc.passes.reuse_weights import WeightRun, computation_in, weight_runs
from vta_byoc.runtime.executable import with_signature
from vta_byoc.strategies.te.program_builder import program_builder
from vta_byoc.vdevice import scope_align, scopes_of

LOG = logging.getLogger(__name__)
EARLY = " (early)"
"""Behind the name of a layer, of its kernels that come before the layer itself."""
LOWER_REGIONS = Stage("LowerRegions", PLACED, LOWERED, "compiles each region to a program")
LINK_DRIVER = Stage("LinkDriver", VM, VM, "adds the machine code of VTA's driver")


def compile_region(
    mod: tvm.IRModule,
    func: relax.Function,
    constants: Mapping[int, np.ndarray],
    config: VTAConfig,
    compression: LoopCompression = BEST,
    weights_ahead: bool = False,
    early: bool = False,
    made: KernelsOnce | None = None,
) -> Program:
    """The Program of region ``func``; ``constants`` are parameters known now, by position.

    Symbols are named after the region's tensors, layers after the model's operators.
    `weights_ahead` is that of `ProgramBuilder`, `early` that of `launches`; `made` are the kernels
    of other programs of the region.
    """
    region = Region.of(func)
    other = longest_path_first(region) if is_on("layer_order") else None
    place = _placing(func, region, config)
    kernels = made or KernelsOnce(config)
    programs = []
    for ordered in (region,) if other is None else (region, other):
        builder = program_builder(
            config, compression, weights_ahead=weights_ahead, streams=kernels.streams
        )
        given = mod, ordered, constants, place, builder, kernels, config
        programs.append(unchecked_program(*given, early=early))
    program = programs[0] if other is None else best_order(programs)
    check(program)  # a program that could hang or race is never handed out
    return program


def unchecked_program(
    mod: tvm.IRModule,
    region: Region,
    constants: Mapping[int, np.ndarray],
    place: Callable[[str], tuple[str, int]],
    builder: ProgramBuilder,
    made: KernelsOnce,
    config: VTAConfig,
    early: bool = False,
) -> Program:
    """The program of ``region``, its steps in order, which nothing has verified yet.

    ``place`` gives scope and alignment of a tensor; ``builder`` is a new one; ``made`` are the
    kernels that other programs of the region may have in common with this one; ``early`` is that of
    `launches`.
    """
    shared = _shared(region, constants, place)
    runs = weight_runs(mod, region, shared, config)
    for position, name in enumerate(region.params):
        if name in shared:
            if shared[name] == name:
                builder.constant(name, constants[position], *place(name))
        else:
            builder.symbol(name, "input", *region.tensors[name], *place(name))
    kernels = {s.output: made.of(computation_in(mod, s, runs)) for s in region.steps}
    in_place = _in_place(mod, region, config)
    joined = {place.step.output for place in in_place.values()}
    in_state = appended_results(mod, region, kernels, joined, config)
    for step in region.steps:
        if step.output not in in_state:
            within = in_place.get(step.output)
            inside = (within.step.output, within.offset) if within else None
            tensor = *region.tensors[step.output], *place(step.output)
            builder.symbol(step.output, _kind(region, step), *tensor, inside=inside)
    scratch = _scratch(mod, region, config, builder)
    apart = {step.output for step in region.steps if step.composite == APPENDED} | {*in_state}
    idle = (s for s in region.steps if s.composite == APPENDED and s.args[0] in in_state)
    kernels |= {part: own for part, (_, own) in in_state.items()} | {s.output: [] for s in idle}
    order = launches(region.steps, kernels, _stored(region, in_state), early=early)
    alive = _lifetimes(region, scratch, order)
    builder.share({name: life for name, life in alive.items() if name not in apart})
    for launch in order:
        step = region.steps[launch.step]
        result = in_state[step.output][0].state if step.output in in_state else step.output
        tensors = [*step.args, *scratch[step.output], result]
        kernel = kernels[step.output][launch.kernel]
        placed = in_place.get(tensors[kernel.args[0]])
        if placed is None or placed.step is not step or placed.position != kernel.args[0]:
            bound = [shared.get(tensors[i], tensors[i]) for i in kernel.args]
            name = region.layer_name(step)
            builder.layer(f"{name}{EARLY}" if launch.is_early else name, kernel.func, bound)
    return builder.finish()


def _kept(
    mod: tvm.IRModule,
    func: relax.Function,
    constants: Mapping[int, np.ndarray],
    config: VTAConfig,
) -> Program:
    """As `compile_region`, from disk where the region was compiled before."""
    region = Region.of(func)
    place = _placing(func, region, config)
    shared = _shared(region, constants, place)
    places = {name: place(name) for name in region.tensors}
    values = {
        region.params[position]: value
        for position, value in constants.items()
        if shared[region.params[position]] == region.params[position]
    }
    asked = asked_of(mod, region, shared, places)
    build = functools.partial(compile_region, mod, func, constants, config)
    return kept_program(asked, values, config, build)


def _kind(region: Region, step: RegionStep) -> str:
    """Of the symbol that ``step`` stores."""
    if step.composite == APPENDED:
        return "state"
    return "output" if step.output in region.outputs else "temp"


def weight_runs_of(
    mod: tvm.IRModule,
    func: relax.Function,
    constants: Mapping[int, np.ndarray],
    config: VTAConfig,
) -> list[WeightRun]:
    """The steps of region ``func`` that load their weights once.

    Arguments are as of `compile_region`, which compiles them so.
    """
    region = Region.of(func)
    shared = _shared(region, constants, _placing(func, region, config))
    return weight_runs(mod, region, shared, config)


def _placing(
    func: relax.Function, region: Region, config: VTAConfig
) -> Callable[[str], tuple[str, int]]:
    """Scope and alignment of a tensor by its name."""
    scopes = scopes_of(func)

    def place(name: str) -> tuple[str, int]:
        scope = scopes[name].scope
        return scope, scope_align(config, scope, region.tensors[name][1])

    return place


def _shared(
    region: Region,
    constants: Mapping[int, np.ndarray],
    place: Callable[[str], tuple[str, int]],
) -> dict[str, str]:
    """The constant whose symbol holds each one: the first with its bytes, type and place."""
    first: dict[Hashable, str] = {}
    found: dict[str, str] = {}
    for position, value in sorted(constants.items()):
        name = region.params[position]
        digest = hashlib.sha256(value.tobytes()).digest()
        found[name] = first.setdefault((digest, *region.tensors[name], *place(name)), name)
    return found


def _scratch(
    mod: tvm.IRModule, region: Region, config: VTAConfig, builder: ProgramBuilder
) -> dict[str, list[str]]:
    """The symbols that kernels of each step hand each other, by the step's result."""
    found: dict[str, list[str]] = {}
    for step in region.steps:
        names = found.setdefault(step.output, [])
        for number, tensor in enumerate(step.computation(mod).scratch(config)):
            name = f"{step.output}{SCRATCH}{number}"
            place = tensor.scope, scope_align(config, tensor.scope, tensor.dtype)
            names.append(builder.symbol(name, "temp", tensor.shape, tensor.dtype, *place))
    return found


def _stored(region: Region, in_state: Mapping[str, tuple[InState, object]]) -> dict[str, int]:
    """The number of the step that stores a tensor, by its name; what it stores in a state, too."""
    numbers = {step.output: number for number, step in enumerate(region.steps)}
    return numbers | {into.state: numbers[part] for part, (into, _) in in_state.items()}


def _lifetimes(
    region: Region, scratch: Mapping[str, Sequence[str]], order: Sequence[Launch]
) -> dict[str, Lifetime]:
    """From the step that stores a tensor to the last one that reads it; results outlive all.

    What the kernels of a step store lives from the place of the first of them.
    """
    alive: dict[str, Lifetime] = {}
    for i, step in enumerate(region.steps):
        first = min((launch.place for launch in order if launch.step == i), default=i)
        alive |= dict.fromkeys([*scratch[step.output], step.output], Lifetime(first, i))
    end = len(region.steps)
    reads = [(arg, i) for i, step in enumerate(region.steps) for arg in step.args]
    for name, i in [*reads, *((name, end) for name in region.outputs)]:
        if name in alive:
            alive[name] = Lifetime(alive[name].first, i)
    return alive


@dataclass(frozen=True)
class _InPlace:
    """Where a tensor is stored instead of being copied there.

    That is byte ``offset`` of the result of ``step``, whose argument number ``position`` it is.
    """

    step: RegionStep
    position: int
    offset: int


def _in_place(mod: tvm.IRModule, region: Region, config: VTAConfig) -> dict[str, _InPlace]:
    """The tensors that are stored right where a later step would copy them to."""
    stored = {step.output for step in region.steps}
    found: dict[str, _InPlace] = {}
    for step in region.steps:
        offsets = step.computation(mod).in_place_offsets(config)
        for position, (arg, offset) in enumerate(zip(step.args, offsets, strict=False)):
            if offset is not None and arg in stored and arg not in found:
                found[arg] = _InPlace(step, position, offset)
    return found


@dataclass
class LoweredRegions:
    """What :func:`lower_regions` compiled, by region name, in the order of their numbers."""

    programs: dict[str, Program] = field(default_factory=dict)


def lower_regions(config: VTAConfig, record: LoweredRegions) -> tvm.transform.Pass:
    """Compile every region and replace its calls by calls of VTA's driver; fills ``record``.

    The module says of itself what its ``main`` takes, and what variables of the model begin with
    (:mod:`vta_byoc.runtime.executable`).
    """

    @LOWER_REGIONS
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        regions = region_functions(mod)
        if not regions:
            return with_signature(mod, initial_states(mod))
        lowerer = _Lowerer(mod, config, record)
        main = lowerer.rewrite(mod["main"])
        gone = {gv.name_hint for gv in regions}
        kept = {gv: f for gv, f in mod.functions.items() if gv.name_hint not in gone}
        result = tvm.IRModule(kept, attrs=mod.attrs)
        result.update_func(result.get_global_var("main"), main)
        result = relax.transform.DeadCodeElimination(["main"])(relax.transform.Normalize()(result))
        stated = with_signature(result, initial_states(mod))
        return stated.with_attr(REGIONS_ATTR, list(record.programs))

    return run


def link_driver(config: VTAConfig, driver: Driver, target: tvm.target.Target) -> tvm.transform.Pass:
    """Add the module of ``driver`` to a module that calls it.

    It comes last: a module with machine code in its attributes has no text that parses back.
    """

    @LINK_DRIVER
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if REGIONS_ATTR not in mod.attrs:
            return mod
        modules = [*mod.attrs.get("external_mods", []), driver.module(config, target)]
        return mod.with_attr("external_mods", modules)

    return run


class _Lowerer:
    def __init__(self, mod: tvm.IRModule, config: VTAConfig, record: LoweredRegions):
        self._mod = mod
        self._config = config
        self._record = record
        self._writer = FunctionWriter()
        self._env: dict[relax.Var, relax.Expr] = {}
        self._results: dict[relax.Var, list[relax.Var]] = {}

    def rewrite(self, main: relax.Function) -> relax.Function:
        """``main`` with every region call lowered."""
        regions = region_calls(self._mod)
        for binding in straight_bindings(main):
            var, value = binding.var, binding.value
            if var in regions:
                self._results[var] = self._region(regions[var])
                if not isinstance(var.ty, relax.TupleType):
                    self._env[var] = self._results[var][0]
            elif isinstance(value, TupleGetItem) and value.tuple_value in self._results:
                self._env[var] = self._results[value.tuple_value][value.index]
            else:
                self._env[var] = self._writer.emit(substituted(value, self._env), str(var.name))
        return self._writer.finish(main, substituted(main.body.body, self._env))

    def _region(self, region: RegionCall) -> list[relax.Var]:
        constants = {
            i: arg.value.numpy() for i, arg in enumerate(region.call.args) if is_constant(arg)
        }
        program = _kept(self._mod, region.func, constants, self._config)
        self._record.programs[region.name] = program
        LOG.info("%s: %r", region.name, program)
        read = Region.of(region.func)
        params = dict(zip(read.params, region.call.args, strict=True))
        values = {name: substituted(arg, self._env) for name, arg in params.items()}
        call = ProgramCall(self._writer.emit, program, region.name, region.number)
        return call.outputs(values, read.outputs)
