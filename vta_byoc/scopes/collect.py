"""CollectConsumerScopeInfo and CollectProducerScopeInfo.

The requirements of the consumers of a function's tensors, and what is decided of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from vta_byoc.hw.errors import VTAError
from vta_byoc.scopes.decide import RESULT, Decision, Kind, Producer, decide_scope
from vta_byoc.scopes.graph import ScopedTensor, ScopeGraph, ScopeStep, Use, uses_in
from vta_byoc.scopes.sites import DemandFunction, Needs
from vta_byoc.scopes.table import GLOBAL, HOST, Fact, ScopeTable


@dataclass(frozen=True)
class FunctionScopes:
    """Decisions of one function.

    Attributes:
        graph: its tensors and steps.
        decisions: one per tensor, by the tensor's index.
        reads: the scope that each step reads each operand in, by the variable it is bound to.
    """

    graph: ScopeGraph
    decisions: tuple[Decision, ...]
    reads: Mapping[relax.Var, tuple[str, ...]]

    def scope_of(self, tensor: ScopedTensor) -> str:
        """Where ``tensor`` is made."""
        return self.decisions[tensor.index].scope


def collect(
    mod: tvm.IRModule, func: relax.Function, demand: DemandFunction, table: ScopeTable
) -> FunctionScopes:
    """Demands and decisions of every tensor of ``func``."""
    graph = ScopeGraph(mod, func)
    needs = {var: _Needed.of(step, demand) for var, step in graph.steps.items()}
    demands = _consumers(graph, needs, table)
    decisions = _decisions(graph, needs, demands, table)
    reads = {
        var: tuple(
            decisions[use.tensor.index].version(scope)
            for use, scope in zip(graph.steps[var].operands, needed.reads, strict=True)
        )
        for var, needed in needs.items()
    }
    return FunctionScopes(graph, tuple(decisions), reads)


@dataclass(frozen=True)
class _Needed:
    """What a step demands, with the user's hints where the demand function knows nothing."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    unit: str

    @classmethod
    def of(cls, step: ScopeStep, demand: DemandFunction) -> _Needed:
        needs = demand(step.site)
        if needs is None:
            return cls(tuple(use.hint or GLOBAL for use in step.operands), (GLOBAL,), HOST)
        _check_count(step, needs)
        for use, scope in zip(step.operands, needs.reads, strict=True):
            _check_hint(use, step.site.name, scope)
        return cls(needs.reads, needs.writes, needs.unit)


def _check_count(step: ScopeStep, needs: Needs) -> None:
    site = step.site
    if len(needs.reads) != len(step.operands):
        raise VTAError(
            f'the demand function gives {len(needs.reads)} scopes for "{site.name}" '
            f"({site.callee}), which has {len(step.operands)} tensor operands; give one for each"
        )
    if not needs.writes:
        raise VTAError(
            f'the demand function gives no scope that "{site.name}" ({site.callee}) can write; '
            f'name one, for example "{GLOBAL}"'
        )


def _check_hint(use: Use, consumer: str, scope: str) -> None:
    if use.hint not in ("", scope):
        raise VTAError(
            f'tensor "{use.tensor.fact.name}": a hint states scope "{use.hint}" and consumer '
            f'"{consumer}" demands scope "{scope}"; need one scope, have two; remove the hint '
            "or change the demand"
        )


Demanded = list[list[tuple[str, str]]]
"""(consumer, scope) by tensor index."""


def _consumers(
    graph: ScopeGraph, needs: Mapping[relax.Var, _Needed], table: ScopeTable
) -> Demanded:
    """CollectConsumerScopeInfo; every demand is one that the table allows."""
    demands: Demanded = [[] for _ in graph.tensors]
    for var, step in graph.steps.items():
        needed = needs[var]
        for use, scope in zip(step.operands, needed.reads, strict=True):
            table.check_read(_sized(use.tensor, scope), step.site.name, needed.unit, scope)
            demands[use.tensor.index].append((step.site.name, scope))
    for use in uses_in(graph.result):
        _check_hint(use, RESULT, GLOBAL)
        demands[use.tensor.index].append((RESULT, GLOBAL))
    return demands


def _sized(tensor: ScopedTensor, scope: str) -> Fact:
    """The tensor as the table is asked about it.

    Raises:
        VTAError: its size is not known, which no scope but `global` can take.
    """
    if tensor.facts.shape is None and scope != GLOBAL:
        raise VTAError(
            f'tensor "{tensor.fact.name}": scope "{scope}" is demanded of a tensor whose shape is '
            f"not known at compile time; give it a static shape or demand {GLOBAL}"
        )
    return tensor.fact


def _decisions(
    graph: ScopeGraph, needs: Mapping[relax.Var, _Needed], demands: Demanded, table: ScopeTable
) -> list[Decision]:
    """CollectProducerScopeInfo: in order of definition, as in-place results follow operands."""
    makers = {
        tensor.index: (step, position)
        for step in graph.steps.values()
        for position, tensor in enumerate(step.results)
    }
    decisions: list[Decision] = []
    for tensor in graph.tensors:
        producer = Producer(tensor.kind)
        if tensor.index in makers:
            step, position = makers[tensor.index]
            needed = needs[step.var]
            for scope in needed.writes:
                table.known(scope, f'tensor "{tensor.fact.name}": its producer writes')
            producer = _producer(tensor, step, position, needed, decisions)
        decision = decide_scope(tensor.fact, demands[tensor.index], producer, table)
        if tensor.index in makers:
            table.check_write(tensor.fact, step.site.name, needed.unit, decision.scope)
        if tensor.kind is not Kind.CONSTANT:
            for scope in decision.copies:
                table.check_copy(tensor.fact, decision.scope, scope)
        decisions.append(decision)
    return decisions


def _producer(
    tensor: ScopedTensor, step: ScopeStep, position: int, needed: _Needed, decisions: list[Decision]
) -> Producer:
    if position not in step.inplace:
        return Producer(Kind.VALUE, _stated(tensor, step, needed.writes))
    operand = step.inplace[position]
    made = decisions[step.operands[operand].tensor.index]
    return Producer(Kind.VALUE, (made.version(needed.reads[operand]),), inplace=True)


def _stated(tensor: ScopedTensor, step: ScopeStep, writes: tuple[str, ...]) -> tuple[str, ...]:
    """The scopes of ``writes`` that the user's type of the result leaves.

    A VDevice in `global` says which device, not which scope.
    """
    if tensor.stated in ("", GLOBAL):
        return writes
    if tensor.stated not in writes:
        raise VTAError(
            f'tensor "{tensor.fact.name}": its type states scope "{tensor.stated}", which its '
            f'producer "{step.site.name}" cannot write: need {tensor.stated}, have '
            f"{', '.join(writes)}; change the type or what the producer writes"
        )
    return (tensor.stated,)
