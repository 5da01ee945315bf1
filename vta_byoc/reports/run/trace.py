"""Timelines for the Perfetto and Chrome trace viewers.

One row each for layers and their tiles, for every queue and for the memory port; arrows are tokens.
The viewers know no cycles: one microsecond there is one cycle here, so that every number is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.isa import (
    DEP_FIELDS,
    ISA,
    AluOp,
    Instruction,
    MemType,
    Opcode,
    Queue,
)
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import PORT, InsnTime, TimingResult

Event = dict[str, Any]
ROWS = ("layers", "load", "compute", "store", "memory port")
"""The rows of a program, from the top; behind them WRITES where the machine writes apart."""
WRITES = "write channel"
_LAYERS, _PORT = 0, len(ROWS) - 1
_ROW = {queue: 1 + queue for queue in Queue}


def chrome_trace(program: Program, timing: TimingResult, name: str = "program") -> Event:
    """The timeline of one program in Chrome's trace event format, ready for ``json.dump``.

    ``timing`` is what :func:`vta_byoc.hw.timing.engine.simulate` found for ``program``.
    """
    return _document(list(_program_events(name, program, timing, 1, 0)))


def trace_programs(programs: Mapping[str, Program]) -> Event:
    """The timeline of several programs that run one after the other, a group of rows each."""
    events: list[Event] = []
    start = 0
    for number, (name, program) in enumerate(programs.items(), 1):
        timing = simulate(program)
        events += _program_events(name, program, timing, number, start)
        start += timing.cycles
    return _document(events)


def _document(events: list[Event]) -> Event:
    return {
        "displayTimeUnit": "ms",
        "otherData": {"unit": "1 microsecond is 1 clock cycle"},
        "traceEvents": events,
    }


def _program_events(
    name: str, program: Program, timing: TimingResult, pid: int, start: int
) -> Iterator[Event]:
    clock = timing.timing.clock_mhz
    title = (
        f"{name}: {timing.cycles:,} cycles, {timing.milliseconds:.3f} ms at {clock} MHz "
        "(1 us = 1 cycle)"
    )
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": title}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    apart = (WRITES,) if timing.timing.splits_channels else ()
    for tid, row in enumerate((*ROWS, *apart)):
        where = {"ph": "M", "pid": pid, "tid": tid}
        yield {**where, "name": "thread_name", "args": {"name": row}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": tid}}
    # A slice comes before the arrows and slices that begin with it: equal times keep their order.
    for event in _Timeline(program, timing).events():
        if event["ph"] in ("s", "f"):
            event["id"] += pid << 32  # Perfetto takes integers only
        yield {**event, "pid": pid, "ts": event["ts"] + start}


class _Timeline:
    """The events of one program; ``ts`` and ``dur`` are cycles."""

    def __init__(self, program: Program, timing: TimingResult):
        self.program, self.timing = program, timing
        isa = ISA.of(program.config)
        self.insns = [isa.decode(*words) for words in program.insns.tolist()]
        self.symbols = {r.index: f"{r.symbol}+{r.addend}" for r in program.relocations}
        self.names = {r.index: r.symbol for r in program.relocations}
        self.layers = {
            index: layer.name for layer in program.layers for index in range(layer.begin, layer.end)
        }
        self.tiles = tile_numbers(program, self.insns)

    def events(self) -> Iterator[Event]:
        yield from self.layer_slices()
        for insn in self.timing.instructions:
            yield from self.insn_slices(insn)
        yield from self.port_slices()
        yield from self.token_arrows()

    # ---------------------------------------------------------------- rows
    def layer_slices(self) -> Iterator[Event]:
        """A slice a layer and below it one a tile: when the compute queue worked on them."""
        for layer in self.timing.layers:
            insns = self.timing.instructions[layer.begin : layer.end]
            compute = [i for i in insns if i.queue == Queue.COMPUTE]
            if not compute:
                continue
            args = {"cycles": layer.cycles, "stalled": layer.queues[Queue.COMPUTE].stalls}
            yield _slice(_LAYERS, layer.name, compute[0].start, compute[-1].end, args)
            tiles: dict[int, tuple[int, int]] = {}
            for insn in compute:
                first, _ = tiles.get(self.tiles[insn.index], (insn.start, 0))
                tiles[self.tiles[insn.index]] = (first, insn.end)
            for number, span in tiles.items():
                yield _slice(_LAYERS, f"tile {number}", *span, {"layer": layer.name})

    def insn_slices(self, time: InsnTime) -> Iterator[Event]:
        """What the queue waited for, then the instruction."""
        row, at = _ROW[time.queue], time.free
        for reason, count in time.stalls.items():
            if reason != PORT:
                yield _slice(row, f"wait: {reason}", at, at + count, {"next": time.index})
                at += count
        yield _slice(row, self.name(time.index), time.start, time.end, self.args(time))

    def port_slices(self) -> Iterator[Event]:
        """Rows of the port; those of one instruction that follow each other are one slice."""
        merged: list[tuple[str, int, int, int, int]] = []
        apart = self.timing.timing.splits_channels
        for row in sorted(self.timing.rows, key=lambda r: apart and r.requester == "store"):
            last = merged[-1] if merged else None
            if last and last[:2] == (row.requester, row.index) and last[3] == row.start:
                merged[-1] = (*last[:3], row.end, last[4] + 1)
            else:
                merged.append((row.requester, row.index, row.start, row.end, 1))
        for requester, index, start, end, count in merged:
            name = "fetch" if requester == "fetch" else self.name(index)
            at = _PORT + int(apart and requester == "store")
            yield _slice(at, name, start, end, {"for": requester, "insn": index, "rows": count})

    # ---------------------------------------------------------------- texts
    def name(self, index: int) -> str:
        """Short name of an instruction, the same for all of its kind in a layer."""
        return short_name(self.insns[index], self.names.get(index))

    def args(self, time: InsnTime) -> Event:
        text = " ".join(format_instruction(self.insns[time.index]).split())
        args: Event = {"insn": time.index, "text": text}
        if time.index in self.symbols:
            args["dram"] = self.symbols[time.index]
        if time.index in self.layers:
            args |= {"layer": self.layers[time.index], "tile": self.tiles[time.index]}
        args |= {"cycles": time.end - time.start, "startup": time.startup}
        if PORT in time.stalls:
            args["waited for the port"] = time.stalls[PORT]
        return args

    # ---------------------------------------------------------------- tokens
    def token_arrows(self) -> Iterator[Event]:
        """From the k-th push of a pair of queues to its k-th pop."""
        for count, (source, target) in enumerate(token_pairs(self.insns)):
            yield from self.arrow(count, source, target)

    def arrow(self, number: int, source: int, target: int) -> Iterator[Event]:
        """A flow event ends in the last cycle of the push and in the first one of the pop."""
        common = {"name": "token", "cat": "token", "id": number}
        push, pop = self.timing.instructions[source], self.timing.instructions[target]
        yield {"ph": "s", **common, "tid": _ROW[push.queue], "ts": push.end - 1}
        yield {"ph": "f", "bp": "e", **common, "tid": _ROW[pop.queue], "ts": pop.start}


def _slice(row: int, name: str, start: int, end: int, args: Event) -> Event:
    return {"ph": "X", "tid": row, "name": name, "ts": start, "dur": end - start, "args": args}


def token_pairs(insns: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """The instruction that pushes and the one that pops, for every token that is popped."""
    pushed: dict[tuple[int, int], deque[int]] = {}
    for index, insn in enumerate(insns):
        for field, step in zip(DEP_FIELDS[2:], (-1, 1), strict=True):
            if insn[field]:
                pushed.setdefault((insn.queue, insn.queue + step), deque()).append(index)
    for index, insn in enumerate(insns):
        for field, step in zip(DEP_FIELDS[:2], (-1, 1), strict=True):
            if insn[field]:
                yield pushed[insn.queue + step, insn.queue].popleft(), index


def short_name(insn: Instruction, symbol: str | None) -> str:
    """Opcode, what it works on and the DRAM tensor, without numbers."""
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        if not insn["x_size"] or not insn["y_size"]:
            return "no-op"
        return f"{insn.opcode.name} {MemType(insn['mem_type']).name} {symbol or ''}".rstrip()
    if insn.opcode == Opcode.ALU:
        return f"ALU {AluOp(insn['alu_opcode']).name}"
    return "RESET" if insn.opcode == Opcode.GEMM and insn["reset"] else insn.opcode.name


def tile_numbers(program: Program, insns: list[Instruction]) -> list[int]:
    """The tile of each instruction within its layer: a tile ends with its last STORE."""
    numbers = [0] * len(insns)
    starts = {layer.begin for layer in program.layers}
    tile, storing = 0, False
    for index, insn in enumerate(insns):
        if index in starts:
            tile, storing = 0, False
        if storing and insn.opcode != Opcode.STORE:
            tile, storing = tile + 1, False
        storing |= insn.opcode == Opcode.STORE
        numbers[index] = tile
    return numbers
