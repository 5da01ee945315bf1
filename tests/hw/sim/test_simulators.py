"""Two simulators of one instruction set, equal on random programs and on broken ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from draws import draws
from simulator_cases import MACHINES, PROGRAMS, SIM, assert_same, dots, machine, streams

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import count_stream
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode
from vta_byoc.hw.reference import numpy_model
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim import simulator

# ---------------------------------------------------------------- random programs
WITH_VNNI = ("sim", "tophub_4x8", "1x32", "2x8", "4x16", "tiny 1x16")
"""Machines that `make test` tries with vpdpbusd where the processor has it, the others without:
each way meets every BATCH and every BLOCK.  `make fuzz` tries every machine both ways."""


def ways(name: str) -> list[str]:
    """The ways to multiply that a machine is tried with."""
    every = dots(MACHINES[name])
    if name == "sim" or draws(0, 1):
        return every
    return every[-1:] if name in WITH_VNNI else every[:1]


def test_each_way_to_multiply_meets_every_batch_and_block() -> None:
    batches, blocks = ({getattr(c, n) for c in MACHINES.values()} for n in ("batch", "block"))
    for dot in dots(SIM):
        tried = [config for name, config in MACHINES.items() if dot in ways(name)]
        assert {c.batch for c in tried} == batches and {c.block for c in tried} == blocks


@pytest.mark.parametrize("name", MACHINES)
def test_random_programs_agree(name: str) -> None:
    config = MACHINES[name]
    for insns, arena in streams(config):
        wanted = numpy_model.run_stream(config, insns, arena)
        assert wanted.counters == count_stream(config, insns)
        for dot in ways(name):
            assert_same(simulator.run_stream(config, insns, arena, dot=dot), wanted)


@pytest.mark.parametrize(
    "config",
    [machine(0, 2, 6, 10, 10, 10), machine(0, 7, 10, 12, 17, 14), machine(3, 6, 10, 12, 15, 14)],
    ids=lambda c: c.name,
)
def test_unusual_geometries_agree(config: VTAConfig) -> None:
    for insns, arena in streams(config, 15):
        wanted = numpy_model.run_stream(config, insns, arena)
        assert_same(simulator.run_stream(config, insns, arena), wanted)


def features(config: VTAConfig, insns: np.ndarray) -> Iterator[tuple[str, str]]:
    """What a stream exercises, as (row, column) of the histogram."""
    for words in insns.tolist():
        insn = ISA.of(config).decode(*words)
        name = insn.opcode.name
        if insn.opcode in (Opcode.LOAD, Opcode.STORE):
            yield name, MemType(insn["mem_type"]).name
            yield from (
                (f"{name} {what}", MemType(insn["mem_type"]).name) for what in oddities(insn)
            )
        elif insn.opcode == Opcode.GEMM:
            yield name, "reset" if insn["reset"] else "mac"
        elif insn.opcode == Opcode.ALU:
            yield name, f"{AluOp(insn['alu_opcode']).name} {'imm' if insn['use_imm'] else 'tensor'}"
        else:
            yield name, "-"


def oddities(insn: Instruction) -> Iterator[str]:
    if insn["x_size"] * insn["y_size"] == 0:
        yield "empty"
    elif insn["y_size"] > 1 and insn["x_stride"] == 0:
        yield "stride 0"
    elif any(insn[p] for p in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")):
        yield "padded"


def test_random_programs_cover_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for config in MACHINES.values():
        for insns, _ in streams(config):
            seen.update(features(config, insns))
    with capsys.disabled():
        print(f"\n{PROGRAMS * len(MACHINES)} random programs on {len(MACHINES)} machines:")
        for row in sorted({r for r, _ in seen}):
            cells = (f"{c} {n}" for (r, c), n in sorted(seen.items()) if r == row)
            print(f"  {row:<14} {', '.join(cells)}")
    assert len(MACHINES) >= 10
    loads = [m.name for m in MemType if m != MemType.OUT]
    wanted = [
        (row, m) for row in ("LOAD", "LOAD empty", "LOAD stride 0", "LOAD padded") for m in loads
    ]
    wanted += [(row, "OUT") for row in ("STORE", "STORE empty", "STORE stride 0")]
    wanted += [("GEMM", "mac"), ("GEMM", "reset"), ("FINISH", "-")]
    wanted += [("ALU", f"{op.name} {right}") for op in AluOp for right in ("imm", "tensor")]
    assert min((seen[key], key) for key in wanted)[0] >= 50


# ---------------------------------------------------------------- semantics, one at a time
Words = Sequence[tuple[int, int]]
FINISH = ISA.of(SIM).encode(Opcode.FINISH)
ENCODE = ISA.of(SIM).encode


def acc_after(words: Words, values: Sequence[int]) -> list[int]:
    """Lane 0 of the first ACC elements after loading ``values`` there and running ``words``."""
    arena = np.repeat(np.array(values, np.int32), 16).view(np.int8)
    load = ENCODE(Opcode.LOAD, mem_type=MemType.ACC, y_size=1, x_size=len(values))
    insns = np.array([load, *words, FINISH], np.uint64)
    result = simulator.run_stream(SIM, insns, arena)
    assert_same(result, numpy_model.run_stream(SIM, insns, arena))
    return result.sram["acc"][: len(values), 0, 0].tolist()


@pytest.mark.parametrize(
    ("op", "imm", "before", "after"),
    [
        (AluOp.ADD, 1, 2**31 - 1, -(2**31)),
        (AluOp.ADD, -1, -(2**31), 2**31 - 1),
        (AluOp.MUL, -1, -(2**31), -(2**31)),
        (AluOp.MUL, 32767, 2**31 - 1, 2147450881),
        (AluOp.SHR, 4, -17, -2),
        (AluOp.SHR, -4, -17, -272),
        (AluOp.SHR, -31, 3, -(2**31)),
        (AluOp.SHR, 33, -17, -9),
        (AluOp.SHR, -32768, 5, 5),
        (AluOp.MIN, -7, 5, -7),
        (AluOp.MAX, -7, -9, -7),
    ],
)
def test_alu_immediates(op: AluOp, imm: int, before: int, after: int) -> None:
    alu = ENCODE(Opcode.ALU, alu_opcode=op, use_imm=1, imm=imm, uop_end=1, iter_out=1, iter_in=1)
    assert acc_after([alu], [before]) == [after]


def test_alu_sees_its_own_results_in_program_order() -> None:
    chain = ENCODE(
        Opcode.ALU,
        alu_opcode=AluOp.ADD,
        uop_end=1,
        iter_out=1,
        iter_in=4,
        dst_factor_in=1,
        src_factor_in=0,
    )
    assert acc_after([chain], [1, 10, 100, 1000]) == [2, 12, 102, 1002]


def test_gemm_wraps() -> None:
    """127 * 127 * 16 added to almost 2**31 - 1."""
    data = np.zeros((4, 256), np.int8)
    data[1], data[2] = 127, 127
    data[3, :64] = np.full(16, 2**31 - 1, np.int32).view(np.int8)
    load = {"y_size": 1, "x_size": 1}
    insns = [
        ENCODE(Opcode.LOAD, mem_type=MemType.INP, dram_base=16, **load),
        ENCODE(Opcode.LOAD, mem_type=MemType.WGT, dram_base=2, **load),
        ENCODE(Opcode.LOAD, mem_type=MemType.ACC, dram_base=12, **load),
        ENCODE(Opcode.GEMM, uop_end=1, iter_out=1, iter_in=1),
        FINISH,
    ]
    for dot in dots(SIM):
        result = simulator.run_stream(SIM, np.array(insns, np.uint64), data.ravel(), dot=dot)
        assert set(result.sram["acc"][0, 0].tolist()) == {-(2**31) - 1 + 127 * 127 * 16}


# ---------------------------------------------------------------- broken programs
def steps_of(config: VTAConfig, insns: np.ndarray) -> int:
    """Work that a corrupt stream asks of the slow model, in micro-ops and elements."""
    work = 0
    for words in insns.tolist():
        try:
            insn = ISA.of(config).decode(*words)
        except VTAError:
            return work
        if insn.opcode in (Opcode.GEMM, Opcode.ALU):
            work += (insn["uop_end"] - insn["uop_bgn"]) * insn["iter_out"] * insn["iter_in"]
    return work


@pytest.mark.parametrize("name", ["sim", "tophub_4x8", "tiny 1x16"])
def test_flipped_bits_are_refused_or_mean_the_same(name: str) -> None:
    """No bit of a stream or of its micro-ops makes the simulators differ or crash."""
    config = MACHINES[name]
    rng = np.random.default_rng(7)
    outcomes: Counter[str] = Counter()
    programs = draws(80, 200)
    for insns, arena in streams(config, programs)[:150]:
        for _ in range(3):
            flipped, memory = insns.copy(), arena.copy()
            row, bit = int(rng.integers(len(flipped))), np.uint64(rng.integers(64))
            flipped[row, int(rng.integers(2))] ^= np.uint64(1) << bit
            if rng.random() < 0.3:
                memory[int(rng.integers(256))] ^= np.int8(1 << int(rng.integers(7)))
            outcomes[compare(config, flipped, memory)] += 1
    assert outcomes["refused"] >= programs // 2 and outcomes["same"] >= programs // 4, outcomes


def compare(config: VTAConfig, insns: np.ndarray, arena: np.ndarray) -> str:
    found = attempt(simulator.run_stream, config, insns, arena)
    if steps_of(config, insns) > 20_000:
        return "long"
    wanted = attempt(numpy_model.run_stream, config, insns, arena)
    if found is None or wanted is None:
        assert found is wanted
        return "refused"
    assert_same(found, wanted)
    return "same"


def attempt(
    run: Callable[[VTAConfig, np.ndarray, np.ndarray], RunResult],
    config: VTAConfig,
    insns: np.ndarray,
    arena: np.ndarray,
) -> RunResult | None:
    try:
        return run(config, insns, arena)
    except VTAError:
        return None
