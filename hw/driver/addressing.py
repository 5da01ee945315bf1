"""DRAM addresses of an instruction stream: moved to an arena's place, and where it stores last."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vta_byoc.hw.bitfields import BitField
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.driver.protocol import DeviceError
from vta_byoc.hw.isa import DRAM_ELEMENTS, ISA, MemType, Opcode


def _values(insns: np.ndarray, field: BitField) -> np.ndarray:
    """The values (n,) uint64 of an unsigned field of every instruction."""
    return (insns[:, field.word] >> np.uint64(field.lsb)) & np.uint64(field.high)


def arena_align(config: VTAConfig) -> int:
    """What an arena's address must be a multiple of: the largest element in DRAM, in bytes."""
    return max(dram_elem_bytes(config, mem) for mem in MemType)


def moved(config: VTAConfig, insns: np.ndarray, by: int) -> np.ndarray:
    """A copy of a stream, uint64 (n, 2), whose every LOAD and STORE addresses `by` bytes further.

    `by` may be negative.

    Raises:
        DeviceError: an address is not one of 32 bits any more.
    """
    isa, found = ISA.of(config), np.array(insns, np.uint64)
    opcode = _values(found, isa.field(Opcode.LOAD, "opcode"))
    memory = _values(found, isa.field(Opcode.LOAD, "mem_type"))
    base = isa.field(Opcode.LOAD, "dram_base")
    old = _values(found, base).astype(np.int64)
    transfers = (opcode == Opcode.LOAD) | (opcode == Opcode.STORE)
    for mem in MemType:
        rows = transfers & (memory == mem)
        element = dram_elem_bytes(config, mem)
        new = old[rows] + by // element
        if by % element or (new.size and (new.min() < 0 or new.max() >= DRAM_ELEMENTS)):
            raise DeviceError(
                f"{mem.name} at {by:+#x} bytes; addresses count {element} bytes and have 32 bits; "
                f"give the device memory below {DRAM_ELEMENTS * element:#x} at multiples of it"
            )
        kept = found[rows, base.word] & ~np.uint64(base.high << base.lsb)
        found[rows, base.word] = kept | (new.astype(np.uint64) << np.uint64(base.lsb))
    return found


class Stored(NamedTuple):
    """A run of bytes of the arena that a STORE writes."""

    offset: int
    nbytes: int


def last_stored(config: VTAConfig, insns: np.ndarray) -> Stored | None:
    """The last row of the last STORE of a stream; None where it stores nothing.

    The store queue works in order: when these bytes are there, all are.
    """
    isa = ISA.of(config)

    def of(name: str) -> np.ndarray:
        return _values(insns, isa.field(Opcode.STORE, name)).astype(np.int64)

    stores = np.flatnonzero(
        (of("opcode") == Opcode.STORE) & (of("y_size") > 0) & (of("x_size") > 0)
    )
    if not stores.size:
        return None
    at = stores[-1]
    element = dram_elem_bytes(config, MemType(int(of("mem_type")[at])))
    row = of("dram_base")[at] + (of("y_size")[at] - 1) * of("x_stride")[at]
    return Stored(int(row) * element, int(of("x_size")[at]) * element)
