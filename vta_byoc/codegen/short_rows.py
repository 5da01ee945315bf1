"""Long rows of LOADs in parts, so that the memory port serves others in between.

The port does not interrupt a row (docs/timing.md).  Where weights fill the port, as in a decoder, a
LOAD of one long row lets the bias of the next tile wait for thousands of cycles, the products wait
for the bias, and the next weights for the place of those products.  As several rows that follow one
another in DRAM and in SRAM the same LOAD takes as long and writes the same bytes.
"""

from __future__ import annotations

import dataclasses

from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import ISA, PADS, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate

ROW_CYCLES = 128
"""What a part has the port for, at most. With 64 to 256 a decoder's token takes the same within a
thousandth; longer parts let others wait, shorter ones gain nothing."""


def with_short_rows(program: Program) -> Program:
    """The program with long rows in parts; itself where that takes no fewer cycles."""
    found = short_rows(program)
    return found if simulate(found).cycles < simulate(program).cycles else program


def short_rows(program: Program) -> Program:
    """The program with all long rows in parts: the same bytes at the same places."""
    isa, insns = ISA.of(program.config), program.insns.copy()
    for place, words in enumerate(program.insns.tolist()):
        insn = isa.decode(*words)
        part = _part(insn, program)
        if part:
            rows = {"y_size": insn["x_size"] // part, "x_size": part, "x_stride": part}
            values = {**insn.fields, **rows}
            values.pop("opcode")
            insns[place] = isa.encode(insn.opcode, **values)
    return dataclasses.replace(program, insns=insns)


def _part(insn: Instruction, program: Program) -> int:
    """Elements of a part of a LOAD's row; 0 where it has to stay as it is."""
    if insn.opcode != Opcode.LOAD or insn["y_size"] != 1 or any(insn[pad] for pad in PADS):
        return 0
    size, config = insn["x_size"], program.config
    nbytes = dram_elem_bytes(config, MemType(insn["mem_type"]))
    most = ROW_CYCLES * config.timing.port_bytes // nbytes
    parts = (part for part in range(min(most, size - 1), 0, -1) if size % part == 0)
    return next(parts, 0)
