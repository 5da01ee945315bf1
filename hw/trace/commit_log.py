"""The commit log: what every instruction of a run wrote, as one 64-bit digest each.

Every implementation of the machine writes the same log for the same program and inputs: the
functional simulator, the numpy model, the order-adversarial runs.  An instruction's entry is the
digest (``hw/sim/lane_digest.py``) of the lanes that it wrote, where they lie and what they hold
right after it; LOAD writes SRAM with its padding, STORE bytes of DRAM, GEMM and ALU accumulators.
What writes nothing (an empty transfer, FINISH) has digest 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, MEMORY_TYPES, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim.lane_digest import digest_of
from vta_byoc.hw.verify.access import Loops, Transfer, decode_uops
from vta_byoc.hw.verify.rules import disassembly, layer_of

FORMAT = "vta commit log 1"


# ---------------------------------------------------------------- the log
@dataclass(frozen=True)
class Record:
    """One instruction of a log; ``digest`` is None where it was not executed."""

    index: int
    text: str
    layer: str
    digest: int | None

    def __str__(self) -> str:
        return f"instruction {self.index}{self.layer and f' of layer {self.layer}'} ({self.text})"


@dataclass(frozen=True, eq=False)
class CommitLog:
    """The log of one run of ``program``.

    Attributes:
        source: the implementation that ran it.
        program: what ran.
        inputs: SHA-256 of the input tensors, hexadecimal.
        digests: (n,) uint64, 0 where nothing was written.
        executed: (n,) bool.
        stopped: why the run ended before its end; empty when it did not.
    """

    source: str
    program: Program
    inputs: str
    digests: np.ndarray
    executed: np.ndarray
    stopped: str = ""

    def __len__(self) -> int:
        return len(self.digests)

    def record(self, index: int) -> Record:
        """Entry ``index``."""
        program = self.program
        text = disassembly(program.config, program.insns[index])
        digest = int(self.digests[index]) if self.executed[index] else None
        return Record(index, text, layer_of(program.layers, index), digest)

    def records(self) -> Iterator[Record]:
        """All entries, in the order of the stream."""
        return map(self.record, range(len(self)))

    # ------------------------------------------------------------ text
    def to_text(self) -> str:
        """A header, then for each instruction: index, both words, digest or ``-``."""
        lines = [
            f"{FORMAT}\nsource {self.source}\nprogram {self.program.digest()}",
            f"inputs {self.inputs}\nstopped {' '.join(self.stopped.split()) or '-'}",
        ]
        for i, (word0, word1) in enumerate(self.program.insns.tolist()):
            digest = f"{int(self.digests[i]):016x}" if self.executed[i] else "-"
            lines.append(f"{i} {word0:016x} {word1:016x} {digest}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str, program: Program) -> CommitLog:
        """The log in ``text``, which must be one of ``program``; anything else is a VTAError."""
        lines = text.splitlines()
        if not lines or lines[0] != FORMAT:
            first = lines[0][:40] if lines else ""
            raise VTAError(
                f"commit log begins with {first!r}; its first line must be {FORMAT!r}; give a log "
                "that CommitLog.to_text wrote"
            )
        head = dict(line.partition(" ")[::2] for line in lines[1:5])
        missing = [k for k in ("source", "program", "inputs", "stopped") if not head.get(k)]
        if missing:
            raise VTAError(
                f"commit log has no line {missing[0]!r}; source, program, inputs and stopped "
                "follow the first; write the log again"
            )
        _same("commit log of program", head["program"], program.digest())
        if len(lines) - 5 != len(program.insns):
            raise VTAError(
                f"commit log has {len(lines) - 5} instructions; the program has "
                f"{len(program.insns)}; write the log again"
            )
        entries = [_entry(i, line, program) for i, line in enumerate(lines[5:])]
        return cls(
            head["source"],
            program,
            head["inputs"],
            np.array([entry or 0 for entry in entries], np.uint64),
            np.array([entry is not None for entry in entries], bool),
            "" if head["stopped"] == "-" else head["stopped"],
        )


def _entry(index: int, line: str, program: Program) -> int | None:
    word0, word1 = program.insns[index].tolist()
    start = f"{index} {word0:016x} {word1:016x} "
    digest = line[len(start) :]
    hexadecimal = len(digest) == 16 and set(digest) <= set("0123456789abcdef")
    if not line.startswith(start) or not (digest == "-" or hexadecimal):
        raise VTAError(
            f"commit log line {line[:60]!r}; instruction {index} must read {start.strip()!r} and "
            "its digest, 16 hexadecimal digits or -; write the log again"
        )
    return None if digest == "-" else int(digest, 16)


def _same(what: str, left: str, right: str) -> None:
    if left != right:
        raise VTAError(
            f"{what} {left[:12]}, not {right[:12]}; only runs of the same can be compared; run "
            "both again"
        )


def stream_program(config: VTAConfig, insns: np.ndarray, arena: np.ndarray) -> Program:
    """A raw stream, (n, 2) uint64, and its raw arena, int8, as a program without symbols."""
    return Program(config, insns, arena, (), (), (), 0, arena.size)


# ---------------------------------------------------------------- effects
@dataclass(frozen=True)
class Effect:
    """What one instruction wrote.

    ``space`` is "uop", "inp", "wgt", "acc" or "dram" (bytes); empty when nothing was written.
    ``index`` are the flat lane indices, ascending, and ``value`` what the lanes hold, int64.
    """

    space: str
    index: np.ndarray
    value: np.ndarray

    @property
    def digest(self) -> int:
        """The digest of this one lane; 0 where no lane differs."""
        return digest_of(self.space, self.index, self.value) if self.space else 0


_NOTHING = Effect("", np.zeros(0, np.int64), np.zeros(0, np.int64))


def effect(config: VTAConfig, insn: Instruction, state: RunResult) -> Effect:
    """What ``insn`` wrote; ``state`` is the machine right after it."""
    space, elements = _written(config, insn, state.sram["uop"])
    if not space or not elements.size:
        return _NOTHING
    memory = state.arena if space == "dram" else state.sram[space]
    if space == "dram":
        rows = memory[: memory.size // config.out_elem_bytes * config.out_elem_bytes]
        memory = rows.reshape(-1, config.out_elem_bytes)
    flat = memory.reshape(len(memory), -1)
    lanes = elements[:, None] * flat.shape[1] + np.arange(flat.shape[1])
    return Effect(space, lanes.reshape(-1), flat[elements].astype(np.int64).reshape(-1))


def _written(config: VTAConfig, insn: Instruction, uop: np.ndarray) -> tuple[str, np.ndarray]:
    """(space, elements ascending) of what an instruction that was executed wrote."""
    none = np.zeros(0, np.int64)
    if insn.opcode == Opcode.FINISH:
        return "", none
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        transfer = Transfer.of(config, insn)
        if transfer.empty:
            return "", none
        if insn.opcode == Opcode.STORE:
            return "dram", np.unique(transfer.elements())
        where = transfer.sram
        return MEMORY_TYPES[MemType(insn["mem_type"])].sram, np.arange(where.start, where.stop)
    loops = Loops(insn, decode_uops(config, uop[insn["uop_bgn"] : insn["uop_end"]]))
    return "acc", loops.touched("dst", config.acc_depth) if loops.steps else none


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """A log and the machine's state at its end."""

    log: CommitLog
    result: RunResult

    def effect(self, index: int) -> Effect:
        """What instruction ``index`` wrote, if it was the last to be executed."""
        program = self.log.program
        insn = ISA.of(program.config).decode(*program.insns[index].tolist())
        return effect(program.config, insn, self.result)


# ---------------------------------------------------------------- comparing
@dataclass(frozen=True)
class Difference:
    """The first instruction that two logs disagree about.

    ``left`` and ``right`` are its entries, ``left_source`` and ``right_source`` what ran;
    ``left_stopped`` and ``right_stopped`` why a run ended before its end (empty: it did not).
    """

    left: Record
    right: Record
    left_source: str
    right_source: str
    left_stopped: str = ""
    right_stopped: str = ""

    @property
    def index(self) -> int:
        """The instruction's place in the stream."""
        return self.left.index

    @property
    def layer(self) -> str:
        """The layer that it belongs to; empty when none."""
        return self.left.layer

    @property
    def cause(self) -> str:
        """What either side did, without the name of the instruction."""
        sides = [
            _side(self.left_source, self.left, self.left_stopped),
            _side(self.right_source, self.right, self.right_stopped),
        ]
        if self.right.text != self.left.text:
            sides.append(f"on the right it is {self.right.text}")
        return "; ".join(sides)

    def __str__(self) -> str:
        return f"{self.left}: {self.cause}"


def _side(source: str, record: Record, stopped: str) -> str:
    if record.digest is None:
        return f"{source} did not execute it: {stopped or 'its run had ended'}"
    if record.digest:
        return f"{source} wrote {record.digest:016x}"
    return f"{source} wrote nothing"


def first_difference(
    left: CommitLog, right: CommitLog, *, variants: bool = False
) -> Difference | None:
    """The first instruction, in the order of the stream, whose effect differs.

    Program order is a legal order, so all that the instruction reads was written by earlier ones,
    and those agree: it is the cause, not a consequence.

    Args:
        left: one log.
        right: another of the same program, or of a variant.
        variants: the logs may be of two variants of one program: other words, constants or
            addresses, but as many instructions in the same layers.

    Raises:
        VTAError: the logs cannot be compared.
    """
    _comparable(left, right, variants)
    both = left.executed & right.executed
    wrong = both & (left.digests != right.digests)
    if not (left.stopped and right.stopped):
        wrong |= left.executed != right.executed
    ends = [int(np.argmin(x.executed)) if x.stopped else -1 for x in (left, right)]
    found = np.flatnonzero(wrong)
    if len(found):
        index = int(found[0])
    elif ends[0] != ends[1]:
        index = min(e for e in ends if e >= 0)
    else:
        return None
    return Difference(
        left.record(index),
        right.record(index),
        left.source,
        right.source,
        left.stopped,
        right.stopped,
    )


def _comparable(left: CommitLog, right: CommitLog, variants: bool) -> None:
    one, two = left.program, right.program
    for log in (left, right):
        if not len(log):
            raise VTAError(
                f"the log of {log.source} is empty; a log has an entry for each instruction; run "
                "a program of at least one"
            )
    _same("commit logs of inputs", left.inputs, right.inputs)
    if not variants:
        _same("commit logs of program", one.digest(), two.digest())
        return
    if one.config != two.config:
        raise VTAError(
            f"commit logs of machines {one.config.name} ({one.config.key}) and {two.config.name} "
            f"({two.config.key}); variants of a program run on one machine; compile both for it"
        )
    if len(one.insns) != len(two.insns):
        raise VTAError(
            f"commit logs of {len(one.insns)} and {len(two.insns)} instructions; variants of a "
            "program have equally many; compare what they store instead"
        )
    if one.layers != two.layers:
        raise VTAError(
            "commit logs of programs with other layers; variants of a program have the same; "
            "compare what they store instead"
        )
