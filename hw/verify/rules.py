"""The verifier's rules, and what it says when one is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import Fault, fault_message
from vta_byoc.hw.isa import ISA, Instruction
from vta_byoc.hw.program.program import Layer, Program

Found = TypeVar("Found")

RULES: Mapping[str, str] = {
    # the words
    "opcode": "the opcode is known",
    "reserved-bits": "bits that belong to no field are 0, in instructions and in micro-ops in use",
    "mem-type": "LOAD takes UOP, WGT, INP, ACC or ACC_8BIT; STORE takes OUT",
    "store-pad": "STORE has no padding",
    "alu-opcode": "the ALU opcode is known",
    "alu-reset": "only GEMM has the reset bit",
    "alu-uop": "micro-ops of the ALU have wgt 0",
    "loop-trips": "every loop of GEMM and the ALU runs at least once",
    "empty-rows": "a transfer without rows has no columns either",
    "token-flag": "token flags point at queues that exist",
    # the program
    "symbol": "symbols lie in the part of the arena of their kind; only stored ones share bytes",
    "relocation": "each transfer has one relocation, and addresses what that says",
    "layer": "layers are ranges of instructions, in order and apart",
    # bounds and contents
    "sram-bounds": "every SRAM element lies inside its buffer, over the full loop ranges",
    "uop-bounds": "the micro-op range rises and lies inside the micro-op buffer",
    "loop-steps": "one instruction takes a bounded number of micro-op steps",
    "uninitialised": "SRAM and micro-ops are written before they are read",
    "dram-bounds": "every transfer lies inside one symbol",
    "dram-store": "STORE writes temporaries and outputs only",
    "dram-undefined": "LOAD reads inputs, constants, micro-ops or what was stored before",
    "reuse": "of tensors that share bytes, each is read before another is stored there",
    "uop-source": "micro-ops are loaded from the program's image, where they are known",
    # order
    "deadlock": "every pop meets a push: no queue waits for ever",
    "token-order": "each push stands before its pop, so that program order is a legal order",
    "token-limit": "tokens outstanding never exceed what the machine counts, in any legal order",
    "token-left": "every token that is pushed is popped",
    "race": "accesses of two queues to one element, at least one a write, are ordered by tokens",
    "finish": "FINISH comes last, once, without token flags, after all work of every queue",
    # what implementations differ about
    "mul": "ALU MUL only where the machine multiplies",
    "acc-8bit": "LOAD of ACC_8BIT only where the machine widens",
    "shift": "immediate shift amounts stay within the machine's range",
    "tensor-shift": "shift amounts from constants are 0 to the machine's largest",
    "imm-source": "an immediate ALU instruction has dst as its src: some cores compute on src",
    "store-source": "STORE reads only vectors that GEMM or the ALU wrote last",
    "dst-distance": "GEMM steps that write one element are far enough apart",
    "alu-distance": "the ALU does not read a vector one step after writing it",
}


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    ``index`` is the instruction (-1: the program as a whole), ``other`` the instruction it is in
    conflict with, if the rule is about two; ``message`` is what is wrong; the limit; what to do.
    """

    rule: str
    index: int
    disassembly: str
    layer: str
    message: str
    other: int | None = None

    def __str__(self) -> str:
        if self.index < 0:
            return f"program: {self.rule}: {self.message}"
        return f"{_where(self.index, self.layer, self.disassembly)}: {self.rule}: {self.message}"


class Report:
    """Collects the violations of one program.

    ``insns`` are its decoded instructions, None where the words are no instruction.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.insns: list[Instruction | None] = []
        self.violations: list[Violation] = []

    def add(self, rule: str, index: int, message: str, other: int | None = None) -> None:
        """Note that instruction ``index`` breaks ``rule``."""
        if rule not in RULES:
            raise AssertionError(f"no rule {rule!r}")
        text = disassembly(self.program.config, self.program.insns[index]) if index >= 0 else ""
        layer = layer_of(self.program.layers, index)
        self.violations.append(Violation(rule, index, text, layer, message, other))

    def fault(self, rule: str, index: int, fault: Fault, value: int = 0, limit: int = 0) -> None:
        """Note what the simulators would refuse as ``fault``."""
        self.add(rule, index, fault_message(fault, value, limit))

    def named(self, index: int) -> str:
        """``instruction 3 of layer conv (GEMM ...)``."""
        return named(self.program.config, self.program.insns, self.program.layers, index)


# ---------------------------------------------------------------- equal instructions
def of_each(
    insns: Sequence[Instruction | None], function: Callable[[Instruction], Found]
) -> list[Found | None]:
    """``function`` of every instruction, asked once where several are one object; None of None."""
    objects = {id(insn): insn for insn in insns if insn is not None}
    found = {key: function(insn) for key, insn in objects.items()}
    return [found.get(id(insn)) for insn in insns]


# ---------------------------------------------------------------- naming instructions
def disassembly(config: VTAConfig, words: np.ndarray) -> str:
    """An instruction on one line, or its words where they are no instruction."""
    try:
        return " ".join(format_instruction(ISA.of(config).decode(*words.tolist())).split())
    except VTAError:
        return "{:016x} {:016x}".format(*words.tolist())


def layer_of(layers: Sequence[Layer], index: int) -> str:
    """Name of the layer that instruction ``index`` belongs to; empty when none."""
    return next((x.name for x in layers if x.begin <= index < x.end), "")


def named(config: VTAConfig, insns: np.ndarray, layers: Sequence[Layer], index: int) -> str:
    """``instruction 3 of layer conv (GEMM ...)``."""
    return _where(index, layer_of(layers, index), disassembly(config, insns[index]))


def _where(index: int, layer: str, text: str) -> str:
    return f"instruction {index}{f' of layer {layer}' if layer else ''} ({text})"


def summary(violations: Sequence[Violation], shown: int = 3) -> str:
    """The first violations on one line."""
    count = len(violations)
    rest = f"; and {count - shown} more" if count > shown else ""
    noun = "violation" if count == 1 else "violations"
    return f"{count} {noun}: " + "; ".join(map(str, violations[:shown])) + rest
