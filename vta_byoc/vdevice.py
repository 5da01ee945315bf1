"""Where every DRAM tensor of a region lives: decided from what its consumers demand.

Each strategy says which DRAM scope it wants each argument in.  :func:`annotate_scopes` collects
those demands for every tensor of a region (arguments, values between layers, results), decides one
scope per tensor by the rules of :mod:`vta_byoc.scopes` and writes the decisions on the region; code
generation places and aligns the tensors by them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial

import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import MEMORY_TYPES
from vta_byoc.ir.legality import PLACED, REGIONS
from vta_byoc.ir.records import as_record, text_of
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.region import Region, region_functions
from vta_byoc.scopes import (
    GLOBAL,
    HOST,
    Decision,
    Fact,
    Kind,
    Producer,
    Scope,
    ScopeTable,
    Serves,
    decide_scope,
)
from vta_byoc.strategy import DRAM_ACC, DRAM_INP, DRAM_WGT
from vta_byoc.workload.memory import DTYPES, SPACES, dram_scopes

SCOPES_ATTR = "vta.scopes"
ANNOTATE_SCOPES = Stage(
    "AnnotateScopes", REGIONS, PLACED, "gives every tensor of a region a memory scope"
)
VTA = "vta"
"""The unit that runs a region's steps."""
DRAM = (DRAM_INP, DRAM_ACC, DRAM_WGT)
"""Scopes that a step's store and the host's pack can write, the one they prefer first."""
BOTH = "packed int8 serves INP and ACC_8BIT loads: the INP scope holds both"


def vta_scopes(config: VTAConfig) -> ScopeTable:
    """The scopes of ``config``: DRAM, which the host shares, and the buffers on chip."""
    shared = partial(Scope, readers=(HOST, VTA), writers=(HOST, VTA))
    inside = partial(Scope, readers=(VTA,), writers=(VTA,))
    also = (Serves(DRAM_ACC, "int8", BOTH),) if config.capabilities.acc_8bit else ()
    dram = [
        shared(
            scope,
            element=dram_elem_bytes(config, types[0]) if len(types) == 1 else 1,
            dtypes=tuple(MEMORY_TYPES[t].dtype for t in types if t in config.capabilities.loadable),
            serves=also if scope == DRAM_INP else (),
        )
        for scope, types in dram_scopes().items()
    ]
    chip = []
    for scope, name in SPACES.items():
        element = config.elem_bytes(name)
        chip.append(inside(scope, config.depths[name] * element, element, (DTYPES[scope],)))
    return ScopeTable(f"VTA {config.name}", (shared(GLOBAL), *dram, *chip))


def scope_align(config: VTAConfig, scope: str, dtype: str) -> int:
    """Bytes a tensor of ``scope`` is aligned to: the largest element that may address it."""
    known = dram_scopes()
    if scope == GLOBAL:
        types = [mem for held in known.values() for mem in held]
    elif scope in known:
        types = [t for t in known[scope] if MEMORY_TYPES[t].dtype == dtype] or known[scope]
    else:
        raise VTAError(f"unknown DRAM scope {scope!r}; known: {GLOBAL}, {', '.join(known)}")
    return max(dram_elem_bytes(config, mem) for mem in types)


def decide(fact: Fact, demands: Sequence[tuple[str, str]], table: ScopeTable) -> Decision:
    """One scope for a tensor of a region from its consumers' demands (consumer, scope).

    Raises:
        VTAError: its consumers want it twice: inside a region nothing copies.
    """
    for consumer, scope in demands:
        table.check_read(fact, consumer, VTA, scope)
    decision = decide_scope(fact, demands, Producer(Kind.VALUE, DRAM), table)
    if decision.copies:
        wanted = sorted({scope for _, scope in demands})
        raise VTAError(
            f"tensor {fact.name} ({fact.dtype}) is wanted in {' and '.join(wanted)}; one copy "
            "cannot serve both; give each consumer a tensor of its own"
        )
    return decision


def scope_decisions(mod: tvm.IRModule, region: Region, config: VTAConfig) -> list[Decision]:
    """Decisions for every tensor of ``region``, in order of definition."""
    table = vta_scopes(config)
    demands: dict[str, list[tuple[str, str]]] = {name: [] for name in region.tensors}
    for step in region.steps:
        args = iter(step.args)
        consumers = (*step.inside, step.output)
        for who, scopes in zip(consumers, step.computation(mod).requirements(), strict=True):
            for scope in scopes:
                demands[next(args)].append((who, scope))
    return [decide(_fact(region, name), demands[name], table) for name in region.tensors]


def _fact(region: Region, name: str) -> Fact:
    shape, dtype = region.tensors[name]
    return Fact(name, dtype, math.prod(shape) * (tvm.DataType(dtype).bits // 8))


def annotate_scopes(config: VTAConfig) -> tvm.transform.Pass:
    """Write the scope decisions of every region on its function (attribute SCOPES_ATTR)."""

    @ANNOTATE_SCOPES
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        result = mod.clone()
        for gv, func in region_functions(mod).items():
            decisions = scope_decisions(mod, Region.of(func), config)
            text = json.dumps([dataclasses.asdict(d) for d in decisions])
            result.update_func(gv, func.with_attr(SCOPES_ATTR, as_record(text)))
        return result

    return run


def scopes_of(func: relax.Function) -> Mapping[str, Decision]:
    """The decisions on a region, by tensor name."""
    if func.attrs is None or SCOPES_ATTR not in func.attrs:
        raise VTAError("region has no memory scopes; run vta_byoc.vdevice.annotate_scopes first")
    decisions = {}
    for item in json.loads(text_of(func.attrs[SCOPES_ATTR])):
        demands = tuple((str(who), str(scope)) for who, scope in item.pop("demands"))
        copies = tuple(item.pop("copies"))
        decisions[item["tensor"]] = Decision(demands=demands, copies=copies, **item)
    return decisions
