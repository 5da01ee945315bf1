"""The parts of the report's page around the charts: contents, graph, timeline, changes."""

from __future__ import annotations

from typing import Any

from vta_byoc.base.json_types import JsonObject
from vta_byoc.hw.isa import Queue
from vta_byoc.reports.html.chart_style import ACTIVITY_COLORS
from vta_byoc.reports.html.graph_svg import GraphDrawing
from vta_byoc.reports.html.layers_csv import csv_address, layers_csv
from vta_byoc.reports.run.against import Comparison, Difference
from vta_byoc.reports.run.changes import changes
from vta_byoc.reports.run.graph import nodes
from vta_byoc.reports.run.layers import ACTIVITIES, ModelFacts
from vta_byoc.reports.run.timeline import timeline

TOTALS = {
    "cycles": "cycles on VTA",
    "macs_offloaded": "MACs on VTA",
    "alu_ops_offloaded": "ALU operations on VTA",
    "dram_bytes": "bytes from and to DRAM",
    "layers": "layers on VTA",
}
"""What a comparison of two reports sums up, in words."""


def sections(facts: ModelFacts, against: Comparison | None) -> dict[str, Any]:
    """What the template needs for them, by name."""
    drawing = GraphDrawing(facts, nodes(facts))
    return {
        "graph": drawing if drawing.nodes else None,
        "contents": list(_contents(facts, against)),
        "changes": changes(facts),
        "csv_address": csv_address(layers_csv(facts)),
        "against": against,
        "against_totals": _cells(against.totals) if against else [],
        "against_layers": _layer_cells(against) if against else [],
    }


def section_data(facts: ModelFacts) -> JsonObject:
    """What the scripts of graph and timeline draw."""
    drawing = GraphDrawing(facts, nodes(facts))
    found: JsonObject = {"nodes": drawing.details()}
    if facts.layers:
        colors = [ACTIVITY_COLORS[name] for name in ACTIVITIES]
        found |= {"timeline": timeline(facts), "colors": colors}
    return found


def timeline_text(facts: ModelFacts) -> str:
    """What the timeline shows, one by one and as aggregates."""
    total = sum(len(result.instructions) for result in facts.regions.values())
    queues = ", ".join(queue.name.lower() for queue in Queue)
    return (
        f"The queues {queues} over {facts.cycles:,} cycles and {total:,} instructions. Far out, "
        "and where a layer goes on beyond its first instructions, a column is an aggregate: its "
        "colours share its height as the cycles do. Close up, a box is an instruction and a line "
        "a token, from its push to its pop."
    )


def _contents(facts: ModelFacts, against: Comparison | None) -> list[tuple[str, str]]:
    """Anchors and titles of the sections, in their order."""
    found = [("against", "What changed")] if against else []
    found += [("change", "What to change first"), ("where", "What runs where")]
    if facts.placement:
        found.append(("model", "Graph"))
    if facts.layers:
        found += [("time", "Where the cycles go"), ("timeline", "Timeline")]
        found += [("by-layer", "Layer by layer")]
        if any(layer.macs for layer in facts.layers):
            found.append(("roof", "Roofline"))
        found += [("memory", "Memory"), ("numbers", "Numbers")]
    return [*found, ("machine", "The machine"), ("all", "All operators")]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _cells(differences: tuple[Difference, ...]) -> list[list[str]]:
    return [[TOTALS[d.name], _number(d.before), _number(d.after), d.change] for d in differences]


def _layer_cells(against: Comparison) -> list[list[str]]:
    """Layers that differ: name, cycles before and after and their change, the same of bytes."""
    return [
        [
            layer.name,
            *(_number(d) for d in (layer.cycles.before, layer.cycles.after)),
            layer.cycles.change,
            *(_number(d) for d in (layer.dram_bytes.before, layer.dram_bytes.after)),
            layer.dram_bytes.change,
        ]
        for layer in against.layers
        if layer.differs
    ]
