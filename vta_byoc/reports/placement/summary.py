"""Where every operator of a model runs, why, and what would bring the others to VTA."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.quantities import count, percent
from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.bindings import op_name, static_shape, straight_bindings
from vta_byoc.ir.names import JOINT, operators_of
from vta_byoc.partitioning.packed_forms import FOLD, PACK, UNPACK
from vta_byoc.partitioning.placement import VTA, Placement, Taken, placements
from vta_byoc.partitioning.region import Region, region_calls

PLAIN = ("", "packed GEMM")
"""What an operator may be computed by without a remark."""
BORDERS = ("relax.quantize", "relax.dequantize")
NAMED = 4
"""Operators that are named where a share is too small."""


# ---------------------------------------------------------------- one operator
def refusal(op: Placement) -> Refusal | None:
    """Why the CPU computes an operator and what would let it in; None of one on VTA."""
    if isinstance(op.why, Taken):
        return None
    return dataclasses.replace(op.why, remedy=op.why.remedy or _usual_step(op, op.why))


def next_step(op: Placement) -> str:
    """What would let an operator in; "" on VTA."""
    found = refusal(op)
    return "" if found is None else found.remedy


def remark(op: Placement) -> str:
    """What is unusual about an operator on VTA; "" for nothing."""
    return "; ".join(op.why.remarks) if isinstance(op.why, Taken) else ""


def pattern(op: Placement) -> str:
    """The row of the partition table that took an operator; "" where none did."""
    return op.why.pattern if isinstance(op.why, Taken) else ""


def _usual_step(op: Placement, why: Refusal) -> str:
    """What would let an operator in whose refusal does not say it."""
    if op.op in BORDERS:
        return "nothing: float values begin or end here"
    if why.value == op.op:
        return "an integer form of it and an entry of the partition table with a strategy"
    return "the whole pattern: int8 operands, constant weights, a rescale to int8"


def kind(op: Placement) -> str:
    """``conv2d`` of ``relax.nn.conv2d``."""
    return op.op.removeprefix("relax.").removeprefix("nn.")


def of_any_kind(op: Placement) -> Taken | Refusal:
    """Why an operator runs where it does, in the same words for every kind of operator."""
    why = op.why
    if isinstance(why, Refusal) and why.value == op.op:
        return dataclasses.replace(why, value="this kind")
    return why


def how(op: Placement) -> str:
    """How VTA computes it, without what the choice would cost otherwise."""
    by = (candidate.how for candidate in op.computed_by)
    return "; ".join(dict.fromkeys(by)) if op.device == VTA else ""


# ---------------------------------------------------------------- totals
@dataclass(frozen=True)
class Share:
    """How much of one kind of work runs on VTA."""

    what: str
    on_vta: int
    total: int

    @property
    def percent(self) -> float | None:
        """None where there is no such work."""
        return 100 * self.on_vta / self.total if self.total else None

    @property
    def text(self) -> str:
        """The total, what of it is on VTA, and the share of that in percent."""
        of = f" ({percent(self.on_vta, self.total)})" if self.total else ""
        return f"{self.total:,}, on VTA {self.on_vta:,}{of}"

    def reaches(self, least: float) -> bool:
        """Whether at least ``least`` percent are on VTA; so is no work at all."""
        return 100 * self.on_vta >= least * self.total


def macs_share(placement: Iterable[Placement]) -> Share:
    """Multiply-accumulates."""
    return _share("MACs", ((op.on_vta.macs, op.macs) for op in placement))


def alu_share(placement: Iterable[Placement]) -> Share:
    """Integer operations on elements that are no multiply-accumulates."""
    return _share("ALU operations", ((op.on_vta.alu_ops, op.alu_ops) for op in placement))


def _share(what: str, amounts: Iterable[tuple[int, int]]) -> Share:
    listed = list(amounts)
    return Share(what, sum(mine for mine, _ in listed), sum(total for _, total in listed))


def shortfalls(placement: Sequence[Placement], least: float) -> list[str]:
    """A line for each kind of work of which less than ``least`` percent are on VTA.

    It says how much is missing and which operators have the most of it.
    """
    lines = [
        _shortfall(share, least, [(amount(op), op.name) for op in placement])
        for share, amount in (
            (macs_share(placement), lambda op: op.on_cpu.macs),
            (alu_share(placement), lambda op: op.on_cpu.alu_ops),
        )
        if not share.reaches(least)
    ]
    if least > 0 and not lines and all(op.device != VTA for op in placement):
        return ["no operator runs on VTA"]
    return lines


def _shortfall(share: Share, least: float, left: Iterable[tuple[int, str]]) -> str:
    most = sorted((pair for pair in left if pair[0]), key=lambda pair: -pair[0])
    names = ", ".join(f"{name} {amount:,}" for amount, name in most[:NAMED])
    more = f" and {count(len(most) - NAMED, 'more operator')}" if len(most) > NAMED else ""
    return (
        f"{percent(share.on_vta, share.total)} of the {share.what} run on VTA, {least:g} % must; "
        f"on the CPU are {share.total - share.on_vta:,} of {share.total:,}: {names}{more}"
    )


# ---------------------------------------------------------------- the host's part
@dataclass(frozen=True)
class Copies:
    """Layout changes of one kind that the host makes: how many, and the bytes that they write."""

    count: int = 0
    nbytes: int = 0


def host_copies(mod: tvm.IRModule) -> dict[str, Copies]:
    """Packs, unpacks and folds of a partitioned module."""
    found = {name: Copies() for name in ("packs", "unpacks", "folds")}
    kinds = {PACK: "packs", UNPACK: "unpacks", FOLD: "folds"}
    for binding in straight_bindings(mod["main"]):
        name = next((n for prefix, n in kinds.items() if _callee(binding.value, prefix)), None)
        if name is not None:
            old = found[name]
            found[name] = Copies(old.count + 1, old.nbytes + _nbytes(binding.var))
    return found


def _callee(value: relax.Expr, prefix: str) -> bool:
    """Whether ``value`` calls a function of the host whose name begins with ``prefix``."""
    if op_name(value) != "relax.call_tir":
        return False
    return bool(value.args[0].name_hint.startswith(prefix))


def _nbytes(var: relax.Var) -> int:
    return math.prod(static_shape(var)) * tvm.DataType(str(var.ty.dtype)).bits // 8


def regions_of(mod: tvm.IRModule) -> dict[str, list[str]]:
    """The operators of each region of a partitioned module, by its name."""
    return {
        made.name: list(dict.fromkeys(_operators(Region.of(made.func))))
        for made in region_calls(mod).values()
    }


def _operators(region: Region) -> Iterator[str]:
    for step in region.steps:
        yield from step.source.split(JOINT) if JOINT in step.source else operators_of(step.output)


# ---------------------------------------------------------------- the report
@dataclass(frozen=True)
class PlaceReport:
    """Everything that `vta-byoc place` shows.

    Attributes:
        model, config: as given.
        placement: in the model's order.
        regions: the operators of each, by its name.
        copies: the host's "packs", "unpacks" and "folds".
        least: the percentage of `--fail-under`, None without.
    """

    model: str
    config: str
    placement: Sequence[Placement]
    regions: Mapping[str, Sequence[str]]
    copies: Mapping[str, Copies]
    least: float | None = None

    @classmethod
    def of(
        cls, mod: tvm.IRModule, model: str, config: str, least: float | None = None
    ) -> PlaceReport:
        """What the partitioned module ``mod`` says."""
        return cls(model, config, placements(mod), regions_of(mod), host_copies(mod), least)

    @property
    def shortfalls(self) -> list[str]:
        """What `--fail-under` found."""
        return [] if self.least is None else shortfalls(self.placement, self.least)

    def to_json(self) -> JsonObject:
        """The object of `--json`; docs/placement.md explains its keys, which do not change."""
        checked = {"percent": self.least, "ok": not self.shortfalls, "missing": self.shortfalls}
        return {
            "model": self.model,
            "config": self.config,
            "placement": placement_json(self.placement),
            "regions": [{"name": name, "ops": list(o)} for name, o in self.regions.items()],
            "host": {n: {"count": c.count, "bytes": c.nbytes} for n, c in self.copies.items()},
            "fail_under": None if self.least is None else checked,
        }


def placement_json(placement: Sequence[Placement]) -> JsonObject:
    """Where every operator of the model runs, with totals."""
    macs, alu = macs_share(placement), alu_share(placement)
    return {
        "macs_total": macs.total,
        "macs_offloaded": macs.on_vta,
        "macs_percent": macs.percent,
        "alu_ops_total": alu.total,
        "alu_ops_offloaded": alu.on_vta,
        "alu_ops_percent": alu.percent,
        "cycles": sum(op.cycles for op in placement),
        "bound": sum(op.bound for op in placement),
        "ops": [_op_json(op) for op in placement],
    }


def _op_json(op: Placement) -> JsonObject:
    refused, on_vta = refusal(op), op.device == VTA
    return {
        "name": op.name,
        "op": op.op,
        "device": op.device,
        "reason": op.reason,
        "rule": op.why.rule,
        "next_step": next_step(op),
        "refusal": None if refused is None else dataclasses.asdict(refused),
        "macs": op.macs,
        "alu_ops": op.alu_ops,
        "macs_offloaded": op.on_vta.macs,
        "alu_ops_offloaded": op.on_vta.alu_ops,
        "cycles": op.cycles if on_vta else None,
        "bound": op.bound if on_vta else None,
        "note": op.note,
        "host_bytes": op.host_bytes,
    }
