"""One layer out of a timeline: its instructions, what they waited for, and tokens among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.reports.run.listing import find_layer
from vta_byoc.reports.run.trace import Event, chrome_trace


def trace_layer(programs: Mapping[str, Program], name: str) -> Event:
    """The part of the region's timeline that belongs to layer ``name``, at its own time.

    Raises:
        VTAError: no layer of that name runs on VTA.
    """
    region, layer = find_layer(programs, name)
    program = programs[region]
    document = chrome_trace(program, simulate(program), f"{region}, {name}")
    return {**document, "traceEvents": _part(document["traceEvents"], layer)}


def _part(events: Sequence[Event], layer: Layer) -> list[Event]:
    slices = [e for e in events if e["ph"] == "X" and _belongs(e, layer)]
    first = {(e["tid"], e["ts"]) for e in slices}
    last = {(e["tid"], e["ts"] + e["dur"] - 1) for e in slices}
    pushes = {e["id"] for e in events if e["ph"] == "s" and (e["tid"], e["ts"]) in last}
    pops = {e["id"] for e in events if e["ph"] == "f" and (e["tid"], e["ts"]) in first}
    arrows = [e for e in events if e["ph"] in ("s", "f") and e["id"] in pushes & pops]
    return [*(e for e in events if e["ph"] == "M"), *slices, *arrows]


def _belongs(event: Event, layer: Layer) -> bool:
    """Whether a slice shows an instruction of the layer, a wait for one, or the layer itself."""
    args = event["args"]
    index = args.get("insn", args.get("next"))
    if index is not None:
        return layer.begin <= index < layer.end
    return layer.name == args.get("layer", event["name"])
