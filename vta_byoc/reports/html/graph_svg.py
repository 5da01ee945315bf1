"""The graph of a model as an SVG that the page holds: operators as boxes, in layers."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from vta_byoc.base.json_types import JsonObject
from vta_byoc.hw.printable import printable
from vta_byoc.partitioning.placement import VTA
from vta_byoc.reports.chart_text import ON_CPU, ON_VTA, quantity, short
from vta_byoc.reports.placement.summary import kind, next_step, remark
from vta_byoc.reports.run.graph import Node, reads_of
from vta_byoc.reports.run.layers import ModelFacts

BOX, TALL, GAP, DROP, EDGE = 168, 34, 22, 24, 12
"""Width and height of a box, space between two in a row and between rows, margin."""
LETTERS = 24
"""Letters of a name that a box has room for."""
PER_LINE = 6
"""Boxes beside each other; a row with more goes on below itself."""
PALETTE = ("#2f6fb5", "#3aa394", "#8a63b8", "#b98a2f", "#c8453f", "#5b8c3a", "#b0568f", "#34567c")
NOWHERE = "#7d8893"
ON_HOST = "the host's memory"
Legend = list[tuple[str, str]]
"""(text, colour)."""


class GraphDrawing:
    """Where every operator of a model stands in the drawing, and its colours.

    Attributes:
        nodes: the operators.
        legends: by "device", "region" and "scope": what each colour means.
    """

    def __init__(self, facts: ModelFacts, nodes: Sequence[Node]) -> None:
        self.facts, self.nodes = facts, nodes
        regions = [name for name in facts.regions if any(n.region == name for n in nodes)]
        scopes = sorted({n.scope for n in nodes if n.scope})
        self.legends: dict[str, Legend] = {
            "device": [("VTA", ON_VTA), ("CPU", ON_CPU)],
            "region": [*_colors(regions), ("CPU, or no layer of its own", NOWHERE)],
            "scope": [*_colors(scopes), (ON_HOST, NOWHERE)],
        }
        self._place()

    def _place(self) -> None:
        """Columns and lines of all boxes; lines are as wide as the widest."""
        sizes: dict[int, int] = {}
        for node in self.nodes:
            sizes[node.row] = sizes.get(node.row, 0) + 1
        first, line = {}, 0
        for row in sorted(sizes):
            first[row], line = line, line + -(-sizes[row] // PER_LINE)
        widest = max((min(size, PER_LINE) for size in sizes.values()), default=1)
        self.width = widest * (BOX + GAP) - GAP + 2 * EDGE
        self.height = max(line, 1) * (TALL + DROP) - DROP + 2 * EDGE
        self.at: dict[str, tuple[float, float]] = {}
        for node in self.nodes:
            inside, column = divmod(node.column, PER_LINE)
            count = min(sizes[node.row] - inside * PER_LINE, PER_LINE)
            x = (self.width - count * (BOX + GAP) + GAP) / 2 + column * (BOX + GAP)
            self.at[node.op.name] = x, EDGE + (first[node.row] + inside) * (TALL + DROP)

    def svg(self) -> Markup:
        """The drawing; colours are custom properties, of which the page's style takes one."""
        size = f'width="{self.width}" height="{self.height}"'
        box = f'viewBox="0 0 {self.width} {self.height}"'
        title = Markup("<title>Graph of the model</title>")
        lines = Markup("\n").join(self._edge(*edge) for edge in self._edges())
        boxes = Markup("\n").join(self._box(i, node) for i, node in enumerate(self.nodes))
        head = Markup(f'<svg id="graph" data-by="device" role="img" {size} {box}>')
        return Markup("").join((head, title, lines, Markup("\n"), boxes, Markup("</svg>")))

    def _edges(self) -> list[tuple[str, str]]:
        reads = reads_of(self.facts)
        return [(source, reader) for reader, sources in reads.items() for source in sources]

    def _edge(self, source: str, reader: str) -> Markup:
        """A curve from below the source to above its reader, beside the boxes that it passes."""
        (x0, y0), (x1, y1) = self.at[source], self.at[reader]
        x0, y0, x1 = x0 + BOX / 2, y0 + TALL, x1 + BOX / 2
        if y1 - y0 <= DROP + 1:
            path = f"M{x0:g} {y0:g}L{x1:g} {y1:g}"
        else:
            side = x0 + BOX / 2 + GAP / 2
            path = (
                f"M{x0 + BOX / 4:g} {y0:g}C{side:g} {y0:g} {side:g} {y0 + 4:g} {side:g} "
                f"{y0 + DROP:g}V{y1 - DROP:g}C{side:g} {y1 - 4:g} {x1 + BOX / 4:g} {y1 - DROP:g} "
                f"{x1 + BOX / 4:g} {y1:g}"
            )
        return Markup(f'<path d="{path}"/>')

    def _box(self, number: int, node: Node) -> Markup:
        x, y = self.at[node.op.name]
        colors = ";".join(f"--{by}:{self._color(by, node)}" for by in self.legends)
        name = printable(node.op.name)
        group = Markup(f'<g class="node" tabindex="0" data-node="{number}" style="{colors}">')
        shape = Markup(f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{TALL}" rx="4"/>')
        title = Markup("<title>{}</title>").format(f"{name}: {node.op.device}")
        where = f'x="{x + 10:g}" y="{{}}"'
        first = Markup(f"<text {where.format(f'{y + 14:g}')}>") + escape(short(name, LETTERS))
        under = f"{kind(node.op)} {_amount(node)}".rstrip()
        second = Markup(f'<text class="under" {where.format(f"{y + 27:g}")}>') + escape(under)
        end = Markup("</text>")
        return Markup("").join((group, title, shape, first, end, second, end, Markup("</g>")))

    def _color(self, by: str, node: Node) -> str:
        key = {
            "device": "VTA" if node.op.device == VTA else "CPU",
            "region": node.region,
            "scope": node.scope,
        }[by]
        return dict(self.legends[by]).get(key, NOWHERE)

    def details(self) -> list[JsonObject]:
        """Name and facts of every operator for the panel beside the drawing."""
        return [{"name": node.op.name, "facts": [*map(list, _facts(node))]} for node in self.nodes]


def _colors(names: Sequence[str]) -> Legend:
    return [(name, PALETTE[i % len(PALETTE)]) for i, name in enumerate(names)]


def _amount(node: Node) -> str:
    if node.layer is not None:
        return f"{quantity(node.layer.cycles)} cycles"
    return f"{quantity(node.op.macs)} MACs" if node.op.macs else ""


def _facts(node: Node) -> list[tuple[str, str]]:
    op, layer = node.op, node.layer
    rows = [
        ("kind", kind(op)),
        ("runs on", "VTA" if op.device == VTA else "CPU"),
        ("why", "; ".join(text for text in (op.why.rule, remark(op)) if text)),
        ("what would let it in", next_step(op)),
        ("region", node.region),
        ("result in", node.scope or ON_HOST),
        ("MACs", f"{op.macs:,}" if op.macs else ""),
        ("ALU operations", f"{op.alu_ops:,}" if op.alu_ops else ""),
        ("computed by", op.note),
    ]
    if layer is not None:
        rows += [
            ("layer", layer.name),
            ("cycles of the layer", f"{layer.cycles:,}"),
            ("DRAM bytes of the layer", f"{layer.dram_bytes:,}"),
        ]
    return [(title, text) for title, text in rows if text]
