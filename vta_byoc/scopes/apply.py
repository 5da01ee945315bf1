"""The pass: collect demands, decide, define VDevices, realise them, tidy up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.scopes.collect import FunctionScopes, collect
from vta_byoc.scopes.decide import Decision
from vta_byoc.scopes.define import Definer, Devices, Legalization
from vta_byoc.scopes.sites import DemandFunction
from vta_byoc.scopes.specialize import Specializer
from vta_byoc.scopes.strip import has_scopes
from vta_byoc.scopes.table import ScopeTable

# What a pass raises goes through C++; without this it would come back as a RuntimeError.
tvm_ffi.register_error("VTAError", VTAError)


@dataclass
class ScopeRecord:
    """What the pass decided: per function name, a decision for every tensor in order."""

    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)


def decide_scopes(
    mod: tvm.IRModule, demand: DemandFunction, table: ScopeTable
) -> dict[str, tuple[Decision, ...]]:
    """The decisions alone; the module stays as it is.

    Raises:
        VTAError: a demand that no memory of the table meets, or hints that contradict it.
    """
    found = _collected(mod, demand, table)
    return {gvar.name_hint: scopes.decisions for gvar, scopes in found.items()}


def memory_scopes(
    demand: DemandFunction,
    table: ScopeTable,
    target: tvm.target.Target,
    legalize: Mapping[str, Legalization] | None = None,
    record: ScopeRecord | None = None,
) -> tvm.transform.Pass:
    """Give every tensor the scope that its consumers demand, as VDevices of ``target``.

    Args:
        demand: what each call wants; None of a call that it does not know.
        table: the machine's scopes.
        target: of the VDevices; one target runs the module.
        legalize: for operators that are not legalised yet and are given a scope: a call_tir, in
            place of TVM's own legalization.
        record: filled with the decisions.

    Raises:
        VTAError: as :func:`decide_scopes`; an operator that no single call_tir computes; a module
            whose VDevices have another target.
    """

    @tvm.transform.module_pass(opt_level=0, name="vta.MemoryScopes")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        mod = relax.transform.Normalize()(mod)
        _check_target(mod, target)
        found = _collected(mod, demand, table)
        if record is not None:
            record.decisions = {gv.name_hint: scopes.decisions for gv, scopes in found.items()}
        defined = _defined(mod, found, Devices(target, table), legalize or {})
        # Realising turns hints into copies, and those that change nothing into aliases.
        realised = relax.transform.RealizeVDevice()(defined)
        return relax.transform.CanonicalizeBindings()(realised)

    return run


def _collected(
    mod: tvm.IRModule, demand: DemandFunction, table: ScopeTable
) -> dict[tvm.ir.GlobalVar, FunctionScopes]:
    functions = {gvar: func for gvar, func in mod.functions.items() if has_scopes(func)}
    by_name = sorted(functions.items(), key=lambda item: item[0].name_hint)
    return {gvar: collect(mod, func, demand, table) for gvar, func in by_name}


def _check_target(mod: tvm.IRModule, target: tvm.target.Target) -> None:
    for device in mod.global_infos.get("vdevice", []):
        if device.target != target and str(device.target) != str(target):
            raise VTAError(
                f"the module has VDevices of target {device.target.kind.name}, scopes are asked "
                f"for target {target.kind.name}; one target runs the module: strip_vdevices first"
            )


def _defined(
    mod: tvm.IRModule,
    found: Mapping[tvm.ir.GlobalVar, FunctionScopes],
    devices: Devices,
    legalize: Mapping[str, Legalization],
) -> tvm.IRModule:
    builder = relax.BlockBuilder(mod.clone())
    specializer = Specializer(builder)
    for gvar, scopes in found.items():
        func = Definer(scopes, builder, devices, specializer, legalize).rewrite(mod[gvar])
        builder.update_func(gvar, func)
    result = without_unused(builder.get(), specializer.replaced)
    result.update_global_info("vdevice", devices.all)
    return result


def without_unused(mod: tvm.IRModule, candidates: set[tvm.ir.GlobalVar]) -> tvm.IRModule:
    """``mod`` without those of ``candidates`` that are private and that nothing calls."""
    called: set[str] = set()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GlobalVar):
            called.add(str(expr.name_hint))

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)
    unused = {
        gvar.name_hint
        for gvar in candidates
        if gvar.name_hint not in called and "global_symbol" not in (mod[gvar].attrs or {})
    }
    kept = {gvar: f for gvar, f in mod.functions.items() if gvar.name_hint not in unused}
    return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)
