"""The map of the compiler: every pass in order, from the integer dialect to an executable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from vta_byoc.graph_pack import graph_pack
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.simulator import driver as driver_of
from vta_byoc.hw.sim.target import exact_target, native_target
from vta_byoc.ir.float_modules import tell_of_floats
from vta_byoc.partition import mark
from vta_byoc.partitioning.placement import Placement, placements
from vta_byoc.passes.fuse_tiles import Demands, Sharing, share_tiles, sharing_record
from vta_byoc.passes.lower_regions import LoweredRegions, lower_regions
from vta_byoc.vdevice import annotate_scopes

ON, DRAM_ONLY, OFF = SCOPE_MODES = ("on", "dram", "off")
"""Where tensors between layers may live: in any scope, tiles on chip too; in the DRAM scopes of
regions; or in ``global``, plain, each layer a region of its own between host copies."""


def partition_passes(
    config: VTAConfig, *, scopes: str = ON, demands: Demands | None = None
) -> list[tvm.transform.Pass]:
    """Integer dialect to packed regions.

    Args:
        config: the machine.
        scopes: one of SCOPE_MODES.
        demands: what consumers demand besides what their strategies do; in mode "on" only.

    Raises:
        VTAError: no such mode, or demands in a mode that does not read them.
    """
    check_scopes(scopes, demands)
    tiles = [share_tiles(config, demands)] if scopes == ON else []
    return [
        tell_of_floats,  # a model that nobody quantized would go to the CPU without a word
        relax.transform.DeadCodeElimination(["main"]),  # what nothing reads has no place
        mark(config),  # one table decides what may go to VTA, with a reason for the rest
        graph_pack(config, scopes != OFF),  # before merging: a region holds packed tensors only
        *tiles,  # before merging: what shares a tile becomes one composite
        relax.transform.MergeCompositeFunctions(),  # neighbouring composites become one region
        annotate_scopes(config),  # needs whole regions: a tensor's consumers decide its scope
    ]


def check_scopes(scopes: str, demands: Demands | None = None) -> None:
    """Refuse a mode that does not exist, and demands in a mode that does not read them."""
    if scopes not in SCOPE_MODES:
        raise VTAError(
            f"scopes {scopes!r} is no scope mode; known: {', '.join(SCOPE_MODES)}; choose one"
        )
    if demands and scopes != ON:
        consumer, tensor = next(iter(demands))
        raise VTAError(
            f"a demand of {consumer!r} for {tensor!r} with scopes {scopes!r}; demands are read "
            f"with scopes {ON!r}; leave one of the two out"
        )


def partition_for_vta(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
) -> tvm.IRModule:
    """Mark, pack and group what VTA runs in a module of the integer dialect.

    Args:
        mod: the result of :func:`vta_byoc.quantize`.
        config: the machine; the default preset ``sim`` when None.
        scopes: where tensors between layers may live: "on" (any scope), "dram" (DRAM scopes
            only) or "off" (``global``: each layer is a region of its own, packed and unpacked by
            the host).
        demands: (consumer, tensor) -> scope, besides what strategies demand; with "on" only.

    Returns:
        A module whose ``main`` calls region functions (attribute ``Codegen`` = ``vta``) and CPU
        operators; :func:`vta_byoc.partition.placements` reads the record of what went where.

    Raises:
        VTAError: no such mode, or demands in a mode that does not read them.

    Warns:
        VTAWarning: nothing in the module is integer; quantize it first.
    """
    passes = partition_passes(config or VTAConfig(), scopes=scopes, demands=demands)
    return tvm.transform.Sequential(passes)(mod)


def vta_pipeline(
    config: VTAConfig | None = None,
    device: str = "sim",
    record: LoweredRegions | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
    simulator: tvm.target.Target | None = None,
) -> tvm.transform.Pass:
    """The Relax pipeline ``relax.get_pipeline("vta")``: partition, lower regions, build the rest.

    A module that was already partitioned is taken as it is; ``scopes`` and ``demands`` are those of
    :func:`partition_for_vta`.  ``simulator`` is the target of the driver; that of the build when
    None.
    """
    machine, driver = config or VTAConfig(), driver_of(device)
    partition = partition_passes(machine, scopes=scopes, demands=demands)

    @tvm.transform.module_pass(opt_level=0, name="vta.Pipeline")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        target = simulator or tvm.target.Target.current(allow_none=True) or native_target()
        passes = [
            *([] if is_partitioned(mod) else partition),
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

    ``programs`` are the regions' programs by name, in the order of their numbers; ``sharing``
    says which tensors stay on chip.
    """

    exe: Any
    config: VTAConfig
    device: str
    programs: dict[str, Program]
    placement: list[Placement]
    sharing: list[Sharing]


def compile_module(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    device: str = "sim",
    target: tvm.target.Target | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
) -> Compiled:
    """Like :func:`build`, keeping the programs and the placement record."""
    machine = config or VTAConfig()
    driver_of(device)
    check_scopes(scopes, demands)
    pmod = mod
    if not is_partitioned(mod):
        pmod = partition_for_vta(mod, machine, scopes=scopes, demands=demands)
    record = LoweredRegions()
    host = target or native_target()
    # The host's float operators round the same way whatever they are fused with, as the reference's
    # do; the simulator's integers need every instruction that there is.
    pipeline = vta_pipeline(machine, device, record, simulator=host)
    exe = relax.build(pmod, exact_target(host), relax_pipeline=pipeline)
    found = placements(pmod), sharing_record(pmod)
    return Compiled(exe, machine, device, record.programs, *found)


def build(
    mod: tvm.IRModule,
    config: VTAConfig | None = None,
    device: str = "sim",
    target: tvm.target.Target | None = None,
    *,
    scopes: str = ON,
    demands: Demands | None = None,
) -> Any:
    """Compile a partitioned (or integer-dialect) module to a ``relax.VMExecutable``.

    Args:
        config: the machine; must be the one the module was partitioned for.
        device: "sim" (functional simulator) or "null" (dry run: zeros, no execution).
        target: the host's TVM target; this machine's CPU when None. Give a fixed target such as
            ``{"kind": "llvm", "mcpu": "x86-64-v3"}`` for libraries that run elsewhere.  The host's
            operators do without its fused multiply-add
            (:func:`vta_byoc.hw.sim.target.exact_target`).
        scopes, demands: as for :func:`partition_for_vta`; a module that was already partitioned
            is taken as it is.

    Raises:
        VTAError: no such device or mode, or demands in a mode that does not read them.
    """
    return compile_module(mod, config, device, target, scopes=scopes, demands=demands).exe
