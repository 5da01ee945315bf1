"""The charts of the HTML report, as data in Plotly's schema (``data`` and ``layout``).

They hold no colours of the page: its script adds those of the light or the dark theme.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from vta_byoc.hw.isa import Queue
from vta_byoc.partitioning.placement import Placement
from vta_byoc.reports.chart_text import (
    CHAR_WIDTH,
    ON_CPU,
    ON_VTA,
    PLOT_WIDTH,
    Chart,
    plain,
    quantity,
    short,
)
from vta_byoc.reports.html.chart_style import QUEUE_COLORS, ticks
from vta_byoc.reports.html.layers_chart import layers_chart
from vta_byoc.reports.html.roofline_chart import roofline_chart
from vta_byoc.reports.run.layers import ModelFacts

PLACEMENT_LEFT = 104
"""Pixels left of the bars of the placement, for what they count."""
_NO_AXIS = {"visible": False, "fixedrange": True}


def charts(facts: ModelFacts) -> dict[str, Chart]:
    """Every chart by the id of its place on the page; without layers only the placement."""
    work = facts.macs_total or facts.alu_ops_total
    made = {"placement": placement_chart(facts)} if work else {}
    if facts.layers:
        made |= {"queues": queues_chart(facts), "layers": layers_chart(facts)}
    if any(layer.macs for layer in facts.layers):
        made["roofline"] = roofline_chart(facts)
    return made


# ---------------------------------------------------------------- placement
def placement_chart(facts: ModelFacts) -> Chart:
    """A bar as long as the model's MACs, and one as long as its ALU operations.

    Each has a piece for each operator, those on VTA first.
    """
    kinds = [
        ("MACs", "MAC", [(op, op.on_vta.macs, op.on_cpu.macs) for op in facts.placement]),
        (
            "ALU operations",
            "op",
            [(op, op.on_vta.alu_ops, op.on_cpu.alu_ops) for op in facts.placement],
        ),
    ]
    shown = [
        (title, unit, ops) for title, unit, ops in kinds if any(vta + cpu for _, vta, cpu in ops)
    ]
    data: list[Chart] = []
    layout: Chart = {
        "height": 42 * len(shown) + 6,
        "margin": {"l": PLACEMENT_LEFT, "r": 0, "t": 2, "b": 2},
        "barmode": "overlay",
        "bargap": 0,
        "showlegend": False,
        "yaxis": {
            "range": [len(shown) - 0.5, -0.5],
            "tickvals": list(range(len(shown))),
            "ticktext": [f"{title} " for title, _, _ in shown],
            "fixedrange": True,
            "ticks": "",
            "showgrid": False,
            "zeroline": False,
        },
    }
    for row, (_, unit, ops) in enumerate(shown):
        axis = f"x{row + 1}" if row else "x"
        over = {"overlaying": "x"} if row else {}
        data += _placement_bars(ops, unit, row, axis)
        total = sum(vta + cpu for _, vta, cpu in ops)
        layout[axis.replace("x", "xaxis")] = {**_NO_AXIS, **over, "range": [0, total]}
    return {"data": data, "layout": layout}


def _placement_bars(
    ops: Sequence[tuple[Placement, int, int]], unit: str, row: int, axis: str
) -> Iterable[Chart]:
    """The pieces of one bar, VTA's and then those of the CPU; ``ops`` with what each computes."""
    total, start = sum(vta + cpu for _, vta, cpu in ops), 0
    on_vta = [(op, amount) for op, amount, _ in ops if amount]
    on_cpu = [(op, amount) for op, _, amount in ops if amount]
    for device, color, mine in (("vta", ON_VTA, on_vta), ("cpu", ON_CPU, on_cpu)):
        ends = list(itertools.accumulate((amount for _, amount in mine), initial=start))
        start = ends[-1]
        yield {
            "type": "bar",
            "orientation": "h",
            "y": [row] * len(mine),
            "x": [amount for _, amount in mine],
            "base": ends[:-1],
            "width": 0.86,
            "text": [_piece(op.name, amount / total) for op, amount in mine],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"color": "#ffffff", "size": 10},
            "constraintext": "none",
            "hovertext": [
                f"<b>{plain(op.name)}</b> on {device}<br>{quantity(amount)}{unit}, "
                f"{100 * amount / total:.2f} %"
                for op, amount in mine
            ],
            "hoverinfo": "text",
            "marker": {"color": color, "line": {"width": 0.8}},
            "xaxis": axis,
        }


def _piece(name: str, share: float) -> str:
    """The name of a piece of a bar that takes ``share`` of it, "" where it has no room."""
    text = short(name, 16)
    room = share * (PLOT_WIDTH - PLACEMENT_LEFT)
    return plain(text) if room > CHAR_WIDTH * len(text) + 6 else ""


# ---------------------------------------------------------------- queues
def queues_chart(facts: ModelFacts) -> Chart:
    """A bar a queue: every cycle of the regions by what the queue did or waited for."""
    queues = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)
    breakdown = {queue: facts.queue(queue) for queue in queues}
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": what,
            "y": [queue.name.lower() for queue in queues],
            "x": [breakdown[queue][what] for queue in queues],
            "hovertext": [
                f"<b>{queue.name.lower()}</b><br>{what}: {breakdown[queue][what]:,} cycles, "
                f"{100 * breakdown[queue][what] / facts.cycles:.2f} %"
                for queue in queues
            ],
            "hoverinfo": "text",
            "text": [_percent(breakdown[queue][what], facts.cycles) for queue in queues],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"size": 11},
            "marker": {"color": color, "line": {"width": 0}},
        }
        for what, color in QUEUE_COLORS.items()
        if any(breakdown[queue][what] for queue in queues)
    ]
    layout = {
        "height": 150,
        "margin": {"l": 64, "r": 8, "t": 4, "b": 28},
        "barmode": "stack",
        "bargap": 0.3,
        "showlegend": False,
        "xaxis": {"range": [0, facts.cycles], "fixedrange": True, **ticks(facts.cycles, 10)},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "ticksuffix": " "},
    }
    return {"data": data, "layout": layout}


def _percent(part: int, whole: int) -> str:
    """The share as text, "" where a piece of the bar is too narrow for it."""
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 3.5 else ""
