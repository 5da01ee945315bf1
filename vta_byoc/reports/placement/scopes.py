"""Every tensor of a partitioned module, what its consumers demand, where it lives and why.

Tensors of regions come with the bytes that one run moves between DRAM and the buffers, tensors in
their producer's tiles with those that it does not.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from rich.console import Console
from tvm import relax
from tvm.ir import Call, TupleGetItem

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.quantities import count, megabytes
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings
from vta_byoc.partitioning.packed_forms import FOLD, PACK, UNPACK
from vta_byoc.partitioning.region import Region, region_calls, region_functions
from vta_byoc.passes.fuse_tiles import Sharing, sharing_record
from vta_byoc.passes.lower_regions import compile_region, weight_runs_of
from vta_byoc.reports.placement.summary import Copies, host_copies
from vta_byoc.reports.placement.traffic import Traffic, traffic
from vta_byoc.reports.tables import Notes, plain_table, print_lines
from vta_byoc.scopes import GLOBAL, CallSite, Decision, Kind, Needs, TensorFacts, decide_scopes
from vta_byoc.strategy import DRAM_INP
from vta_byoc.vdevice import DRAM, scopes_of, vta_scopes
from vta_byoc.workload.memory import ACC

HOST_PART = "host"
NAMED = 2
"""Consumers of a scope that a row names."""
OUTPUT = "output"
"""Kind of a tensor that leaves its region."""
UNMOVED = Traffic()


# ---------------------------------------------------------------- what is reported
@dataclass(frozen=True)
class Row:
    """A tensor, and the decision where it lives.

    It belongs to a part of the network ("host", "region0", ...) and is of a kind ("input",
    "constant", "value", "output"). ``traffic`` is what VTA moves of it; ``saved`` what it would
    move were it not on chip; ``on_chip`` are the requirements of the accumulator buffer, met or
    not; ``calls`` in a row find it in SRAM where the first of them has loaded it.
    """

    part: str
    kind: str
    decision: Decision
    traffic: Traffic = UNMOVED
    saved: int = 0
    on_chip: tuple[Sharing, ...] = ()
    calls: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes in DRAM."""
        return 0 if self.decision.scope == ACC else self.decision.nbytes


@dataclass(frozen=True)
class Copy:
    """A change of layout that the host makes at the border of a region; ``nbytes`` written."""

    kind: str
    source: str
    tensor: str
    nbytes: int


@dataclass(frozen=True)
class Arena:
    """Bytes of the values between layers and the results of a region.

    Attributes:
        peak: as they share memory.
        apart: without buffer sharing.
    """

    peak: int
    apart: int


@dataclass(frozen=True)
class ScopeReport:
    """Everything that `vta-byoc scopes` shows of ``model`` on the machine ``config``.

    ``arenas`` are by region.
    """

    model: str
    config: str
    rows: Sequence[Row]
    copies: Sequence[Copy]
    host: Mapping[str, Copies]
    arenas: Mapping[str, Arena]

    @classmethod
    def of(cls, mod: tvm.IRModule, model: str, config: str, machine: VTAConfig) -> ScopeReport:
        """What the partitioned module ``mod`` says."""
        programs = _programs(mod, machine)
        rows = [*_host_rows(mod, machine), *_region_rows(mod, machine, programs)]
        arenas = {name: Arena(p.peak_bytes, p.unshared_bytes) for name, p in programs.items()}
        return cls(model, config, rows, border_copies(mod), host_copies(mod), arenas)

    def bytes_by_scope(self) -> dict[str, int]:
        """Bytes of all tensors in each scope, the largest first."""
        total: Counter[str] = Counter()
        for row in self.rows:
            total[row.decision.scope] += row.decision.nbytes
        return dict(total.most_common())

    @property
    def moved(self) -> int:
        """Bytes of tensors that one run of all regions moves."""
        return sum(row.traffic.moved for row in self.rows)

    @property
    def saved(self) -> int:
        """Bytes that operands of fused consumers do not move."""
        return sum(row.saved for row in self.rows)

    def to_json(self) -> JsonObject:
        """The object of `--json`; docs/scopes.md explains its keys."""
        return {
            "model": self.model,
            "config": self.config,
            "tensors": [_row_json(row) for row in self.rows],
            "copies": [_copy_json(copy) for copy in self.copies],
            "totals": {
                "tensors": len(self.rows),
                "bytes": sum(row.nbytes for row in self.rows),
                "moved": self.moved,
                "saved": self.saved,
                "scopes": self.bytes_by_scope(),
                "arenas": {n: dataclasses.asdict(arena) for n, arena in self.arenas.items()},
                "host": {n: {"count": c.count, "bytes": c.nbytes} for n, c in self.host.items()},
            },
        }


def _row_json(row: Row) -> JsonObject:
    decision = row.decision
    return {
        "tensor": decision.tensor,
        "part": row.part,
        "kind": row.kind,
        "dtype": decision.dtype,
        "demands": [{"consumer": who, "scope": scope} for who, scope in decision.demands],
        "scope": decision.scope,
        "rule": decision.rule,
        "bytes": decision.nbytes,
        "loaded": row.traffic.loaded,
        "stored": row.traffic.stored,
        "saved": row.saved,
        "on_chip": [_sharing_json(item) for item in row.on_chip],
        "calls": row.calls,
    }


def _sharing_json(item: Sharing) -> JsonObject:
    return {
        "consumer": item.consumer,
        "met": item.scope == ACC,
        "rule": item.rule,
        "cycles_apart": item.apart,
        "cycles_together": item.together,
    }


def _copy_json(copy: Copy) -> JsonObject:
    return {
        "kind": copy.kind,
        "source": copy.source,
        "tensor": copy.tensor,
        "bytes": copy.nbytes,
    }


# ---------------------------------------------------------------- reading a module
def _callee(value: relax.Expr) -> str:
    return str(getattr(getattr(value, "op", None), "name_hint", ""))


def _programs(mod: tvm.IRModule, machine: VTAConfig) -> dict[str, Program]:
    """The regions' programs by name."""
    return {
        region.name: compile_region(mod, region.func, _constants(region.call), machine)
        for region in region_calls(mod).values()
    }


def _constants(call: Call) -> dict[int, np.ndarray]:
    return {i: arg.value.numpy() for i, arg in enumerate(call.args) if is_constant(arg)}


def _region_rows(
    mod: tvm.IRModule, machine: VTAConfig, programs: Mapping[str, Program]
) -> list[Row]:
    rows = []
    record = sharing_record(mod)
    for made in region_calls(mod).values():
        part, func, call = made.name, made.func, made.call
        region, scopes, moved = Region.of(func), scopes_of(func), traffic(programs[part])
        runs = weight_runs_of(mod, func, _constants(call), machine)
        calls = {run.weights: run.calls for run in runs}
        kinds = dict.fromkeys(region.tensors, Kind.VALUE.value)
        kinds |= dict.fromkeys(region.outputs, OUTPUT)
        for name, arg in zip(region.params, call.args, strict=True):
            kinds[name] = (Kind.CONSTANT if is_constant(arg) else Kind.INPUT).value
        inside = {step.output: step.inside for step in region.steps}
        for name in region.tensors:
            for tensor in inside.get(name, ()):
                rows.append(_inside_row(part, [s for s in record if s.tensor == tensor]))
            asked = tuple(item for item in record if item.tensor == name)
            got = moved.get(name, UNMOVED)
            row = Row(part, kinds[name], scopes[name], got, 0, asked, calls.get(name, 1))
            rows.append(row)
    return rows


def _inside_row(part: str, asked: list[Sharing]) -> Row:
    """A tensor whose consumer is fused into its producer."""
    (item,) = (sharing for sharing in asked if sharing.scope == ACC)
    demands = ((item.consumer, ACC),)
    decision = Decision(item.tensor, "int8", demands, ACC, item.rule, item.nbytes)
    return Row(part, Kind.VALUE.value, decision, saved=item.saved, on_chip=tuple(asked))


def _host_rows(mod: tvm.IRModule, config: VTAConfig) -> list[Row]:
    """The host's tensors; what passes between it and regions is a region's."""
    decisions = decide_scopes(mod, host_demands(mod), vta_scopes(config))["main"]
    return [
        Row(HOST_PART, decision.kind, decision)
        for decision in decisions
        if decision.scope == GLOBAL and decision.kind != Kind.CONSTANT.value
    ]


def host_demands(mod: tvm.IRModule) -> Callable[[CallSite], Needs | None]:
    """The scopes that the calls of ``main`` need.

    Regions need what their decisions say; packs and folds write what a region reads, unpacks read
    what it stores; all others are the host's, in `global`.
    """
    regions = {}
    for gvar, func in region_functions(mod).items():
        scopes = scopes_of(func)
        regions[gvar.name_hint] = tuple(scopes[name].scope for name in Region.of(func).params)

    def demand(site: CallSite) -> Needs | None:
        if site.callee in regions:
            return Needs(regions[site.callee], DRAM)
        if site.callee.startswith((PACK, FOLD)):
            return Needs((GLOBAL,), DRAM)
        return Needs((DRAM_INP,), (GLOBAL,)) if site.callee.startswith(UNPACK) else None

    return demand


def border_copies(mod: tvm.IRModule) -> list[Copy]:
    """Packs, unpacks and folds of ``main`` in order."""
    found = []
    functions = {gvar.name_hint: func for gvar, func in region_functions(mod).items()}
    stored: dict[relax.Var, tuple[str, ...]] = {}
    names: dict[relax.Var, str] = {}
    for binding in straight_bindings(mod["main"]):
        value = binding.value
        if isinstance(value, TupleGetItem) and value.tuple_value in stored:
            names[binding.var] = stored[value.tuple_value][value.index]
        if _callee(value) in functions:
            stored[binding.var] = Region.of(functions[_callee(value)]).outputs
            names[binding.var] = stored[binding.var][0]
        if op_name(value) != "relax.call_tir":
            continue
        callee = value.args[0].name_hint
        kind = next((k for k in (PACK, UNPACK, FOLD) if callee.startswith(k)), "")
        if kind:
            operand, result = value.args[1].fields[0], str(binding.var.name)
            source = names.get(operand, str(operand.name))
            nbytes = TensorFacts.of(binding.var.ty).nbytes
            found.append(Copy(kind.removeprefix("vta_"), source, result, nbytes))
    return found


# ---------------------------------------------------------------- text
def print_scopes(report: ScopeReport, machine: str, console: Console) -> None:
    """A table for each part, the host's copies, totals, and the rules by number."""
    rules: Notes[str] = Notes()
    for part in dict.fromkeys(row.part for row in report.rows):
        table = plain_table()
        table.add_column(part)
        for title in ("kind", "type", "demands", "scope"):
            table.add_column(title)
        for title in ("bytes", "moved", "saved"):
            table.add_column(title, justify="right")
        table.add_column("rule", no_wrap=True)
        for row in (row for row in report.rows if row.part == part):
            table.add_row(*_cells(row, rules))
        console.print(table)
        console.print()
    if report.copies:
        _print_copies(report.copies, console)
    print_lines(_totals(report, machine), console)
    console.print()
    print_lines([(rules.number(rule), rule) for rule in rules], console)


def _cells(row: Row, rules: Notes[str]) -> list[str]:
    decision = row.decision
    by_scope: dict[str, list[str]] = {}
    for consumer, scope in decision.demands:
        by_scope.setdefault(_short(scope), []).append(consumer)
    demands = "; ".join(f"{scope} by {_some(names)}" for scope, names in by_scope.items())
    cells = [decision.tensor, row.kind, decision.dtype, demands or "-", _short(decision.scope)]
    cells += [_bytes(n) for n in (decision.nbytes, row.traffic.moved, row.saved)]
    notes = [rules.number(decision.rule)]
    if row.calls > 1:
        notes.append(rules.number(f"resident: loaded once for {row.calls} calls in a row"))
    unmet = [item for item in row.on_chip if item.scope != ACC]
    notes += [rules.number(f"not fused: {item.rule}") for item in unmet]
    return [*cells, " ".join(notes)]


def _bytes(count: int) -> str:
    return f"{count:,}" if count else "-"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _short(scope: str) -> str:
    """``inp`` of ``global.vta.inp``; ``on chip`` for the accumulator buffer."""
    return "on chip" if scope == ACC else scope.rpartition(".")[2]


def _arena_text(arena: Arena) -> str:
    apart = f" instead of {megabytes(arena.apart)}" if arena.apart > arena.peak else ""
    return f"values between layers and results share {megabytes(arena.peak)}{apart}"


def _print_copies(copies: Sequence[Copy], console: Console) -> None:
    table = plain_table()
    for title in ("copy at a border", "from", "to"):
        table.add_column(title)
    table.add_column("bytes", justify="right")
    for copy in copies:
        table.add_row(copy.kind, copy.source, copy.tensor, f"{copy.nbytes:,}")
    console.print(table)
    console.print()


def _totals(report: ScopeReport, machine: str) -> list[tuple[str, str]]:
    scopes = report.bytes_by_scope()
    host = ", ".join(
        f"{count(c.count, name.removesuffix('s'))} {megabytes(c.nbytes)}"
        for name, c in report.host.items()
    )
    nbytes = megabytes(sum(row.nbytes for row in report.rows))
    return [
        ("machine", f"VTA {machine}"),
        ("tensors", f"{len(report.rows)}, {nbytes} in DRAM"),
        ("scopes", ", ".join(f"{scope} {megabytes(n)}" for scope, n in scopes.items())),
        ("moved by VTA", f"{megabytes(report.moved)}; saved on chip {megabytes(report.saved)}"),
        *((name, _arena_text(arena)) for name, arena in report.arenas.items()),
        ("host copies", host),
    ]
