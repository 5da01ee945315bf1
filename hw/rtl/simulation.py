"""Runs instruction streams on the core, with a DRAM whose latency, bandwidth and jitter are set."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.config_values import want
from vta_byoc.hw.counters import COUNTER_NAMES, dram_elem_bytes
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import TOKEN_PAIRS
from vta_byoc.hw.isa import ISA, SRAMS, Instruction, MemType, Queue
from vta_byoc.hw.rtl.build import core_library

_MOST_CYCLES = 1 << 62
_PAGE = 4096
_IDLE, _OUTSIDE, _BROKEN = 1, 2, 3
_RULES = (
    "",
    "a read request changed before memory took it",
    "a write request changed before memory took it",
    "data changed before memory took them",
    "a burst crosses a multiple of 4 KiB",
    "an address is no multiple of the port's width",
    "a burst has no beat, or more than 256",
    "the last beat of a burst is not the one that is marked",
)
"""Rules of AXI that the harness looks after, by their number there."""
_STATE = 8
"""The first slot of the report that says what the queues do."""
_READ = _STATE + 3 * len(Queue) + len(TOKEN_PAIRS) + 1
"""The first slot of the values of registers: the control register, then the counters."""
_SLOTS = 64
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64)
Committed = Callable[[int, np.ndarray, Mapping[str, np.ndarray]], None]
"""Called with an instruction's index, and DRAM and on-chip memories as they are behind its end;
they are overwritten by what follows."""


@dataclass(frozen=True)
class MemoryModel:
    """How the DRAM behaves that the core is connected to, in cycles.

    Attributes:
        read_latency: from a burst's request to its first beat.
        write_latency: from a burst's last beat to its acknowledgement.
        jitter: up to so many cycles more, drawn for each burst.
        beat_cycles: cycles that each beat that is read takes.
        stall_percent: how often memory is not ready for, or has no, request or beat in a cycle.
        seed: of what is drawn.
        answers: beats that are read before memory falls silent; -1: it never does.
        idle_limit: cycles without any progress after which a run is given up.
        read_fails: the number of the beat that is answered with an error; -1: none.
        write_fails: the number of the written burst that is; -1: none.
        data_first: whether memory takes the address of a written burst behind its last beat only.
    """

    read_latency: int = 32
    write_latency: int = 0
    jitter: int = 0
    beat_cycles: int = 1
    stall_percent: int = 0
    seed: int = 0
    answers: int = -1
    idle_limit: int = 100_000
    read_fails: int = -1
    write_fails: int = -1
    data_first: bool = False

    def __post_init__(self) -> None:
        for name in ("read_latency", "write_latency", "jitter"):
            want(f"memory model's {name}", getattr(self, name), 0, 100_000)
        want("memory model's beat_cycles", self.beat_cycles, 1, 1000)
        want("memory model's stall_percent", self.stall_percent, 0, 99)
        want("memory model's idle_limit", self.idle_limit, 1, 1 << 40)

    @classmethod
    def of(cls, config: VTAConfig) -> MemoryModel:
        """The memory that the machine's timing parameters describe."""
        return cls(config.timing.dma_latency, config.timing.write_latency)


@dataclass(frozen=True)
class CoreRun:
    """What a run of the core leaves behind.

    Attributes:
        arena: the DRAM, int8.
        cycles: from the launch until the core says that it is done.
        counters: the seven published counters, as the core counted them.
        sram: on-chip memories as `RunResult.sram` has them.
        spans: for each instruction the cycle in which it started and the first behind its end,
            int64 (n, 2).
    """

    arena: np.ndarray
    cycles: int
    counters: dict[str, int]
    sram: dict[str, np.ndarray] = field(default_factory=dict)
    spans: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))


@dataclass(frozen=True)
class Wave:
    """A file of waveforms (VCD) of the cycles [begin, end)."""

    path: str
    begin: int = 0
    end: int = _MOST_CYCLES


def run_core(
    config: VTAConfig,
    insns: np.ndarray,
    arena: np.ndarray,
    memory: MemoryModel | None = None,
    *,
    serial: bool = False,
    wave: Wave | None = None,
    committed: Committed | None = None,
) -> CoreRun:
    """Run a stream, (n, 2) uint64, on a copy of an arena, int8, which lies at address 0.

    The stream must be one that `vta-byoc verify` takes: the core checks nothing. With `serial` one
    instruction runs at a time, in program order. `committed` is called behind the end of every
    instruction, in the order in which they end.

    Raises:
        VTAError: the library cannot be built; the core makes no progress, with the state of every
            queue; it reaches beyond the arena; or memory answers with an error.
    """
    memory = memory or MemoryModel.of(config)
    library = core_library(config, waves=wave is not None)
    call = _Call(config, insns, arena)
    outcome = call.make(library, memory, serial, wave, committed)
    if outcome == _OUTSIDE:
        raise VTAError(
            f"the core reads or writes byte {call.report[2]:#x} of DRAM; the arena has "
            f"{arena.size:#x} bytes; check the program with vta-byoc verify"
        )
    if outcome == _IDLE:
        raise _stuck(config, insns, call.report, memory)
    if outcome == _BROKEN:
        raise VTAError(
            f"the core breaks a rule of AXI in cycle {call.report[0]:,}: {_RULES[call.report[5]]}; "
            "report it with the program and the machine"
        )
    call.refuse_failed()
    return call.result()


class _Call:
    """The buffers of one call of the library."""

    def __init__(self, config: VTAConfig, insns: np.ndarray, arena: np.ndarray) -> None:
        self.config, self.insns, self.arena = config, insns, arena
        self.place = -(-arena.size // _PAGE) * _PAGE
        nbytes = self.place + insns.size * insns.itemsize
        self.dram = np.zeros(-(-nbytes // _PAGE) * _PAGE, np.uint8)
        self.dram[: arena.size] = arena.view(np.uint8)
        stream = np.ascontiguousarray(insns).reshape(-1).view(np.uint8)
        self.dram[self.place : self.place + stream.size] = stream
        self.report = np.zeros(_SLOTS, np.int64)
        self.times = np.zeros((len(Queue), len(insns), 2), np.int64)
        self.sram = {
            name: np.zeros((config.depths[name], *config.element_shape(name)), sram.dtype)
            for name, sram in SRAMS.items()
        }

    def make(
        self,
        library: ctypes.CDLL,
        memory: MemoryModel,
        serial: bool,
        wave: Wave | None,
        committed: Committed | None,
    ) -> int:
        """Run; the outcome."""
        from vta_byoc.hw.rtl.registers import EVENTS, OFFSETS, SERIAL

        values = {"count": len(self.insns), "insn": self.place}
        values |= dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0)
        values |= {"mode": SERIAL if serial else 0, "control": 1}
        written = np.array([(OFFSETS[n], v) for n, v in values.items()], np.uint32)
        names = ("control", *(f"counted_{event}" for event in EVENTS))
        read = np.array([OFFSETS[name] for name in names], np.uint32)
        model = np.array(dataclasses.astuple(memory), np.int64)
        path, begin, end = (wave.path, wave.begin, wave.end) if wave else ("", 0, 0)
        self.events = EVENTS
        noted = _CALLBACK(self._noting(committed)) if committed else _CALLBACK()
        return int(
            library.vta_run(
                *_array(self.dram, sized=True),
                *_array(model),
                *_array(written, sized=True),
                *_array(read, sized=True),
                ctypes.c_uint64(_MOST_CYCLES),
                *_array(self.report),
                *_array(self.times),
                ctypes.c_uint64(len(self.insns)),
                *(item for name in SRAMS for item in _array(self.sram[name])),
                ctypes.c_char_p(path.encode()),
                ctypes.c_uint64(begin),
                ctypes.c_uint64(end),
                noted,
            )
        )

    def _noting(self, committed: Committed) -> Callable[[int, int], None]:
        """What the library calls: the queue and the number there become an index of the stream."""
        lines, arena = self._lines(), self.dram[: self.arena.size].view(np.int8)

        def noted(queue: int, number: int) -> None:
            committed(lines[Queue(queue)][number], arena, self.sram)

        return noted

    def _lines(self) -> dict[Queue, list[int]]:
        """The indices of each queue's instructions."""
        isa = ISA.of(self.config)
        queues = [isa.decode(*words).queue for words in self.insns.tolist()]
        return {queue: [i for i, q in enumerate(queues) if q == queue] for queue in Queue}

    def refuse_failed(self) -> None:
        """Refuse a run that memory ended.

        Raises:
            VTAError: it answered with an error.
        """
        from vta_byoc.hw.rtl.registers import READ_FAILED, WRITE_FAILED

        control = int(self.report[_READ])
        if control & (READ_FAILED | WRITE_FAILED):
            what = "a read" if control & READ_FAILED else "a write"
            raise VTAError(
                f"memory answered {what} of the core at byte {self.report[6]:#x} with an error, "
                f"which ended the run in cycle {self.report[0]:,}: fetch had handed on "
                f"{self.report[1]} of {len(self.insns)} instructions; let memory serve all "
                "addresses of the program"
            )

    def result(self) -> CoreRun:
        found = self.report[_READ + 1 :][: len(self.events)].tolist()
        counted = dict(zip(self.events, found, strict=True))
        arena = self.dram[: self.arena.size].view(np.int8).copy()
        counters = _published(self.config, counted)
        return CoreRun(arena, int(self.report[0]), counters, self.sram, self._spans())

    def _spans(self) -> np.ndarray:
        """Each queue ran its instructions in order."""
        spans = np.zeros((len(self.insns), 2), np.int64)
        for queue, mine in self._lines().items():
            spans[mine] = self.times[queue, : len(mine)]
        return spans


def _array(array: np.ndarray, *, sized: bool = False) -> tuple[object, ...]:
    """A pointer to an array; with `sized` its rows behind it."""
    pointer = ctypes.c_void_p(array.ctypes.data)
    return (pointer, ctypes.c_uint64(len(array))) if sized else (pointer,)


def _published(config: VTAConfig, counted: dict[str, int]) -> dict[str, int]:
    """The published counters, in bytes and steps."""

    def nbytes(mem: MemType) -> int:
        return counted[mem.name.lower()] * dram_elem_bytes(config, mem)

    values = (
        nbytes(MemType.INP),
        nbytes(MemType.WGT),
        nbytes(MemType.ACC) + nbytes(MemType.ACC_8BIT),
        nbytes(MemType.UOP),
        nbytes(MemType.OUT),
        counted["gemm_steps"],
        counted["alu_steps"],
    )
    return dict(zip(COUNTER_NAMES, values, strict=True))


# ---------------------------------------------------------------- no progress
def _stuck(
    config: VTAConfig, insns: np.ndarray, report: np.ndarray, memory: MemoryModel
) -> VTAError:
    """What every queue does in a core that makes no progress."""
    cycles, handed, reads = (int(report[slot]) for slot in (0, 1, 3))
    isa = ISA.of(config)
    decoded = [isa.decode(*words) for words in insns[:handed].tolist()]
    states = []
    for queue in Queue:
        level, busy, waits = report[_STATE + 3 * queue : _STATE + 3 * queue + 3].tolist()
        mine = [i for i, insn in enumerate(decoded) if insn.queue == queue]
        states.append(_state(queue, level, busy, waits, mine, decoded))
    first = _STATE + 3 * len(Queue)
    tokens = zip(TOKEN_PAIRS, report[first : first + len(TOKEN_PAIRS)].tolist(), strict=True)
    return VTAError(
        f"the core makes no progress in {memory.idle_limit:,} cycles, up to cycle {cycles:,}: "
        f"fetch handed on {handed} of {len(insns)} instructions, memory answered {reads:,} beats; "
        f"{'; '.join(states)}; tokens {', '.join(f'{p} {n}' for p, n in tokens)}; let memory "
        "answer, or check the tokens with vta-byoc verify"
    )


def _state(
    queue: Queue, level: int, busy: int, waits: int, mine: list[int], decoded: list[Instruction]
) -> str:
    name = queue.name.lower()
    index = len(mine) - level - busy
    if not busy and not level:
        return f"{name} is empty"
    at = mine[index] if 0 <= index < len(mine) else -1
    text = f"instruction {at} ({' '.join(format_instruction(decoded[at]).split())})"
    what = "runs" if busy else "waits for a token at" if waits else "holds"
    return f"{name} {what} {text}, {level} behind it" if busy else f"{name} {what} {text}"
