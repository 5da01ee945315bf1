"""The placement record: where each operator of a model runs, why, and how VTA computes it."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm

from vta_byoc.base.choices import APPROXIMATE
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.hw.html_table import first_rows, html_table
from vta_byoc.ir.operator_work import OperatorWork
from vta_byoc.ir.quantization_record import (
    WORDS,
    computed_in,
    exact_reasons,
    exact_text,
    factor_forms,
    function_text,
    functions,
)
from vta_byoc.ir.records import as_record, text_of
from vta_byoc.ir.selection import Operators
from vta_byoc.partitioning.composite import PLACEMENT_ATTR
from vta_byoc.partitioning.entry import Candidate, Plan

LOG = logging.getLogger(__name__)
VTA, CPU = "vta", "cpu"
ROUTED = "not carried out: convolutions store and read the channels in their places"
VIEW = "a view: the packed tensor stays as it is"


@dataclass(frozen=True)
class Taken:
    """Why an operator runs on VTA.

    Attributes:
        pattern: the row of the partition table that took it; "" for an operator that needs none.
        within: the operator of the model that it is computed in; "" where it needs nothing at all,
            because the packed tensor stays as it is.
        kernel: the schedule of the user's own that computes it, and who registered it.
        remarks: what is unusual about it.
    """

    pattern: str = ""
    within: str = ""
    kernel: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """What took it, in words."""
        if self.pattern:
            return f"pattern {self.pattern}"
        if self.kernel:
            return f"kernel {self.kernel}"
        return f"computed in {self.within}" if self.within else VIEW

    @property
    def text(self) -> str:
        """The rule and the remarks."""
        return "; ".join((self.rule, *self.remarks))


@dataclass(frozen=True)
class Placement:
    """Where one operator of the model runs.

    Attributes:
        name: its source name.
        op: its kind.
        device: "vta" or "cpu".
        why: what took it for VTA, or why the CPU computes it.
        macs: multiply-accumulates (:class:`vta_byoc.ir.operator_work.OperatorWork`).
        alu_ops: other integer operations on elements.
        computed_by: what VTA computes it by: one of each of its composites, different ones only.
        host_bytes: what the host copies to fold its operand, beyond packing it.
        cycles: what the compiler expects it to take on VTA, host copies included (0: on the CPU).
        bound: the roofline lower bound of what runs on VTA, in cycles, behind the layers before it
            (`vta_byoc.cost.lower_bound`).
        other_macs: of these, what the other device than ``device`` computes: 0 unless quantization
            took the operator apart.
        other_alu_ops: the same of ``alu_ops``.
    """

    name: str
    op: str
    device: str
    why: Taken | Refusal
    macs: int
    alu_ops: int = 0
    computed_by: tuple[Candidate, ...] = ()
    host_bytes: int = 0
    cycles: int = 0
    bound: int = 0
    other_macs: int = 0
    other_alu_ops: int = 0

    @property
    def reason(self) -> str:
        """The rule that decided and what would let it in, in one line."""
        return self.why.text

    @property
    def note(self) -> str:
        """How VTA computes it, with the estimates where there was a choice."""
        return "; ".join(candidate.text for candidate in self.computed_by)

    @property
    def on_vta(self) -> OperatorWork:
        """What of it VTA computes."""
        other = OperatorWork(self.other_macs, self.other_alu_ops)
        if self.device != VTA:
            return other
        return OperatorWork(self.macs - other.macs, self.alu_ops - other.alu_ops)

    @property
    def on_cpu(self) -> OperatorWork:
        """What of it the CPU computes."""
        mine = self.on_vta
        return OperatorWork(self.macs - mine.macs, self.alu_ops - mine.alu_ops)

    def to_json(self) -> dict[str, Any]:
        """The placement as the attribute of a module holds it."""
        key = "taken" if isinstance(self.why, Taken) else "refusal"
        fields = dataclasses.asdict(self)
        return {key: fields.pop("why"), **fields}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Placement:
        """The placement that :meth:`to_json` wrote."""
        fields = dict(value)
        taken, refusal = fields.pop("taken", None), fields.pop("refusal", None)
        why: Taken | Refusal = Refusal(**(refusal or {"what": ""}))
        if taken is not None:
            why = Taken(**{**taken, "remarks": tuple(taken["remarks"])})
        by = tuple(map(Candidate.from_json, fields.pop("computed_by")))
        return cls(**fields, why=why, computed_by=by)


class Placements(list[Placement]):
    """The placement record of a model: a list with a short text, and a table in notebooks."""

    @property
    def summary(self) -> str:
        """How many operators, and which share of the MACs, VTA runs."""
        on_vta = [each for each in self if each.device == VTA]
        total, taken = (sum(each.macs for each in self), sum(each.on_vta.macs for each in self))
        share = f", {100 * taken / total:.1f} % of the MACs" if total else ""
        return f"operators on VTA: {len(on_vta)} of {len(self)}{share}"

    def __repr__(self) -> str:
        return f"<Placements: {self.summary}>"

    def _repr_html_(self) -> str:
        rows = [
            (each.name, each.op, each.device, f"{each.macs:,}", f"{each.cycles:,}", each.reason)
            for each in self
        ]
        titles = ("operator", "kind", "device", "MACs", "cycles", "reason")
        return html_table(self.summary, titles, first_rows(rows))


def placements(mod: tvm.IRModule) -> Placements:
    """The placement record of a module that :func:`vta_byoc.partition.mark` has seen."""
    if mod.attrs is None or PLACEMENT_ATTR not in mod.attrs:
        raise VTAError("module has no placement record; run partition_for_vta on it first")
    records = json.loads(text_of(mod.attrs[PLACEMENT_ATTR]))
    return Placements(map(Placement.from_json, records))


def placed_operators(mod: tvm.IRModule) -> Operators:
    """The operators of the placement record, for selectors."""
    kinds = {record.name: record.op for record in placements(mod)}
    return Operators(list(kinds), kinds.__getitem__, computed_in(mod))


def with_placements(mod: tvm.IRModule, records: Iterable[Placement]) -> tvm.IRModule:
    """``mod`` with ``records`` as its placement record."""
    listed = list(records)
    for each in listed:
        LOG.debug("%s (%s) runs on %s: %s", each.name, each.op, each.device, each.reason)
    text = json.dumps([each.to_json() for each in listed])
    return mod.with_attr(PLACEMENT_ATTR, as_record(text))


def with_plans(
    mod: tvm.IRModule,
    plans: Mapping[str, Sequence[tuple[Plan, int]]],
    movements: Mapping[str, Taken | Refusal],
    routed: Collection[str] = (),
) -> tvm.IRModule:
    """``mod`` whose record says how each source is computed: (plan, host bytes) of its composites.

    ``movements`` say what became of them, ``routed`` are sources whose channels the convolutions
    around them store and read elsewhere.
    """
    records, factors, found = [], factor_forms(mod), functions(mod)
    exact = exact_reasons(mod)
    for record in placements(mod):
        if record.name in movements and record.device == CPU:
            why = movements[record.name]
            device = VTA if isinstance(why, Taken) else CPU
            record = dataclasses.replace(record, why=why, device=device)
        if record.name in routed:
            still = (Candidate(ROUTED),)
            record = dataclasses.replace(record, computed_by=still, cycles=0, bound=0)
        if record.name in plans:
            own = plans[record.name]
            by = [plan.candidate for plan, _ in own]
            if factors.get(record.name) == APPROXIMATE:
                by.append(Candidate(WORDS[APPROXIMATE]))
            if record.name in found:
                by.append(Candidate(function_text(found[record.name])))
            if record.name in exact:
                by.append(Candidate(exact_text(exact[record.name])))
            record = dataclasses.replace(
                record,
                computed_by=tuple({candidate.text: candidate for candidate in by}.values()),
                host_bytes=sum(host for _, host in own),
                cycles=round(sum(plan.cycles for plan, _ in own)),
            )
        records.append(record)
    return with_placements(mod, records)
