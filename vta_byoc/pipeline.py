"""The map of the compiler: every pass in order, from the integer dialect to an executable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program import Program
from vta_byoc.hw.simulator import driver as driver_of
from vta_byoc.hw.target import native_target

from .graph_pack import graph_pack
from .lowering import LoweredRegions, lower_regions
from .onchip import share_tiles
from .partition import Placement, mark, placements
from .vdevice import annotate_scopes


def partition_passes(config: VTAConfig) -> list[tvm.transform.Pass]:
    """Integer dialect to packed regions."""
    return [
        relax.transform.DeadCodeElimination(["main"]),  # what nothing reads has no place
        mark(config),  # one table decides what may go to VTA, with a reason for the rest
        graph_pack(config),  # before merging: a region holds packed tensors only
        share_tiles(config),
        relax.transform.MergeCompositeFunctions(),  # neighbouring composites become one region
        annotate_scopes(config),  # needs whole regions: a tensor's consumers decide its scope
    ]


def partition_for_vta(mod: tvm.IRModule, config: VTAConfig | None = None) -> tvm.IRModule:
    """Mark, pack and group what VTA runs in a module of the integer dialect.

    Args:
        mod: the result of :func:`vta_byoc.quantize`.
        config: the machine; the default preset ``sim`` when None.

    Returns:
        A module whose ``main`` calls region functions (attribute ``Codegen`` = ``vta``) and CPU
        operators; :func:`vta_byoc.partition.placements` reads the record of what went where.
    """
    return tvm.transform.Sequential(partition_passes(config or VTAConfig()))(mod)


def vta_pipeline(
    config: VTAConfig | None = None,
    device: str = "sim",
    record: LoweredRegions | None = None,
) -> tvm.transform.Pass:
    """The Relax pipeline ``relax.get_pipeline("vta")``: partition, lower regions, build the rest.

    A module that was already partitioned is taken as it is.
    """
    machine, driver = config or VTAConfig(), driver_of(device)

    @tvm.transform.module_pass(opt_level=0, name="vta.Pipeline")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True) or native_target()
        passes = [] if is_partitioned(mod) else partition_passes(machine)
        passes += [
            lower_regions(machine, driver, target, record or LoweredRegions()),
            relax.get_pipeline("zero"),  # legalise and fuse what stays on the CPU
            relax.get_pipeline("default_build"),
        ]
        return tvm.transform.Sequential(passes)(mod)

    return run


def is_partitioned(mod: tvm.IRModule) -> bool:
    """Whether :func:`partition_for_vta` has seen ``mod``."""
    return mod.attrs is not None and "vta.placement" in mod.attrs


@dataclass
class Compiled:
    """An executable with what was compiled into it.

    ``programs`` are the regions' programs by name, in execution order.
    """

    exe: Any
    config: VTAConfig
    device: str
    programs: dict[str, Program]
    placement: list[Placement]


def compile_module(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    device: str = "sim",
    target: tvm.target.Target | None = None,
) -> Compiled:
    """Like :func:`build`, keeping the programs and the placement record."""
    machine = config or VTAConfig()
    driver_of(device)
    pmod = mod if is_partitioned(mod) else partition_for_vta(mod, machine)
    record = LoweredRegions()
    exe = relax.build(
        pmod, target or native_target(), relax_pipeline=vta_pipeline(machine, device, record)
    )
    return Compiled(exe, machine, device, record.programs, placements(pmod))


def build(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    device: str = "sim",
    target: tvm.target.Target | None = None,
) -> Any:
    """Compile a partitioned (or integer-dialect) module to a ``relax.VMExecutable``.

    Args:
        config: the machine; must be the one the module was partitioned for.
        device: "sim" (functional simulator) or "null" (dry run: zeros, no execution).
        target: the host's TVM target; this machine's CPU when None. Give a fixed target such as
            ``{"kind": "llvm", "mcpu": "x86-64-v3"}`` for libraries that run elsewhere.
    """
    return compile_module(mod, config, device, target).exe
