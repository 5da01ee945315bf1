"""The seven published counters, by decoding an instruction stream without running it.

Load and store counters are true DRAM bytes (padding excluded, ACC_8BIT at one byte a lane);
``gemm_counter`` counts GEMM micro-ops without resets, ``alu_counter`` vector ALU operations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from vta_byoc.hw.bitfields import column, reserved_bits
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, MEMORY_TYPES, OPCODE_MASK, MemType, Opcode

COUNTER_NAMES = (
    "inp_load_nbytes",
    "wgt_load_nbytes",
    "acc_load_nbytes",
    "uop_load_nbytes",
    "out_store_nbytes",
    "gemm_counter",
    "alu_counter",
)
"""In the order in which devices write them."""


@functools.cache
def dram_elem_bytes(config: VTAConfig, mem: MemType) -> int:
    """Bytes that one element of memory type ``mem`` occupies in DRAM."""
    kind = MEMORY_TYPES[mem]
    return config.elem_bytes(kind.sram, kind.dtype)


def count_stream(config: VTAConfig, insns: np.ndarray) -> dict[str, int]:
    """Counters of an (n, 2) uint64 stream, decoded only.

    Raises:
        VTAError: the first pair of words that is no instruction.
    """
    isa = ISA.of(config)
    codes = insns[:, 0] & np.uint64(OPCODE_MASK)
    rows = {opcode: insns[codes == opcode] for opcode in isa.instructions}
    sound = (~reserved_bits(isa.instructions[op], words).astype(bool) for op, words in rows.items())
    if sum(int(each.sum()) for each in sound) < len(insns):
        for word0, word1 in insns.tolist():
            isa.decode(word0, word1)
    counters = dict.fromkeys(COUNTER_NAMES, 0)
    for opcode, words in rows.items():
        fields = {f.name: column(f, words) for f in isa.instructions[opcode]}
        for name, amount in _costs(config, opcode, fields):
            counters[name] += amount
    return counters


def _costs(
    config: VTAConfig, opcode: Opcode, fields: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, int]]:
    """What instructions of one opcode add to which counters."""
    if opcode in (Opcode.LOAD, Opcode.STORE):
        elements = fields["y_size"] * fields["x_size"]
        for code in np.unique(fields["mem_type"]).tolist():
            mem = MemType(code)
            moved = int(elements[fields["mem_type"] == code].sum())
            yield MEMORY_TYPES[mem].counter, moved * dram_elem_bytes(config, mem)
    elif opcode != Opcode.FINISH:
        uops = np.maximum(0, fields["uop_end"] - fields["uop_bgn"])
        steps = fields["iter_out"] * fields["iter_in"] * uops
        name = "gemm_counter" if opcode == Opcode.GEMM else "alu_counter"
        yield name, int(steps[fields["reset"] == 0].sum())


def dram_bytes(counters: dict[str, int]) -> int:
    """All DRAM bytes of the five byte counters."""
    return sum(v for k, v in counters.items() if k.endswith("_nbytes"))
