"""Fields of an instruction as slices of a signal: the places are those of `hw/isa.py`."""

from __future__ import annotations

from amaranth.hdl import Value

from vta_byoc.hw.bitfields import WORD_BITS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, MEMORY_TYPES, MemType, Opcode, Queue

INSN_BITS = 2 * WORD_BITS
"""Bits of an instruction."""


def field(config: VTAConfig, insn: Value, opcode: Opcode, name: str) -> Value:
    """The field `name` of an instruction of 128 bits that has the opcode."""
    placed = ISA.of(config).field(opcode, name)
    lsb = placed.word * WORD_BITS + placed.lsb
    taken = insn[lsb : lsb + placed.width]
    return taken.as_signed() if placed.signed else taken


def uop_field(config: VTAConfig, uop: Value, name: str) -> Value:
    """The field `name` of a micro-op of 32 bits."""
    placed = next(f for f in ISA.of(config).uop if f.name == name)
    return uop[placed.lsb : placed.lsb + placed.width]


def goes_to(config: VTAConfig, insn: Value, queue: Queue) -> Value:
    """Whether an instruction runs in `queue`; whatever is neither LOAD nor STORE computes."""
    opcode = field(config, insn, Opcode.FINISH, "opcode")
    mem_type = field(config, insn, Opcode.LOAD, "mem_type")
    early = [m for m in MemType if MEMORY_TYPES[m].queue == Queue.LOAD]
    loads = (opcode == Opcode.LOAD) & mem_type.matches(*early)
    stores = opcode == Opcode.STORE
    return {Queue.LOAD: loads, Queue.STORE: stores, Queue.COMPUTE: ~(loads | stores)}[queue]
