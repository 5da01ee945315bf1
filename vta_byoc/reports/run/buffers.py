"""What instructions do to the buffers: elements that a layer uses, and how long they are live."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.isa import Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.access import Loops, Transfer, decode_uops, operands

SRAMS = ("inp", "wgt", "acc", "uop")


@dataclass(frozen=True)
class SramUse:
    """Elements of one buffer that a layer reads or writes: how many, and one past the highest."""

    used: int
    high: int
    depth: int

    @property
    def share(self) -> float:
        """What part of the buffer is used, 0 to 1."""
        return self.used / self.depth


@dataclass
class Lifetimes:
    """Elements of one buffer that instructions fill and free.

    An element is live from the instruction that writes it anew to the last one that reads it or
    adds to it before the next new value. ``born`` and ``died`` are counts of elements by
    instruction, (instructions,) int64.
    """

    born: np.ndarray
    died: np.ndarray


class _Elements:
    """Follows the values in one buffer: the last instruction that used each, -1 for none yet."""

    def __init__(self, depth: int, instructions: int) -> None:
        self._last = np.full(depth, -1, np.int64)
        self.found = Lifetimes(np.zeros(instructions, np.int64), np.zeros(instructions, np.int64))

    def use(self, index: int, where: slice | np.ndarray, fresh: bool) -> None:
        """Instruction ``index`` reads the elements or adds to them, or writes ``fresh`` values."""
        before = self._last[where]
        if fresh:
            self._free(before)
            self.found.born[index] += len(before)
            self._last[where] = index
        else:
            self._last[where] = np.where(before < 0, before, index)

    def finish(self) -> Lifetimes:
        """The lifetimes, with every value that is left freed after its last use."""
        self._free(self._last)
        self._last[:] = -1
        return self.found

    def _free(self, last: np.ndarray) -> None:
        users, counts = np.unique(last[last >= 0], return_counts=True)
        self.found.died[users] += counts


class Buffers:
    """Follows the micro-op buffer, which says what GEMM and ALU touch."""

    def __init__(self, program: Program, insns: Sequence[Instruction]) -> None:
        self._program, self._insns = program, insns
        self._uops = np.zeros(program.config.uop_depth, np.uint32)
        sizes = program.config.depths
        self._elements = {name: _Elements(sizes[name], len(insns)) for name in SRAMS}
        self._touched = functools.lru_cache(maxsize=4096)(self._operands)

    def layer(self, begin: int, end: int) -> dict[str, SramUse]:
        """The use of every buffer by instructions [begin, end); layers come in order."""
        sizes = self._program.config.depths
        masks = {name: np.zeros(sizes[name], bool) for name in SRAMS}
        for index in range(begin, end):
            for name, where, fresh in self._touches(self._insns[index]):
                masks[name][where] = True
                self._elements[name].use(index, where, fresh)
        return {name: _use(mask) for name, mask in masks.items()}

    def lifetimes(self) -> dict[str, Lifetimes]:
        """Of every buffer, after the last layer."""
        return {name: elements.finish() for name, elements in self._elements.items()}

    def _touches(self, insn: Instruction) -> Iterator[tuple[str, slice | np.ndarray, bool]]:
        """Buffer, elements, and whether they get values that do not depend on the old ones."""
        if insn.opcode in (Opcode.LOAD, Opcode.STORE):
            transfer = Transfer.of(self._program.config, insn)
            if not transfer.empty:
                yield transfer.space, transfer.sram, insn.opcode == Opcode.LOAD
                if transfer.mem == MemType.UOP:
                    self._load_uops(transfer)
        elif insn.opcode != Opcode.FINISH:
            used = slice(insn["uop_bgn"], insn["uop_end"])
            yield "uop", used, False
            shape = tuple(sorted((k, v) for k, v in insn.fields.items()))
            fresh = insn.opcode == Opcode.GEMM and bool(insn["reset"])
            for name, where in self._touched(insn.opcode, shape, self._uops[used].tobytes()):
                yield name, where, fresh

    def _operands(
        self, opcode: Opcode, fields: tuple[tuple[str, int], ...], uops: bytes
    ) -> list[tuple[str, np.ndarray]]:
        config, insn = self._program.config, Instruction(opcode, dict(fields))
        if not uops or not insn["iter_out"] or not insn["iter_in"]:
            return []
        loops = Loops(insn, decode_uops(config, np.frombuffer(uops, np.uint32)))
        sizes = config.depths
        return [(s, loops.touched(o, sizes[s])) for o, s in operands(config, insn).items()]

    def _load_uops(self, transfer: Transfer) -> None:
        program = self._program
        first = transfer.elements() * transfer.elem_bytes - program.input_bytes
        octets = program.image[first[..., None] + np.arange(transfer.elem_bytes)]
        self._uops[transfer.sram] = 0
        self._uops[transfer.targets()] = octets.view(np.uint32)[..., 0]


def _use(mask: np.ndarray) -> SramUse:
    where = np.flatnonzero(mask)
    return SramUse(len(where), int(where[-1]) + 1 if len(where) else 0, len(mask))
