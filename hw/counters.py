"""The seven published counters, by decoding an instruction stream without running it.

Load and store counters are true DRAM bytes (padding excluded, ACC_8BIT at one byte a lane);
``gemm_counter`` counts GEMM micro-ops without resets, ``alu_counter`` vector ALU operations.
"""

from __future__ import annotations

import functools

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, MEMORY_TYPES, Instruction, MemType, Opcode

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
    """Counters of an (n, 2) uint64 stream, decoded only."""
    isa = ISA.of(config)
    counters = dict.fromkeys(COUNTER_NAMES, 0)
    for word0, word1 in insns.tolist():
        insn = isa.decode(word0, word1)
        name, amount = _cost(config, insn)
        if name is not None:
            counters[name] += amount
    return counters


def _cost(config: VTAConfig, insn: Instruction) -> tuple[str | None, int]:
    if insn.opcode in (Opcode.LOAD, Opcode.STORE):
        mem = MemType(insn["mem_type"])
        nbytes = insn["y_size"] * insn["x_size"] * dram_elem_bytes(config, mem)
        return MEMORY_TYPES[mem].counter, nbytes
    if insn.opcode == Opcode.FINISH or insn["reset"]:
        return None, 0
    steps = insn["iter_out"] * insn["iter_in"] * max(0, insn["uop_end"] - insn["uop_bgn"])
    return ("gemm_counter" if insn.opcode == Opcode.GEMM else "alu_counter"), steps


def dram_bytes(counters: dict[str, int]) -> int:
    """All DRAM bytes of the five byte counters."""
    return sum(v for k, v in counters.items() if k.endswith("_nbytes"))
