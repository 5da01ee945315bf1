"""The figures of the HTML report, as data in Plotly's schema (``data`` and ``layout``).

They hold no colours of the page: its script adds those of the light or the dark theme.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.result import FETCH, FULL, PORT, TOKEN
from vta_byoc.partitioning.placement import Placement
from vta_byoc.reports.chart_text import (
    CHAR_WIDTH,
    ON_CPU,
    ON_VTA,
    PLOT_WIDTH,
    PREFIXES,
    Figure,
    distinct,
    plain,
    quantity,
    short,
)
from vta_byoc.reports.html.roofline_chart import roofline_figure
from vta_byoc.reports.run.layers import DRAM, SPENT, SRAMS, LayerFacts, ModelFacts

SPENT_COLORS = {
    "GEMM": "#2f6fb5",
    "ALU": "#6fa8dc",
    "reset": "#a9cbe8",
    "transfer": "#3aa394",
    "no-op": "#7d8893",
    "startup": "#a3adb7",
    PORT: "#c8453f",
    TOKEN[Queue.LOAD]: "#e08e3c",
    TOKEN[Queue.COMPUTE]: "#f0c987",
    TOKEN[Queue.STORE]: "#b98a2f",
    FETCH: "#8a63b8",
    FULL: "#c7b2de",
}
"""Busy is blue and green, overhead grey, waiting warm or violet."""
DRAINED = "drained"
QUEUE_COLORS = {**SPENT_COLORS, DRAINED: "#d5dae0"}
DRAM_COLORS = {
    "wgt": "#34567c",
    "inp": "#6fa8dc",
    "acc": "#3aa394",
    "out": "#8a63b8",
    "uop": "#e08e3c",
    "insn": "#a3adb7",
}
DRAM_TITLES = {
    "wgt": "weights",
    "inp": "inputs",
    "acc": "biases, residuals",
    "out": "results",
    "uop": "micro-ops",
    "insn": "instructions",
}
PLACEMENT_LEFT = 104
"""Pixels left of the bars of the placement, for what they count."""
TICK_WIDTH = 7.2
"""Pixels of a letter of a layer's name."""
_NO_AXIS = {"visible": False, "fixedrange": True}
_HEAT = [[0, "rgba(47,111,181,0.04)"], [1, "rgba(47,111,181,0.6)"]]


def figures(facts: ModelFacts) -> dict[str, Figure]:
    """Every figure by the id of its place on the page; without layers only the placement."""
    work = facts.macs_total or facts.alu_ops_total
    made = {"placement": placement_figure(facts)} if work else {}
    if facts.layers:
        made |= {"queues": queues_figure(facts), "layers": layers_figure(facts)}
    if any(layer.macs for layer in facts.layers):
        made["roofline"] = roofline_figure(facts)
    return made


# ---------------------------------------------------------------- placement
def placement_figure(facts: ModelFacts) -> Figure:
    """A bar as long as the model's MACs, one as its ALU operations; a piece for each operator,
    those on VTA first."""
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
    data: list[Figure] = []
    layout: Figure = {
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
) -> Iterable[Figure]:
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
def queues_figure(facts: ModelFacts) -> Figure:
    """A bar a queue: every cycle of the regions by what the queue did or waited for."""
    queues = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)
    spent = {queue: facts.queue(queue) for queue in queues}
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": what,
            "y": [queue.name.lower() for queue in queues],
            "x": [spent[queue][what] for queue in queues],
            "hovertext": [
                f"<b>{queue.name.lower()}</b><br>{what}: {spent[queue][what]:,} cycles, "
                f"{100 * spent[queue][what] / facts.cycles:.2f} %"
                for queue in queues
            ],
            "hoverinfo": "text",
            "text": [_percent(spent[queue][what], facts.cycles) for queue in queues],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"size": 11},
            "marker": {"color": color, "line": {"width": 0}},
        }
        for what, color in QUEUE_COLORS.items()
        if any(spent[queue][what] for queue in queues)
    ]
    layout = {
        "height": 150,
        "margin": {"l": 64, "r": 8, "t": 4, "b": 28},
        "barmode": "stack",
        "bargap": 0.3,
        "showlegend": False,
        "xaxis": {"range": [0, facts.cycles], "fixedrange": True, **_ticks(facts.cycles, 10)},
        "yaxis": {"autorange": "reversed", "fixedrange": True, "ticksuffix": " "},
    }
    return {"data": data, "layout": layout}


def _percent(part: int, whole: int) -> str:
    """The share as text, "" where a piece of the bar is too narrow for it."""
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 3.5 else ""


# ---------------------------------------------------------------- layers
def layers_figure(facts: ModelFacts) -> Figure:
    """A row a layer: cycles by what the queue did, DRAM bytes by kind, use of the buffers."""
    layers = facts.layers
    rows = list(range(len(layers)))
    data = [bar for queue in Queue for bar in _cycle_bars(layers, queue)]
    data += [_dram_bars(layers, kind) for kind in DRAM if any(x.dram[kind] for x in layers)]
    data.append(_totals([layer.dram_bytes for layer in layers], "B", "x2"))
    data.append(_heat(layers))
    step = _row_height(len(layers))
    top = 34
    totals = {q.name.lower(): _queue_cycles(layers, q) for q in Queue}
    axes = {name: _top_axis([0.0, 0.475], _end(cycles, 1.14)) for name, cycles in totals.items()}
    totals["dram"] = [layer.dram_bytes for layer in layers]
    names = [layer.name for layer in layers]
    left = name_width(layers)
    layout = {
        "height": top + step * len(layers) + 12,
        "margin": {"l": left, "r": 0, "t": top, "b": 12},
        "barmode": "stack",
        "bargap": 0.28,
        "showlegend": False,
        "hovermode": "closest",
        "meta": {"xaxis": axes, "names": [plain(name) for name in names], "totals": totals},
        "xaxis": axes[Queue.COMPUTE.name.lower()],
        "xaxis2": _top_axis([0.515, 0.765], _end(totals["dram"], 1.24), "B"),
        "xaxis3": {
            "domain": [0.8, 1.0],
            "side": "top",
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "ticks": "",
        },
        "yaxis": {
            "range": [len(layers) - 0.5, -0.5],
            "tickvals": rows,
            "ticktext": [plain(name) + " " for name in distinct(names)],
            "fixedrange": True,
            "ticks": "",
            "showgrid": False,
            "zeroline": False,
            "tickfont": {"size": 12 if step >= 20 else 11},
        },
        "shapes": _region_lines(layers),
    }
    return {"data": data, "layout": layout}


def _row_height(count: int) -> int:
    """Pixels of a row: three layers should not look lost, 150 not need a hundred pages."""
    return 30 if count <= 12 else 23 if count <= 60 else 18


def name_width(layers: Sequence[LayerFacts]) -> int:
    """Pixels left of the bars, where the names are."""
    longest = max((len(short(layer.name)) for layer in layers), default=0)
    return max(140, round(TICK_WIDTH * longest) + 12)


def _queue_cycles(layers: Sequence[LayerFacts], queue: Queue) -> list[int]:
    return [sum(layer.spent[queue].values()) for layer in layers]


def _end(values: Sequence[int], room: float) -> float:
    """The end of an axis with ``room`` for a number after the longest bar."""
    return (max(values) or 1) * room


def _top_axis(domain: list[float], end: float, unit: str = "") -> Figure:
    return {
        "domain": domain,
        "range": [0, end],
        "side": "top",
        **_ticks(end, 6, unit),
        "zeroline": False,
        "fixedrange": True,
        "ticks": "",
    }


def _ticks(end: float, count: int, unit: str = "") -> Figure:
    """At most ``count`` round values from 0 to ``end``."""
    step = 10.0 ** math.floor(math.log10(end / count))
    step *= next(factor for factor in (1, 2, 5, 10) if end / (factor * step) <= count)
    values = [step * number for number in range(int(end / step) + 1)]
    texts = [f"{v / _scale(end)[0]:g} {_scale(end)[1]}{unit}".rstrip() for v in values[1:]]
    return {"tickvals": values, "ticktext": ["0", *texts]}


def _scale(value: float) -> tuple[float, str]:
    return next(((f, p) for f, p in PREFIXES if value >= f), (1.0, ""))


def _cycle_bars(layers: Sequence[LayerFacts], queue: Queue) -> Iterable[Figure]:
    name = queue.name.lower()
    mark = {"meta": {"queue": name, "total": name}, "visible": queue == Queue.COMPUTE}
    for what in SPENT:
        cycles = [layer.spent[queue][what] for layer in layers]
        if any(cycles):
            yield _row_bars(what, SPENT_COLORS[what], cycles, "cycles") | mark
    yield _totals(_queue_cycles(layers, queue), "", "x") | mark


def _dram_bars(layers: Sequence[LayerFacts], kind: str) -> Figure:
    sizes = [layer.dram[kind] for layer in layers]
    bars = _row_bars(DRAM_TITLES[kind], DRAM_COLORS[kind], sizes, "B")
    return bars | {"xaxis": "x2", "meta": {"total": "dram"}}


def _row_bars(name: str, color: str, values: Sequence[int], unit: str) -> Figure:
    """Bars that the page's script gives customdata: the layer's name, the share of its total."""
    text = f"<b>%{{customdata[0]}}</b><br>{name}: %{{x:,}} {unit}, %{{customdata[1]:.1f}} %"
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(range(len(values))),
        "x": list(values),
        "hovertemplate": f"{text}<extra></extra>",
        "marker": {"color": color, "line": {"width": 0}},
    }


def _totals(values: Sequence[int], unit: str, axis: str) -> Figure:
    """Each row's total, written after its bar."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": list(values),
        "y": list(range(len(values))),
        "text": [f" {quantity(value, unit)}" if value else "" for value in values],
        "textposition": "middle right",
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "cliponaxis": False,
        "xaxis": axis,
    }


def _heat(layers: Sequence[LayerFacts]) -> Figure:
    uses = [[layer.sram[name] for name in SRAMS] for layer in layers]
    hover = [
        [
            f"<b>{plain(layer.name)}</b><br>{name.upper()}: {use.used:,} of {use.depth:,} "
            f"elements, {100 * use.share:.1f} %"
            + (f"<br>the highest is {use.high - 1:,}" if use.high else "")
            for name, use in zip(SRAMS, row, strict=True)
        ]
        for layer, row in zip(layers, uses, strict=True)
    ]
    return {
        "type": "heatmap",
        "x": [name.upper() for name in SRAMS],
        "y": list(range(len(layers))),
        "z": [[use.share for use in row] for row in uses],
        "text": [[_cell(use.share) for use in row] for row in uses],
        "texttemplate": "%{text}",
        "textfont": {"size": 11},
        "hovertext": hover,
        "hoverinfo": "text",
        "zmin": 0,
        "zmax": 1,
        "colorscale": _HEAT,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "xaxis": "x3",
    }


def _cell(share: float) -> str:
    if not share:
        return "–"
    return "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _region_lines(layers: Sequence[LayerFacts]) -> list[Figure]:
    """A line where the next region begins: the CPU runs in between."""
    return [
        {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": row - 0.5,
            "y1": row - 0.5,
            "line": {"width": 1, "dash": "dot"},
        }
        for row in range(1, len(layers))
        if layers[row].region != layers[row - 1].region
    ]
