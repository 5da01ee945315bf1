"""LOADs and STOREs that break no rule by themselves, found all at once.

Nearly every transfer of a compiled program is one; the others are looked at one by one, by
:func:`vta_byoc.hw.verify.transfer_rules.check_transfer`, which says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.bitfields import column
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import (
    ISA,
    LOADABLE,
    MEMORY_TYPES,
    OPCODE_MASK,
    STORABLE,
    Instruction,
    MemType,
    Opcode,
)
from vta_byoc.hw.program.program import Program, Symbol
from vta_byoc.hw.verify.access import Transfer
from vta_byoc.hw.verify.transfer_rules import PADS, SymbolMap

Found = tuple[Transfer, Symbol]
"""What `check_transfer` returns: the geometry, and the symbol that it lies in."""
Row = tuple[int, ...]
"""Memory type, bytes of an element, begin and end in SRAM, first byte in DRAM and the one past it.
"""


class SoundTransfers(Mapping[int, Found]):
    """By instruction, each made when it is asked for: Python's collector finds few objects."""

    def __init__(
        self,
        insns: Sequence[Instruction | None],
        symbols: Mapping[int, Symbol],
        rows: Mapping[int, Row],
    ):
        self._insns, self._symbols, self._rows = insns, symbols, rows

    def __getitem__(self, index: int) -> Found:
        code, elem, start, end, first, last = self._rows[index]
        insn, mem = self._insns[index], MemType(code)
        assert insn is not None
        space, sram = MEMORY_TYPES[mem].sram, slice(start, end)
        made = Transfer(insn, mem, elem, space, sram, (first, last))
        return made, self._symbols[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def sound_transfers(
    program: Program, symbols: SymbolMap, insns: Sequence[Instruction | None]
) -> SoundTransfers:
    """The transfers of a program that break no rule by themselves, by instruction.

    Args:
        program: the program.
        symbols: its symbols.
        insns: its decoded instructions, None where the words are none.
    """
    named = _Named.of(symbols, len(insns))
    decoded = np.array([insn is not None for insn in insns], bool)
    codes = program.insns[:, 0] & np.uint64(OPCODE_MASK)
    found: dict[int, Row] = {}
    for opcode in (Opcode.LOAD, Opcode.STORE):
        rows = np.flatnonzero((codes == opcode) & decoded)
        if len(rows):
            found.update(_of_opcode(program, opcode, rows, named))
    return SoundTransfers(insns, named.symbols, found)


@dataclass(frozen=True)
class _Named:
    """What the relocations say of each instruction.

    ``count`` of them name it; the first to name it means byte ``want``, in the bytes ``low`` to
    ``high`` of its symbol; no address where it names none.
    """

    count: np.ndarray
    want: np.ndarray
    low: np.ndarray
    high: np.ndarray
    symbols: Mapping[int, Symbol]
    addends: np.ndarray

    @classmethod
    def of(cls, symbols: SymbolMap, count: int) -> _Named:
        """Of a program with ``count`` instructions."""
        counts, want, low, high, addends = np.full((5, count), 0, np.int64)
        want[:] = low[:] = -1
        of_each: dict[int, Symbol] = {}
        for index, relocations in symbols.relocations.items():
            symbol = symbols.by_name.get(relocations[0].symbol)
            if 0 <= index < count and symbol is not None:
                counts[index], of_each[index] = len(relocations), symbol
                low[index], high[index] = symbol.offset, symbol.offset + symbol.nbytes
                want[index], addends[index] = symbol.offset, relocations[0].addend
        return cls(counts, want, low, high, of_each, addends)


def _of_opcode(
    program: Program,
    opcode: Opcode,
    rows: np.ndarray,
    named: _Named,
) -> Iterator[tuple[int, Row]]:
    config, words = program.config, program.insns[rows]
    f = {x.name: column(x, words) for x in ISA.of(config).instructions[opcode]}
    known = _Known.of(config, opcode, f["mem_type"])
    lines = f["y_pad_0"] + f["y_size"] + f["y_pad_1"]
    stop = f["sram_base"] + lines * (f["x_pad_0"] + f["x_size"] + f["x_pad_1"])
    low = f["dram_base"] * known.elem
    high = (f["dram_base"] + (f["y_size"] - 1) * f["x_stride"] + f["x_size"]) * known.elem
    fits = (named.low[rows] <= low) & (high <= named.high[rows]) & (stop <= known.depth)
    there = (named.count[rows] == 1) & (named.want[rows] + named.addends[rows] * known.elem == low)
    ok = known.allowed & fits & there & (f["x_size"] > 0) & (f["y_size"] > 0)
    if opcode == Opcode.STORE:
        ok &= ~np.any([f[pad] != 0 for pad in PADS], axis=0)
    wanted = (rows, f["mem_type"], known.elem, f["sram_base"], stop, low, high)
    for index, *row in zip(*(x[ok].tolist() for x in wanted), strict=True):
        yield index, tuple(row)


@dataclass(frozen=True)
class _Known:
    """Of each transfer: bytes of an element, depth of its SRAM, may the machine do it at all."""

    elem: np.ndarray
    depth: np.ndarray
    allowed: np.ndarray

    @classmethod
    def of(cls, config: VTAConfig, opcode: Opcode, codes: np.ndarray) -> _Known:
        """Of the memory types ``codes``."""
        tables = np.zeros((3, int(codes.max(initial=max(MemType))) + 1), np.int64)
        for mem in STORABLE if opcode == Opcode.STORE else LOADABLE:
            depth = config.depths[MEMORY_TYPES[mem].sram]
            able = mem != MemType.ACC_8BIT or config.capabilities.acc_8bit
            tables[:, mem] = dram_elem_bytes(config, mem), depth, able
        elem, depths, allowed = tables[:, codes]
        return cls(elem, depths, allowed.astype(bool))
