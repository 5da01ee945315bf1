"""The page of an exploration: cycles beside memory on chip, one chart a model, and a table."""

from __future__ import annotations

import html
from collections.abc import Sequence

from plotly import graph_objects  # type: ignore[import-untyped]
from plotly.subplots import make_subplots  # type: ignore[import-untyped]

from vta_byoc.explore.explore import COSTS
from vta_byoc.explore.point import Point
from vta_byoc.reports.explore_table import TIMES, TITLES, cost_columns, hardware_columns

ROW_PIXELS = 480
BEATEN, UNBEATEN = "#b0b0b0", "#1f5fa8"
KIB_TICKS = [2**power for power in range(21)]
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Machines by their costs</title>
<style>
body { font: 15px/1.5 sans-serif; color: #222; margin: 1em auto; max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.4em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9em; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
tr.front td { color: %s; font-weight: 600; }
@media print { .modebar { display: none; } body { max-width: none; } tr { break-inside: avoid; } }
</style>
</head>
<body>
<h1>Machines by their costs</h1>
<p>Blue: no other machine is as good in all of %s, and better in one. Cycles are those of the timing
model; larger circles have more MACs.%s</p>
%s
%s
</body>
</html>
"""


def explore_page(
    points: Sequence[Point], front: Sequence[Point], axes: Sequence[str] = COSTS
) -> str:
    """A page that needs no network: machines of each model, those of `front` in blue.

    Args:
        points: of any models; those with an error are left out.
        front: those that no other one beats.
        axes: what was to be small. Cycles are drawn over SRAM where that is among them, else over
            the first of the others.
    """
    models = list(dict.fromkeys(point.model for point in points))
    best = {point.key for point in front}
    over = next((a for a in axes if a not in TIMES), "sram_bytes")
    over = "sram_bytes" if "sram_bytes" in axes else over
    valid = [p for p in points if not p.error and (p.hardware is None or not p.hardware.error)]
    parts = sorted({p.hardware.part for p in valid if p.hardware is not None})
    text = f" LUT, FF, DSP and BRAM are those of {html.escape(', '.join(parts))}." if parts else ""
    shown = ", ".join(TITLES[axis] for axis in axes)
    tables = "".join(_table(m, [p for p in valid if p.model == m], best) for m in models)
    return _PAGE % (UNBEATEN, shown, text, _charts(models, valid, best, over), tables)


def _charts(models: Sequence[str], points: Sequence[Point], best: set[str], over: str) -> str:
    figure = make_subplots(len(models), 1, subplot_titles=models)
    axis: dict[str, object] = {"title": TITLES[over], "tickformat": ","}
    if over == "sram_bytes":
        axis = {"type": "log", "tickvals": KIB_TICKS, "ticktext": [f"{k:,}" for k in KIB_TICKS]}
        axis["title"] = "SRAM, KiB"
    unit = 1024 if over == "sram_bytes" else 1
    for row, model in enumerate(models, 1):
        mine = [point for point in points if point.model == model]
        for title, colour, wanted in (
            ("beaten by another", BEATEN, False),
            ("not beaten", UNBEATEN, True),
        ):
            shown = sorted(
                (p for p in mine if (p.key in best) is wanted), key=lambda p: p.cost(over)
            )
            figure.add_trace(
                graph_objects.Scatter(
                    x=[p.cost(over) / unit for p in shown],
                    y=[p.cycles for p in shown],
                    text=[_label(p) for p in shown],
                    hoverinfo="text",
                    mode="markers",
                    marker={"color": colour, "size": [6 + p.macs.bit_length() for p in shown]},
                    name=title,
                    legendgroup=title,
                    showlegend=row == 1,
                ),
                row,
                1,
            )
        figure.update_xaxes(**axis, row=row, col=1)
        figure.update_yaxes(title="cycles", tickformat=",", row=row, col=1)
    figure.update_layout(
        height=ROW_PIXELS * len(models),
        template="plotly_white",
        margin={"l": 10, "r": 10, "t": 70},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.06, "x": 0},
    )
    chart: str = figure.to_html(include_plotlyjs=True, full_html=False, config={"responsive": True})
    return chart


def _table(model: str, points: Sequence[Point], best: set[str]) -> str:
    """The numbers of a model's machines, fastest first: what paper and a screen reader have."""
    columns = cost_columns()
    if any(point.hardware is not None for point in points):
        columns |= hardware_columns()
    head = "".join(f"<th>{title}</th>" for title in columns)
    rows = []
    for p in sorted(points, key=lambda p: p.cycles):
        kind = ' class="front"' if p.key in best else ""
        numbers = "".join(f"<td>{show(p)}</td>" for show in columns.values())
        rows.append(f"<tr{kind}><td>{html.escape(p.machine)}</td>{numbers}</tr>")
    name = html.escape(model)
    return f'<div class="wide"><table><tr><th>{name}</th>{head}</tr>{"".join(rows)}</table></div>'


def _label(point: Point) -> str:
    """The numbers of one machine as lines."""
    columns = cost_columns()
    if point.hardware is not None:
        columns |= hardware_columns()
    shown = [f"{show(point)} {title}" for title, show in columns.items() if title != "fits"]
    return "<br>".join([html.escape(point.machine), *shown])
