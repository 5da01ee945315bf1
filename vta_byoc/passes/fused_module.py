"""Modules whose composites are fused: producer and consumers as one composite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted
from vta_byoc.ir.names import JOINT
from vta_byoc.ir.quantization_record import function_text, functions
from vta_byoc.partitioning.composite import RESULT_ATTR, SOURCE_ATTR, composites
from vta_byoc.partitioning.entry import Candidate
from vta_byoc.partitioning.placement import Placement, placements, with_placements
from vta_byoc.strategies.te.kernel import SCHEDULE_ATTR
from vta_byoc.strategy import Computation


@dataclass
class Node:
    """A call of a packed composite.

    Attributes:
        var: what it is bound to.
        function: the composite, as packing made it.
        args: of the call.
        computation: what it computes, fused consumers included.
        cycles: by estimate, of the schedules that strategies choose.
        sources: the model's operators, in order.
        inside: the calls that it is made of, the producer first; none of a single one.
    """

    var: relax.Var
    function: relax.Function
    args: list[relax.Expr]
    computation: Computation
    cycles: float
    sources: tuple[str, ...]
    inside: list[Node] = field(default_factory=list)

    @property
    def result(self) -> str:
        """The name of its result."""
        return str(self.function.attrs[RESULT_ATTR])

    @property
    def operands(self) -> list[relax.Expr]:
        """The int8 operands of the composite alone."""
        return self.args[: len(self.computation.work.in_shapes)]


def with_fused_composites(
    mod: tvm.IRModule, nodes: Mapping[relax.Var, Node], config: VTAConfig
) -> tvm.IRModule:
    """``mod`` with one composite for each of ``nodes`` that is made of several.

    ``nodes`` are what is left of its calls of composites, by the variable of the last.
    """
    main, groups = mod["main"], composites(mod)
    gone = {n.var for node in nodes.values() for n in node.inside[:-1]}
    used = {
        b.value.op.name_hint
        for b in straight_bindings(main)
        if b.var in nodes and not nodes[b.var].inside
    }
    kept = {
        gv: func
        for gv, func in mod.functions.items()
        if gv.name_hint != "main" and (gv.name_hint not in groups or gv.name_hint in used)
    }
    builder = relax.BlockBuilder(tvm.IRModule(kept))
    writer = FunctionWriter(builder)
    env: dict[relax.Var, relax.Expr] = {}
    for binding in straight_bindings(main):
        var = binding.var
        node = nodes.get(var)
        if var in gone:
            continue
        value = binding.value
        if node is not None and node.inside:
            function = _merged(node, builder)
            name = str(function.attrs["Composite"]).replace(".", "_")
            value = relax.Call(builder.add_func(function, name), node.args)
        env[var] = writer.emit(substituted(value, env), str(var.name))
    merged = writer.finish(main, substituted(main.body.body, env))
    result = builder.get()
    result.update_func(mod.get_global_var("main"), merged)
    for key, value in (mod.attrs or {}).items():
        result = result.with_attr(key, value)
    result = with_placements(result, _placement(mod, nodes.values(), config))
    return relax.transform.Normalize()(result)


def _placement(mod: tvm.IRModule, nodes: Iterable[Node], config: VTAConfig) -> list[Placement]:
    """The placement record: a consumer's cycles are those it adds to its producer's.

    An operator of several composites may be fused into several producers.
    """
    producers: dict[str, list[str]] = {}
    added: dict[str, float] = {}
    for node in nodes:
        first, *rest = node.inside or [node]
        if not rest:
            continue
        more = max(0.0, node.computation.estimate(config) - first.computation.estimate(config))
        for consumer in rest:
            (source,) = consumer.sources
            producers.setdefault(source, []).append(first.sources[0])
            spared = consumer.computation.estimate(config)
            added[source] = added.get(source, 0.0) + more / len(rest) - spared
    records, programs = [], functions(mod)
    for record in placements(mod):
        if record.name in producers:
            by = [Candidate(f"fused into {', '.join(dict.fromkeys(producers[record.name]))}")]
            if record.name in programs:
                by.append(Candidate(function_text(programs[record.name])))
            cycles = max(0, round(record.cycles + added[record.name]))
            record = dataclasses.replace(record, computed_by=tuple(by), cycles=cycles)
        records.append(record)
    return records


def _merged(node: Node, builder: relax.BlockBuilder) -> relax.Function:
    """The composite that computes producer and consumers one after the other."""
    params: list[relax.Var] = []
    bindings: list[relax.VarBinding] = []
    before: relax.Var | None = None
    consumers = iter(node.computation.fused)
    for part in node.inside:
        operand = next(consumers).operand if before is not None else -1
        args: list[relax.Expr] = []
        for position, param in enumerate(part.function.params):
            if position == operand:
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
