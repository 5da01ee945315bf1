"""The static verifier: proves a Program safe without running it.

:func:`verify` checks every rule of :data:`vta_byoc.hw.verify.rules.RULES` and reports all
violations.  A program without one gives the same bytes in every order that its tokens allow, on
every machine of its configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from vta_byoc.hw.bitfields import column, reserved_bits
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import Fault
from vta_byoc.hw.isa import ISA, OPCODE_MASK, Instruction, Opcode, Queue
from vta_byoc.hw.program.program import KINDS, STORED, WRITTEN, Program, Symbol
from vta_byoc.hw.verify.memory_rules import MemoryWalk
from vta_byoc.hw.verify.rules import RULES, Report, Violation, of_each, summary
from vta_byoc.hw.verify.tokens import Clock, check_tokens
from vta_byoc.hw.verify.transfer_rules import relocatable

__all__ = ["RULES", "Violation", "check", "verify"]


def verify(program: Program) -> list[Violation]:
    """Every violation, by instruction; empty for a correct program."""
    report = Report(program)
    if not _check_symbols(report):
        return report.violations
    report.insns = _decoded(report)
    _check_references(report)
    clocks = check_tokens(report)
    _check_finish(report, clocks)
    walk = MemoryWalk(report, clocks)
    for index, insn in enumerate(report.insns):
        if insn is not None:
            walk.step(index, insn)
    walk.finish()
    return sorted(report.violations, key=lambda v: v.index)


def check(program: Program) -> None:
    """Raise VTAError with the first violations, if there are any."""
    violations = verify(program)
    if violations:
        raise VTAError(f"the program is not safe to run: {summary(violations)}")


def _decoded(report: Report) -> list[Instruction | None]:
    """Every instruction, None where the words are none; equal words are one object."""
    words = report.program.insns
    codes = words[:, 0] & np.uint64(OPCODE_MASK)
    found: list[Instruction | None] = [None] * len(words)
    for index in np.flatnonzero(~np.isin(codes, list(Opcode))).tolist():
        report.fault("opcode", index, Fault.OPCODE, int(codes[index]))
    for opcode, fields in ISA.of(report.program.config).instructions.items():
        rows = np.flatnonzero(codes == opcode)
        reserved = reserved_bits(fields, words[rows])
        for k in np.flatnonzero(reserved).tolist():
            report.fault("reserved-bits", int(rows[k]), Fault.RESERVED_BITS, int(reserved[k]))
        distinct, which = np.unique(words[rows], axis=0, return_inverse=True)
        columns = [column(f, distinct).tolist() for f in fields]
        names = [f.name for f in fields]
        made = [
            Instruction(opcode, dict(zip(names, values, strict=True)))
            for values in zip(*columns, strict=True)
        ]
        sound = reserved == 0
        for index, k in zip(rows[sound].tolist(), which.reshape(-1)[sound].tolist(), strict=True):
            found[index] = made[k]
    return found


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
    ranges |= dict.fromkeys(WRITTEN, (image_end, program.arena_bytes))
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
    family: dict[str, list[Symbol]] = {}
    for sym in symbols:
        if sym.nbytes or sym.parent:
            family.setdefault(sym.parent, []).append(sym)
    for parent, members in family.items():
        if parent:
            _check_inside(report, parent, members)
            _check_pairs(report, members)
        else:  # whether what is shared is read in time is the memory rules' to say
            _check_pairs(report, [s for s in members if s.kind not in STORED])
            _check_pairs(report, [s for s in members if s.kind == "output"])


def _check_pairs(report: Report, symbols: Sequence[Symbol]) -> None:
    """Symbols, by offset, that may have no byte in common."""
    for one, two in pairwise(s for s in symbols if s.nbytes):
        if two.offset < one.offset + one.nbytes:
            report.add(
                "symbol",
                -1,
                f"{one.kind} {one.name} and {two.kind} {two.name} overlap at byte {two.offset}; "
                "only temporaries may share bytes, with each other or an output; link the program "
                "again",
            )


def _check_inside(report: Report, parent: str, parts: Sequence[Symbol]) -> None:
    """Parts lie in the symbol that they name as their parent."""
    by_name = {s.name: s for s in report.program.symbols}
    whole = by_name.get(parent)
    for part in parts:
        ends = (part.offset, part.offset + part.nbytes)
        if whole is None:
            text = f"{part.name} is a part of {parent}, which is not declared; declare it"
        elif not whole.offset <= ends[0] <= ends[1] <= whole.offset + whole.nbytes:
            text = (
                f"{part.name} lies at bytes {ends[0]} to {ends[1] - 1}; its parent {parent} at "
                f"{whole.offset} to {whole.offset + whole.nbytes - 1}; link the program again"
            )
        elif _is_circular(part, by_name):
            text = f"{part.name} is a part of itself; parents must end; link the program again"
        else:
            continue
        report.add("symbol", -1, text)


def _is_circular(symbol: Symbol, by_name: Mapping[str, Symbol]) -> bool:
    seen = set[str]()
    while symbol.parent in by_name and symbol.name not in seen:
        seen.add(symbol.name)
        symbol = by_name[symbol.parent]
    return symbol.name in seen


# ---------------------------------------------------------------- relocations and layers
def _check_references(report: Report) -> None:
    program, count = report.program, len(report.insns)
    able = of_each(report.insns, relocatable)
    for rel in program.relocations:
        if not (0 <= rel.index < count and able[rel.index]):
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
def _check_finish(report: Report, clocks: Sequence[Clock]) -> None:
    last = len(report.insns) - 1
    ends = of_each(report.insns, lambda insn: insn.opcode == Opcode.FINISH)
    finishes = [index for index, is_end in enumerate(ends) if is_end]
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
    later = enumerate(report.insns[known + 1 : finish], known + 1)
    late = [i for i, x in later if x is not None and x.queue == queue]
    if late:
        report.add(
            "finish",
            finish,
            f"FINISH does not wait for {report.named(late[-1])}; the program would end before it; "
            "push a token there and pop it before FINISH",
            late[-1],
        )
