"""What an instruction asks of the machine's time: cycles of its unit, rows of the memory port.

Timing depends on no data: everything follows from the fields of the instruction (docs/timing.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import Fault, fault_message
from vta_byoc.hw.isa import (
    INSN_BYTES,
    ISA,
    LOADABLE,
    OPCODE_MASK,
    PADS,
    STORABLE,
    AluOp,
    Instruction,
    MemType,
    Opcode,
    Queue,
)
from vta_byoc.hw.timing_parameters import CORE_BURST, CORE_STORE, Timing

PLACES = ("sram_base", "dram_base")
"""Fields of a transfer that no time depends on."""
PAD_START, WRITE_START, BURST_START, WRITE_BURST = 4, 1, 2, 128
"""Of the profile "chisel": cycles before padding, a STORE and a burst of it; bytes of a burst."""


@dataclass(frozen=True)
class Work:
    """Cycles of one unit, in order: ``before``, ``rows`` port rows ``gap`` apart, ``after``.

    A computation is all ``before``.  ``startup`` cycles of ``before`` do nothing useful: the DMA
    latency that padding does not hide, the pipeline fill.  ``row`` is the port's time for a row;
    where a row is several ``bursts``, of one: the port may serve others between two.
    """

    before: int
    rows: int = 0
    row: int = 0
    gap: int = 0
    after: int = 0
    startup: int = 0
    nbytes: int = 0
    bursts: int = 1


@dataclass(frozen=True)
class Job:
    """One instruction as the timing model sees it: its queue, its tokens and its work."""

    queue: Queue
    pops: tuple[Queue, ...]
    pushes: tuple[Queue, ...]
    work: Work


def jobs_of(config: VTAConfig, insns: np.ndarray, timing: Timing) -> list[Job]:
    """Decode a stream, (n, 2) uint64; whatever no machine can run raises VTAError."""
    insns = np.asarray(insns)
    if insns.ndim != 2 or insns.shape[1] != 2 or insns.dtype != np.uint64:
        raise VTAError(
            f"instructions are {insns.dtype} {insns.shape}; they must be uint64 (n, 2); "
            "encode them with ISA.encode"
        )
    if not len(insns):
        raise VTAError("program of 0 instructions; a program has at least FINISH; compile it again")
    isa, last = ISA.of(config), len(insns) - 1
    timed = _timed_bits(isa)
    known: dict[tuple[int, int], Job] = {}
    jobs = []
    for index, (word0, word1) in enumerate(insns.tolist()):
        key = word0 & timed.get(word0 & OPCODE_MASK, -1), word1
        if key not in known:
            insn = isa.decode(word0, word1)
            if insn.opcode == Opcode.FINISH and index != last:
                raise _refused(index, insn, Fault.AFTER_FINISH, last - index)
            known[key] = _job(config, timing, index, insn)
        jobs.append(known[key])
    if isa.decode(*insns[-1].tolist()).opcode != Opcode.FINISH:
        reason = fault_message(Fault.NO_FINISH, 0, 0)
        raise VTAError(f"program of {len(insns)} instructions: {reason}")
    return jobs


def _timed_bits(isa: ISA) -> dict[int, int]:
    """By the code of a transfer: the bits of its first word that do not say where it is."""
    found = {}
    for opcode in (Opcode.LOAD, Opcode.STORE):
        places = [field for field in isa.instructions[opcode] if field.name in PLACES]
        assert all(field.word == 0 for field in places), "sizes are in the other word"
        found[int(opcode)] = ~sum(((1 << field.width) - 1) << field.lsb for field in places)
    return found


def cycles_alone(config: VTAConfig, opcode: Opcode, fields: Mapping[str, int]) -> int:
    """Cycles of an instruction that waits for nothing; ``fields`` that are not given are 0."""
    insn = Instruction(opcode, defaultdict(int, fields))
    work = _job(config, config.timing, 0, insn).work
    rows = work.rows * work.row * work.bursts + work.gap * max(work.rows - 1, 0)
    return work.before + rows + (work.after if work.rows else 0)


def fetch_work(count: int, timing: Timing) -> Work:
    """Fetching a burst of ``count`` instructions."""
    nbytes = count * INSN_BYTES
    return Work(
        timing.fetch_latency,
        1,
        -(-nbytes // timing.port_bytes),
        startup=timing.fetch_latency,
        nbytes=nbytes,
    )


def _refused(
    index: int, insn: Instruction, fault: Fault, value: int = 0, limit: int = 0
) -> VTAError:
    text = " ".join(format_instruction(insn).split())
    return VTAError(f"instruction {index} ({text}): {fault_message(fault, value, limit)}")


def _job(config: VTAConfig, timing: Timing, index: int, insn: Instruction) -> Job:
    queue = insn.queue
    if (queue == Queue.LOAD and (insn["pop_prev"] or insn["push_prev"])) or (
        queue == Queue.STORE and (insn["pop_next"] or insn["push_next"])
    ):
        raise _refused(index, insn, Fault.TOKEN_FLAG)
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        work = _transfer(config, timing, index, insn)
    elif insn.opcode == Opcode.FINISH:
        work = Work(1)
    else:
        work = _computation(config, timing, index, insn)
    return Job(queue, _sides(insn, "pop"), _sides(insn, "push"), work)


def _sides(insn: Instruction, what: str) -> tuple[Queue, ...]:
    """The queues that ``insn`` pops from or pushes to, previous first."""
    sides = (("prev", -1), ("next", 1))
    return tuple(Queue(insn.queue + step) for side, step in sides if insn[f"{what}_{side}"])


def _transfer(config: VTAConfig, timing: Timing, index: int, insn: Instruction) -> Work:
    mem, store = insn["mem_type"], insn.opcode == Opcode.STORE
    if mem not in (STORABLE if store else LOADABLE):
        raise _refused(index, insn, Fault.MEM_TYPE, mem)
    top, bottom, left, right = (insn[p] for p in PADS)
    if store and (top or bottom or left or right):
        raise _refused(index, insn, Fault.STORE_PAD)
    rows, cols = insn["y_size"], insn["x_size"]
    if not rows or not cols:
        return Work(1)
    width = left + cols + right
    lead, nbytes = top * width + left, cols * dram_elem_bytes(config, MemType(mem))
    if timing.profile == "core":
        return _core_transfer(timing, insn, nbytes)
    if store and timing.splits_channels:
        return _burst_store(timing, rows, nbytes)
    if not store and timing.hides_padding:
        pads = (top + rows + bottom) * width - rows * cols
        return _dense_load(timing, rows, nbytes, pads)
    before = max(timing.dma_latency if store else timing.read_latency, lead)
    return Work(
        before,
        rows,
        -(-nbytes // timing.port_bytes),
        gap=right + left,
        after=right + bottom * width,
        startup=before - lead,
        nbytes=rows * nbytes,
    )


def _core_transfer(timing: Timing, insn: Instruction, nbytes: int) -> Work:
    """Rows of `nbytes` on the core of `hw/rtl/`: at most an element a cycle.

    The beats of an element but the last pass the port while padding before it is written.
    """
    top, bottom, left, right = (insn[p] for p in PADS)
    rows, cols = insn["y_size"], insn["x_size"]
    row = max(-(-nbytes // timing.port_bytes), cols)
    if insn.opcode == Opcode.STORE:
        after = timing.write_latency
        return Work(CORE_STORE, rows, row, 0, after, CORE_STORE, rows * nbytes)
    width, beats = left + cols + right, max(1, nbytes // cols // timing.port_bytes)
    lead = top * width + left
    before = max(timing.read_latency, lead + 2 - beats)
    gap, after = max(0, left + right + 1 - beats), right + bottom * width
    bursts = -(-row // CORE_BURST)
    startup = before - min(lead, before)
    return Work(before, rows, -(-row // bursts), gap, after, startup, rows * nbytes, bursts)


def _dense_load(timing: Timing, rows: int, nbytes: int, pads: int) -> Work:
    """Data of all rows without a gap; ``pads`` elements of padding are written beside them."""
    before = max(timing.read_latency, pads + PAD_START) if pads else timing.read_latency
    row = -(-nbytes // timing.port_bytes)
    return Work(before, rows, row, startup=before - min(pads, before), nbytes=rows * nbytes)


def _burst_store(timing: Timing, rows: int, nbytes: int) -> Work:
    """Rows in bursts; each is asked for, written at two beats in three cycles and acknowledged."""
    whole, rest = divmod(nbytes, WRITE_BURST)
    row = whole * _burst(timing, WRITE_BURST) + (_burst(timing, rest) if rest else 0)
    return Work(WRITE_START, rows, row, startup=WRITE_START, nbytes=rows * nbytes)


def _burst(timing: Timing, nbytes: int) -> int:
    beats = -(-nbytes // timing.port_bytes)
    return BURST_START + -(-3 * beats // 2) + timing.write_latency


def _computation(config: VTAConfig, timing: Timing, index: int, insn: Instruction) -> Work:
    kernel = insn["uop_end"] - insn["uop_bgn"]
    if kernel < 0 or insn["uop_end"] > config.uop_depth:
        raise _refused(index, insn, Fault.UOP_RANGE, insn["uop_end"], config.uop_depth)
    rate = 1
    if insn.opcode == Opcode.ALU:
        if insn["alu_opcode"] not in set(AluOp):
            raise _refused(index, insn, Fault.ALU_OPCODE, insn["alu_opcode"])
        rate = timing.alu_imm_cycles if insn["use_imm"] else timing.alu_tensor_cycles
    steps = insn["iter_out"] * insn["iter_in"] * kernel
    return Work(max(1, timing.compute_start + steps * rate), startup=timing.compute_start)
