"""A second opinion on time: the machine cycle by cycle, slow and obvious.

Written from docs/timing.md alone and sharing nothing with hw/timing/engine.py but the decoder, so
that the two can check each other.  It takes valid programs only.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Instruction, MemType, Opcode, Queue
from vta_byoc.hw.timing_parameters import Timing

NEIGHBOURS = {"prev": -1, "next": 1}


@dataclass
class CycleResult:
    """Cycles of the whole program; start, end and stalled cycles by reason of each instruction."""

    cycles: int
    start: list[int]
    end: list[int]
    stalls: list[Counter[str]]


@dataclass
class Part:
    """Cycles that a unit spends at work by itself, or moving one row through the port."""

    port: bool
    left: int


@dataclass
class Unit:
    """Fetch or a queue: the parts of what it does now, and since when it wants the port."""

    name: str
    parts: list[Part] = field(default_factory=list)
    running: bool = False
    granted: bool = False
    wants_since: int = -1
    index: int = -1

    def begin(self, index: int, parts: list[Part], now: int) -> None:
        """Start instruction `index`, whose `parts` run one after the other from cycle `now`."""
        self.index, self.running = index, True
        self.parts = [p for p in parts if p.left]
        self.look_ahead(now)

    def look_ahead(self, now: int) -> None:
        """Ask for the port when the next part needs it."""
        if self.parts and self.parts[0].port and not self.granted and self.wants_since < 0:
            self.wants_since = now

    def settle(self, now: int) -> bool:
        """Drop a finished part; whether all work is finished."""
        if self.parts and not self.parts[0].left:
            self.granted = False
            self.parts.pop(0)
        self.look_ahead(now)
        return not self.parts


def run_cycles(
    config: VTAConfig, insns: np.ndarray, timing: Timing | None = None, limit: int = 10_000_000
) -> CycleResult:
    """Step through a stream, (n, 2) uint64; VTAError when it deadlocks or exceeds ``limit``."""
    model = _Model(config, [ISA.of(config).decode(*w) for w in insns.tolist()], timing)
    while model.done < len(insns):
        model.cycle()
        if model.now > limit:
            raise VTAError(f"cycle {model.now}; the limit is {limit}; use a smaller program")
    return CycleResult(max(model.end), model.start, model.end, model.stalls)


class _Model:
    def __init__(self, config: VTAConfig, insns: list[Instruction], timing: Timing | None):
        self.config, self.insns = config, insns
        self.timing = timing or config.timing
        self.now = 0
        self.done = 0
        self.fetch = Unit("fetch")
        self.queue_units = {q: Unit(q.name.lower()) for q in Queue}
        self.units = [self.fetch, *self.queue_units.values()]  # in port priority
        readers = self.units[:-1]
        apart = self.timing.profile in ("chisel", "core")
        self.channels = [readers, self.units[-1:]] if apart else [self.units]
        self.to_fetch = list(range(len(insns)))
        self.burst: list[int] = []
        self.fetched: list[int] = []
        self.in_queue: dict[Queue, list[int]] = {q: [] for q in Queue}
        self.to_do = {q: [i for i, x in enumerate(insns) if x.queue == q] for q in Queue}
        self.tokens: dict[tuple[Queue, Queue], list[int]] = {
            (a, b): [] for a in Queue for b in Queue
        }
        self.start = [-1] * len(insns)
        self.end = [-1] * len(insns)
        self.stalls: list[Counter[str]] = [Counter() for _ in insns]

    @property
    def of_chisel(self) -> bool:
        return self.timing.profile == "chisel"

    def cycle(self) -> None:
        """One cycle, in the order of the rules."""
        changed = self.endings()
        changed |= self.enter_queues()
        changed |= self.start_instructions()
        self.choose_for_port()
        self.pass_time()
        if not (changed or any(u.running for u in self.units) or self.tokens_under_way()):
            raise VTAError(f"deadlock in cycle {self.now}; vta-byoc verify names the token")
        self.now += 1

    def tokens_under_way(self) -> bool:
        return any(t > self.now for tokens in self.tokens.values() for t in tokens)

    # ---------------------------------------------------------------- 1: what ends
    def endings(self) -> bool:
        ended = [u for u in self.units if u.running and u.settle(self.now)]
        for unit in ended:
            unit.running = False
            if unit is self.fetch:
                self.fetched, self.burst = self.burst, []
        for queue, unit in self.queue_units.items():
            if unit in ended:
                self.finish(queue, unit.index)
        return bool(ended)

    def finish(self, queue: Queue, index: int) -> None:
        self.end[index] = self.now
        self.done += 1
        self.in_queue[queue].remove(index)
        self.to_do[queue].remove(index)
        for side, step in NEIGHBOURS.items():
            if self.insns[index][f"push_{side}"]:
                visible = self.now + self.timing.token_latency
                self.tokens[queue, Queue(queue + step)].append(visible)

    # ---------------------------------------------------------------- 2: fetch
    def enter_queues(self) -> bool:
        before = len(self.fetched)
        while self.fetched:
            place = self.in_queue[self.insns[self.fetched[0]].queue]
            if len(place) == self.timing.queue_depth:
                break
            place.append(self.fetched.pop(0))
        if not self.fetched and not self.fetch.running and self.to_fetch:
            size = self.timing.fetch_burst
            self.burst, self.to_fetch = self.to_fetch[:size], self.to_fetch[size:]
            latency = Part(False, self.timing.dma_latency + self.timing.fetch_start)
            self.fetch.begin(self.burst[0], [latency, self.row(16 * len(self.burst))], self.now)
        return before != len(self.fetched)

    # ---------------------------------------------------------------- 3: start
    def start_instructions(self) -> bool:
        started = False
        for queue, unit in self.queue_units.items():
            if unit.running or not self.in_queue[queue] or self.missing(queue):
                continue
            index = self.in_queue[queue][0]
            for source in self.pops(index):
                self.tokens[source, queue].pop(0)
            self.start[index] = self.now
            unit.begin(index, self.parts(self.insns[index]), self.now)
            started = True
        return started

    def pops(self, index: int) -> list[Queue]:
        insn = self.insns[index]
        return [Queue(insn.queue + d) for side, d in NEIGHBOURS.items() if insn[f"pop_{side}"]]

    def missing(self, queue: Queue) -> list[Queue]:
        """The queues whose token the head of ``queue`` still waits for."""
        sources = self.pops(self.in_queue[queue][0])
        return [s for s in sources if not any(t <= self.now for t in self.tokens[s, queue])]

    # ---------------------------------------------------------------- 4: the port
    def choose_for_port(self) -> None:
        for units in self.channels:
            self.choose_among(units)

    def choose_among(self, units: list[Unit]) -> None:
        if any(u.granted for u in units):
            return
        wanting = [u for u in units if u.wants_since >= 0]
        if wanting:
            oldest = min(wanting, key=lambda u: u.wants_since)  # the first of equals
            oldest.granted, oldest.wants_since = True, -1

    # ---------------------------------------------------------------- 5: a cycle passes
    def pass_time(self) -> None:
        for unit in self.units:
            if unit.running and unit.wants_since < 0:
                unit.parts[0].left -= 1
        for queue, unit in self.queue_units.items():
            reason = self.why_idle(queue, unit)
            if reason:
                self.stalls[self.to_do[queue][0]][reason] += 1

    def why_idle(self, queue: Queue, unit: Unit) -> str:
        """Why a queue with work to do does none in this cycle."""
        if unit.running:
            return "memory port" if unit.wants_since >= 0 else ""
        if not self.to_do[queue]:
            return ""
        if not self.in_queue[queue]:
            return "full queue" if self.fetched else "fetch"
        return f"token from {self.missing(queue)[0].name.lower()}"

    # ---------------------------------------------------------------- costs
    def row(self, nbytes: int) -> Part:
        return Part(True, -(-nbytes // self.timing.port_bytes))

    def parts(self, insn: Instruction) -> list[Part]:
        """What an instruction does, part by part; at least one cycle."""
        if insn.opcode in (Opcode.GEMM, Opcode.ALU):
            rate = 1
            if insn.opcode == Opcode.ALU:
                imm, tensor = self.timing.alu_imm_cycles, self.timing.alu_tensor_cycles
                rate = imm if insn["use_imm"] else tensor
            kernel = insn["uop_end"] - insn["uop_bgn"]
            cycles = self.timing.compute_start
            for _ in range(insn["iter_out"]):
                cycles += insn["iter_in"] * kernel * rate
            return [Part(False, max(cycles, 1))]
        if insn.opcode == Opcode.FINISH or insn["x_size"] == 0 or insn["y_size"] == 0:
            return [Part(False, 1)]
        if self.timing.profile == "core":
            return self.on_core(insn)
        if not self.of_chisel:
            return self.transfer(insn)
        return self.written(insn) if insn.opcode == Opcode.STORE else self.read(insn)

    def on_core(self, insn: Instruction) -> list[Part]:
        """A transfer on the core of hw/rtl: an element a cycle, of several beats or of a part."""
        size = dram_elem_bytes(self.config, MemType(insn["mem_type"]))
        beats = self.row(insn["x_size"] * size)
        row = Part(True, max(beats.left, insn["x_size"]))
        if insn.opcode == Opcode.STORE:
            rows = [dataclasses.replace(row) for _ in range(insn["y_size"])]
            return [Part(False, 6), *rows, Part(False, self.timing.write_latency)]
        # all beats of an element but the one that completes it come while padding is written
        early = max(size // self.timing.port_bytes, 1) - 1
        width = insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"]
        wait = insn["y_pad_0"] * width + insn["x_pad_0"] + 1 - early
        parts = [Part(False, max(wait, self.timing.dma_latency + self.timing.load_start))]
        for y in range(insn["y_size"]):
            if y:
                parts.append(Part(False, max(0, insn["x_pad_1"] + insn["x_pad_0"] - early)))
            # a row is asked for in equal bursts of at most 64 beats
            bursts = -(-row.left // 64)
            parts += [Part(True, -(-row.left // bursts)) for _ in range(bursts)]
        return [*parts, Part(False, insn["x_pad_1"] + insn["y_pad_1"] * width)]

    def read(self, insn: Instruction) -> list[Part]:
        """LOAD on the Chisel core: padding is written while data are waited for and move."""
        data = insn["y_size"] * insn["x_size"]
        height = insn["y_pad_0"] + insn["y_size"] + insn["y_pad_1"]
        padding = height * (insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"]) - data
        wait = self.timing.dma_latency + self.timing.load_start
        if padding:
            wait = max(wait, padding + 4)
        nbytes = insn["x_size"] * dram_elem_bytes(self.config, MemType(insn["mem_type"]))
        return [Part(False, wait)] + [self.row(nbytes) for _ in range(insn["y_size"])]

    def written(self, insn: Instruction) -> list[Part]:
        """STORE on the Chisel core: bursts of at most 128 bytes, none over the end of a row."""
        parts = [Part(False, 1)]
        for _ in range(insn["y_size"]):
            left = insn["x_size"] * self.config.out_elem_bytes
            while left > 0:
                beats = self.row(min(left, 128)).left
                parts.append(Part(True, 2 + beats + (beats + 1) // 2 + self.timing.write_latency))
                left -= 128
        return parts

    def transfer(self, insn: Instruction) -> list[Part]:
        """SRAM is written in order of address: padding element by element, data row by row."""
        width = insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"]
        nbytes = insn["x_size"] * dram_elem_bytes(self.config, MemType(insn["mem_type"]))
        padding = insn["y_pad_0"] * width
        latency = self.timing.dma_latency
        if insn.opcode == Opcode.LOAD:
            latency += self.timing.load_start
        parts: list[Part] = []
        for _ in range(insn["y_size"]):
            padding += insn["x_pad_0"]
            # the DMA latency runs while the padding before the first datum is written
            parts.append(Part(False, padding if parts else max(padding, latency)))
            parts.append(self.row(nbytes))
            padding = insn["x_pad_1"]
        return [*parts, Part(False, padding + insn["y_pad_1"] * width)]
