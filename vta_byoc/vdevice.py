"""Where every DRAM tensor of a region lives: decided from what its consumers demand.

Each strategy says which DRAM scope it wants each argument in.  :func:`annotate_scopes` collects
those demands for every tensor of a region (arguments, values between layers, results), decides one
scope per tensor and writes the decisions on the region; code generation places and aligns the
tensors by them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError

from .region import Region, region_functions
from .strategy import DRAM_ACC, DRAM_INP, DRAM_WGT, strategy_of

SCOPES_ATTR = "vta.scopes"
GLOBAL = "global"


@dataclass(frozen=True)
class ScopeDecision:
    """The scope of one tensor, who asked for what, and the rule that decided."""

    tensor: str
    dtype: str
    demands: tuple[tuple[str, str], ...]
    scope: str
    rule: str


def scope_align(config: VTAConfig, scope: str, dtype: str) -> int:
    """Bytes a tensor of ``scope`` is aligned to: the largest element that may address it."""
    if scope == DRAM_WGT:
        return config.wgt_elem_bytes
    if scope == DRAM_INP:
        return max(config.inp_elem_bytes, config.out_elem_bytes)
    if scope == DRAM_ACC:
        return config.acc_elem_bytes if dtype == "int32" else config.out_elem_bytes
    if scope == GLOBAL:
        return max(config.wgt_elem_bytes, config.acc_elem_bytes, config.inp_elem_bytes)
    raise VTAError(
        f"unknown DRAM scope {scope!r}; known: {GLOBAL}, {DRAM_INP}, {DRAM_WGT}, {DRAM_ACC}"
    )


def decide(tensor: str, dtype: str, demands: Sequence[tuple[str, str]]) -> ScopeDecision:
    """One scope for ``tensor`` from its consumers' demands (consumer, scope)."""
    wanted = sorted({scope for _, scope in demands})
    if not wanted:
        rule = "no consumer on VTA: as the store left it"
        return ScopeDecision(tensor, dtype, (), DRAM_INP, rule)
    if len(wanted) == 1:
        return ScopeDecision(tensor, dtype, tuple(demands), wanted[0], "consumers agree")
    if set(wanted) == {DRAM_INP, DRAM_ACC} and dtype == "int8":
        rule = "packed int8 serves INP and ACC_8BIT loads: the INP scope holds both"
        return ScopeDecision(tensor, dtype, tuple(demands), DRAM_INP, rule)
    raise VTAError(
        f"tensor {tensor} ({dtype}) is wanted in {' and '.join(wanted)}; one copy cannot serve "
        "both; give each consumer a tensor of its own"
    )


def scope_decisions(mod: tvm.IRModule, region: Region) -> list[ScopeDecision]:
    """Decisions for every tensor of ``region``, in order of definition."""
    demands: dict[str, list[tuple[str, str]]] = {name: [] for name in region.tensors}
    for step in region.steps:
        strategy, work = strategy_of(mod[step.compute])
        for arg, scope in zip(step.args, strategy.scopes(work), strict=True):
            demands[arg].append((step.output, scope))
    return [decide(name, region.tensors[name][1], demands[name]) for name in region.tensors]


def annotate_scopes() -> tvm.transform.Pass:
    """Write the scope decisions of every region on its function (attribute SCOPES_ATTR)."""

    @tvm.transform.module_pass(opt_level=0, name="vta.AnnotateScopes")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        for gv, func in region_functions(mod).items():
            decisions = scope_decisions(mod, Region.of(func))
            text = json.dumps([dataclasses.asdict(d) for d in decisions])
            mod.update_func(gv, func.with_attr(SCOPES_ATTR, text))
        return mod

    return run


def scopes_of(func: relax.Function) -> Mapping[str, ScopeDecision]:
    """The decisions on a region, by tensor name."""
    if func.attrs is None or SCOPES_ATTR not in func.attrs:
        raise VTAError("region has no memory scopes; run vta_byoc.vdevice.annotate_scopes first")
    decisions = {}
    for item in json.loads(str(func.attrs[SCOPES_ATTR])):
        demands = tuple((str(who), str(scope)) for who, scope in item.pop("demands"))
        decisions[item["tensor"]] = ScopeDecision(demands=demands, **item)
    return decisions
