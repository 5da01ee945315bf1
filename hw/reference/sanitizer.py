"""The sanitizer: refuses, while a program runs, what a real machine would let pass in silence.

Every access is listed one element at a time, and slowly, so that this is an opinion independent of
the verifier's set arithmetic.  SRAM that nothing wrote is poison, and so are temporaries and
outputs that nothing stored, or that another tensor was stored over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import Fault, fault_message
from vta_byoc.hw.isa import MEMORY_TYPES, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import STORED, WRITTEN, Program, Symbol, root_of
from vta_byoc.hw.reference.numpy_model import NumpyModel

_RANGE = {"dst": Fault.DST_RANGE, "src": Fault.SRC_RANGE, "wgt": Fault.WGT_RANGE}
_UNDEFINED, _DEFINED = -2, -1


class Sanitizer:
    """Which elements of each memory are defined, in the order of execution.

    Without a program (a raw stream) all DRAM is defined and any of it may be written.
    """

    def __init__(self, config: VTAConfig, arena_bytes: int, program: Program | None) -> None:
        c = config
        self._config = config
        self._program = program
        relocations = program.relocations if program else ()
        self._named = {r.index: r.symbol for r in relocations}
        self._arena_bytes = arena_bytes
        self._sram = {
            "uop": np.zeros(c.uop_depth, bool),
            "inp": np.zeros(c.inp_depth, bool),
            "wgt": np.zeros(c.wgt_depth, bool),
            "acc": np.zeros(c.acc_depth, bool),
        }
        self._tensors = self._numbered(program.symbols if program else ())
        # Which stored tensor each byte holds, by its number.
        self._dram = np.full(arena_bytes, _UNDEFINED if program else _DEFINED)
        for sym in program.symbols if program else ():
            if sym.kind not in STORED:
                self._dram[sym.offset : sym.offset + sym.nbytes] = _DEFINED

    @staticmethod
    def _numbered(symbols: Sequence[Symbol]) -> dict[str, int]:
        """A number for every stored tensor; a part has that of its whole."""
        by_name = {s.name: s for s in symbols}
        wholes = list(by_name)
        stored = [s for s in symbols if s.kind in WRITTEN]
        return {s.name: wholes.index(root_of(s, by_name)[0]) for s in stored}

    def before(self, index: int, insn: Instruction, model: NumpyModel) -> None:
        """Check instruction ``index`` and account for what it writes; raises VTAError."""
        if insn.opcode in (Opcode.LOAD, Opcode.STORE):
            if insn["x_size"] and insn["y_size"] and insn["mem_type"] in set(MemType):
                self._transfer(index, insn)
        elif insn.opcode in (Opcode.GEMM, Opcode.ALU):
            self._compute(insn, model)
        elif insn.opcode == Opcode.FINISH and self._program is not None:
            for symbol in self._program.of_kind("output"):
                self._still_there(symbol, symbol.offset, symbol.offset + symbol.nbytes)

    # ---------------------------------------------------------------- transfers
    def _transfer(self, index: int, insn: Instruction) -> None:
        memory = self._sram[MEMORY_TYPES[MemType(insn["mem_type"])].sram]
        rows = insn["y_pad_0"] + insn["y_size"] + insn["y_pad_1"]
        count = rows * (insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"])
        last = insn["sram_base"] + count - 1
        if last >= len(memory):
            raise VTAError(fault_message(Fault.SRAM_RANGE, last, len(memory)))
        symbol = self._symbol(index, insn)
        if insn.opcode == Opcode.STORE:
            self._read("acc", range(insn["sram_base"], last + 1))
        for low, high in self._rows(insn):
            self._row(insn, symbol, low, high)
        if insn.opcode == Opcode.LOAD:
            memory[insn["sram_base"] : last + 1] = True

    def _rows(self, insn: Instruction) -> list[tuple[int, int]]:
        """DRAM bytes [low, high) of each row, inside the arena."""
        size = dram_elem_bytes(self._config, MemType(insn["mem_type"]))
        found = []
        for y in range(insn["y_size"]):
            first = insn["dram_base"] + y * insn["x_stride"]
            found.append((first * size, (first + insn["x_size"]) * size))
            if found[-1][1] > self._arena_bytes:
                message = fault_message(Fault.DRAM_RANGE, found[-1][1] - 1, self._arena_bytes)
                raise VTAError(message)
        return found

    def _symbol(self, index: int, insn: Instruction) -> Symbol | None:
        if self._program is None:
            return None
        if index not in self._named:
            raise VTAError(
                "the transfer has no relocation; each transfer must address a symbol; link the "
                "program again"
            )
        return self._program.symbol(self._named[index])

    def _row(self, insn: Instruction, symbol: Symbol | None, low: int, high: int) -> None:
        if symbol is not None and not symbol.offset <= low <= high <= symbol.offset + symbol.nbytes:
            raise VTAError(
                f"DRAM bytes {low} to {high - 1} leave symbol {symbol.name}; it holds bytes "
                f"{symbol.offset} to {symbol.offset + symbol.nbytes - 1}; correct the address or "
                "the loops"
            )
        if insn.opcode == Opcode.LOAD:
            undefined = self._dram[low:high] == _UNDEFINED
            if undefined.any():
                raise VTAError(
                    f"DRAM byte {low + int(undefined.argmax())} is read but nothing stored it; "
                    "temporaries and outputs are undefined when a program starts; store it first"
                )
            if symbol is not None and symbol.kind in STORED:
                self._still_there(symbol, low, high)
            return
        if symbol is not None and symbol.kind not in WRITTEN:
            raise VTAError(
                f"STORE writes {symbol.kind} {symbol.name}; a program may write temporaries and "
                "outputs; declare the target as one"
            )
        self._dram[low:high] = _DEFINED if symbol is None else self._tensors[symbol.name]

    def _still_there(self, symbol: Symbol, low: int, high: int) -> None:
        """What was stored in DRAM bytes [low, high) of ``symbol`` last must belong to it."""
        holds = self._dram[low:high]
        other = (holds != _UNDEFINED) & (holds != self._tensors[symbol.name])
        if other.any():
            at = int(other.argmax())
            over = next(name for name, number in self._tensors.items() if number == holds[at])
            raise VTAError(
                f"DRAM byte {low + at} of {symbol.name} is needed but {over} was stored over it; "
                "tensors that share bytes must not be needed at a time; give each a place of its "
                "own"
            )

    # ---------------------------------------------------------------- GEMM and ALU
    def _compute(self, insn: Instruction, model: NumpyModel) -> None:
        begin, end, depth = insn["uop_bgn"], insn["uop_end"], len(self._sram["uop"])
        if not begin <= end <= depth:
            raise VTAError(fault_message(Fault.UOP_RANGE, end, depth))
        if begin == end or not insn["iter_out"] or not insn["iter_in"]:
            return
        self._read("uop", range(begin, end))
        self._bounds(insn, model)
        reset = insn.opcode == Opcode.GEMM and insn["reset"]
        other = "inp" if insn.opcode == Opcode.GEMM else "acc"
        used = model.operands(insn)
        for dst, src, wgt in model.loops(insn):
            if not reset:
                self._read("acc", (dst,))
            if "src" in used:
                self._read(other, (src,))
            if "wgt" in used:
                self._read("wgt", (wgt,))
            self._sram["acc"][dst] = True

    def _bounds(self, insn: Instruction, model: NumpyModel) -> None:
        words = model.uop[insn["uop_bgn"] : insn["uop_end"]].tolist()
        uops = [model.isa.decode_uop(word) for word in words]
        for name, depth in model.operands(insn).items():
            reach = (insn["iter_out"] - 1) * insn[f"{name}_factor_out"]
            reach += (insn["iter_in"] - 1) * insn[f"{name}_factor_in"]
            last = max(u[name] for u in uops) + reach
            if last >= depth:
                raise VTAError(fault_message(_RANGE[name], last, depth))

    def _read(self, space: str, elements: range | tuple[int, ...]) -> None:
        """Elements that are read must be defined."""
        for element in elements:
            if not self._sram[space][element]:
                raise VTAError(
                    f"{space.upper()} element {element} is read but nothing wrote it; SRAM is "
                    "undefined when a program starts; load or compute it first"
                )
