"""The drawings of the concept pages: SVG that follows the page's colours, sizes from the tables.

Each function gives an object that a notebook shows.  Nothing is drawn from memory: sizes and names
come from the configuration and the pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence

import drawsvg as draw
from IPython.display import HTML

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing.result import TimingResult
from vta_byoc.pipeline import STAGES

LINE = 16
COLOURS = {"dram": "#8a8f98", "load": "#2f7fd1", "compute": "#d17a2f", "store": "#3b9c5a"}


class Sheet:
    """A drawing with boxes, arrows and words; words take the colour of the page's text."""

    def __init__(self, width: int, height: int, title: str) -> None:
        # Several drawings share a page: names inside them must differ.
        prefix = "".join(c for c in title if c.isalnum())
        self.drawing = draw.Drawing(width, height, id_prefix=prefix)
        self.title = title

    def box(self, x: float, y: float, w: float, h: float, text: str, colour: str = "dram") -> None:
        """A rectangle with lines of text in its middle."""
        stroke = COLOURS.get(colour, colour)
        self.drawing.append(
            draw.Rectangle(
                x, y, w, h, rx=5, fill=stroke, fill_opacity=0.14, stroke=stroke, stroke_width=1.5
            )
        )
        lines = text.split("\n")
        for number, line in enumerate(lines):
            middle = y + h / 2 + LINE * (number - (len(lines) - 1) / 2)
            self.text(line, x + w / 2, middle, 13 if number == 0 else 11.5, "middle")

    def text(self, text: str, x: float, y: float, size: float = 12, anchor: str = "start") -> None:
        self.drawing.append(
            draw.Text(
                text,
                size,
                x,
                y,
                text_anchor=anchor,
                dominant_baseline="central",
                fill="currentColor",
                font_family="system-ui, sans-serif",
            )
        )

    def arrow(
        self, points: Sequence[tuple[float, float]], colour: str = "dram", text: str = ""
    ) -> None:
        """A line through points with a head at its end, and words beside its middle."""
        stroke = COLOURS.get(colour, colour)
        head = draw.Marker(-0.1, -0.51, 0.9, 0.5, scale=7, orient="auto")
        head.append(draw.Lines(-0.1, 0.5, -0.1, -0.5, 0.9, 0, fill=stroke, close=True))
        line = draw.Lines(
            *(c for point in points for c in point),
            close=False,
            fill="none",
            stroke=stroke,
            stroke_width=2,
            marker_end=head,
        )
        self.drawing.append(line)
        if text:
            (x0, y0), (x1, y1) = points[0], points[-1]
            self.text(text, (x0 + x1) / 2, (y0 + y1) / 2 - 9, 11, "middle")

    def shown(self) -> HTML:
        svg = self.drawing.as_svg()
        return HTML(f'<figure role="img" aria-label="{self.title}" style="margin:0">{svg}</figure>')


def data_path(config: VTAConfig) -> HTML:
    """DRAM, the three units, the SRAMs between them and what moves along each arrow."""
    sheet = Sheet(760, 430, "The data path of VTA")
    sheet.box(10, 10, 740, 40, "DRAM: instructions, micro-ops, tensors")
    sheet.box(40, 100, 150, 50, "LOAD\n2-D DMA, zero padding", "load")
    sheet.box(570, 100, 150, 50, "STORE\n2-D DMA, int8", "store")
    for x, name, count in (
        (20, "INP", config.inp_depth),
        (125, "WGT", config.wgt_depth),
    ):
        sheet.box(x, 195, 90, 52, f"{name}\n{count:,}", "load")
    sheet.box(265, 195, 90, 52, f"UOP\n{config.uop_depth:,}", "compute")
    sheet.box(600, 195, 90, 52, f"OUT\n{config.out_depth:,}", "store")
    gemm = f"GEMM core\n{config.batch}x{config.block} · {config.block}x{config.block} a cycle"
    sheet.box(90, 300, 190, 52, gemm, "compute")
    sheet.box(470, 300, 190, 52, "vector ALU\nMIN MAX ADD SHR MUL", "compute")
    sheet.box(330, 372, 100, 50, f"ACC\n{config.acc_depth:,} int32", "compute")
    sheet.arrow([(115, 50), (115, 98)], "dram")
    sheet.arrow([(310, 50), (310, 193)], "dram", "")
    sheet.text("compute loads UOP and ACC", 320, 120, 11)
    sheet.arrow([(645, 98), (645, 52)], "store")
    sheet.arrow([(80, 150), (65, 193)], "load")
    sheet.arrow([(150, 150), (170, 193)], "load")
    sheet.arrow([(65, 247), (130, 298)], "load")
    sheet.arrow([(170, 247), (185, 298)], "load")
    sheet.arrow([(310, 247), (270, 298)], "compute")
    sheet.arrow([(230, 352), (328, 392)], "compute")
    sheet.arrow([(432, 385), (520, 354)], "compute")
    sheet.arrow([(585, 354), (432, 408)], "compute")
    sheet.arrow([(645, 298), (645, 249)], "store")
    sheet.arrow([(645, 193), (645, 152)], "store")
    return sheet.shown()


def packed_layout(config: VTAConfig) -> HTML:
    """An NCHW tensor and the blocks of channels it is packed into."""
    sheet = Sheet(760, 220, "A tensor in NCHW and packed")
    depth, block = 4, config.block
    for i in reversed(range(depth)):
        sheet.box(40 + 9 * i, 60 - 9 * i, 120, 100, "" if i else "H x W", "dram")
    sheet.text(f"NCHW: {depth * block} channels, plane by plane", 20, 195)
    sheet.arrow([(215, 105), (300, 105)], "dram", "pack")
    for i in range(depth):
        sheet.box(320 + 105 * i, 50, 90, 100, f"block {i}\n{block} lanes\na pixel", "load")
    sheet.text(
        f"N/{config.batch}, C/{block}, H, W, {config.batch}, {block}: "
        f"a pixel's {block} channels are one element",
        320,
        195,
    )
    return sheet.shown()


def tokens() -> HTML:
    """The three queues and the four token queues between them."""
    sheet = Sheet(760, 190, "Queues and tokens")
    for x, name in ((20, "load"), (300, "compute"), (580, "store")):
        sheet.box(x, 60, 160, 60, f"{name} queue\nin order", name)
    for x, left, right in (
        (180, "tile is loaded", "SRAM is free again"),
        (460, "tile is computed", "OUT is free again"),
    ):
        sheet.arrow([(x + 2, 78), (x + 118, 78)], "compute")
        sheet.arrow([(x + 118, 104), (x + 2, 104)], "compute")
        sheet.text(left, x + 60, 62, 11, "middle")
        sheet.text(right, x + 60, 122, 11, "middle")
    sheet.text(
        "An instruction waits for the tokens it pops; when it is done it pushes its own.", 20, 165
    )
    return sheet.shown()


def double_buffer(tiles: int = 4) -> HTML:
    """What latency hiding is: while one tile is computed the next is loaded."""
    sheet = Sheet(760, 170, "Tiles in two halves of SRAM")
    for row, name in enumerate(("load", "compute", "store")):
        sheet.text(name, 10, 30 + 40 * row)
        for tile in range(tiles):
            x = 80 + 110 * (tile + row)
            sheet.box(x, 14 + 40 * row, 104, 32, f"tile {tile}, half {tile % 2}", name)
    sheet.arrow([(80, 148), (740, 148)], "dram", "")
    sheet.text("time", 705, 162, 11)
    return sheet.shown()


def life_of_a_tensor() -> HTML:
    """Where a tensor between two layers may be."""
    sheet = Sheet(760, 230, "The life of a tensor between two layers")
    sheet.box(20, 20, 150, 46, "layer A\nACC after its epilogue", "compute")
    sheet.box(590, 20, 150, 46, "layer B\nreads its operand", "load")
    sheet.arrow([(170, 43), (588, 43)], "compute", "fused: stays in the accumulators, tile by tile")
    sheet.box(230, 95, 300, 46, "DRAM, packed\nin the arena while anybody reads it", "store")
    sheet.arrow([(95, 66), (95, 118), (228, 118)], "store")
    sheet.arrow([(532, 118), (665, 118), (665, 68)], "load")
    sheet.box(230, 172, 300, 46, "DRAM, plain\nthe host unpacks, computes, packs again")
    sheet.arrow([(70, 66), (70, 195), (228, 195)], "dram")
    sheet.arrow([(532, 195), (690, 195), (690, 68)], "dram")
    return sheet.shown()


def pipeline() -> HTML:
    """The stages, with the form of the module behind each."""
    rows = [
        (planned.stage.name, f"{planned.stage.does}; gives {planned.stage.gives}")
        for planned in STAGES
    ]
    sheet = Sheet(760, 44 * len(rows) + 10, "The stages of the pipeline")
    for number, (name, form) in enumerate(rows):
        y = 6 + 44 * number
        sheet.box(20, y, 300, 32, name, "compute")
        sheet.text(form, 340, y + 16)
        if number + 1 < len(rows):
            sheet.arrow([(170, y + 32), (170, y + 42)], "dram")
    return sheet.shown()


MOST_DRAWN = 400
"""Instructions in one timeline; more could not be told apart."""


def timeline(timing: TimingResult, first: int = 0) -> HTML:
    """When each instruction occupied its queue, from the first of the drawn ones on."""
    drawn = timing.instructions[first : first + MOST_DRAWN]
    begin, end = min(i.start for i in drawn), max(i.end for i in drawn)
    sheet = Sheet(760, 150, "Timeline of the instructions")
    scale = 670 / (end - begin)
    for row, queue in enumerate(Queue):
        name, y = queue.name.lower(), 14 + 40 * row
        sheet.text(name, 4, y + 14)
        for insn in (i for i in drawn if i.queue == queue):
            x = 80 + (insn.start - begin) * scale
            width = max((insn.end - insn.start) * scale, 0.4)
            bar = draw.Rectangle(
                x,
                y,
                width,
                28,
                fill=COLOURS[name],
                fill_opacity=0.6,
                stroke=COLOURS[name],
            )
            bar.append_title(f"instruction {insn.index}: cycles {insn.start:,} to {insn.end:,}")
            sheet.drawing.append(bar)
    sheet.text(f"cycle {begin:,}", 80, 138, 11)
    sheet.text(f"cycle {end:,} of {timing.cycles:,}", 750, 138, 11, "end")
    return sheet.shown()
