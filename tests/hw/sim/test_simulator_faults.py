"""What the machine refuses, and in which words."""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from simulator_cases import MACHINES, SIM

from vta_byoc.hw.cache import CACHE_VARIABLE, OFF
from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import COUNTER_SLOTS, MAX_STEPS, MESSAGES, Fault
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.reference import numpy_model
from vta_byoc.hw.sim import interpreter, simulator

Words = Sequence[tuple[int, int]]
FINISH = ISA.of(SIM).encode(Opcode.FINISH)
ENCODE = ISA.of(SIM).encode


def load(**values: int) -> tuple[int, int]:
    return ENCODE(Opcode.LOAD, **{"mem_type": MemType.INP, "y_size": 1, "x_size": 1, **values})


def store(**values: int) -> tuple[int, int]:
    return ENCODE(Opcode.STORE, **{"mem_type": MemType.OUT, "y_size": 1, "x_size": 1, **values})


def loop(opcode: Opcode, **values: int) -> tuple[int, int]:
    return ENCODE(opcode, **{"uop_end": 1, "iter_out": 1, "iter_in": 1, **values})


NOP = ENCODE(Opcode.LOAD)
INSIDE = "the program's compiler must keep inside it"
CORRUPT = "the stream is corrupt: compile the program again"
FAULTS: list[tuple[Fault, VTAConfig, Words, str]] = [
    (
        Fault.OPCODE,
        SIM,
        [(7, 0)],
        "instruction 0 (0000000000000007 0000000000000000): opcode 7; known opcodes are 0 to 4; "
        + CORRUPT,
    ),
    (
        Fault.RESERVED_BITS,
        SIM,
        [(FINISH[0] | 1 << 40, 0)],
        "instruction 0 (0000010000000003 0000000000000000): reserved bits 0x10000000000 are set; "
        f"they must be 0; {CORRUPT}",
    ),
    (
        Fault.MEM_TYPE,
        SIM,
        [NOP, load(mem_type=MemType.OUT)],
        "instruction 1 (LOAD OUT sram 0 dram 0x0 y 1 x 1 stride 0): memory type 4; LOAD takes UOP, "
        f"WGT, INP, ACC, ACC_8BIT and STORE takes OUT; {CORRUPT}",
    ),
    (
        Fault.STORE_PAD,
        SIM,
        [store(x_pad_1=1)],
        "instruction 0 (STORE OUT sram 0 dram 0x0 y 1 x 1 stride 0 pad 0,0,0,1): padding on a "
        "STORE; STORE takes none; pad when loading instead",
    ),
    (
        Fault.SRAM_RANGE,
        SIM,
        [load(sram_base=2045, x_size=2, x_pad_0=1, x_pad_1=1)],
        "instruction 0 (LOAD INP sram 2045 dram 0x0 y 1 x 2 stride 0 pad 0,0,1,1): SRAM element "
        f"2048; the buffer has 2048 elements; {INSIDE}",
    ),
    (
        Fault.DRAM_RANGE,
        SIM,
        [load(dram_base=250, y_size=2, x_size=3, x_stride=4)],
        "instruction 0 (LOAD INP sram 0 dram 0xfa y 2 x 3 stride 4): DRAM byte 4111; the arena has "
        f"4096 bytes; {INSIDE}",
    ),
    (
        Fault.UOP_RANGE,
        SIM,
        [loop(Opcode.GEMM, uop_bgn=8191, uop_end=8193)],
        "instruction 0 (GEMM MAC uop 8191-8193 iter 1,1 dst 0,0 src 0,0 wgt 0,0): micro-op 8193; "
        f"the range must rise and end by 8192; {INSIDE}",
    ),
    (
        Fault.UOP_RESERVED,
        MACHINES["tiny 1x16"],
        [
            ISA.of(MACHINES["tiny 1x16"]).encode(Opcode.LOAD, y_size=1, x_size=1, dram_base=1),
            ISA.of(MACHINES["tiny 1x16"]).encode(Opcode.GEMM, uop_end=1, iter_out=1, iter_in=1),
        ],
        "instruction 1 (GEMM MAC uop 0-1 iter 1,1 dst 0,0 src 0,0 wgt 0,0): micro-op reserved bits "
        f"0xffffff00 are set; they must be 0; {CORRUPT}",
    ),
    (
        Fault.DST_RANGE,
        SIM,
        [loop(Opcode.GEMM, reset=1, iter_out=3, dst_factor_out=1024)],
        "instruction 0 (GEMM RESET uop 0-1 iter 3,1 dst 1024,0): destination ACC element 2048; the "
        f"buffer has 2048 elements; {INSIDE}",
    ),
    (
        Fault.SRC_RANGE,
        SIM,
        [loop(Opcode.GEMM, iter_in=2, iter_out=2, src_factor_out=2047, src_factor_in=3)],
        "instruction 0 (GEMM MAC uop 0-1 iter 2,2 dst 0,0 src 2047,3 wgt 0,0): source element "
        f"2050; the buffer has 2048 elements; {INSIDE}",
    ),
    (
        Fault.WGT_RANGE,
        SIM,
        [loop(Opcode.GEMM, iter_in=3, wgt_factor_in=512)],
        "instruction 0 (GEMM MAC uop 0-1 iter 1,3 dst 0,0 src 0,0 wgt 0,512): WGT element 1024; "
        f"the buffer has 1024 elements; {INSIDE}",
    ),
    (
        Fault.STEPS,
        SIM,
        [loop(Opcode.ALU, uop_end=4, iter_out=16383, iter_in=16383)],
        "instruction 0 (ALU MIN uop 0-4 iter 16383,16383 dst 0,0 src 0,0): 1073610756 micro-op "
        f"steps; one instruction may take {MAX_STEPS}; split the loop",
    ),
    (
        Fault.ALU_OPCODE,
        SIM,
        [loop(Opcode.ALU, alu_opcode=6)],
        "instruction 0 (ALU ?6 uop 0-1 iter 1,1 dst 0,0 src 0,0): ALU opcode 6; known ALU opcodes "
        f"are 0 to 4; {CORRUPT}",
    ),
    (
        Fault.ALU_RESET,
        SIM,
        [loop(Opcode.ALU, reset=1)],
        "instruction 0 (ALU MIN uop 0-1 iter 1,1 dst 0,0 src 0,0): reset bit on an ALU "
        f"instruction; only GEMM resets; {CORRUPT}",
    ),
    (
        Fault.NO_MUL,
        MACHINES["plain 1x16"],
        [loop(Opcode.ALU, alu_opcode=AluOp.MUL, use_imm=1, imm=3)],
        "instruction 0 (ALU MUL uop 0-1 iter 1,1 dst 0,0 imm 3): ALU MUL; this machine has no "
        "multiplier (CAPABILITIES.mul); compile the program for this configuration",
    ),
    (
        Fault.NO_ACC_8BIT,
        VTAConfig(capabilities=Capabilities(acc_8bit=False)),
        [load(mem_type=MemType.ACC_8BIT)],
        "instruction 0 (LOAD ACC_8BIT sram 0 dram 0x0 y 1 x 1 stride 0): LOAD of ACC_8BIT; this "
        "machine cannot widen (CAPABILITIES.acc_8bit); compile the program for this configuration",
    ),
    (
        Fault.TOKEN_FLAG,
        SIM,
        [load(push_prev=1)],
        "instruction 0 (LOAD INP sram 0 dram 0x0 y 1 x 1 stride 0 [push_prev]): a token flag "
        f"points beside the queues; LOAD has no previous and STORE no next queue; {CORRUPT}",
    ),
    (
        Fault.TOKEN_MISSING,
        SIM,
        [NOP, store(pop_prev=1)],
        "instruction 1 (STORE OUT sram 0 dram 0x0 y 1 x 1 stride 0 [pop_prev]): pop from "
        "compute->store finds no token; a token must be pushed earlier in the stream; the machine "
        "would wait for ever: correct the dependencies",
    ),
    (
        Fault.TOKEN_OVERFLOW,
        MACHINES["plain 1x16"],
        [load(push_next=1)] * 3,
        "instruction 2 (LOAD INP sram 0 dram 0x0 y 1 x 1 stride 0 [push_next]): too many tokens "
        "outstanding from load->compute; the machine counts to 2; pop tokens sooner",
    ),
    (
        Fault.TOKEN_LEFT,
        SIM,
        [load(push_next=1), store(push_prev=1), FINISH],
        "instruction 2 (FINISH): 2 tokens are left at FINISH; there must be none; the program ends "
        "before its queues do: correct the dependencies",
    ),
    (
        Fault.NO_FINISH,
        SIM,
        [NOP, NOP],
        "program of 2 instructions: the stream ends without FINISH; FINISH must come last; "
        + CORRUPT,
    ),
    (
        Fault.AFTER_FINISH,
        SIM,
        [FINISH, NOP],
        "instruction 0 (FINISH): FINISH is followed by 1 instructions; FINISH must come last; "
        + CORRUPT,
    ),
]


@pytest.mark.parametrize(
    ("config", "words", "message"), [f[1:] for f in FAULTS], ids=[f[0].name for f in FAULTS]
)
def test_fault_messages(config: VTAConfig, words: Words, message: str) -> None:
    arena = np.full(4096, -1, np.int8)
    insns = np.array(words, np.uint64)
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        simulator.run_stream(config, insns, arena)
    with pytest.raises(VTAError):
        numpy_model.run_stream(config, insns, arena)


def test_every_fault_has_a_message_and_a_test() -> None:
    assert set(MESSAGES) == set(Fault) - {Fault.NONE}
    # ARENA_SIZE cannot be provoked through a stream; see test_arena_too_small.
    assert {f[0] for f in FAULTS} == set(MESSAGES) - {Fault.ARENA_SIZE}


def test_arena_too_small() -> None:
    module = interpreter.build_interpreter(SIM, probe=True)
    insns, inputs = np.array([FINISH], np.uint64), np.zeros(10, np.int8)
    _, counters, _ = interpreter.call(SIM, module, insns, inputs, inputs, 15, probe=True)
    assert str(simulator.fault_error(SIM, insns, counters)) == (
        "program of 1 instructions: inputs and image are 20 bytes; the arena has 15 bytes; make "
        "the arena at least as large"
    )


def test_a_fault_leaves_earlier_instructions_done_and_its_own_undone() -> None:
    module = interpreter.build_interpreter(SIM, probe=True)
    insns = np.array([load(), load(dram_base=1, sram_base=1, y_size=3000), FINISH], np.uint64)
    arena = np.ones(4096, np.int8)
    _, counters, sram = interpreter.call(
        SIM, module, insns, arena, arena[:0], arena.size, probe=True
    )
    assert simulator.named_counters(counters)["inp_load_nbytes"] == 16
    assert sram["inp"].sum() == 16


def test_faults_are_told_whatever_the_context_around_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interpreters are built while a module is, and kept for others."""
    monkeypatch.setenv(CACHE_VARIABLE, OFF)
    interpreter._build.cache_clear()
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        module = interpreter.build_interpreter(SIM)
    given = [tvm.runtime.tensor(np.zeros(n, t)) for n, t in (((1, 2), np.uint64), (8, np.int8))]
    result = [tvm.runtime.empty((8,), "int8"), tvm.runtime.empty((COUNTER_SLOTS,), "int64")]
    empty = tvm.runtime.empty((0,), "int8")
    with pytest.raises(RuntimeError, match="the stream ends without FINISH"):
        module[interpreter.symbol(SIM)](*given, empty, interpreter.NO_REGION, *result)


def test_faults_leave_no_memory_behind() -> None:
    function = interpreter.build_interpreter(SIM)[interpreter.symbol(SIM)]
    given = [tvm.runtime.tensor(np.zeros(n, t)) for n, t in (((1, 2), np.uint64), (8, np.int8))]
    result = [tvm.runtime.empty((8,), "int8"), tvm.runtime.empty((COUNTER_SLOTS,), "int64")]
    empty = tvm.runtime.empty((0,), "int8")
    peaks = []
    for _ in range(3):
        for _ in range(100):
            with pytest.raises(RuntimeError, match="the stream ends without FINISH"):
                function(*given, empty, interpreter.NO_REGION, *result)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert peaks[-1] - peaks[0] < 20_000  # KiB; one SRAM a fault would be 100 MB
