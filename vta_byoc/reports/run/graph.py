"""The graph of a model for the page: operators in layers, with where they run and live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from vta_byoc.hw.program.program import Program
from vta_byoc.ir.bindings import source_name, straight_bindings
from vta_byoc.ir.names import operators_of
from vta_byoc.partitioning.placement import Placement
from vta_byoc.reports.run.layers import LayerFacts, ModelFacts


def operator_edges(mod: tvm.IRModule) -> list[tuple[str, str]]:
    """Pairs of operators of a quantized module: the second reads a result of the first.

    Operators have the names of the model; those that quantization made of one are one.
    """
    found: dict[tuple[str, str], None] = {}
    for binding in straight_bindings(mod["main"]):
        reader = source_name(binding.var)
        for var in relax.analysis.free_vars(binding.value):
            if source_name(var) != reader:
                found[source_name(var), reader] = None
    return list(found)


@dataclass(frozen=True)
class Node:
    """An operator in the drawing.

    Attributes:
        op: its placement.
        column, row: where it stands: operators read from smaller rows only.
        region: that runs it; "" on the CPU, or where no layer of VTA bears its name.
        scope: the memory of its result; "" where that is the host's.
        layer: the layer that computes it.
    """

    op: Placement
    column: int
    row: int
    region: str
    scope: str
    layer: LayerFacts | None


def nodes(facts: ModelFacts) -> list[Node]:
    """The operators of the model in layers: each one row below all operators that it reads from.

    Without edges they stand below each other, in the order of the model.
    """
    reads = reads_of(facts)
    rows: dict[str, int] = {}
    taken: dict[int, int] = {}
    layers = {name: layer for layer in facts.layers for name in operators_of(layer.name)}
    scopes = {r: {s.name: s.scope for s in p.symbols} for r, p in facts.programs.items()}
    on_chip = {item.tensor: item.scope for item in facts.memory.met}
    found = []
    for number, op in enumerate(facts.placement):
        above = [rows[name] for name in reads.get(op.name, ()) if name in rows]
        row = max(above, default=-1) + 1 if facts.edges else number
        rows[op.name] = row
        column = taken.get(row, 0)
        taken[row] = column + 1
        layer = layers.get(op.name)
        scope = on_chip.get(op.name, "") or _scope(layer, facts.programs, scopes)
        found.append(Node(op, column, row, layer.region if layer else "", scope, layer))
    return found


def reads_of(facts: ModelFacts) -> dict[str, list[str]]:
    """Operator -> the operators of the placement record whose results it reads."""
    known = {op.name for op in facts.placement}
    found: dict[str, list[str]] = {}
    for source, reader in facts.edges:
        if source in known and reader in known:
            found.setdefault(reader, []).append(source)
    return found


def _scope(
    layer: LayerFacts | None,
    programs: Mapping[str, Program],
    scopes: Mapping[str, Mapping[str, str]],
) -> str:
    """The DRAM scope of what a layer stores; "" where it is not known."""
    if layer is None or layer.region not in programs:
        return ""
    outputs: Sequence[str] = [
        part.output
        for part in programs[layer.region].layers
        if part.begin == layer.time.begin and part.output
    ]
    return scopes[layer.region].get(outputs[0], "") if outputs else ""
