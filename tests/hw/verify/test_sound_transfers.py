"""Transfers that are found sound all at once are those that one by one break no rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from verifier_cases import CASES, CORRECT

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Instruction, Opcode
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.verify.rules import Report
from vta_byoc.hw.verify.sound_transfers import sound_transfers
from vta_byoc.hw.verify.transfer_rules import SymbolMap, check_transfer

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")
FIELDS = ("mem_type", "sram_base", "dram_base", "y_size", "x_size", "x_stride", "y_pad_0")


def decoded(program: Program) -> list[Instruction | None]:
    found: list[Instruction | None] = []
    for words in program.insns.tolist():
        try:
            found.append(ISA.of(program.config).decode(*words))
        except VTAError:
            found.append(None)
    return found


def agreed(program: Program) -> tuple[int, int]:
    """How many transfers were found sound, and how many not; each as `check_transfer` says."""
    insns, symbols = decoded(program), SymbolMap(program)
    sound, others = sound_transfers(program, symbols, insns), 0
    for index, insn in enumerate(insns):
        if insn is None or insn.opcode not in (Opcode.LOAD, Opcode.STORE):
            assert index not in sound
            continue
        report = Report(program)
        report.insns = insns
        found = check_transfer(report, symbols, index, insn)
        if index in sound:
            assert found == sound[index] and not report.violations
        else:
            assert report.violations or found == (None, None)
            others += 1
    return len(sound), others


@pytest.mark.parametrize("rule", CASES)
def test_cases_of_rules(rule: str) -> None:
    for build in CASES[rule].values():
        agreed(build())


def test_near_misses() -> None:
    counts = [agreed(build()) for build in CORRECT.values()]
    assert sum(sound for sound, _ in counts) > 100


@pytest.mark.parametrize("preset", PRESETS)
def test_random_programs_with_changed_fields(preset: str) -> None:
    rng, config = np.random.default_rng(5), VTAConfig.preset(preset)
    sound = others = 0
    for seed in range(4):
        program, _ = random_safe_program(config, np.random.default_rng(seed), 16)
        insns = program.insns.copy()
        for index, insn in enumerate(decoded(program)):
            if insn is not None and insn.opcode in (Opcode.LOAD, Opcode.STORE):
                name = FIELDS[rng.integers(len(FIELDS))]
                if rng.random() < 0.5:
                    high = min(8, ISA.of(config).limit(insn.opcode, name))
                    fields = {**insn.fields, name: int(rng.integers(high + 1))}
                    fields.pop("opcode")
                    insns[index] = ISA.of(config).encode(insn.opcode, **fields)
        counts = agreed(dataclasses.replace(program, insns=insns))
        sound, others = sound + counts[0], others + counts[1]
    print(f"{sound} sound, {others} others")
    assert sound > 10 and others > 10
