"""The roofline: what each layer achieves beside what the core and the memory port allow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from vta_byoc.reports.chart_text import CHAR_WIDTH, ON_VTA, Chart, distinct, plain, quantity
from vta_byoc.reports.run.layers import LayerFacts, ModelFacts

Rectangle = tuple[float, float, float, float]
"""Left, bottom, right, top in pixels."""
LABEL_LENGTH = 28
LABELS = 12
"""Points that have their name beside them; all show it under the pointer."""
ROOF_WIDTH, ROOF_HEIGHT = 1160, 380
"""Pixels inside the axes on a wide screen: for where names have room."""
LINE_HEIGHT, ROOF_CHAR_WIDTH = 14, 7.0
"""Pixels of a line, and of a letter of what is written along the roofs."""


def roofline_chart(facts: ModelFacts) -> Chart:
    """MACs a cycle over MACs a byte, both logarithmic; the area of a point is its cycles."""
    layers = [layer for layer in facts.layers if layer.macs]
    port, peak = facts.timing.port_bytes, facts.peak
    ridge = peak / port
    left = min(ridge / 4, 0.6 * min(layer.intensity for layer in layers))
    right = max(ridge * 4, 1.7 * max(layer.intensity for layer in layers))
    low = min(0.5 * min(layer.achieved for layer in layers), peak / 16)
    x_range = [math.log10(left), math.log10(right)]
    y_range = [math.log10(low), math.log10(1.5 * peak)]
    most = max(layer.cycles for layer in layers)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [left, ridge, right],
            "y": [left * port, peak, peak],
            "line": {"width": 2},
            "hoverinfo": "skip",
            "meta": {"ink": True},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": [layer.intensity for layer in layers],
            "y": [layer.achieved for layer in layers],
            "hovertext": [_point(layer, peak, port) for layer in layers],
            "hoverinfo": "text",
            "marker": {
                "size": [_diameter(layer, most) for layer in layers],
                "color": ON_VTA,
                "opacity": 0.55,
                "line": {"width": 1},
            },
        },
    ]
    roofs = _roofs(facts, ridge, x_range, y_range)
    labels = _Labels(layers, _roof(facts, x_range), roofs, x_range, y_range)
    layout = {
        "height": ROOF_HEIGHT + 54,
        "margin": {"l": 62, "r": 12, "t": 8, "b": 46},
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {**_log_axis(x_range), "title": {"text": "MACs for each byte of DRAM traffic"}},
        "yaxis": {**_log_axis(y_range), "title": {"text": "MACs a cycle"}},
        "annotations": [*roofs, *labels.annotations()],
    }
    return {"data": data, "layout": layout}


def _diameter(layer: LayerFacts, most: int) -> float:
    return max(6.0, round(26 * math.sqrt(layer.cycles / most), 1))


def _log_axis(limits: list[float]) -> Chart:
    low, high = math.floor(limits[0]), math.ceil(limits[1])
    values = [m * 10.0**e for e in range(low, high + 1) for m in (1, 2, 5)]
    shown = [v for v in values if limits[0] <= math.log10(v) <= limits[1]]
    return {
        "type": "log",
        "range": limits,
        "tickvals": shown,
        "ticktext": [f"{v:g}" for v in shown],
        "fixedrange": True,
        "zeroline": False,
    }


def _point(layer: LayerFacts, peak: int, port: int) -> str:
    roof = min(peak, layer.intensity * port)
    return (
        f"<b>{plain(layer.name)}</b><br>{quantity(layer.macs)}MAC in {layer.cycles:,} cycles<br>"
        f"{layer.achieved:.1f} MAC/cycle, {100 * layer.achieved / peak:.1f} % of the peak, "
        f"{100 * layer.achieved / roof:.1f} % of the roof<br>"
        f"{layer.intensity:.1f} MAC/B, {quantity(layer.dram_bytes, 'B')} of DRAM traffic"
    )


def _roofs(
    facts: ModelFacts, ridge: float, x_range: Sequence[float], y_range: Sequence[float]
) -> list[Chart]:
    """What the two lines are, written along them."""
    middle = (max(x_range[0], y_range[0] - math.log10(facts.timing.port_bytes)), math.log10(ridge))
    at = (middle[0] + middle[1]) / 2
    common = {"showarrow": False, "font": {"size": 12}}
    return [
        {
            **common,
            "x": x_range[1],
            "y": math.log10(facts.peak),
            "xanchor": "right",
            "yanchor": "bottom",
            "text": f"GEMM core: {facts.peak} MAC/cycle",
        },
        {
            **common,
            "x": at,
            "y": at + math.log10(facts.timing.port_bytes),
            "xanchor": "right",
            "yanchor": "bottom",
            "xshift": -6,
            "text": f"memory port: {facts.timing.port_bytes} B/cycle",
        },
    ]


def _roof(facts: ModelFacts, x_range: Sequence[float]) -> Iterable[tuple[float, float]]:
    """Points close together along both lines, logarithms."""
    for step in range(301):
        x = x_range[0] + step / 300 * (x_range[1] - x_range[0])
        yield x, math.log10(min(facts.peak, 10**x * facts.timing.port_bytes))


class _Labels:
    """Names of points, from the longest layer on, where there is room for them."""

    def __init__(
        self,
        layers: Sequence[LayerFacts],
        roof: Iterable[tuple[float, float]],
        roofs: Iterable[Chart],
        x_range: Sequence[float],
        y_range: Sequence[float],
    ) -> None:
        self._scale = (
            ROOF_WIDTH / (x_range[1] - x_range[0]),
            ROOF_HEIGHT / (y_range[1] - y_range[0]),
        )
        self._origin = x_range[0], y_range[0]
        self._most = max(layer.cycles for layer in layers)
        self._layers = sorted(layers, key=lambda layer: -layer.cycles)
        names = [layer.name for layer in layers]
        self._names = dict(zip(names, distinct(names, LABEL_LENGTH), strict=True))
        # What no text may cover.
        self._taken = [self._point(layer) for layer in self._layers]
        self._taken += [_around(self._pixels(x, y)) for x, y in roof]
        self._taken += [self._written(text) for text in roofs]

    def annotations(self) -> list[Chart]:
        texts: list[Chart] = []
        for group in self._groups():
            text = self._text(group)
            if text is not None and len(texts) < LABELS:
                texts.append(text)
        return texts

    def _at(self, layer: LayerFacts) -> tuple[float, float]:
        return self._pixels(math.log10(layer.intensity), math.log10(layer.achieved))

    def _pixels(self, x: float, y: float) -> tuple[float, float]:
        return (x - self._origin[0]) * self._scale[0], (y - self._origin[1]) * self._scale[1]

    def _written(self, text: Chart) -> Rectangle:
        """Where what a roof is stands: left of and above its point."""
        x, y = self._pixels(text["x"], text["y"])
        right = x + text.get("xshift", 0)
        left = right - ROOF_CHAR_WIDTH * len(text["text"])
        return left, y, right, y + LINE_HEIGHT + 4

    def _point(self, layer: LayerFacts) -> Rectangle:
        return _around(self._at(layer), _diameter(layer, self._most) / 2)

    def _groups(self) -> list[list[LayerFacts]]:
        """Layers whose points lie on one another, of which one name is shown."""
        found: list[list[LayerFacts]] = []
        for layer in self._layers:
            group = next((g for g in found if math.dist(self._at(layer), self._at(g[0])) < 9), None)
            if group is None:
                found.append([layer])
            else:
                group.append(layer)
        return found

    def _text(self, group: Sequence[LayerFacts]) -> Chart | None:
        """The first place around the point where the text covers nothing, None without one."""
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        name = self._names[group[0].name]
        width, (x, y) = CHAR_WIDTH * len(name + more), self._at(group[0])
        gap = _diameter(group[0], self._most) / 2 + 3
        for dx, dy in _AROUND:
            left = x + dx * gap + (dx - 1) / 2 * width
            bottom = y + dy * gap + (dy - 1) / 2 * LINE_HEIGHT
            rectangle = (left, bottom, left + width, bottom + LINE_HEIGHT)
            inside = left >= 0 and left + width <= ROOF_WIDTH
            if inside and not any(_meet(rectangle, taken) for taken in self._taken):
                self._taken.append(rectangle)
                return self._annotation(group[0], plain(name) + more, (dx, dy), gap)
        return None

    @staticmethod
    def _annotation(layer: LayerFacts, text: str, side: tuple[int, int], gap: float) -> Chart:
        dx, dy = side
        return {
            "x": math.log10(layer.intensity),
            "y": math.log10(layer.achieved),
            "text": text,
            "showarrow": False,
            "xanchor": ("right", "center", "left")[dx + 1],
            "yanchor": ("top", "middle", "bottom")[dy + 1],
            "xshift": dx * gap,
            "yshift": dy * gap,
            "borderpad": 0,
            "font": {"size": 11},
        }


def _around(center: tuple[float, float], half: float = 2) -> Rectangle:
    return center[0] - half, center[1] - half, center[0] + half, center[1] + half


_AROUND = ((1, 0), (-1, 0), (0, -1), (1, -1), (-1, -1), (0, 1))
"""Sides of a point where its name may stand, the best first."""


def _meet(one: Rectangle, other: Rectangle) -> bool:
    """Whether two rectangles overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
