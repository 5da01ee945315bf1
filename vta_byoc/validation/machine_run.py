"""The run of a program, instruction by instruction: who wrote an accumulator, and what it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.hw.reference.numpy_model import NumpyModel
from vta_byoc.hw.trace.implementations import Inputs, implementation
from vta_byoc.hw.verify.access import Loops, Transfer, decode_uops
from vta_byoc.workload.alu import on_int32


@dataclass(frozen=True)
class LaneEffect:
    """What an instruction does to one lane of an accumulator.

    Attributes:
        index: the instruction.
        kind: the name of its ALU operator, or LOAD, RESET or MAC.
        by_number: its operands are an immediate.
        changes: operators with their operands, in order; None in place of one replaces the value.
        before: the lane before it.
        after: the lane after it.
    """

    index: int
    kind: str
    by_number: bool
    changes: tuple[tuple[AluOp | None, int], ...]
    before: int
    after: int


def applied(effects: Sequence[LaneEffect], value: int) -> int:
    """What ``effects`` make of ``value``."""
    for effect in effects:
        for op, operand in effect.changes:
            value = _changed(op, value, operand)
    return value


def _changed(op: AluOp | None, value: int, operand: int) -> int:
    return operand if op is None else on_int32(op, value, operand)


class MachineRun:
    """The run of a program, to be looked at between instructions.

    Every tensor is at a place of its own, so that all are there when the run has ended.
    """

    def __init__(self, program: Program, values: Inputs) -> None:
        self.program, self.config = program.without_sharing(), program.config
        self._as_given = program
        isa = ISA.of(self.config)
        self.insns = [isa.decode(*words) for words in self.program.insns.tolist()]
        self._values = values
        self._run = implementation("sim")  # the fastest; all agree
        self._acc: dict[int, np.ndarray] = {}
        self.arena = self._run.run(self.program, values).result.arena
        self._loops = dict(self._all_loops())

    def _all_loops(self) -> Iterator[tuple[int, Loops]]:
        """The loops of every GEMM and ALU instruction with the micro-ops that it finds."""
        model = NumpyModel(self.config, self.program.new_arena(dict(self._values)))
        for index, insn in enumerate(self.insns):
            if insn.opcode == Opcode.LOAD and insn["mem_type"] == MemType.UOP:
                model.load(insn)
            elif insn.opcode in (Opcode.GEMM, Opcode.ALU):
                words = model.uop[insn["uop_bgn"] : insn["uop_end"]]
                loops = Loops(insn, decode_uops(self.config, words))
                if loops.steps:
                    yield index, loops

    def acc(self, index: int) -> np.ndarray:
        """The accumulators (elements, lanes) int32 after instruction ``index``; -1: at first."""
        if index < 0:
            return np.zeros((self.config.acc_depth, self.config.out_elem_bytes), np.int32)
        if index not in self._acc:
            state = self._run.run(self.program, self._values, index).result.sram["acc"]
            self._acc[index] = state.reshape(len(state), -1)
        return self._acc[index]

    # ------------------------------------------------------------ stores
    def stores(self, layer: Layer) -> list[int]:
        """The STORE instructions of a layer that move data."""
        return [i for i in range(layer.begin, layer.end) if self._transfer(i) is not None]

    def _transfer(self, index: int) -> Transfer | None:
        if self.insns[index].opcode != Opcode.STORE:
            return None
        transfer = Transfer.of(self.config, self.insns[index])
        return None if transfer.empty else transfer

    def elements(self, store: int) -> np.ndarray:
        """DRAM elements that a STORE writes, in the order of the accumulators it reads."""
        transfer = self._transfer(store)
        assert transfer is not None
        return transfer.elements().reshape(-1)

    def distance(self, store: int) -> int:
        """How many DRAM elements behind its place in the program as given a STORE writes."""
        given = ISA.of(self.config).decode(*self._as_given.insns[store].tolist())
        return int(self.insns[store]["dram_base"] - given["dram_base"])

    def store_of(self, element: int) -> int | None:
        """The last STORE that writes DRAM element ``element``."""
        for index in reversed(range(len(self.insns))):
            transfer = self._transfer(index)
            if transfer is not None and (transfer.elements() == element).any():
                return index
        return None

    def source(self, store: int, element: int) -> int:
        """The ACC element that a STORE puts at DRAM element ``element``."""
        last = int(np.flatnonzero(self.elements(store) == element)[-1])
        return int(self.insns[store]["sram_base"]) + last

    # ------------------------------------------------------------ accumulators
    def writers(self, element: int, before: int) -> list[int]:
        """Instructions before ``before`` that made ACC ``element``, from the last replacement."""
        found: list[int] = []
        for index in reversed(range(before)):
            if self._writes(index, element):
                found.append(index)
                if self._replaces(self.insns[index]):
                    break
        return found[::-1]

    def _writes(self, index: int, element: int) -> bool:
        insn = self.insns[index]
        if index in self._loops:
            return element in self._loops[index].touched("dst", self.config.acc_depth)
        if insn.opcode != Opcode.LOAD or insn["mem_type"] not in (MemType.ACC, MemType.ACC_8BIT):
            return False
        transfer = Transfer.of(self.config, insn)
        return not transfer.empty and transfer.sram.start <= element < transfer.sram.stop

    @staticmethod
    def _replaces(insn: Instruction) -> bool:
        return insn.opcode == Opcode.LOAD or bool(insn["reset"])

    def _read(self, index: int, element: int) -> list[int]:
        """ACC elements that an ALU instruction on tensors reads for ``element``, step by step."""
        insn, loops = self.insns[index], self._loops[index]
        rows = np.arange(insn["iter_out"])[:, None, None]
        cols = np.arange(insn["iter_in"])[:, None]
        dst, src = (
            loops.uops[k] + rows * insn[f"{k}_factor_out"] + cols * insn[f"{k}_factor_in"]
            for k in ("dst", "src")
        )
        return cast("list[int]", src[dst == element].tolist())

    def dependencies(self, element: int, before: int) -> list[int]:
        """All instructions that ACC ``element`` depends on through accumulators, ascending."""
        waiting, seen = [(element, before)], set[tuple[int, int]]()
        while waiting:
            target, end = waiting.pop()
            for index in self.writers(target, end):
                if (target, index) in seen:
                    continue
                seen.add((target, index))
                insn = self.insns[index]
                if insn.opcode == Opcode.ALU and not insn["use_imm"]:
                    waiting += [(e, index) for e in set(self._read(index, target)) - {target}]
        return sorted({index for _, index in seen})

    def effect(self, index: int, element: int, lane: int) -> LaneEffect:
        """What instruction ``index`` does to a lane of ACC ``element``, which it writes."""
        insn = self.insns[index]
        before, after = (int(self.acc(i)[element, lane]) for i in (index - 1, index))
        changes: tuple[tuple[AluOp | None, int], ...] = ((None, after),)
        kind = "RESET" if insn.opcode == Opcode.GEMM else "LOAD"
        if insn.opcode == Opcode.GEMM and not insn["reset"]:
            kind, changes = "MAC", ((AluOp.ADD, after - before),)
        elif insn.opcode == Opcode.ALU:
            op, sources = AluOp(insn["alu_opcode"]), self._read(index, element)
            operands = [insn["imm"] for _ in sources]
            if not insn["use_imm"]:
                operands = [int(self.acc(index - 1)[e, lane]) for e in sources]
            kind, changes = op.name, tuple((op, x) for x in operands)
        by_number = insn.opcode == Opcode.ALU and bool(insn["use_imm"])
        return LaneEffect(index, kind, by_number, changes, before, after)
