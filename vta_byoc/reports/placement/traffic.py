"""What a program moves between DRAM and SRAM, tensor by tensor, by decoding its stream."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import ISA, MemType, Opcode
from vta_byoc.hw.program.program import Program


@dataclass(frozen=True)
class Traffic:
    """Bytes of a tensor that one run loads from DRAM and stores to it (padding is neither)."""

    loaded: int = 0
    stored: int = 0

    @property
    def moved(self) -> int:
        """Both."""
        return self.loaded + self.stored


def traffic(program: Program) -> dict[str, Traffic]:
    """By symbol, those that an instruction addresses."""
    isa, config = ISA.of(program.config), program.config
    found: dict[str, Traffic] = {}
    for relocation in program.relocations:
        insn = isa.decode(*program.insns[relocation.index].tolist())
        nbytes = insn["x_size"] * insn["y_size"]
        nbytes *= dram_elem_bytes(config, MemType(insn["mem_type"]))
        before = found.get(relocation.symbol, Traffic())
        stores = insn.opcode == Opcode.STORE
        found[relocation.symbol] = Traffic(
            before.loaded + (0 if stores else nbytes), before.stored + (nbytes if stores else 0)
        )
    return found
