"""Placing: one record for each operator of a model, from the groups that the matcher found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tvm
from tvm import relax

from vta_byoc.cost.lower_bound import Ahead, Around, Cycles, cycles
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import op_name, source_name, vars_in
from vta_byoc.ir.chains import Binding, Graph
from vta_byoc.ir.operator_work import NOTHING, OperatorWork, computes, kind_of, work_of
from vta_byoc.ir.quantization_record import absorbed
from vta_byoc.partitioning.digits import is_lower_digit
from vta_byoc.partitioning.matcher import Group
from vta_byoc.partitioning.placement import CPU, VTA, Placement, Taken
from vta_byoc.partitioning.table import entries
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import ElementwiseWorkload, PoolWorkload


class Placer:
    """One record for each operator of the model, in the order of their first bindings."""

    def __init__(
        self,
        graph: Graph,
        groups: Mapping[relax.Var, Group],
        rejected: Mapping[str, Refusal],
        config: VTAConfig,
        mod: tvm.IRModule,
        passed_over: Mapping[str, Refusal],
    ) -> None:
        self._graph = graph
        self._groups = groups
        self._rejected = rejected
        self._config = config
        self._ahead = Ahead(config)
        self._mod = mod
        self._passed_over = passed_over
        self._absorbed = absorbed(mod)
        self._inside = {b.var: group for group in groups.values() for b in group.bindings}
        self._number = {b.var: i for i, b in enumerate(graph.bindings)}
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

    def _work_of(self, binding: Binding) -> OperatorWork:
        """The work of an operator; a second digit of its weights multiplies nothing anew."""
        work = work_of(binding.value, self._mod)
        return dataclasses.replace(work, macs=0) if is_lower_digit(self._graph, binding) else work

    def _placed(
        self, name: str, bindings: Sequence[Binding], works: Mapping[relax.Var, OperatorWork]
    ) -> Placement:
        """Where an operator runs, without its work.

        It runs on VTA if nothing, or less than half of its multiply-accumulates, is left to the
        CPU.
        """
        outside = [b for b in bindings if b.var not in self._inside]
        left = [b for b in outside if computes(b.value)]
        groups = [self._groups[b.var] for b in bindings if b.var in self._groups]
        cpu = sum(works[b.var].macs for b in outside)
        if groups and (not left or sum(work.macs for work in works.values()) > 2 * cpu):
            most = max(groups, key=lambda group: _work_in(group, works))
            least = sum(self._ahead.bound(each) for group in groups for each in self._least(group))
            return Placement(name, most.anchor, VTA, self._taken(name, most, left), 0, bound=least)
        if (whole := self._whole(bindings)) is not None:
            part = f"part of {source_name(whole.result)}"
            taken = Taken(whole.entry.name, remarks=(part,))
            return Placement(name, op_name(bindings[-1].value), VTA, taken, 0)
        if name in self._absorbed and not left and not groups:
            layer, kind = self._absorbed[name]
            if self._runs_on_vta(layer):
                return Placement(name, kind, VTA, Taken(within=layer), 0)
        kind = kind_of(outside or bindings, works)
        refusal = self._refusal(name, kind)
        if groups:
            parts = f"VTA computes its {_kinds(group.anchor for group in groups)}"
            limit = "; ".join(filter(None, (refusal.limit, parts)))
            refusal = dataclasses.replace(refusal, limit=limit)
        return Placement(name, kind, CPU, refusal, 0)

    def _least(self, group: Group) -> list[Cycles]:
        """The least cycles of a group's layers, in the way its operators can go that has fewer."""
        around, apart = self._around(group), group.match.parsed.apart
        whole = [cycles(group.work, self._config, around)]
        if not apart:
            return whole
        *first, last = (each.work for each in apart)
        parts = [cycles(work, self._config) for work in first]
        parts.append(cycles(last, self._config, around))
        return min(whole, parts, key=lambda layers: sum(each.alone for each in layers))

    def _around(self, group: Group) -> Around:
        """The layers around a group, as far as the bound depends on them."""
        return dataclasses.replace(self._reader(group), loads=self._loads(group))

    def _loads(self, group: Group) -> bool:
        """Whether every whole operand of several is needed before another one is known."""
        work, operands = group.work, group.match.parsed.operands
        if not isinstance(work, ElementwiseWorkload) or work.operands < 2:
            return False
        whole = [x for i, x in enumerate(operands[: work.operands]) if not work.repeated(i)]
        return bool(whole) and all(
            any(self._needs(other, x) for other in operands if not other.same_as(x)) for x in whole
        )

    def _needs(self, value: relax.Expr, source: relax.Expr) -> bool:
        """Whether ``value`` is computed from ``source``."""
        seen: set[relax.Var] = set()
        waiting = list(vars_in(value))
        first = self._number.get(source, -1)
        while waiting:
            var = waiting.pop()
            if var.same_as(source):
                return True
            if var in seen or self._number.get(var, -1) < first:
                continue
            seen.add(var)
            if var in self._graph.defined:
                waiting += vars_in(self._graph.defined[var].value)
        return False

    def _reader(self, group: Group) -> Around:
        """The only layer on VTA that reads a result.

        Nothing where there is none that takes it on chip.
        """
        users = self._graph.users.get(group.result, [])
        user = users[0] if len(users) == 1 else None
        by = self._inside.get(user.var) if user is not None else None
        if by is None:
            return Around()
        if isinstance(by.work, PoolWorkload) and by.work.kind == "max":
            return Around(on_chip=True, pooled=by.work.out_shape)
        if not isinstance(by.work, ElementwiseWorkload):
            return Around()
        pooled = self._reader(by).pooled if by.work.operands == 1 else None
        sums = by.work.operands > 1 and by.work.op == "add"
        return Around(on_chip=True, pooled=pooled, sums=sums)

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

    def _taken(self, name: str, group: Group, left: Sequence[Binding]) -> Taken:
        idle = _idle_share(group.work, self._config)
        rest = f"the CPU computes its {_kinds(op_name(b.value) for b in left)}" if left else ""
        refused = self._passed_over.get(name)
        why = f"not by a plug-in's pattern: {refused.text}" if refused else ""
        return Taken(group.entry.name, remarks=tuple(filter(None, (idle, rest, why))))

    def _refusal(self, name: str, kind: str) -> Refusal:
        """Why an operator of ``kind`` stays on the CPU."""
        if name in self._rejected:
            return self._rejected[name]
        patterns = {anchor: e.name for e in entries() for anchor in e.anchors}
        if kind in patterns:
            whole = f"{patterns[kind]} (int8 operands, constant weights)"
            return Refusal("not the whole pattern", whole)
        return Refusal("no pattern of the partition table takes", kind)


def _work_in(group: Group, works: Mapping[relax.Var, OperatorWork]) -> tuple[int, int]:
    """What ``group`` has of ``works``: multiply-accumulates, then operations on elements."""
    found = sum((works.get(b.var, NOTHING) for b in group.bindings), NOTHING)
    return found.macs, found.alu_ops


def _kinds(names: Iterable[str]) -> str:
    """Kinds of operators in words, each once."""
    return ", ".join(dict.fromkeys(name.removeprefix("relax.") for name in names))


def _idle_share(work: object, config: VTAConfig) -> str:
    """What share of the machine's batch lanes the shape leaves idle, "" when none."""
    batch = int(getattr(work, "batch", config.batch))
    rows = batch / (blocks(batch, config.batch) * config.batch)
    return "" if rows == 1 else f"{100 * (1 - rows):.0f} % of the batch lanes idle"
