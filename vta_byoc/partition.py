"""Which operators go to VTA: one table of patterns, and a reason for everything else.

:func:`mark` groups every match of the table into a composite function (attribute ``Composite`` =
``vta.conv2d`` and so on) that still computes on unpacked tensors, and records where each operator
of the model runs and why.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from vta_byoc.bindings import (
    FunctionWriter,
    op_name,
    source_name,
    straight_bindings,
    substituted,
    vars_in,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.layer_factor import APPROXIMATE, WORDS
from vta_byoc.quantizer import QUANTIZATION

from .bound import bound
from .operator_work import CONVERSIONS, MOVES, NOTHING, Work, computes, work_of
from .packing import blocks
from .patterns import elementwise, layers, movement, pooling
from .patterns.base import Parsed, PatternEntry, Plan
from .patterns.digits import is_lower_digit
from .patterns.graph import Binding, Graph, is_widening
from .workload import PoolWorkload

PLACEMENT_ATTR = "vta.placement"
SOURCE_ATTR = "vta.source"
"""On a composite: the source operator it computes."""
RESULT_ATTR = "vta.result"
"""On a composite: the variable of the quantized module that it computes."""
LEAST_ATTR = "vta.least"
"""On a composite: the least value that its int8 operands can hold."""
VTA, CPU = "vta", "cpu"
VIEW = "a view: the packed tensor stays as it is"
ABSORBED = "computed in "
"""The reason of an operator that is a part of another one's group begins with it."""

TABLE: tuple[PatternEntry, ...] = (
    *pooling.ENTRIES,  # averages are convolutions of ones: before the layers
    *layers.ENTRIES,
    *elementwise.ENTRIES,
    *movement.ENTRIES,
)
"""Earlier entries take their operators first; movement comes last, where the others are known."""


@dataclass(frozen=True)
class Placement:
    """Where one operator of the model runs.

    Attributes:
        name: its source name.
        op: its kind.
        device: "vta" or "cpu".
        reason: the rule that decided, and what would let it in.
        macs: multiply-accumulates (:class:`vta_byoc.operator_work.Work`).
        alu_ops: other integer operations on elements.
        note: how VTA computes it, where there was a choice.
        host_bytes: what the host copies to fold its operand, beyond packing it.
        cycles: what the compiler expects it to take on VTA, host copies included (0: on the CPU).
        bound: the machine bound of what runs on VTA, in cycles (`vta_byoc.bound`).
        other_macs, other_alu_ops: of these, what the other device than ``device`` computes: 0
            unless quantization took the operator apart.
    """

    name: str
    op: str
    device: str
    reason: str
    macs: int
    alu_ops: int = 0
    note: str = ""
    host_bytes: int = 0
    cycles: int = 0
    bound: int = 0
    other_macs: int = 0
    other_alu_ops: int = 0

    @property
    def on_vta(self) -> Work:
        """What of it VTA computes."""
        other = Work(self.other_macs, self.other_alu_ops)
        if self.device != VTA:
            return other
        return Work(self.macs - other.macs, self.alu_ops - other.alu_ops)

    @property
    def on_cpu(self) -> Work:
        """What of it the CPU computes."""
        mine = self.on_vta
        return Work(self.macs - mine.macs, self.alu_ops - mine.alu_ops)


@dataclass(frozen=True)
class Group:
    """A match of ``entry``: its bindings in order; the last one is the result.

    ``least``: the least value that its int8 operands can hold.
    """

    entry: PatternEntry
    bindings: tuple[Binding, ...]
    anchor: str
    work: object
    least: int

    @property
    def result(self) -> relax.Var:
        return self.bindings[-1].var


# ---------------------------------------------------------------- the pass
def mark(config: VTAConfig) -> tvm.transform.Pass:
    """Group what the table takes into composite functions and attach the placement record."""

    @tvm.transform.module_pass(opt_level=0, name="vta.Mark")
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        graph = Graph(mod["main"])
        matcher = _Matcher(graph, config)
        groups = matcher.groups()
        rejected = {**islands(mod), **matcher.rejected}
        records = list(_Placer(graph, groups, rejected, config, mod).records())
        text = json.dumps([dataclasses.asdict(r) for r in records])
        return _grouped(mod, groups).with_attr(PLACEMENT_ATTR, text)

    return run


def islands(mod: tvm.IRModule) -> dict[str, str]:
    """Operators that quantization had to leave float, and why."""
    record = mod.get_attr(QUANTIZATION)
    return dict(json.loads(record).get("islands", {})) if record is not None else {}


def estimated_cycles(main: relax.Function, config: VTAConfig) -> float | None:
    """Cycles by estimate of all operators of `main`; None where the CPU computes any of them."""
    graph = Graph(main)
    groups = _Matcher(graph, config).groups().values()
    inside = {b.var for group in groups for b in group.bindings}
    if any(b.var not in inside for b in graph.bindings):
        return None
    parsed = ((group.entry, group.entry.read(group.bindings, config)) for group in groups)
    return sum(entry.plan(each, config, False).cycles for entry, each in parsed)


def factor_forms(mod: tvm.IRModule) -> dict[str, str]:
    """Layers that need no multiplier for their factor: name -> one of `layer_factor.FORMS`."""
    text = mod.get_attr(QUANTIZATION)
    factors = json.loads(text).get("factors", {}) if text is not None else {}
    return {name: entry["form"] for name, entry in factors.items()}


def absorbed(mod: tvm.IRModule) -> dict[str, tuple[str, str]]:
    """Operators that quantization computes inside of another one: (its name, their kind)."""
    record = mod.get_attr(QUANTIZATION)
    found = {} if record is None else json.loads(record).get("absorbed", {})
    return {name: (layer, kind) for name, (layer, kind) in found.items()}


class _Matcher:
    """Finds the groups; ``rejected`` has the reason for each source operator not taken."""

    def __init__(self, graph: Graph, config: VTAConfig) -> None:
        self._graph = graph
        self._config = config
        self._taken: set[relax.Var] = set()
        self.rejected: dict[str, str] = {}

    def groups(self) -> dict[relax.Var, Group]:
        """Groups by the variable of their result."""
        found: dict[relax.Var, Group] = {}
        for entry in TABLE:
            if not entry.moves:
                for binding in self._graph.bindings:
                    self._take(self._group(entry, binding), found)
        for binding in self._graph.bindings:
            for entry in TABLE:
                group = self._group(entry, binding) if entry.moves else None
                if group is not None and self._belongs(group, found):
                    self._take(group, found)
        return found

    def _take(self, group: Group | None, found: dict[relax.Var, Group]) -> None:
        if group is not None:
            found[group.result] = group
            self._taken.update(b.var for b in group.bindings)

    def _belongs(self, group: Group, found: Mapping[relax.Var, Group]) -> bool:
        """Whether a movement of data has an operand on VTA."""
        own = {b.var for b in group.bindings}
        reads = {v for b in group.bindings for v in vars_in(b.value) if v not in own}
        on_vta = any(v in found for v in reads)
        if not on_vta:
            self.rejected[source_name(group.result)] = (
                "moves data that the CPU computes; VTA moves what it has computed itself"
            )
        return on_vta

    def _group(self, entry: PatternEntry, binding: Binding) -> Group | None:
        if op_name(binding.value) not in entry.anchors:
            return None
        bindings = entry.match(self._graph, binding)
        if bindings is None or any(self._is_taken(b) for b in bindings):
            return None
        try:
            parsed = entry.read(bindings, self._config)
            entry.plan(parsed, self._config, False)
        except VTAError as err:
            for b in bindings:
                self.rejected.setdefault(source_name(b.var), str(err))
            return None
        least = min((self._graph.least(x) for x in parsed.operands), default=-128)
        return Group(entry, tuple(bindings), op_name(binding.value), parsed.work, least)

    def _is_taken(self, binding: Binding) -> bool:
        """A widening may be part of several groups: each widens its operand itself."""
        return binding.var in self._taken and not is_widening(binding.value)


def _grouped(mod: tvm.IRModule, groups: Mapping[relax.Var, Group]) -> tvm.IRModule:
    """``mod`` with a composite function for each group."""
    inside = {b.var for group in groups.values() for b in group.bindings}
    builder = relax.BlockBuilder(tvm.IRModule(dict(mod.functions)))
    writer = FunctionWriter(builder)
    env: dict[relax.Var, relax.Expr] = {}
    main = mod["main"]
    needed = _needed(main, groups)
    for binding in straight_bindings(main):
        var = binding.var
        group = groups.get(var)
        if group is not None:
            function, args = _composite(group)
            name = builder.add_func(function, group.entry.name.replace(".", "_"))
            call = relax.Call(name, [substituted(a, env) for a in args])
            env[var] = writer.emit(call, str(var.name))
        elif var not in inside or var in needed:
            env[var] = writer.emit(substituted(binding.value, env), str(var.name))
    result = builder.get()
    body = substituted(main.body.body, env)
    result.update_func(result.get_global_var("main"), writer.finish(main, body))
    for key, value in (mod.attrs or {}).items():
        result = result.with_attr(key, value)
    return relax.transform.Normalize()(result)


def _needed(main: relax.Function, groups: Mapping[relax.Var, Group]) -> set[relax.Var]:
    """Variables inside of groups that something outside of them reads too."""
    owned = {b.var for group in groups.values() for b in group.bindings}
    reads = {v for b in straight_bindings(main) if b.var not in owned for v in vars_in(b.value)}
    return (reads | set(vars_in(main.body.body))) & (owned - set(groups))


def _composite(group: Group) -> tuple[relax.Function, list[relax.Var]]:
    """The group as a function, and the arguments of its call."""
    own = {b.var for b in group.bindings}
    reads = [v for b in group.bindings for v in vars_in(b.value) if v not in own]
    args = list(dict.fromkeys(reads))
    params = [relax.Var(str(a.name), a.ty) for a in args]
    env: dict[relax.Var, relax.Expr] = dict(zip(args, params, strict=True))
    bindings = []
    for binding in group.bindings:
        last = binding is group.bindings[-1]
        make = relax.Var if last else relax.DataflowVar
        copy = make(str(binding.var.name), binding.var.ty)
        bindings.append(relax.VarBinding(copy, substituted(binding.value, env)))
        env[binding.var] = copy
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], env[group.result])
    function = relax.Function(params, body, ret_ty=group.result.ty)
    attrs = {
        "Composite": group.entry.name,
        "Primitive": True,
        SOURCE_ATTR: source_name(group.result),
        RESULT_ATTR: str(group.result.name),
        LEAST_ATTR: group.least,
    }
    return function.with_attrs(attrs), args


# ---------------------------------------------------------------- reading composites
def entry_of(composite: str) -> PatternEntry:
    """The table's row of a composite name."""
    return next(e for e in TABLE if e.name == composite)


def composites(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """Composite functions of ``mod`` by the name of their global variable."""
    return {
        gv.name_hint: func
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and func.attrs and "Composite" in func.attrs
    }


def composite_source(func: relax.Function) -> str:
    """The source operator of a composite that :func:`mark` made."""
    return str(func.attrs[SOURCE_ATTR])


def parse_composite(
    func: relax.Function, config: VTAConfig
) -> tuple[PatternEntry, Parsed]:
    """The table row and workload of a composite function."""
    entry = entry_of(str(func.attrs["Composite"]))
    parsed = entry.read(straight_bindings(func), config)
    if isinstance(parsed.work, PoolWorkload):
        work = dataclasses.replace(parsed.work, low=int(func.attrs[LEAST_ATTR]))
        parsed = dataclasses.replace(parsed, work=work)
    return entry, parsed


# ---------------------------------------------------------------- the record
class _Placer:
    """One record for each operator of the model, in the order of their first bindings."""

    def __init__(
        self,
        graph: Graph,
        groups: Mapping[relax.Var, Group],
        rejected: Mapping[str, str],
        config: VTAConfig,
        mod: tvm.IRModule,
    ) -> None:
        self._graph = graph
        self._groups = groups
        self._rejected = rejected
        self._config = config
        self._mod = mod
        self._absorbed = absorbed(mod)
        self._inside = {b.var: group for group in groups.values() for b in group.bindings}
        self._bindings: dict[str, list[Binding]] = {}
        for binding in graph.bindings:
            if op_name(binding.value):
                self._bindings.setdefault(source_name(binding.var), []).append(binding)

    def records(self) -> Iterator[Placement]:
        """The placement record."""
        for name, bindings in self._bindings.items():
            works = {b.var: self._work_of(b) for b in bindings}
            inside = [b for b in bindings if b.var in self._inside]
            outside = [b for b in bindings if b.var not in self._inside]
            total = sum(works.values(), NOTHING)
            on_vta = sum((works[b.var] for b in inside), NOTHING)
            record = self._placed(name, bindings, works)
            on_cpu = sum((works[b.var] for b in outside), NOTHING)
            other = on_vta if record.device == CPU else on_cpu
            yield dataclasses.replace(
                record,
                macs=total.macs,
                alu_ops=total.alu_ops,
                other_macs=other.macs,
                other_alu_ops=other.alu_ops,
            )

    def _work_of(self, binding: Binding) -> Work:
        """The work of an operator; a second digit of its weights multiplies nothing anew."""
        work = work_of(binding.value, self._mod)
        return dataclasses.replace(work, macs=0) if is_lower_digit(self._graph, binding) else work

    def _placed(
        self, name: str, bindings: Sequence[Binding], works: Mapping[relax.Var, Work]
    ) -> Placement:
        """Where an operator runs, without its work: on VTA if nothing or the smaller part of its
        multiply-accumulates is left to the CPU."""
        outside = [b for b in bindings if b.var not in self._inside]
        left = [b for b in outside if computes(b.value)]
        groups = [self._groups[b.var] for b in bindings if b.var in self._groups]
        cpu = sum(works[b.var].macs for b in outside)
        if groups and (not left or sum(work.macs for work in works.values()) > 2 * cpu):
            most = max(groups, key=lambda group: _macs(group, works))
            least = sum(bound(g.work, self._config) for g in groups)
            reason = self._reason(most, left)
            return Placement(name, most.anchor, VTA, reason, 0, bound=least)
        if (whole := self._whole(bindings)) is not None:
            reason = f"pattern {whole.entry.name}; part of {source_name(whole.result)}"
            return Placement(name, op_name(bindings[-1].value), VTA, reason, 0)
        if name in self._absorbed and not left and not groups:
            layer, kind = self._absorbed[name]
            if self._runs_on_vta(layer):
                return Placement(name, kind, VTA, f"{ABSORBED}{layer}", 0)
        return Placement(name, *self._why(name, outside or bindings, works), 0)

    def _runs_on_vta(self, layer: str) -> bool:
        """Whether groups compute the operator ``layer``."""
        return any(b.var in self._groups for b in self._bindings.get(layer, ()))

    def _whole(self, bindings: Sequence[Binding]) -> Group | None:
        """The group whose inner values ``bindings`` compute, where nothing else reads them."""
        group = self._inside.get(bindings[-1].var)
        own = {b.var for b in group.bindings} if group else set()
        users = [user for b in bindings for user in self._graph.users.get(b.var, [])]
        hidden = all(b.var in own for b in bindings) and all(u and u.var in own for u in users)
        return group if hidden else None

    def _reason(self, group: Group, left: Sequence[Binding]) -> str:
        idle = _idle_share(group.work, self._config)
        kinds = dict.fromkeys(op_name(b.value).removeprefix("relax.") for b in left)
        rest = f"the CPU computes its {', '.join(kinds)}" if kinds else ""
        return "; ".join(filter(None, (f"pattern {group.entry.name}", idle, rest)))

    def _why(
        self, name: str, bindings: Sequence[Binding], works: Mapping[relax.Var, Work]
    ) -> tuple[str, str, str]:
        """Kind of an operator that stays on the CPU, the device and the reason."""
        kind = _kind(bindings, works)
        if name in self._rejected:
            return kind, CPU, self._rejected[name]
        taken = {anchor: e.name for e in TABLE for anchor in e.anchors}
        if kind in taken:
            whole = f"not the whole pattern {taken[kind]} (int8 operands, constant weights)"
            return kind, CPU, whole
        return kind, CPU, f"no pattern of the partition table takes {kind}"


def _macs(group: Group, works: Mapping[relax.Var, Work]) -> int:
    """What ``group`` has of the multiply-accumulates in ``works``."""
    return sum(works.get(b.var, NOTHING).macs for b in group.bindings)


def _operator(expr: relax.Expr) -> str:
    """The operator of a call; of one that the importer has written as loops, their name."""
    name = op_name(expr)
    return f"relax.{expr.args[0].name_hint}" if name == "relax.call_tir" else name


def _kind(bindings: Sequence[Binding], works: Mapping[relax.Var, Work]) -> str:
    """What an operator is that became ``bindings``: what multiplies and accumulates the most, else
    what computes and is no step, else the first that is no step."""
    most = max(bindings, key=lambda b: works[b.var].macs)
    if works[most.var].macs:
        return _operator(most.value)
    kinds = [_operator(b.value) for b in bindings]
    main = [k for k in kinds if k not in STEP_KINDS]
    return next((k for k in main if k not in MOVES | CONVERSIONS), (main or kinds[-1:])[0])


STEP_KINDS = frozenset(
    f"relax.{op}"
    for op in ("astype", "multiply", "right_shift", "left_shift", "maximum", "minimum")
)
"""Operators that only widen, scale and saturate what another operator of the group computed."""


def _idle_share(work: object, config: VTAConfig) -> str:
    """What share of the machine's batch lanes the shape leaves idle, "" when none."""
    batch = int(getattr(work, "batch", config.batch))
    rows = batch / (blocks(batch, config.batch) * config.batch)
    return "" if rows == 1 else f"{100 * (1 - rows):.0f} % of the batch lanes idle"


def placements(mod: tvm.IRModule) -> list[Placement]:
    """The placement record of a module that :func:`mark` has seen."""
    if mod.attrs is None or PLACEMENT_ATTR not in mod.attrs:
        raise VTAError("module has no placement record; run partition_for_vta on it first")
    return [Placement(**r) for r in json.loads(str(mod.attrs[PLACEMENT_ATTR]))]


def with_notes(
    mod: tvm.IRModule,
    plans: Mapping[str, Sequence[tuple[Plan, int]]],
    views: Collection[str],
) -> tvm.IRModule:
    """``mod`` whose record says how each source is computed: (plan, host bytes) of its composites.

    ``views`` are sources that turned out to cost nothing.
    """
    records, factors = [], factor_forms(mod)
    for record in placements(mod):
        if record.name in views and record.device == CPU:
            record = dataclasses.replace(record, device=VTA, reason=VIEW)
        if record.name in plans:
            own = plans[record.name]
            forms = [WORDS[APPROXIMATE]] if factors.get(record.name) == APPROXIMATE else []
            record = dataclasses.replace(
                record,
                note="; ".join(dict.fromkeys([*(plan.note for plan, _ in own), *forms])),
                host_bytes=sum(host for _, host in own),
                cycles=round(sum(plan.cycles for plan, _ in own)),
            )
        records.append(dataclasses.asdict(record))
    return mod.with_attr(PLACEMENT_ATTR, json.dumps(records))


