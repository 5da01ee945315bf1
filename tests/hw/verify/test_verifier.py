"""The static verifier: every rule, near-misses, and no alarm on any correct program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conv_cases import add_case, add_work, conv_case, random_tile, random_work
from hand_programs import Hand, product
from integer_models import residual_net
from verifier_cases import CASES, CORRECT, compute, machine, second_load

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import AluOp, Instruction, Opcode
from vta_byoc.hw.testing.random_safe import random_safe_program
from vta_byoc.hw.verify.access import Loops
from vta_byoc.hw.verify.verifier import RULES, check, verify
from vta_byoc.pipeline import compile_module

PRESETS = ("sim", "tophub_4x8", "2x16", "1x32")


# ---------------------------------------------------------------- rules
@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, cases in CASES.items() for name in cases]
)
def test_rule_is_found(rule: str, name: str) -> None:
    assert rule in {v.rule for v in verify(CASES[rule][name]())}


@pytest.mark.parametrize("name", CORRECT)
def test_near_miss_is_left_alone(name: str) -> None:
    assert list(map(str, verify(CORRECT[name]()))) == []


def test_every_rule_has_a_case() -> None:
    assert list(CASES) == list(RULES)


def test_messages(golden: Callable[[str, str], None]) -> None:
    lines = []
    for rule, cases in CASES.items():
        for name, build in cases.items():
            lines += [f"# {rule}: {name}", *map(str, verify(build())), ""]
    golden("verifier.txt", "\n".join(lines))


def test_violation_names_the_pair() -> None:
    (violation,) = verify(second_load(3))
    assert (violation.rule, violation.index, violation.other) == ("race", 7, 4)
    assert violation.layer == "conv"
    assert violation.disassembly == "LOAD INP sram 3 dram 0x0 y 1 x 1 stride 1 [push_next]"


def test_all_violations_are_reported_in_order() -> None:
    hand = product(Hand(machine(max_shift=3, mul=False)))
    hand.lines[1].set(sram_base=1024)
    hand.lines[5].set(alu_opcode=int(AluOp.SHR), imm=4)
    hand.lines[6].set(at=62)
    found = [(v.index, v.rule) for v in verify(hand.done())]
    assert found == [
        (1, "sram-bounds"),
        (4, "uninitialised"),
        (5, "shift"),
        (6, "dram-bounds"),
    ]


def test_check_raises_the_first_violations() -> None:
    check(product().done())
    with pytest.raises(VTAError) as err:
        check(compute(*[lambda h: h.alu(AluOp.SHR, 20)] * 5))
    text = (
        "instruction {} (ALU SHR uop 0-1 iter 1,1 dst 0,1 imm 20): shift: a shift by 20; this "
        "machine shifts by -15 to 15 (CAPABILITIES.max_shift); split it; "
    )
    shown = "".join(text.format(f"{i} of layer conv") for i in (2, 3, 4))
    assert str(err.value) == f"the program is not safe to run: 5 violations: {shown}and 2 more"


def test_corrupt_words_never_crash() -> None:
    rng = np.random.default_rng(0)
    clean = 0
    for number in range(600):
        config = VTAConfig.preset(PRESETS[number % 4])
        program, _ = random_safe_program(config, rng, 6)
        insns = program.insns.copy()
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(insns)), rng.integers(2)
            insns[at] ^= np.uint64(1) << np.uint64(rng.integers(64))
        clean += not verify(dataclasses.replace(program, insns=insns))
    assert 0 < clean < 300


# ---------------------------------------------------------------- exact sets
def enumerated(loops: Loops, name: str) -> np.ndarray:
    """Every step of one operand, the slow way."""
    insn = loops.insn
    out, inner = insn[f"{name}_factor_out"], insn[f"{name}_factor_in"]
    steps = [
        y * out + x * inner + int(uop)
        for y in range(insn["iter_out"])
        for x in range(insn["iter_in"])
        for uop in loops.uops[name]
    ]
    return np.array(steps)


def random_loops(rng: np.random.Generator) -> Loops:
    count = int(rng.integers(1, 5))
    fields = {"uop_bgn": 0, "uop_end": count}
    fields |= {f"iter_{axis}": int(rng.integers(1, 20)) for axis in ("out", "in")}
    for name in ("dst", "src"):
        for axis in ("out", "in"):
            fields[f"{name}_factor_{axis}"] = int(rng.integers(0, (3, 12)[rng.integers(2)]))
    uops = {name: rng.integers(0, 9, count) for name in ("dst", "src")}
    return Loops(Instruction(Opcode.ALU, fields), uops)


def test_sets_equal_enumeration() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        loops = random_loops(rng)
        steps = enumerated(loops, "dst")
        assert loops.last("dst") == steps.max()
        depth = int(rng.integers(1, 400))
        np.testing.assert_array_equal(loops.touched("dst", depth), np.unique(steps[steps < depth]))


def test_distances_equal_enumeration() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(2000):
        loops, distance = random_loops(rng), int(rng.integers(1, 7))
        steps = enumerated(loops, "dst")
        gaps = [k for k in range(1, min(distance, len(steps))) if (steps[:-k] == steps[k:]).any()]
        close = loops.repeat("dst", distance)
        assert (close[1] if close else None) == min(gaps, default=None)
        found += close is not None
    assert 200 < found < 1800


def test_next_steps_equal_enumeration() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(2000):
        loops = random_loops(rng)
        first, second = enumerated(loops, "dst"), enumerated(loops, "src")
        same = set(first[:-1][first[:-1] == second[1:]].tolist())
        element = loops.follows("dst", "src")
        assert element in same if same else element is None
        found += element is not None
    assert 200 < found < 1800


# ---------------------------------------------------------------- correct programs
@pytest.mark.parametrize("preset", PRESETS)
def test_compiled_convolutions_raise_no_alarm(preset: str) -> None:
    config, rng, instructions = VTAConfig.preset(preset), np.random.default_rng(3), 0
    for _ in range(12):
        work = random_work(rng)
        program = conv_case(work, config, random_tile(rng, work, config)).program
        assert list(map(str, verify(program))) == []
        instructions += len(program.insns)
    print(f"{instructions} instructions verified")


@pytest.mark.parametrize("preset", PRESETS)
def test_compiled_additions_raise_no_alarm(preset: str) -> None:
    for size, channels, shift in ((1, 1, 0), (7, 40, 1), (30, 17, -2)):
        work = add_work((2, channels, size, size), 1, 0, max(0, shift), shift)
        assert verify(add_case(work, VTAConfig.preset(preset)).program) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_compiled_networks_raise_no_alarm(preset: str) -> None:
    net = residual_net(channels=40, size=9, batch=3)
    compiled = compile_module(net.module(net.result), VTAConfig.preset(preset))
    assert compiled.programs
    for program in compiled.programs.values():
        assert list(map(str, verify(program))) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_random_safe_programs_raise_no_alarm(preset: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(250):
        program, _ = random_safe_program(VTAConfig.preset(preset), rng, 16)
        assert list(map(str, verify(program))) == []


# ---------------------------------------------------------------- documentation
def test_documentation_lists_every_rule() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "verifier.md").read_text("utf-8")
    section = page.split("\n## ")[1]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert {row[0][3:-1]: row[1].rstrip(" |") for row in rows} == dict(RULES)
