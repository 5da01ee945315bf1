"""One decision per tensor: the rules by which consumers' demands become a scope.

CollectProducerScopeInfo of TVM's texture design, as a function of data: nothing here knows Relax,
so that the decisions of a region's DRAM tensors and of a user's own module come from one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vta_byoc.scopes.table import GLOBAL, Fact, ScopeTable

Demands = Sequence[tuple[str, str]]
"""(consumer, scope), once per read."""
RESULT = "result"
"""The consumer that stands for the function's result."""

SINGLE = "single consumer"
AGREE = "consumers agree"
UNREAD = "no consumer: as its producer writes it"
INPUT = "graph input: stays in global"
INPUT_COPIED = "graph input: stays in global, one copy per other scope"
OUTPUT = "graph output: global at the border"
OUTPUT_COPIED = "graph output that is also consumed: global at the border, one copy per other scope"
CONFLICT = "consumers disagree: one copy per other scope"
UNWRITABLE = "its producer cannot write it: one copy per scope"
CONSTANT = "constant: stored in its scope"
CONSTANTS = "constant: stored once per scope"
INPLACE = "written in place: where its operand is"
INPLACE_COPIED = "written in place: where its operand is, one copy per other scope"


class Kind(Enum):
    """How a tensor comes to be."""

    INPUT = "input"
    CONSTANT = "constant"
    VALUE = "value"


@dataclass(frozen=True)
class Decision:
    """The scope of one tensor, who asked for what, and the rule that decided.

    ``copies`` are the further scopes that it is copied to (of a constant: stored in) once, for all
    consumers of that scope; each has ``nbytes``.
    """

    tensor: str
    dtype: str
    demands: tuple[tuple[str, str], ...]
    scope: str
    rule: str
    nbytes: int = 0
    kind: str = Kind.VALUE.value
    copies: tuple[str, ...] = ()

    @property
    def copied_bytes(self) -> int:
        """Bytes that copies write at run time."""
        return 0 if self.kind == Kind.CONSTANT.value else len(self.copies) * self.nbytes

    def version(self, scope: str) -> str:
        """The scope that a consumer demanding ``scope`` reads: that of a copy, or the tensor's."""
        return scope if scope in self.copies else self.scope


@dataclass(frozen=True)
class Producer:
    """What makes a tensor.

    ``writes`` are the scopes it can write, the one it prefers first; ``inplace``: the only one is
    that of the operand whose memory it reuses.
    """

    kind: Kind
    writes: tuple[str, ...] = (GLOBAL,)
    inplace: bool = False


def decide_scope(tensor: Fact, demands: Demands, producer: Producer, table: ScopeTable) -> Decision:
    """One scope for ``tensor``, and copies for the consumers that it does not serve."""
    wanted = list(dict.fromkeys(scope for _, scope in demands))
    scope, rule, copies = _choose(tensor, wanted, demands, producer, table)
    return Decision(
        tensor.name,
        tensor.dtype,
        tuple(demands),
        scope,
        rule,
        tensor.nbytes,
        producer.kind.value,
        tuple(copies),
    )


Choice = tuple[str, str, list[str]]
"""Scope, rule, scopes of copies."""


def _choose(
    tensor: Fact, wanted: list[str], demands: Demands, producer: Producer, table: ScopeTable
) -> Choice:
    if producer.kind is Kind.INPUT:
        copies = _unserved(tensor, GLOBAL, wanted, table)
        return GLOBAL, INPUT_COPIED if copies else INPUT, copies
    if not wanted:
        return producer.writes[0], UNREAD, []
    if producer.kind is Kind.CONSTANT:
        return wanted[0], CONSTANTS if wanted[1:] else CONSTANT, wanted[1:]
    if producer.inplace:
        home = producer.writes[0]
        copies = _unserved(tensor, home, wanted, table)
        return home, INPLACE_COPIED if copies else INPLACE, copies
    return _of_value(tensor, wanted, demands, producer.writes, table)


def _of_value(
    tensor: Fact,
    wanted: list[str],
    demands: Demands,
    writes: tuple[str, ...],
    table: ScopeTable,
) -> Choice:
    output = any(who == RESULT for who, _ in demands)
    if wanted == [GLOBAL] and output and GLOBAL in writes:
        return GLOBAL, OUTPUT, []
    if len(wanted) == 1 and wanted[0] in writes:
        return wanted[0], SINGLE if len(demands) == 1 else AGREE, []
    for name in (name for name in wanted if name in writes):
        rules = [_why(name, other, tensor.dtype, table) for other in wanted if other != name]
        if all(rules):
            return name, str(rules[0]), []
    possible = [scope for scope in wanted if scope in writes]
    if not possible:
        return writes[0], UNWRITABLE, _unserved(tensor, writes[0], wanted, table)
    # Any of them costs the same copies; global spares the host a read of another scope.
    home = GLOBAL if GLOBAL in possible else possible[0]
    rule = OUTPUT_COPIED if output else CONFLICT
    return home, rule, _unserved(tensor, home, wanted, table)


def _unserved(tensor: Fact, home: str, wanted: list[str], table: ScopeTable) -> list[str]:
    """Scopes of ``wanted`` that a tensor in ``home`` does not satisfy."""
    return [s for s in wanted if s != home and _why(home, s, tensor.dtype, table) is None]


def _why(home: str, other: str, dtype: str, table: ScopeTable) -> str | None:
    serves = table.known(home, "a decision names").serving(other, dtype)
    return None if serves is None else serves.rule
