"""Rules about one LOAD or STORE: its memory type, its SRAM range, the symbol it addresses."""

from __future__ import annotations

from collections.abc import Sequence

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import Fault
from vta_byoc.hw.isa import LOADABLE, STORABLE, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program, Relocation, Symbol, addresses_dram, root_of
from vta_byoc.hw.verify.access import Transfer
from vta_byoc.hw.verify.rules import Report

PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


class SymbolMap:
    """The symbols of a program by address, and its relocations by instruction."""

    def __init__(self, program: Program) -> None:
        whole = [s for s in program.symbols if not s.parent]
        self._symbols = sorted(whole, key=lambda s: s.offset)
        self.by_name = {s.name: s for s in program.symbols}
        self.relocations: dict[int, list[Relocation]] = {}
        for rel in program.relocations:
            self.relocations.setdefault(rel.index, []).append(rel)

    def at(self, byte: int) -> Symbol | None:
        """The first symbol that has arena byte ``byte`` (the whole one, no part of it)."""
        found = (s for s in self._symbols if s.offset <= byte < s.offset + s.nbytes)
        return next(found, None)

    def addressed(self, index: int) -> Symbol | None:
        """The whole symbol that the relocation of instruction ``index`` names, or a part of."""
        named = self.relocations.get(index, [])
        sym = self.by_name.get(named[0].symbol) if named else None
        return None if sym is None else self.whole(sym)

    def whole(self, symbol: Symbol) -> Symbol:
        """The symbol that ``symbol`` is a part of; itself if it is none."""
        return self.by_name[root_of(symbol, self.by_name)[0]]


def check_transfer(
    report: Report, symbols: SymbolMap, index: int, insn: Instruction
) -> tuple[Transfer | None, Symbol | None]:
    """Check a LOAD or STORE by itself.

    Returns its geometry, None where it moves nothing, and the symbol that it lies in, None where
    it lies in none.
    """
    config = report.program.config
    if not _known_memory(report, index, insn):
        return None, None
    transfer = Transfer.of(config, insn)
    check_relocations(report, symbols, index, transfer)
    if insn.opcode == Opcode.STORE and any(insn[p] for p in PADS):
        report.fault("store-pad", index, Fault.STORE_PAD)
        return None, None
    if insn["x_size"] and not insn["y_size"]:
        report.add(
            "empty-rows",
            index,
            f"0 rows of {insn['x_size']} elements; a transfer without rows must have x_size 0: a "
            "core may wait for ever; clear x_size or leave the instruction out",
        )
    if transfer.empty:
        return None, None
    return _inside_sram(report, config, index, transfer), _symbol(report, symbols, index, transfer)


def _known_memory(report: Report, index: int, insn: Instruction) -> bool:
    mem, caps = insn["mem_type"], report.program.config.capabilities
    allowed: Sequence[int] = STORABLE if insn.opcode == Opcode.STORE else LOADABLE
    if mem not in allowed:
        report.fault("mem-type", index, Fault.MEM_TYPE, mem)
        return False
    if mem == MemType.ACC_8BIT and not caps.acc_8bit:
        report.fault("acc-8bit", index, Fault.NO_ACC_8BIT)
    return True


def _inside_sram(
    report: Report, config: VTAConfig, index: int, transfer: Transfer
) -> Transfer | None:
    depth, stop = config.depths[transfer.space], transfer.sram.stop
    if stop <= depth:
        return transfer
    report.fault("sram-bounds", index, Fault.SRAM_RANGE, stop - 1, depth)
    return None


def _symbol(report: Report, symbols: SymbolMap, index: int, transfer: Transfer) -> Symbol | None:
    """The one symbol that the transfer must lie in: that of its relocation, if it has one."""
    low, high = transfer.dram_range
    named = symbols.relocations.get(index, [])
    sym = symbols.by_name.get(named[0].symbol) if named else None
    sym = sym or symbols.at(low)
    if sym is None:
        report.add(
            "dram-bounds",
            index,
            f"DRAM bytes {low} to {high - 1} lie in no symbol; a transfer must lie in one; correct "
            "its address",
        )
        return None
    if sym.offset <= low and high <= sym.offset + sym.nbytes:
        return sym
    report.add(
        "dram-bounds",
        index,
        f"DRAM bytes {low} to {high - 1} leave symbol {sym.name}; it holds bytes {sym.offset} to "
        f"{sym.offset + sym.nbytes - 1}; correct the address or the loops",
    )
    return None


def check_relocations(report: Report, symbols: SymbolMap, index: int, transfer: Transfer) -> None:
    """A transfer that moves data has one relocation, and the address that it gives."""
    found = symbols.relocations.get(index, [])
    if len(found) > 1 or (not found and not transfer.empty):
        report.add(
            "relocation",
            index,
            f"{len(found)} relocations; a transfer must have one; address a symbol",
        )
    for rel in found[:1]:
        _check_address(report, symbols, index, transfer, rel)


def _check_address(
    report: Report, symbols: SymbolMap, index: int, transfer: Transfer, rel: Relocation
) -> None:
    sym = symbols.by_name.get(rel.symbol)
    if sym is None:
        report.add(
            "relocation",
            index,
            f"relocation names symbol {rel.symbol!r}; the program has no such symbol; declare it",
        )
        return
    want, have = sym.offset + rel.addend * transfer.elem_bytes, transfer.dram_range[0]
    if want != have:
        report.add(
            "relocation",
            index,
            f"DRAM byte {have} is addressed; the relocation {sym.name}+{rel.addend} means byte "
            f"{want}; link the program again",
        )


def relocatable(insn: Instruction | None) -> bool:
    """Whether a relocation may name ``insn``: a LOAD or STORE of a known memory type."""
    return insn is not None and addresses_dram(insn)
