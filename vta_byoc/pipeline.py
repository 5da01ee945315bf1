"""The map of the compiler: every stage in order, from the integer dialect to an executable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from vta_byoc.cost.objective import Objective
from vta_byoc.graph_pack import GRAPH_PACK, graph_pack
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.devices import driver as driver_of
from vta_byoc.hw.sim.target import exact_target, native_target, scope_host
from vta_byoc.ir.float_modules import TELL_OF_FLOATS, tell_of_floats
from vta_byoc.ir.host_loops import TIR_PIPELINE
from vta_byoc.ir.legality import INTEGER, LOWERED, PACKED, REGIONS, VM
from vta_byoc.ir.printing import check_requests, printers
from vta_byoc.ir.selection import Selectors
from vta_byoc.ir.stage import Stage, checked_forms, run_inside
from vta_byoc.options import (
    DRAM_ONLY,
    OFF,
    ON,
    SCOPE_MODES,
    SHARING_ON,
    WITH_SCHEDULES,
    BuildOptions,
    Planned,
    build_options,
)
from vta_byoc.partition import MARK, mark
from vta_byoc.partitioning.composite import PLACEMENT_ATTR
from vta_byoc.partitioning.placement import placements
from vta_byoc.passes.compiled import Compiled
from vta_byoc.passes.demands import Demands
from vta_byoc.passes.fuse_tiles import FUSE_TILES, fuse_tiles, sharing_record
from vta_byoc.passes.lower_regions import (
    LINK_DRIVER,
    LOWER_REGIONS,
    LoweredRegions,
    link_driver,
    lower_regions,
)
from vta_byoc.passes.own_kernels import LOWER_KERNELS, PLACE_KERNELS, lower_kernels, place_kernels
from vta_byoc.tune import exact_choice
from vta_byoc.tuning.schedules import CHECK_SCHEDULES, Schedules, check_schedules
from vta_byoc.vdevice import ANNOTATE_SCOPES, annotate_scopes

__all__ = [
    "BUILD",
    "DRAM_ONLY",
    "OFF",
    "ON",
    "PARTITION",
    "SCOPE_MODES",
    "STAGES",
    "BuildOptions",
    "Compiled",
    "build",
    "check_print_after",
    "compile_module",
    "compile_programs",
    "partition_for_vta",
    "partition_passes",
    "vta_pipeline",
]


# ---------------------------------------------------------------- the stages
def _of_tvm(stage: Stage, make: Callable[[], tvm.transform.Pass]) -> Planned:
    """A pass or a pipeline of TVM's as a stage."""

    @stage
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return make()(mod)

    return Planned(stage, lambda _options, _record: run)


def _linking(options: BuildOptions, _record: LoweredRegions) -> tvm.transform.Pass:
    target = options.target or scope_host()
    return link_driver(options.config, driver_of(options.device), target)


def _schedules_met(options: BuildOptions) -> tvm.transform.Pass:
    assert options.schedules is not None
    return check_schedules(options.schedules, options.config)


PARTITION: tuple[Planned, ...] = (
    # A model that nobody quantized would go to the CPU without a word.
    Planned(TELL_OF_FLOATS, lambda _options, _record: tell_of_floats),
    # What nothing reads has no place.
    _of_tvm(
        Stage("DropUnread", INTEGER, INTEGER, "drops what no result depends on"),
        lambda: relax.transform.DeadCodeElimination(["main"]),
    ),
    Planned(MARK, lambda o, _record: mark(o.config, tuple(o.only), tuple(o.exclude))),
    # Before merging: a region holds packed tensors only.
    Planned(
        GRAPH_PACK,
        lambda options, _record: graph_pack(
            options.config, options.scopes != OFF, options.schedules
        ),
    ),
    # Before merging: what shares a tile becomes one composite.
    Planned(
        FUSE_TILES,
        lambda options, _record: fuse_tiles(options.config, options.demands, options.schedules),
        SHARING_ON,
    ),
    _of_tvm(
        Stage("MergeRegions", PACKED, REGIONS, "makes one region of neighbouring composites"),
        relax.transform.MergeCompositeFunctions,
    ),
    # Needs whole regions: a tensor's consumers decide its scope.
    Planned(ANNOTATE_SCOPES, lambda options, _record: annotate_scopes(options.config)),
    # The record is complete: what the table left to the CPU may be a user's kernel.
    Planned(PLACE_KERNELS, lambda options, _record: place_kernels(options.config)),
    # Last: a schedule that a user gave is taken or refused, never dropped.
    Planned(CHECK_SCHEDULES, lambda options, _record: _schedules_met(options), WITH_SCHEDULES),
)
"""Integer dialect to regions whose tensors have their place."""
LOWER: tuple[Planned, ...] = (
    Planned(LOWER_REGIONS, lambda options, record: lower_regions(options.config, record)),
    # Before the CPU's operators are fused: a kernel would be fused into its neighbours.
    Planned(LOWER_KERNELS, lambda options, record: lower_kernels(options.config, record)),
)
"""Regions to programs."""
BUILD: tuple[Planned, ...] = (
    *LOWER,
    _of_tvm(
        Stage("FuseHost", LOWERED, LOWERED, "turns the CPU's operators into fused loops"),
        lambda: relax.get_pipeline("zero"),
    ),
    _of_tvm(
        Stage("BuildHost", LOWERED, VM, "plans memory and calls for the Relax VM"),
        lambda: relax.get_pipeline("default_build"),
    ),
    # Last: machine code has no text.
    Planned(LINK_DRIVER, _linking),
)
"""Regions to what the Relax VM runs; a module that is partitioned already begins here."""
STAGES = PARTITION + BUILD


def _passes(
    stages: Sequence[Planned], options: BuildOptions, record: LoweredRegions | None = None
) -> list[tvm.transform.Pass]:
    """The passes of ``stages`` that run, each followed by what is to be printed after it."""
    made = LoweredRegions() if record is None else record
    if options.exact_choice and stages[:1] == PARTITION[:1]:
        return [_timed(options), *_passes(stages[len(PARTITION) :], options, made)]
    passes = []
    for planned in stages:
        if planned.when.holds(options):
            run = planned.make(options, made)
            passes.append(run_inside(run, options.settings) if options.sets else run)
            passes += printers(planned.stage, options.print_after)
    return passes


def _timed(options: BuildOptions) -> tvm.transform.Pass:
    """PARTITION with schedules by exact cycles."""

    def partition(schedules: Schedules | None, last: bool) -> list[tvm.transform.Pass]:
        once = dataclasses.replace(options, schedules=schedules, exact_choice=0)
        return _passes(PARTITION, once if last else dataclasses.replace(once, print_after=()))

    asked = options.exact_choice, options.config, options.schedules, options.settings
    return exact_choice(*asked, partition)


# ---------------------------------------------------------------- printing
def check_print_after(
    requests: Sequence[str],
    stages: Sequence[Planned] = STAGES,
    options: BuildOptions | None = None,
) -> None:
    """Refuse to print after what is no stage, or none of ``stages`` that runs.

    Args:
        requests: each ``NAME`` or ``NAME=FILE``.
        stages: those that could run.
        options: which of them do; all when None.

    Raises:
        VTAError: the first request that would print nothing.
    """
    run = [s.name for s in stages if options is None or s.when.holds(options)]
    check_requests(requests, [s.name for s in STAGES], run)


# ---------------------------------------------------------------- partitioning
def partition_passes(
    config: VTAConfig | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
    schedules: Schedules | None = None,
    options: BuildOptions | None = None,
) -> list[tvm.transform.Pass]:
    """Integer dialect to packed regions: the passes of PARTITION.

    Args:
        config: the machine.
        scopes: one of SCOPE_MODES.
        demands: what consumers demand besides what their strategies do; in mode "on" only.
        schedules: what layers take besides what their strategies choose.
        options: all of these, and more, in one value instead.

    Raises:
        VTAError: no such mode, unread demands, schedules of another machine, options in both ways.
    """
    given = {"scopes": scopes, "demands": demands, "schedules": schedules}
    return _passes(PARTITION, _chosen(options, PARTITION, config=config, **given))


def partition_for_vta(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
    schedules: Schedules | None = None,
    objective: Objective | str | None = None,
    only: Selectors = (),
    exclude: Selectors = (),
    options: BuildOptions | None = None,
) -> tvm.IRModule:
    """Mark, pack and group what VTA runs in a module of the integer dialect.

    Args:
        mod: the result of :func:`vta_byoc.quantize`.
        config: the machine; the default preset ``sim`` when None.
        scopes: where tensors between layers may live: "on" (any scope), "dram" (DRAM scopes only)
            or "off" (``global``: each layer is a region that the host packs and unpacks).
        demands: (consumer, tensor) -> scope, besides those of strategies; with "on" only.
        schedules: a tuning log and pins of layers, besides what strategies choose.
        objective: what the choice of tiles makes small: "cycles", "dram-bytes" or "both".
        only: selectors (`vta_byoc.ir.selection`) of what VTA may compute; everything when empty.
        exclude: selectors of what it may not compute.
        options: all of these, and more, in one value instead.

    Returns:
        A module whose ``main`` calls region functions (attribute ``Codegen`` = ``vta``) and CPU
        operators; :func:`vta_byoc.partition.placements` reads the record of what went where.

    Raises:
        VTAError: no such mode, demands in a mode that does not read them, schedules that are not
            of this machine and module, options in both ways, or a module of another form.

    Warns:
        VTAWarning: nothing in the module is integer; quantize it first.
    """
    keywords = {"config": config, "only": only, "exclude": exclude, "objective": objective}
    given = {"scopes": scopes, "demands": demands, "schedules": schedules}
    return _partitioned(mod, _chosen(options, PARTITION, **keywords, **given))


def _chosen(
    options: BuildOptions | None, stages: Sequence[Planned], **keywords: Any
) -> BuildOptions:
    """The options of a public function, which can print after those of ``stages`` that run."""
    chosen = build_options(options, keywords)
    check_print_after(chosen.print_after, stages, chosen)
    return chosen


def _partitioned(mod: tvm.IRModule, options: BuildOptions) -> tvm.IRModule:
    with checked_forms(options.check_forms):
        return tvm.transform.Sequential(_passes(PARTITION, options))(mod)


def is_partitioned(mod: tvm.IRModule) -> bool:
    """Whether :func:`partition_for_vta` has seen ``mod``."""
    return mod.attrs is not None and PLACEMENT_ATTR in mod.attrs


# ---------------------------------------------------------------- building
def vta_pipeline(
    config: VTAConfig | None = None,
    device: str = "sim",
    record: LoweredRegions | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
    schedules: Schedules | None = None,
    simulator: tvm.target.Target | None = None,
    options: BuildOptions | None = None,
) -> tvm.transform.Pass:
    """The Relax pipeline ``relax.get_pipeline("vta")``: partition, lower regions, build the rest.

    A module that was already partitioned is taken as it is; ``scopes``, ``demands``, ``schedules``
    are those of :func:`partition_for_vta`.  ``simulator`` is the target of the driver; that of the
    build when None.  ``options`` is all of these, and more, but ``record`` in one value.
    """
    keywords = {"config": config, "device": device, "target": simulator}
    given = {"scopes": scopes, "demands": demands, "schedules": schedules}
    chosen = build_options(options, {**keywords, **given})
    check_print_after(chosen.print_after)
    return _pipeline(chosen, LoweredRegions() if record is None else record)


def _pipeline(options: BuildOptions, record: LoweredRegions) -> tvm.transform.Pass:
    @tvm.transform.module_pass(opt_level=0, name="vta.Pipeline")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        stages = BUILD if is_partitioned(mod) else STAGES
        with checked_forms(options.check_forms):
            return tvm.transform.Sequential(_passes(stages, options, record))(mod)

    return run


def compile_module(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    device: str = "sim",
    target: tvm.target.Target | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
    schedules: Schedules | None = None,
    objective: Objective | str | None = None,
    options: BuildOptions | None = None,
) -> Compiled:
    """Compile as :func:`build` does, keeping the programs and the placement record."""
    partitioned = is_partitioned(mod)
    given = {"scopes": scopes, "demands": demands, "schedules": schedules, "objective": objective}
    machine = {"config": config, "device": device, "target": target}
    chosen = _chosen(options, BUILD if partitioned else STAGES, **machine, **given)
    pmod = mod if partitioned else _partitioned(mod, chosen)
    record = LoweredRegions()
    host = chosen.target or native_target()
    # The host's float operators round the same way whatever they are fused with, as the reference's
    # do; the simulator's integers need every instruction that there is.
    pipeline = _pipeline(dataclasses.replace(chosen, target=host), record)
    exe = relax.build(pmod, exact_target(host), relax_pipeline=pipeline, tir_pipeline=TIR_PIPELINE)
    found = placements(pmod), sharing_record(pmod)
    return Compiled(exe, chosen.config, chosen.device, record.programs, *found)


def compile_programs(
    mod: tvm.IRModule, config: VTAConfig | None = None, *, options: BuildOptions | None = None
) -> dict[str, Program]:
    """The programs that `compile_module` makes, by region, without the host's code."""
    stages = LOWER if is_partitioned(mod) else PARTITION + LOWER
    chosen, record = _chosen(options, stages, config=config), LoweredRegions()
    with checked_forms(chosen.check_forms):
        tvm.transform.Sequential(_passes(stages, chosen, record))(mod)
    return record.programs


def build(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    device: str = "sim",
    target: tvm.target.Target | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
    schedules: Schedules | None = None,
    objective: Objective | str | None = None,
    options: BuildOptions | None = None,
) -> Any:
    """Compile a partitioned (or integer-dialect) module to a ``relax.VMExecutable``.

    Args:
        mod: the module.
        config: the machine; must be the one the module was partitioned for.
        device: "sim" (functional simulator) or "null" (dry run: zeros, no execution).
        target: the host's TVM target; this machine's CPU when None. Give a fixed target such as
            ``{"kind": "llvm", "mcpu": "x86-64-v3"}`` for libraries that run elsewhere.  The host's
            operators do without its fused multiply-add
            (:func:`vta_byoc.hw.sim.target.exact_target`).
        scopes: as for :func:`partition_for_vta`, like the next three; a module that was already
            partitioned is taken as it is.
        demands: what consumers demand.
        schedules: what layers take.
        objective: what is made small.
        options: all of these, and more, in one value instead.

    Raises:
        VTAError: no such device or mode, unread demands, options in both ways, or another form.
    """
    return compile_module(
        mod,
        config,
        device,
        target,
        scopes=scopes,
        demands=demands,
        schedules=schedules,
        objective=objective,
        options=options,
    ).exe
