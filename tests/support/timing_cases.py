"""Streams for tests of time, and those worked by hand in docs/timing.md."""

from __future__ import annotations

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode, Queue
from vta_byoc.hw.timing_parameters import Timing

SIM = VTAConfig.preset("sim")
Insn = tuple[Opcode, dict[str, int]]


def stream(*insns: Insn, config: VTAConfig = SIM) -> np.ndarray:
    """Encode instructions and FINISH."""
    encode = ISA.of(config).encode
    words = [encode(op, **fields) for op, fields in (*insns, (Opcode.FINISH, {}))]
    return np.array(words, np.uint64)


def load(mem: MemType, y: int, x: int, **fields: int) -> Insn:
    return Opcode.LOAD, {"mem_type": mem, "y_size": y, "x_size": x, "x_stride": x, **fields}


def store(y: int, x: int, **fields: int) -> Insn:
    sizes = {"y_size": y, "x_size": x, "x_stride": x}
    return Opcode.STORE, {"mem_type": MemType.OUT, **sizes, **fields}


def no_op(queue: Queue = Queue.COMPUTE, **fields: int) -> Insn:
    if queue == Queue.STORE:
        return store(0, 0, **fields)
    return load(MemType.INP if queue == Queue.LOAD else MemType.UOP, 0, 0, **fields)


def gemm(kernel: int, out: int = 1, inner: int = 1, **fields: int) -> Insn:
    return Opcode.GEMM, {"uop_end": kernel, "iter_out": out, "iter_in": inner, **fields}


def alu(vectors: int, imm: int, **fields: int) -> Insn:
    loops = {"uop_end": 1, "iter_out": 1, "iter_in": vectors}
    return Opcode.ALU, {**loops, "alu_opcode": AluOp.ADD, "use_imm": imm, **fields}


# ---------------------------------------------------------------- worked by hand
COMPUTE = stream(gemm(4, 2, 3), gemm(4, 2, 3, reset=1), alu(8, 1), alu(8, 0))
CHISEL = Timing.of("chisel")
Case = tuple[np.ndarray, Timing, list[tuple[int, int]], int]
HAND: dict[str, Case] = {
    "finish": (stream(), Timing(), [(34, 35)], 35),
    "token": (
        stream(load(MemType.INP, 1, 4, push_next=1), no_op(pop_prev=1)),
        Timing(),
        [(38, 78), (79, 80), (80, 81)],
        81,
    ),
    "padding": (
        stream(load(MemType.INP, 2, 3, y_pad_0=1, y_pad_1=1, x_pad_0=1, x_pad_1=2)),
        Timing(),
        [(36, 91), (36, 37)],
        91,
    ),
    "long padding": (
        stream(load(MemType.INP, 1, 3, y_pad_0=15)),
        Timing(),
        [(36, 87), (36, 37)],
        87,
    ),
    "compute": (
        COMPUTE,
        Timing(),
        [(42, 76), (76, 110), (110, 128), (128, 154), (154, 155)],
        155,
    ),
    "compute hls": (
        COMPUTE,
        Timing().with_alu("hls"),
        [(42, 76), (76, 110), (110, 136), (136, 162), (162, 163)],
        163,
    ),
    "port": (
        stream(load(MemType.INP, 2, 8), load(MemType.ACC, 2, 4)),
        Timing(),
        [(38, 134), (38, 166), (166, 167)],
        167,
    ),
    "bursts": (
        stream(*[no_op()] * 16),
        Timing(),
        [*((64 + i, 65 + i) for i in range(16)), (98, 99)],
        99,
    ),
    "tie": (
        stream(load(MemType.INP, 1, 4), no_op(Queue.LOAD)),
        Timing(fetch_burst=2),
        [(36, 78), (78, 79), (70, 71)],
        79,
    ),
    "full": (
        stream(*[load(MemType.INP, 1, 4)] * 3),
        Timing(queue_depth=2, fetch_burst=4),
        [(40, 80), (80, 120), (120, 160), (80, 81)],
        160,
    ),
    "store": (
        stream(
            alu(8, 1, push_next=1), store(1, 8, pop_prev=1, push_prev=1), no_op(pop_next=1)
        ),
        Timing(),
        [(40, 58), (59, 107), (108, 109), (109, 110)],
        110,
    ),
    "narrow": (
        stream(load(MemType.ACC, 1, 4), load(MemType.ACC_8BIT, 1, 4), load(MemType.UOP, 1, 3)),
        Timing(),
        [(40, 104), (104, 144), (144, 178), (178, 179)],
        179,
    ),
    "early finish": (stream(load(MemType.INP, 1, 4)), Timing(), [(36, 76), (36, 37)], 76),
    "chisel finish": (stream(), CHISEL, [(47, 48)], 48),
    "chisel padding": (
        stream(load(MemType.INP, 2, 3, y_pad_0=1, y_pad_1=1, x_pad_0=1, x_pad_1=2)),
        CHISEL,
        [(49, 99), (49, 50)],
        99,
    ),
    "chisel long padding": (
        stream(load(MemType.INP, 1, 3, y_pad_0=15)),
        CHISEL,
        [(49, 104), (49, 50)],
        104,
    ),
    "chisel compute": (
        COMPUTE,
        CHISEL,
        [(55, 86), (86, 117), (117, 132), (132, 155), (155, 156)],
        156,
    ),
    "chisel store": (
        stream(
            alu(8, 1, push_next=1), store(1, 8, pop_prev=1, push_prev=1), no_op(pop_next=1)
        ),
        CHISEL,
        [(53, 68), (69, 96), (97, 98), (98, 99)],
        99,
    ),
    "chisel write bursts": (
        stream(store(2, 9)),
        Timing.of("chisel", write_latency=4),
        [(49, 128), (49, 50)],
        128,
    ),
    "chisel channels": (
        stream(load(MemType.INP, 2, 8), store(1, 8)),
        CHISEL,
        [(51, 121), (51, 78), (51, 52)],
        121,
    ),
    "no latency": (
        stream(load(MemType.INP, 1, 4, push_next=1), gemm(0, pop_prev=1)),
        Timing(dma_latency=0, compute_start=0, token_latency=0),
        [(6, 14), (14, 15), (15, 16)],
        16,
    ),
}
