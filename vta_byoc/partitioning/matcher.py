"""Finding what the table takes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm import relax

from vta_byoc.base.boundary import first_line
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.bindings import op_name, source_name, static_shape, vars_in
from vta_byoc.ir.chains import Binding, Graph, is_widening
from vta_byoc.partitioning.entry import Match, Parsed, PatternEntry
from vta_byoc.partitioning.left_out import EXCLUDED
from vta_byoc.partitioning.table import PATTERNS, entries
from vta_byoc.workload.layout import NCHW
from vta_byoc.workload.workloads import (
    INT8_RANGE,
    ElementwiseWorkload,
    PoolWorkload,
    Workload,
)

NOT_BEFORE_VTA = Refusal(
    "moves data that the CPU reads, or that VTA's operators hold in another layout",
    limit="VTA moves what it reads again, channels second",
    remedy="move the operator to the model's end or leave it to the CPU",
)
NOT_BEHIND_VTA = Refusal(
    "moves data that the CPU computes",
    limit="VTA moves what it has computed itself",
    remedy="bring the operators before it to VTA",
)


@dataclass(frozen=True)
class Group:
    """Bindings that an entry of the table takes.

    Attributes:
        match: what the entry found in them.
        bindings: in order; the last one is the result.
        anchor: the operator that the entry starts from.
    """

    match: Match
    bindings: tuple[Binding, ...]
    anchor: str

    @property
    def entry(self) -> PatternEntry:
        """The entry that takes them."""
        return self.match.entry

    @property
    def work(self) -> Workload:
        """What they compute."""
        work: Workload = self.match.parsed.work
        return work

    @property
    def result(self) -> relax.Var:
        """The variable that the others read."""
        return self.bindings[-1].var


def estimated_cycles(main: relax.Function, config: VTAConfig) -> float | None:
    """Cycles by estimate of all operators of `main`; None where the CPU computes any of them."""
    graph = Graph(main)
    groups = Matcher(graph, config).groups().values()
    inside = {b.var for group in groups for b in group.bindings}
    if any(b.var not in inside for b in graph.bindings):
        return None
    return sum(group.match.plan.cycles for group in groups)


@contextlib.contextmanager
def _named(entry: PatternEntry) -> Iterator[None]:
    """What a plug-in's pattern raises by mistake is a reason for the CPU that names it."""
    try:
        yield
    except VTAError:
        raise
    except Exception as err:
        if PATTERNS.is_built_in(entry.name):
            raise
        refusal = Refusal(
            f'pattern "{entry.name}" of {PATTERNS.by(entry.name)} fails with',
            first_line(err),
            remedy="repair it",
        )
        raise VTAError(refusal) from err


def _layout(group: Group, value: relax.Expr) -> str:
    """The layout in which ``group`` has ``value``; that of a matrix is one for all."""
    return NCHW if len(static_shape(value)) == 2 else group.match.parsed.layout


class Matcher:
    """Finds the groups; ``rejected`` has the reason for each source operator not taken.

    ``passed_over`` has the reason for each that a pattern of a plug-in was tried on and could not
    take, whatever took it then.

    Nothing is taken of ``left_out``: source operators that the user keeps on the CPU.
    """

    def __init__(
        self, graph: Graph, config: VTAConfig, left_out: Mapping[str, Refusal] | None = None
    ) -> None:
        self._graph = graph
        self._left_out = left_out or {}
        self._config = config
        self._entries = entries()
        self._takers: defaultdict[relax.Var, list[Group]] = defaultdict(list)
        self._followed: dict[relax.Var, str] = {}
        self.rejected: dict[str, Refusal] = {}
        self.passed_over: dict[str, Refusal] = {}

    def groups(self) -> dict[relax.Var, Group]:
        """Groups by the variable of their result."""
        found: dict[relax.Var, Group] = {}
        named = [(op_name(binding.value), binding) for binding in self._graph.bindings]
        for entry in self._entries:
            if not entry.moves:
                for name, binding in named:
                    if name in entry.anchors:
                        self._take(self._group(entry, binding), found)
        moves = [entry for entry in self._entries if entry.moves]
        for name, binding in named:
            for entry in moves:
                group = self._group(entry, binding) if name in entry.anchors else None
                if group is not None and self._belongs(group, found):
                    self._take(group, found)
        return found

    def _take(self, group: Group | None, found: dict[relax.Var, Group]) -> None:
        if group is not None:
            found[group.result] = group
            for binding in group.bindings:
                self._takers[binding.var].append(group)

    def _belongs(self, group: Group, found: Mapping[relax.Var, Group]) -> bool:
        """Whether a movement of data has an operand on VTA."""
        own = {b.var for b in group.bindings}
        reads = {v for b in group.bindings for v in vars_in(b.value) if v not in own}
        on_vta = any(v in found for v in reads)
        if not on_vta:
            self.rejected.setdefault(source_name(group.result), NOT_BEHIND_VTA)
            return False
        if group.entry.between and not self._is_between(group, found):
            self.rejected.setdefault(source_name(group.result), NOT_BEFORE_VTA)
            return False
        return True

    def _is_between(self, group: Group, found: Mapping[relax.Var, Group]) -> bool:
        """Whether groups read the result, in its layout, and made the operand in that layout."""
        parsed = group.match.parsed
        behind = {self._read_as(other, group.result) for other in self._readers(group.result)}
        sides = zip(parsed.operands, parsed.operand_layouts, strict=True)
        made = [(self._made_as(found, x), layout) for x, layout in sides if x in found]
        return parsed.layout in behind and all(one == other for one, other in made) and bool(made)

    def _readers(self, value: relax.Var) -> list[Group]:
        """The groups that read `value`."""
        readers = [user.var for user in self._graph.users.get(value, []) if user is not None]
        return [other for var in readers for other in self._takers.get(var, ())]

    def _read_as(self, group: Group, value: relax.Expr) -> str:
        """The layout in which `group` reads `value`; elementwise operators follow their readers."""
        own = _layout(group, value)
        if own != NCHW or not isinstance(group.work, ElementwiseWorkload):
            return own
        if group.result not in self._followed:
            self._followed[group.result] = own  # until its readers are known
            behind = (self._read_as(other, group.result) for other in self._readers(group.result))
            self._followed[group.result] = next((each for each in behind if each != NCHW), own)
        return self._followed[group.result]

    def _made_as(self, found: Mapping[relax.Var, Group], value: relax.Expr) -> str:
        """The layout in which VTA makes `value`; elementwise operators follow their operands."""
        group = found[value]
        own = _layout(group, value)
        while own == NCHW and isinstance(group.work, ElementwiseWorkload):
            before = [found[x] for x in group.match.parsed.operands if x in found]
            if not before:
                break
            group = before[0]
            own = _layout(group, value)
        return own

    def _group(self, entry: PatternEntry, binding: Binding) -> Group | None:
        bindings: list[Binding] | None = [binding]
        try:
            with _named(entry):
                bindings = entry.match(self._graph, binding)
            if bindings is None or any(self._is_taken(b) for b in bindings):
                return None
            if self._is_left_out(bindings, binding):
                return None
            with _named(entry):
                parsed = self._bounded(entry.read(bindings, self._config))
                plan = entry.plan(parsed, self._config)
        except VTAError as err:
            for name in (source_name(b.var) for b in bindings or ()):
                self.rejected.setdefault(name, err.refusal)
                if not PATTERNS.is_built_in(entry.name):
                    self.passed_over.setdefault(name, err.refusal)
            return None
        return Group(Match(entry, parsed, plan), tuple(bindings), op_name(binding.value))

    def _is_left_out(self, bindings: Sequence[Binding], anchor: Binding) -> bool:
        """Whether the user keeps the anchor, or what is computed with it, on the CPU."""
        names = dict.fromkeys(source_name(b.var) for b in bindings)
        excluded = [n for n in names if n in self._left_out and self._left_out[n].what == EXCLUDED]
        for name in names if excluded else ():
            together = Refusal("computed together with", f'"{excluded[0]}"', "which is excluded")
            self.rejected.setdefault(name, together)
        return bool(excluded) or source_name(anchor.var) in self._left_out

    def _bounded(self, parsed: Parsed) -> Parsed:
        """``parsed`` with what the operands can hold: the least of a pool, the ranges of a sum."""
        if isinstance(parsed.work, ElementwiseWorkload) and parsed.work.op is not None:
            ranges = tuple(self._graph.interval(operand) for operand in parsed.operands)
            known = ranges if set(ranges) != {INT8_RANGE} and len(ranges) > 1 else ()
            return dataclasses.replace(parsed, work=dataclasses.replace(parsed.work, ranges=known))
        if not isinstance(parsed.work, PoolWorkload):
            return parsed
        least = min(self._graph.least(operand) for operand in parsed.operands)
        return dataclasses.replace(parsed, work=dataclasses.replace(parsed.work, low=least))

    def _is_taken(self, binding: Binding) -> bool:
        """A widening may be part of several groups: each widens its operand itself."""
        return binding.var in self._takers and not is_widening(binding.value)
