"""Rows of LOADs in parts: the same bytes at the same places, and others may have the port."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hand_programs import Hand, product

from vta_byoc.codegen.short_rows import ROW_CYCLES, short_rows, with_short_rows
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import ISA, PADS, Instruction, MemType, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.simulator import run
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing.result import PORT
from vta_byoc.hw.verify.verifier import verify


def loads(program: Program) -> Iterator[Instruction]:
    """The LOADs of a program."""
    isa = ISA.of(program.config)
    insns = (isa.decode(*words) for words in program.insns.tolist())
    return (insn for insn in insns if insn.opcode == Opcode.LOAD)


def port_cycles(insn: Instruction, config: VTAConfig) -> int:
    """What a row of a LOAD has the port for."""
    nbytes = insn["x_size"] * dram_elem_bytes(config, MemType(insn["mem_type"]))
    return -(-nbytes // config.timing.port_bytes)


@pytest.mark.parametrize("preset", ["sim", "pynq", "2x16", "chisel"])
def test_the_same_bytes_at_the_same_places(preset: str) -> None:
    config, changed = VTAConfig.preset(preset), 0
    for seed in range(4):
        program, given = random_safe_program(config, np.random.default_rng(seed), length=40)
        found = short_rows(program)
        changed += not np.array_equal(found.insns, program.insns)
        before, after = run(program, given), run(found, given)
        assert np.array_equal(before.arena, after.arena)
        assert before.counters == after.counters
        assert len(found.insns) == len(program.insns) and not verify(found)
    assert changed > 2


def test_no_long_row_is_left() -> None:
    program, _ = random_safe_program(VTAConfig.preset("sim"), np.random.default_rng(5), length=60)
    config = program.config
    for before, after in zip(loads(program), loads(short_rows(program)), strict=True):
        padded = any(before[pad] for pad in PADS)
        if padded or before["y_size"] != 1:
            assert before == after
            continue
        rows, size = after["y_size"], after["x_size"]
        assert rows * size == before["x_size"]
        assert port_cycles(after, config) <= ROW_CYCLES and (rows == 1 or after["x_stride"] == size)


def test_a_bias_waits_for_a_part_of_the_weights_alone() -> None:
    hand = Hand()
    hand.load(MemType.WGT, "w", x=8)
    hand.load(MemType.ACC, "b", x=1)
    program = product(hand).done()
    bias = next(i for i, insn in enumerate(loads(program)) if insn["mem_type"] == MemType.ACC)
    waits = [
        simulate(each).instructions[bias].stalls.get(PORT, 0)
        for each in (program, short_rows(program))
    ]
    assert waits[1] <= ROW_CYCLES < waits[0]


def test_a_program_that_gains_nothing_stays() -> None:
    program = product().done()
    assert with_short_rows(program) is program
    for seed in range(8):
        drawn, _ = random_safe_program(VTAConfig.preset("sim"), np.random.default_rng(seed))
        found = with_short_rows(drawn)
        gained = simulate(drawn).cycles - simulate(found).cycles
        assert gained > 0 if found is not drawn else gained == 0
