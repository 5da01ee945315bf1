"""Timelines: what the viewers need, and that they show the simulated time."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from typing import Any

from conv_cases import NetBuilder, add_work, conv_tile, rescale

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.disassembly import disassemble
from vta_byoc.hw.isa import ISA, Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import PORT, TimingResult
from vta_byoc.reports.run.timing import time_programs
from vta_byoc.reports.run.trace import ROWS, chrome_trace, trace_programs
from vta_byoc.workload.workloads import Conv2dWorkload

SIM = VTAConfig.preset("sim")
Event = dict[str, Any]


@functools.cache
def net() -> Program:
    """Two tiled convolutions and an addition."""
    builder = NetBuilder(SIM)
    builder.input("x", 1, 32, 8, 8)
    work = Conv2dWorkload(1, 32, 32, 8, 8, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=rescale(9))
    builder.conv("conv1", "x", work, conv_tile(work, 1, 4, 8, 1))
    builder.conv("conv2", "conv1", work)
    builder.add("sum", "conv2", "x", add_work((1, 32, 8, 8)), kind="output")
    return builder.finish("sum").program


@functools.cache
def trace() -> tuple[list[Event], TimingResult]:
    timing = simulate(net())
    return json.loads(json.dumps(chrome_trace(net(), timing, "net")))["traceEvents"], timing


def slices(row: str) -> list[Event]:
    """The slices of one row, in order."""
    return [e for e in trace()[0] if e["ph"] == "X" and e["tid"] == ROWS.index(row)]


def test_rows_are_named_and_sorted() -> None:
    events, timing = trace()
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert names == dict(enumerate(ROWS))
    assert order == {tid: tid for tid in names}
    title = next(e for e in events if e["name"] == "process_name")["args"]["name"]
    assert title == (
        f"net: {timing.cycles:,} cycles, {timing.milliseconds:.3f} ms at 100 MHz (1 us = 1 cycle)"
    )


def test_every_event_has_what_the_format_demands() -> None:
    for event in trace()[0]:
        assert event["pid"] == 1 and isinstance(event["name"], str)
        if event["ph"] == "M":
            continue
        assert isinstance(event["ts"], int) and event["tid"] in range(len(ROWS))
        if event["ph"] == "X":
            assert isinstance(event["dur"], int) and event["dur"] > 0
        else:
            assert event["ph"] in ("s", "f") and isinstance(event["id"], int)


def test_a_queue_row_shows_every_instruction_and_its_waits() -> None:
    timing = trace()[1]
    for queue in Queue:
        row = slices(queue.name.lower())
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(row))
        shown = [e for e in row if not e["name"].startswith("wait: ")]
        wanted = [i for i in timing.instructions if i.queue == queue]
        spans = [(e["ts"], e["ts"] + e["dur"], e["args"]["insn"]) for e in shown]
        assert spans == [(i.start, i.end, i.index) for i in wanted]
        waits = Counter[str]()
        for e in row:
            if e["name"].startswith("wait: "):
                waits[e["name"].removeprefix("wait: ")] += e["dur"]
        stalls = timing.queues[queue].stalls
        assert waits == {r: n for r, n in stalls.items() if n and r != PORT}


def test_names_and_details_of_instructions() -> None:
    names = [e["name"] for e in slices("load") if "wait" not in e["name"]]
    assert sorted(names[:2]) == ["LOAD INP x", "LOAD WGT conv1_0"]
    compute = {e["name"] for e in slices("compute")}
    assert {"RESET", "GEMM", "ALU ADD", "ALU MAX", "LOAD ACC conv1_1", "no-op"} <= compute
    first = next(e["args"] for e in slices("load") if e["args"].get("dram") == "x+0")
    assert first == {
        "insn": first["insn"],
        "text": " ".join(disassemble(SIM, net().insns)[first["insn"]].split()),
        "dram": "x+0",
        "layer": "conv1",
        "tile": 0,
        "cycles": first["cycles"],
        "startup": 21,  # of 32 cycles of latency 11 write padding: a row of 10 and one element
        "waited for the port": first["waited for the port"],
    }


def test_layers_hold_their_tiles() -> None:
    rows = slices("layers")
    layers = [e for e in rows if "layer" not in e["args"]]
    assert [e["name"] for e in layers] == ["conv1", "conv2", "sum"]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(layers))
    for layer in layers:
        tiles = [e for e in rows if e["args"].get("layer") == layer["name"]]
        assert tiles[0]["ts"] == layer["ts"] and rows.index(layer) < rows.index(tiles[0])
        assert tiles[-1]["ts"] + tiles[-1]["dur"] == layer["ts"] + layer["dur"]
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(tiles))
    # two blocks of channels by two halves of the rows, each stored on its own
    assert [e["name"] for e in rows if e["args"].get("layer") == "conv1"] == [
        f"tile {k}" for k in range(4)
    ]


def test_the_port_row_shows_every_busy_cycle() -> None:
    row, timing = slices("memory port"), trace()[1]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in itertools.pairwise(row))
    cycles = Counter[str]()
    for e in row:
        cycles[e["args"]["for"]] += e["dur"]
    assert cycles == timing.port
    assert sum(e["args"]["rows"] for e in row) == len(timing.rows)


def test_an_arrow_for_every_token() -> None:
    events, timing = trace()
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    pops = sum(insn[f] for insn in map(decoded, net().insns) for f in ("pop_prev", "pop_next"))
    assert starts.keys() == ends.keys() and len(starts) == pops > 10
    for number, start in starts.items():
        end = ends[number]
        assert abs(start["tid"] - end["tid"]) == 1 and end["bp"] == "e"
        assert start["ts"] + 1 + timing.timing.token_latency <= end["ts"]
        assert inside(start) and inside(end)


def decoded(words: Any) -> Any:
    return ISA.of(SIM).decode(*words.tolist())


def inside(event: Event) -> bool:
    """Whether an instruction's slice encloses an end of an arrow."""
    return any(
        e["ts"] <= event["ts"] < e["ts"] + e["dur"]
        for e in slices(ROWS[event["tid"]])
        if not e["name"].startswith("wait: ")
    )


def test_programs_follow_one_another() -> None:
    programs = {"region0": net(), "region1": net()}
    document = trace_programs(programs)
    assert json.dumps(document) == json.dumps(trace_programs(programs))
    cycles = time_programs(programs)["region0"].cycles
    second = [e for e in document["traceEvents"] if e["pid"] == 2 and e["ph"] == "X"]
    first = [e for e in document["traceEvents"] if e["pid"] == 1 and e["ph"] == "X"]
    assert [{**e, "pid": 2, "ts": e["ts"] + cycles} for e in first] == second
    ids = [e["id"] for e in document["traceEvents"] if e["ph"] == "s"]
    assert len(set(ids)) == len(ids)
