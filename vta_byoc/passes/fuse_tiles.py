"""Tensors that never visit DRAM: consumers fused into their producers.

An elementwise operator or a pool requires each operand in the accumulator buffer.  That is met
where the operand's producer can hand over its tiles, nobody else reads the tensor, and both
together cost no more than apart (within the tolerance in which the choice of tiles, part of the
same estimate, takes the least traffic).  What was decided, and why not, is recorded on the module
(`sharing_record`).
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tvm
from tvm import relax

from vta_byoc.cost.search import TOLERANCE
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import static_shape, straight_bindings, users_of
from vta_byoc.ir.legality import PACKED
from vta_byoc.ir.names import JOINT
from vta_byoc.ir.records import as_record, text_of
from vta_byoc.ir.selection import is_plain
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.composite import SOURCE_ATTR, composites
from vta_byoc.partitioning.region import called_composite, computation_in
from vta_byoc.passes.demands import Demands, resolved
from vta_byoc.passes.fused_module import Node, with_fused_composites
from vta_byoc.passes.pool_first import with_pools_first
from vta_byoc.strategies.fused.consumer import FusedConsumer, keeps_int8
from vta_byoc.strategy import Computation
from vta_byoc.tuning.schedules import Schedules, chosen_for
from vta_byoc.workload.memory import ACC, DRAM_INP
from vta_byoc.workload.workloads import ElementwiseWorkload, PoolWorkload

LOG = logging.getLogger(__name__)
SHARING_ATTR = "vta.sharing"
SHARED = "fused into its producer: stays on chip"
HINTED = "demanded on chip"
DEARER = "together they take more cycles by estimate than apart"
READ_BY_OTHERS = "others read the tensor too, or it is a result"
FUSE_TILES = Stage("FuseTiles", PACKED, PACKED, "fuses consumers into their producers")


@dataclass(frozen=True)
class Sharing:
    """What became of a demand for the accumulator buffer.

    Attributes:
        tensor: the producer's result; ``consumer``: the result of who demands it on chip.
        scope: ``local.acc_buffer``, or the DRAM scope that it is in.
        rule: why, with the names and figures of this one.
        nbytes: of the tensor in DRAM; ``saved``: bytes that are not moved.
        apart, together: cycles by estimate; 0 where nothing was estimated.
        kind: why, for all of its kind: ``DEARER`` or ``READ_BY_OTHERS``; "" where the rule has no
            names and figures.
    """

    tensor: str
    consumer: str
    scope: str
    rule: str
    nbytes: int
    saved: int = 0
    apart: float = 0.0
    together: float = 0.0
    kind: str = ""


def fuse_tiles(
    config: VTAConfig, demands: Demands | None = None, schedules: Schedules | None = None
) -> tvm.transform.Pass:
    """Fuse consumers into the tiles of their producers, one composite for each fused schedule.

    Estimates of what strategies choose decide, never the schedules of a log.

    Args:
        config: the machine.
        demands: the memory in which a consumer is to have an operand; they overrule the estimates.
        schedules: overrule those that strategies choose by estimate.

    Raises:
        VTAError: a demand that cannot be met, or of a consumer that does not read the tensor.
    """

    @FUSE_TILES
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        given = schedules.in_module(mod) if schedules else None
        named = {name for pair in demands or {} for name in pair}
        if all(map(is_plain, named)):  # a pattern may mean any layer, so all keep their pools
            mod = with_pools_first(mod, config, named, given)
        return _Fuser(mod, config, demands or {}, given).run()

    return run


def sharing_record(mod: tvm.IRModule) -> list[Sharing]:
    """What `fuse_tiles` decided, in order of the consumers; empty before it has run."""
    attribute = mod.get_attr(SHARING_ATTR)
    items = [] if attribute is None else json.loads(text_of(attribute))
    return [Sharing(**item) for item in items]


@dataclass(frozen=True)
class _Candidate:
    """A consumer fused into ``producer`` by its operand number ``operand``."""

    producer: Node
    operand: int
    together: Computation
    cycles: float


class _Refused(Exception):
    """Why an operand cannot be taken on chip.

    Attributes:
        why: in words, and for all of its kind.
    """

    def __init__(self, rule: str, kind: str = "") -> None:
        super().__init__(rule)
        self.why = _Why(rule, kind)


class _Why(NamedTuple):
    rule: str
    kind: str = ""


class _Fuser:
    def __init__(
        self,
        mod: tvm.IRModule,
        config: VTAConfig,
        demands: Demands,
        schedules: Schedules | None,
    ):
        self._mod, self._config, self._demands = mod, config, dict(demands)
        self._schedules = schedules
        self._groups = composites(mod)
        self._main = mod["main"]
        self._users = users_of(self._main)
        self._nodes: dict[relax.Var, Node] = {}
        self._record: list[Sharing] = []

    def run(self) -> tvm.IRModule:
        for binding in straight_bindings(self._main):
            node = self._node(binding)
            if node is not None:
                self._nodes[binding.var] = node
        self._demands = resolved(self._demands, self._reads(), self._mod)
        for var in list(self._nodes):
            node = self._nodes[var]
            if isinstance(node.computation.work, ElementwiseWorkload | PoolWorkload):
                self._decide(node)
        if not self._record:
            return self._mod
        mod = self._mod
        if any(item.scope == ACC for item in self._record):
            mod = with_fused_composites(mod, self._nodes, self._config)
        for item in self._record:
            LOG.debug("%s for %s in %s: %s", item.tensor, item.consumer, item.scope, item.rule)
        text = json.dumps([dataclasses.asdict(item) for item in self._record])
        return mod.with_attr(SHARING_ATTR, as_record(text))

    def _reads(self) -> dict[tuple[str, str], str]:
        """The DRAM scope in which each composite demands each result of another."""
        found = {}
        for node in self._nodes.values():
            for arg, scope in zip(node.args, node.computation.scopes(), strict=True):
                if arg in self._nodes:
                    found[node.result, self._nodes[arg].result] = scope
        return found

    def _node(self, binding: relax.VarBinding) -> Node | None:
        function = called_composite(binding, self._groups)
        if function is None:
            return None
        computation = computation_in(function, self._mod)
        cycles = computation.by_estimate(self._config).estimate(self._config)
        source = str(function.attrs[SOURCE_ATTR])
        return Node(binding.var, function, list(binding.value.args), computation, cycles, (source,))

    # ---------------------------------------------------------------- decisions
    def _decide(self, node: Node) -> None:
        """Decide where the operands of a consumer are taken from."""
        candidates: list[_Candidate] = []
        reasons: dict[relax.Var, _Why] = {}
        operands = node.operands
        for operand, arg in enumerate(operands):
            if arg not in self._nodes:
                continue
            asked = self._demands.get((node.result, self._nodes[arg].result), ACC)
            if asked != ACC:
                reasons[arg] = _Why(f"demanded in {asked}")
                continue
            try:
                candidates.append(self._candidate(node, operand))
            except _Refused as refused:
                reasons[arg] = refused.why
        best = self._best(node, candidates, reasons)
        for arg in dict.fromkeys(operands):
            if arg in self._nodes:
                self._note(node, arg, best, candidates, reasons)
        if best is not None:
            self._merge(node, best)

    def _best(
        self, node: Node, candidates: Sequence[_Candidate], reasons: dict[relax.Var, _Why]
    ) -> _Candidate | None:
        """The cheapest candidate, if it costs no more than apart or is demanded."""
        hinted = [c for c in candidates if self._hinted(node, c.producer)]
        found: _Candidate | None = None
        for candidate in hinted or candidates:
            apart = candidate.producer.cycles + node.cycles
            if not hinted and candidate.cycles > (1 + TOLERANCE) * apart:
                rule = f"together {candidate.cycles:,.0f} cycles by estimate, apart {apart:,.0f}"
                reasons[candidate.producer.var] = _Why(rule, DEARER)
            elif found is None or self._gain(node, candidate) > self._gain(node, found):
                found = candidate
        self._check_hints(node, found, candidates, reasons)
        return found

    @staticmethod
    def _gain(node: Node, candidate: _Candidate) -> float:
        return candidate.producer.cycles + node.cycles - candidate.cycles

    def _hinted(self, node: Node, producer: Node) -> bool:
        return self._demands.get((node.result, producer.result)) == ACC

    def _check_hints(
        self,
        node: Node,
        best: _Candidate | None,
        candidates: Sequence[_Candidate],
        reasons: Mapping[relax.Var, _Why],
    ) -> None:
        """A demand written by the user is met or refused, never dropped."""
        operands = dict.fromkeys(a for a in node.operands if a in self._nodes)
        hinted = [a for a in operands if self._hinted(node, self._nodes[a])]
        for arg in hinted:
            tensor = self._nodes[arg].result
            asked = f'tensor "{tensor}": consumer "{node.result}" is to take it in scope "{ACC}"'
            if not any(candidate.producer.var.same_as(arg) for candidate in candidates):
                raise VTAError(
                    f"{asked}: {reasons[arg].rule}; demand {DRAM_INP} or drop the demand"
                )
            if best is not None and not best.producer.var.same_as(arg):
                other = best.producer.result
                raise VTAError(
                    f'{asked}, and "{other}" too: need one fused operand, have two demands; '
                    "keep one of them"
                )

    def _candidate(self, node: Node, operand: int) -> _Candidate:
        """How ``node`` takes an operand from its producer's tiles."""
        producer = self._nodes[node.args[operand]]
        strategy = producer.computation.strategy
        if len(node.computation.fused):
            raise _Refused("need its consumer alone, have consumers fused into it")
        pinned = next((n.result for n in (producer, node) if n.computation.is_pinned), None)
        if pinned is not None:
            raise _Refused(f'need tiles to choose for both, have a pinned schedule of "{pinned}"')
        if not strategy.fuses:
            raise _Refused(
                f"need a producer whose accumulators keep its result, have {strategy.name}"
            )
        last = producer.computation.fused
        if not keeps_int8(last[-1].work if last else producer.computation.work):
            raise _Refused("need clamps to int8 at the producer's end, have wider values")
        readers = self._users.get(producer.var, [])
        others = [r for r in readers if r is None or not r.var.same_as(node.var)]
        if others:
            names = ", ".join("the result" if r is None else str(r.var.name) for r in others)
            rule = f'need "{node.result}" as its only reader, have {names} too'
            raise _Refused(rule, READ_BY_OTHERS)
        work = node.computation.work
        assert isinstance(work, ElementwiseWorkload | PoolWorkload)
        consumer = FusedConsumer(work, operand)
        try:
            fused = (*last, consumer)
            together = dataclasses.replace(producer.computation, fused=fused, chosen=None)
            together = together.by_estimate(self._config)
            return _Candidate(producer, operand, together, together.estimate(self._config))
        except VTAError as error:
            raise _Refused(str(error)) from error

    def _note(
        self,
        node: Node,
        arg: relax.Var,
        best: _Candidate | None,
        candidates: Sequence[_Candidate],
        reasons: Mapping[relax.Var, _Why],
    ) -> None:
        producer = self._nodes[arg]
        candidate = next((c for c in candidates if c.producer is producer), None)
        taken = best is not None and best.producer is producer
        nbytes = math.prod(static_shape(arg))
        why = _Why(HINTED if self._hinted(node, producer) else SHARED)
        if not taken:
            why = reasons.get(arg, _Why("the other operand is fused"))
        self._record.append(
            Sharing(
                producer.result,
                node.result,
                ACC if taken else DRAM_INP,
                why.rule,
                nbytes,
                2 * nbytes if taken else 0,
                producer.cycles + node.cycles if candidate else 0.0,
                candidate.cycles if candidate else 0.0,
                why.kind,
            )
        )

    # ---------------------------------------------------------------- merging
    def _merge(self, node: Node, candidate: _Candidate) -> None:
        """``node`` becomes the producer with the consumer fused into it."""
        producer = candidate.producer
        sources = (*producer.sources, *node.sources)
        names = [node.result, JOINT.join(dict.fromkeys(sources))]
        together = chosen_for(self._schedules, names, candidate.together, self._config)
        own = node.args[: candidate.operand] + node.args[candidate.operand + 1 :]
        del self._nodes[producer.var]
        self._nodes[node.var] = dataclasses.replace(
            node,
            args=[*producer.args, *own],
            computation=together,
            cycles=candidate.cycles,
            sources=sources,
            inside=[*(producer.inside or [producer]), node],
        )
