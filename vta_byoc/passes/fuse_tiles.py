"""Tensors that never visit DRAM: consumers in their producer's tiles.

An elementwise operator or a pool demands each operand in the accumulator buffer.  The demand is met
where the operand's producer can hand over its tiles, nobody else reads the tensor, and both
together cost no more than apart (within the tolerance in which the choice of tiles, part of the
same estimate, takes the least traffic).  What was decided, and why not, is recorded on the module
(:func:`sharing_record`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax

from vta_byoc.cost.search import TOLERANCE
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import (
    FunctionWriter,
    static_shape,
    straight_bindings,
    substituted,
    users_of,
)
from vta_byoc.ir.legality import PACKED
from vta_byoc.ir.names import JOINT
from vta_byoc.ir.stage import Stage
from vta_byoc.partitioning.composite import PLACEMENT_ATTR, RESULT_ATTR, SOURCE_ATTR, composites
from vta_byoc.partitioning.placement import placements
from vta_byoc.partitioning.region import chosen_of, computes_of
from vta_byoc.strategies.fused.consumer import FusedConsumer, keeps_int8
from vta_byoc.strategies.te.kernel import SCHEDULE_ATTR
from vta_byoc.strategy import Computation, computation_of
from vta_byoc.tuning.schedules import Schedules, chosen_for
from vta_byoc.workload.memory import ACC, DRAM_INP
from vta_byoc.workload.workloads import ElementwiseWorkload, PoolWorkload

SHARING_ATTR = "vta.sharing"
SHARED = "in its producer's tiles: stays on chip"
HINTED = "demanded on chip"
Demands = Mapping[tuple[str, str], str]
"""(consumer, tensor) -> scope, both named by their results."""
SHARE_TILES = Stage("ShareTiles", PACKED, PACKED, "computes consumers in their producer's tiles")


@dataclass(frozen=True)
class Sharing:
    """What became of a demand for the accumulator buffer.

    Attributes:
        tensor: the producer's result; ``consumer``: the result of who demands it on chip.
        scope: ``local.acc_buffer``, or the DRAM scope that it is in.
        rule: why.
        nbytes: of the tensor in DRAM; ``saved``: bytes that are not moved.
        apart, together: cycles by estimate; 0 where nothing was estimated.
    """

    tensor: str
    consumer: str
    scope: str
    rule: str
    nbytes: int
    saved: int = 0
    apart: float = 0.0
    together: float = 0.0


def share_tiles(
    config: VTAConfig, demands: Demands | None = None, schedules: Schedules | None = None
) -> tvm.transform.Pass:
    """Merge packed composites that share tiles; ``demands`` overrule the consumers' own,
    ``schedules`` those that strategies choose.  Who shares tiles does not depend on schedules of a
    log: estimates of what strategies choose decide.

    Raises:
        VTAError: a demand that cannot be met, or of a consumer that does not read the tensor.
    """

    @SHARE_TILES
    def run(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return _Sharer(mod, config, demands or {}, schedules).run()

    return run


def sharing_record(mod: tvm.IRModule) -> list[Sharing]:
    """What :func:`share_tiles` decided, in order of the consumers; empty before it has run."""
    text = mod.get_attr(SHARING_ATTR)
    return [] if text is None else [Sharing(**item) for item in json.loads(str(text))]


@dataclass
class _Node:
    """A call of a packed composite."""

    var: relax.Var
    function: relax.Function
    args: list[relax.Expr]
    computation: Computation
    cycles: float
    sources: tuple[str, ...]
    inside: list[_Node] = field(default_factory=list)

    @property
    def result(self) -> str:
        return str(self.function.attrs[RESULT_ATTR])

    @property
    def operands(self) -> list[relax.Expr]:
        """The int8 operands of the composite alone."""
        return self.args[: len(self.computation.work.in_shapes)]


@dataclass(frozen=True)
class _Way:
    """Operand number ``operand`` of a consumer from the tiles of ``producer``."""

    producer: _Node
    operand: int
    together: Computation
    cycles: float


class _Refused(Exception):
    """Why an operand cannot be taken on chip."""


class _Sharer:
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
        self._nodes: dict[relax.Var, _Node] = {}
        self._record: list[Sharing] = []

    def run(self) -> tvm.IRModule:
        for binding in straight_bindings(self._main):
            node = self._node(binding)
            if node is not None:
                self._nodes[binding.var] = node
        _check_names(self._demands, self._reads())
        for var in list(self._nodes):
            node = self._nodes[var]
            if isinstance(node.computation.work, ElementwiseWorkload | PoolWorkload):
                self._place(node)
        if not self._record:
            return self._mod
        mod = self._rewritten() if any(s.scope == ACC for s in self._record) else self._mod
        text = json.dumps([dataclasses.asdict(item) for item in self._record])
        return mod.with_attr(SHARING_ATTR, text)

    def _reads(self) -> dict[tuple[str, str], str]:
        """The DRAM scope in which each composite demands each result of another."""
        found = {}
        for node in self._nodes.values():
            for arg, scope in zip(node.args, node.computation.scopes(), strict=True):
                if arg in self._nodes:
                    found[node.result, self._nodes[arg].result] = scope
        return found

    def _node(self, binding: relax.VarBinding) -> _Node | None:
        call = binding.value
        if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.GlobalVar):
            return None
        function = self._groups.get(call.op.name_hint)
        if function is None:
            return None
        computes, carried, _ = computes_of(function)
        funcs = [self._mod[c] for c in computes]
        computation = computation_of(funcs, carried, chosen_of(function))
        cycles = computation.by_estimate(self._config).estimate(self._config)
        source = str(function.attrs[SOURCE_ATTR])
        return _Node(binding.var, function, list(call.args), computation, cycles, (source,))

    # ---------------------------------------------------------------- decisions
    def _place(self, node: _Node) -> None:
        """Decide where the operands of a consumer are taken from."""
        ways: list[_Way] = []
        reasons: dict[relax.Var, str] = {}
        operands = node.operands
        for operand, arg in enumerate(operands):
            if arg not in self._nodes:
                continue
            asked = self._demands.get((node.result, self._nodes[arg].result), ACC)
            if asked != ACC:
                reasons[arg] = f"demanded in {asked}"
                continue
            try:
                ways.append(self._way(node, operand))
            except _Refused as refused:
                reasons[arg] = str(refused)
        best = self._best(node, ways, reasons)
        for arg in dict.fromkeys(operands):
            if arg in self._nodes:
                self._note(node, arg, best, ways, reasons)
        if best is not None:
            self._merge(node, best)

    def _best(
        self, node: _Node, ways: Sequence[_Way], reasons: dict[relax.Var, str]
    ) -> _Way | None:
        """The cheapest way, if it costs no more than apart or is demanded."""
        hinted = [w for w in ways if self._hinted(node, w.producer)]
        found: _Way | None = None
        for way in hinted or ways:
            apart = way.producer.cycles + node.cycles
            if not hinted and way.cycles > (1 + TOLERANCE) * apart:
                reasons[way.producer.var] = (
                    f"together {way.cycles:,.0f} cycles by estimate, apart {apart:,.0f}"
                )
            elif found is None or self._gain(node, way) > self._gain(node, found):
                found = way
        self._check_hints(node, found, ways, reasons)
        return found

    @staticmethod
    def _gain(node: _Node, way: _Way) -> float:
        return way.producer.cycles + node.cycles - way.cycles

    def _hinted(self, node: _Node, producer: _Node) -> bool:
        return self._demands.get((node.result, producer.result)) == ACC

    def _check_hints(
        self,
        node: _Node,
        best: _Way | None,
        ways: Sequence[_Way],
        reasons: Mapping[relax.Var, str],
    ) -> None:
        """A demand written by the user is met or refused, never dropped."""
        operands = dict.fromkeys(a for a in node.operands if a in self._nodes)
        hinted = [a for a in operands if self._hinted(node, self._nodes[a])]
        for arg in hinted:
            tensor = self._nodes[arg].result
            asked = f'tensor "{tensor}": consumer "{node.result}" is to take it in scope "{ACC}"'
            if not any(way.producer.var.same_as(arg) for way in ways):
                raise VTAError(f"{asked}: {reasons[arg]}; demand {DRAM_INP} or drop the demand")
            if best is not None and not best.producer.var.same_as(arg):
                other = best.producer.result
                raise VTAError(
                    f'{asked}, and "{other}" too: need one operand in the tile, have two demands; '
                    "keep one of them"
                )

    def _way(self, node: _Node, operand: int) -> _Way:
        """How ``node`` takes an operand from its producer's tiles."""
        producer = self._nodes[node.args[operand]]
        strategy = producer.computation.strategy
        if len(node.computation.fused):
            raise _Refused("need its consumer alone, have consumers in its tiles")
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
            raise _Refused(f'need "{node.result}" as its only reader, have {names} too')
        work = node.computation.work
        assert isinstance(work, ElementwiseWorkload | PoolWorkload)
        consumer = FusedConsumer(work, operand)
        try:
            fused = (*last, consumer)
            together = dataclasses.replace(producer.computation, fused=fused, chosen=None)
            together = together.by_estimate(self._config)
            return _Way(producer, operand, together, together.estimate(self._config))
        except VTAError as error:
            raise _Refused(str(error)) from error

    def _note(
        self,
        node: _Node,
        arg: relax.Var,
        best: _Way | None,
        ways: Sequence[_Way],
        reasons: Mapping[relax.Var, str],
    ) -> None:
        producer = self._nodes[arg]
        way = next((w for w in ways if w.producer is producer), None)
        taken = best is not None and best.producer is producer
        nbytes = math.prod(static_shape(arg))
        rule = SHARED
        if not taken:
            rule = reasons.get(arg, "the other operand is in the tile")
        elif self._hinted(node, producer):
            rule = HINTED
        self._record.append(
            Sharing(
                producer.result,
                node.result,
                ACC if taken else DRAM_INP,
                rule,
                nbytes,
                2 * nbytes if taken else 0,
                producer.cycles + node.cycles if way else 0.0,
                way.cycles if way else 0.0,
            )
        )

    # ---------------------------------------------------------------- merging
    def _merge(self, node: _Node, way: _Way) -> None:
        """``node`` becomes the producer with the consumer in its tiles."""
        producer = way.producer
        sources = (*producer.sources, *node.sources)
        names = [node.result, JOINT.join(dict.fromkeys(sources))]
        together = chosen_for(self._schedules, names, way.together, self._config)
        own = node.args[: way.operand] + node.args[way.operand + 1 :]
        del self._nodes[producer.var]
        self._nodes[node.var] = dataclasses.replace(
            node,
            args=[*producer.args, *own],
            computation=together,
            cycles=way.cycles,
            sources=sources,
            inside=[*(producer.inside or [producer]), node],
        )

    def _rewritten(self) -> tvm.IRModule:
        gone = {n.var for node in self._nodes.values() for n in node.inside[:-1]}
        used = {
            b.value.op.name_hint
            for b in straight_bindings(self._main)
            if b.var in self._nodes and not self._nodes[b.var].inside
        }
        kept = {
            gv: func
            for gv, func in self._mod.functions.items()
            if gv.name_hint != "main" and (gv.name_hint not in self._groups or gv.name_hint in used)
        }
        builder = relax.BlockBuilder(tvm.IRModule(kept))
        writer = FunctionWriter(builder)
        env: dict[relax.Var, relax.Expr] = {}
        for binding in straight_bindings(self._main):
            var = binding.var
            node = self._nodes.get(var)
            if var in gone:
                continue
            value = binding.value
            if node is not None and node.inside:
                function = _merged(node, builder)
                name = str(function.attrs["Composite"]).replace(".", "_")
                value = relax.Call(builder.add_func(function, name), node.args)
            env[var] = writer.emit(substituted(value, env), str(var.name))
        main = writer.finish(self._main, substituted(self._main.body.body, env))
        result = builder.get()
        result.update_func(self._mod.get_global_var("main"), main)
        for key, value in (self._mod.attrs or {}).items():
            result = result.with_attr(key, value)
        result = result.with_attr(PLACEMENT_ATTR, self._placement())
        return relax.transform.Normalize()(result)

    def _scheduled(self, node: _Node) -> float:
        """Estimated cycles with the kernels that it has."""
        return node.computation.estimate(self._config)

    def _placement(self) -> str:
        """The placement record: a consumer's cycles are those it adds to its producer's.

        An operator of several composites may be in the tiles of several producers.
        """
        homes: dict[str, list[str]] = {}
        added: dict[str, float] = {}
        for node in self._nodes.values():
            first, *rest = node.inside or [node]
            if not rest:
                continue
            more = max(0.0, self._scheduled(node) - self._scheduled(first))
            for consumer in rest:
                (source,) = consumer.sources
                homes.setdefault(source, []).append(first.sources[0])
                spared = self._scheduled(consumer)
                added[source] = added.get(source, 0.0) + more / len(rest) - spared
        records = []
        for record in placements(self._mod):
            if record.name in homes:
                note = f"in the tiles of {', '.join(dict.fromkeys(homes[record.name]))}"
                cycles = max(0, round(record.cycles + added[record.name]))
                record = dataclasses.replace(record, note=note, cycles=cycles)
            records.append(record)
        return json.dumps([dataclasses.asdict(record) for record in records])


def _merged(node: _Node, builder: relax.BlockBuilder) -> relax.Function:
    """The composite that computes producer and consumers one after the other."""
    params: list[relax.Var] = []
    bindings: list[relax.VarBinding] = []
    before: relax.Var | None = None
    consumers = iter(node.computation.fused)
    for part in node.inside:
        fused = next(consumers).operand if before is not None else -1
        args: list[relax.Expr] = []
        for position, param in enumerate(part.function.params):
            if position == fused:
                assert before is not None
                args.append(before)
            else:
                params.append(relax.Var(f"x{len(params)}", param.ty))
                args.append(params[-1])
        (binding,) = part.function.body.blocks[0].bindings
        called = relax.call_tir(binding.value.args[0], args, out_ty=binding.var.ty)
        call = builder.normalize(called)
        last = part is node.inside[-1]
        before = (relax.Var if last else relax.DataflowVar)("out" if last else part.result, call.ty)
        bindings.append(relax.VarBinding(before, call))
    assert before is not None
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], before)
    chosen = node.computation.chosen
    assert chosen is not None
    first, *rest = (str(part.function.attrs["Composite"]) for part in node.inside)
    name = "_".join([first, *(other.partition(".")[2] for other in rest)])
    return relax.Function(params, body, ret_ty=before.ty).with_attrs(
        {
            "Composite": name,
            "Primitive": True,
            SOURCE_ATTR: JOINT.join(dict.fromkeys(node.sources)),
            RESULT_ATTR: node.result,
            SCHEDULE_ATTR: chosen.to_text(),
        }
    )


def _check_names(demands: Demands, reads: Mapping[tuple[str, str], str]) -> None:
    """That demands are of consumers that read the tensor, in scopes that they can read."""
    for (consumer, tensor), scope in demands.items():
        asked = f'tensor "{tensor}": consumer "{consumer}" is to take it in scope "{scope}"'
        if (consumer, tensor) not in reads:
            readers = sorted(who for who, what in reads if what == tensor)
            known = ", ".join(readers) or "none on VTA"
            raise VTAError(
                f"{asked}: need a consumer on VTA that reads it, have {known}; name the results "
                "of two operators as `vta-byoc scopes` lists them"
            )
        if scope not in (ACC, reads[consumer, tensor]):
            raise VTAError(
                f"{asked}: need {reads[consumer, tensor]}, which its instructions load, or "
                f"{ACC}, have {scope}; name one of the two"
            )

