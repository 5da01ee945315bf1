"""The static verifier: proves a Program safe without running it.

:func:`verify` checks every rule of :data:`vta_byoc.hw.rules.RULES` and reports all violations.  A
program without one gives the same bytes in every order that its tokens allow, on every machine of
its configuration.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from .errors import VTAError
from .faults import Fault
from .isa import ISA, Instruction, Opcode, Queue
from .memory_rules import MemoryWalk
from .program import KINDS, Program, Symbol
from .rules import RULES, Report, Violation, summary
from .tokens import check_tokens
from .transfer_rules import relocatable

__all__ = ["RULES", "Violation", "check", "verify"]


def verify(program: Program) -> list[Violation]:
    """Every violation, by instruction; empty for a correct program."""
    report = Report(program)
    if not _check_symbols(report):
        return report.violations
    report.insns = [_decode(report, i) for i in range(len(program.insns))]
    _check_references(report)
    clocks = check_tokens(report)
    _check_finish(report, clocks)
    walk = MemoryWalk(report, clocks)
    for index, insn in enumerate(report.insns):
        if insn is not None:
            walk.step(index, insn)
    return sorted(report.violations, key=lambda v: v.index)


def check(program: Program) -> None:
    """Raise VTAError with the first violations, if there are any."""
    violations = verify(program)
    if violations:
        raise VTAError(f"the program is not safe to run: {summary(violations)}")


def _decode(report: Report, index: int) -> Instruction | None:
    word0, word1 = report.program.insns[index].tolist()
    if word0 & 7 not in set(Opcode):
        report.fault("opcode", index, Fault.OPCODE, word0 & 7)
        return None
    isa = ISA.of(report.program.config)
    used = [0, 0]
    for f in isa.instructions[Opcode(word0 & 7)]:
        used[f.word] |= ((1 << f.width) - 1) << f.lsb
    reserved = (word0 & ~used[0]) | (word1 & ~used[1])
    if reserved:
        report.fault("reserved-bits", index, Fault.RESERVED_BITS, reserved)
        return None
    return isa.decode(word0, word1)


# ---------------------------------------------------------------- symbols
def _check_symbols(report: Report) -> bool:
    """Whether the symbol table can be relied on."""
    program = report.program
    image_end = program.input_bytes + program.image.size
    if not 0 <= program.input_bytes <= image_end <= program.arena_bytes:
        report.add(
            "symbol",
            -1,
            f"{program.input_bytes} input bytes and an image of {program.image.size} bytes; the "
            f"arena has {program.arena_bytes}; link the program again",
        )
        return False
    ranges = {"input": (0, program.input_bytes)}
    ranges |= dict.fromkeys(("const", "uop"), (program.input_bytes, image_end))
    ranges |= dict.fromkeys(("temp", "output"), (image_end, program.arena_bytes))
    for sym in program.symbols:
        _check_symbol(report, sym, ranges)
    _check_apart(report)
    return not report.violations


def _check_symbol(report: Report, sym: Symbol, ranges: dict[str, tuple[int, int]]) -> None:
    if sym.kind not in ranges:
        report.add(
            "symbol",
            -1,
            f"symbol {sym.name} is of kind {sym.kind!r}; kinds are {', '.join(KINDS)}; choose one",
        )
        return
    low, high = ranges[sym.kind]
    if not low <= sym.offset <= sym.offset + sym.nbytes <= high:
        report.add(
            "symbol",
            -1,
            f"{sym.kind} {sym.name} lies at bytes {sym.offset} to {sym.offset + sym.nbytes - 1}; "
            f"its kind belongs into {low} to {high - 1}; link the program again",
        )


def _check_apart(report: Report) -> None:
    symbols = sorted(report.program.symbols, key=lambda s: s.offset)
    names = Counter(s.name for s in symbols)
    for name in sorted(n for n, count in names.items() if count > 1):
        report.add("symbol", -1, f"symbol {name} is declared twice; names must differ; rename one")
    for one, two in pairwise(s for s in symbols if s.nbytes):
        if two.offset < one.offset + one.nbytes:
            report.add(
                "symbol",
                -1,
                f"{one.kind} {one.name} and {two.kind} {two.name} overlap at byte {two.offset}; "
                "symbols must lie apart; link the program again",
            )


# ---------------------------------------------------------------- relocations and layers
def _check_references(report: Report) -> None:
    program, count = report.program, len(report.insns)
    for rel in program.relocations:
        insn = report.insns[rel.index] if 0 <= rel.index < count else None
        if not relocatable(insn):
            report.add(
                "relocation",
                -1,
                f"a relocation to {rel.symbol} names instruction {rel.index} of {count}; it must "
                "be a LOAD or a STORE; link the program again",
            )
    end = 0
    for layer in program.layers:
        if not end <= layer.begin <= layer.end <= count:
            report.add(
                "layer",
                -1,
                f"layer {layer.name} holds instructions {layer.begin} to {layer.end - 1}; the next "
                f"free ones are {end} to {count - 1}; list the layers in order",
            )
        end = max(end, layer.end)


# ---------------------------------------------------------------- the end
def _check_finish(report: Report, clocks: list[list[int]]) -> None:
    insns, last = report.insns, len(report.insns) - 1
    finishes = [i for i, x in enumerate(insns) if x is not None and x.opcode == Opcode.FINISH]
    if not finishes:
        report.fault("finish", last, Fault.NO_FINISH)
        return
    for index in finishes:
        if index != last:
            report.fault("finish", index, Fault.AFTER_FINISH, last - index)
        _check_finish_flags(report, index)
    for queue in (Queue.LOAD, Queue.STORE):
        _check_finish_waits(report, finishes[-1], queue, clocks[finishes[-1]][queue])


def _check_finish_flags(report: Report, index: int) -> None:
    insn = report.insns[index]
    assert insn is not None
    flags = [n for n in ("pop_prev", "pop_next", "push_prev", "push_next") if insn[n]]
    if flags:
        report.add(
            "finish",
            index,
            f"FINISH sets {', '.join(flags)}; it must move no tokens; let an empty transfer before "
            "it do so",
        )


def _check_finish_waits(report: Report, finish: int, queue: Queue, known: int) -> None:
    line = [i for i, x in enumerate(report.insns) if x is not None and x.queue == queue]
    late = [i for i in line if known < i < finish]
    if late:
        report.add(
            "finish",
            finish,
            f"FINISH does not wait for {report.named(late[-1])}; the program would end before it; "
            "push a token there and pop it before FINISH",
            late[-1],
        )
