"""Layer by layer: cycles by what the queue did, DRAM bytes by kind, use of the buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vta_byoc.hw.isa import Queue
from vta_byoc.reports.chart_text import Chart, distinct, plain, quantity, short
from vta_byoc.reports.html.chart_style import ACTIVITY_COLORS, DRAM_COLORS, DRAM_TITLES, ticks
from vta_byoc.reports.run.buffers import SRAMS
from vta_byoc.reports.run.layers import ACTIVITIES, DRAM, LayerFacts, ModelFacts

TICK_WIDTH = 7.2
"""Pixels of a letter of a layer's name."""
_HEAT = [[0, "rgba(47,111,181,0.04)"], [1, "rgba(47,111,181,0.6)"]]


def layers_chart(facts: ModelFacts) -> Chart:
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
    return [sum(layer.breakdown[queue].values()) for layer in layers]


def _end(values: Sequence[int], room: float) -> float:
    """The end of an axis with ``room`` for a number after the longest bar."""
    return (max(values) or 1) * room


def _top_axis(domain: list[float], end: float, unit: str = "") -> Chart:
    return {
        "domain": domain,
        "range": [0, end],
        "side": "top",
        **ticks(end, 6, unit),
        "zeroline": False,
        "fixedrange": True,
        "ticks": "",
    }


def _cycle_bars(layers: Sequence[LayerFacts], queue: Queue) -> Iterable[Chart]:
    name = queue.name.lower()
    mark = {"meta": {"queue": name, "total": name}, "visible": queue == Queue.COMPUTE}
    for what in ACTIVITIES:
        cycles = [layer.breakdown[queue][what] for layer in layers]
        if any(cycles):
            yield _row_bars(what, ACTIVITY_COLORS[what], cycles, "cycles") | mark
    yield _totals(_queue_cycles(layers, queue), "", "x") | mark


def _dram_bars(layers: Sequence[LayerFacts], kind: str) -> Chart:
    sizes = [layer.dram[kind] for layer in layers]
    bars = _row_bars(DRAM_TITLES[kind], DRAM_COLORS[kind], sizes, "B")
    return bars | {"xaxis": "x2", "meta": {"total": "dram"}}


def _row_bars(name: str, color: str, values: Sequence[int], unit: str) -> Chart:
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


def _totals(values: Sequence[int], unit: str, axis: str) -> Chart:
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


def _heat(layers: Sequence[LayerFacts]) -> Chart:
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


def _region_lines(layers: Sequence[LayerFacts]) -> list[Chart]:
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
