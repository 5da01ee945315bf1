"""Time of one micro-operation and of one DMA element on the functional simulator, by instruction.

Each figure is the difference between a stream that repeats one instruction and the same stream
without it, so that set-up and arena copies do not count.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import tvm
from _figures import Figure, arguments, report

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.faults import COUNTER_SLOTS, STATUS_SLOT
from vta_byoc.hw.isa import ISA, AluOp, MemType, Opcode
from vta_byoc.hw.sim.interpreter import NO_REGION, build_interpreter, symbol, vnni_lanes
from vta_byoc.hw.sim.target import export_target, native_target

ARENA = 1 << 20
UOPS = 36  # a 3 by 3 kernel over 4 input blocks
SIDE = 14  # of the plane that the loops cover
TARGETS = {"vnni": 12.0, "portable": 25.0}  # ns for a GEMM micro-op

Insn = tuple[int, int]


class Machine:
    """One built simulator and the time it takes for a stream."""

    def __init__(self, config: VTAConfig, target: tvm.target.Target, dot: str) -> None:
        begin = time.perf_counter()
        module = build_interpreter(config, target, dot)
        self.function = module[symbol(config)]
        self.build_seconds = time.perf_counter() - begin
        arena = np.random.default_rng(0).integers(-128, 128, ARENA, np.int8)
        isa = ISA.of(config)
        uops = [isa.encode_uop(0, i % 7, i % config.wgt_depth) for i in range(UOPS)]
        arena[: 4 * UOPS] = np.array(uops, np.uint32).view(np.int8)
        self.given = [tvm.runtime.tensor(arena), tvm.runtime.tensor(arena[:0])]
        self.counters = tvm.runtime.empty((COUNTER_SLOTS,), "int64")
        self.results = [tvm.runtime.empty((ARENA,), "int8"), self.counters]

    def seconds(self, stream: list[Insn]) -> float:
        """The best of seven runs."""
        insns = tvm.runtime.tensor(np.array(stream, np.uint64))
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            self.function(insns, *self.given, NO_REGION, *self.results)
            times.append(time.perf_counter() - begin)
        assert self.counters.numpy()[STATUS_SLOT] == 0
        return min(times)


def transfer(config: VTAConfig, opcode: Opcode, mem: MemType, count: int) -> Insn:
    base = 4096 // dram_elem_bytes(config, mem) if mem != MemType.UOP else 0
    return ISA.of(config).encode(
        opcode, mem_type=mem, dram_base=base, y_size=count // 16, x_size=16, x_stride=16
    )


def cases(config: VTAConfig) -> Iterator[tuple[str, str, Insn, int]]:
    """(figure, unit, instruction, micro-operations or elements in it)."""
    encode = ISA.of(config).encode
    plane = {"iter_out": SIDE, "iter_in": SIDE, "dst_factor_out": SIDE, "dst_factor_in": 1}
    plane |= {"src_factor_out": SIDE, "src_factor_in": 1}
    steps, whole = SIDE * SIDE, {**plane, "uop_end": UOPS}
    yield "gemm", "ns/uop", encode(Opcode.GEMM, **whole), UOPS * steps
    moving = encode(Opcode.GEMM, **whole, wgt_factor_in=1)
    yield "gemm_moving_weights", "ns/uop", moving, UOPS * steps
    one = encode(Opcode.GEMM, uop_end=UOPS, iter_out=1, iter_in=1)
    yield "gemm_without_loops", "ns/uop", one, UOPS
    yield "reset", "ns/uop", encode(Opcode.GEMM, **plane, uop_end=1, reset=1), steps
    for op in AluOp:
        alu = {**plane, "uop_end": 1, "alu_opcode": op}
        imm = encode(Opcode.ALU, **alu, use_imm=1, imm=3)
        yield f"alu_{op.name.lower()}_imm", "ns/vector", imm, steps
        yield f"alu_{op.name.lower()}", "ns/vector", encode(Opcode.ALU, **alu), steps
    for mem in MemType:
        opcode = Opcode.STORE if mem == MemType.OUT else Opcode.LOAD
        count = 32 if mem == MemType.UOP else 128
        insn = transfer(config, opcode, mem, count)
        yield f"{opcode.name.lower()}_{mem.name.lower()}", "ns/element", insn, count
    yield "empty_load", "ns/instruction", encode(Opcode.LOAD), 1


def measure(config: VTAConfig, name: str, target: tvm.target.Target, dot: str) -> list[Figure]:
    """Every case on one build; ``name`` prefixes the figures."""
    machine = Machine(config, target, dot)
    frame = [
        ISA.of(config).encode(Opcode.LOAD, y_size=1, x_size=UOPS),
        transfer(config, Opcode.LOAD, MemType.INP, 512),
        transfer(config, Opcode.LOAD, MemType.WGT, 64),
    ]
    finish = [ISA.of(config).encode(Opcode.FINISH)]
    empty = machine.seconds(frame + finish)
    figures = [Figure(f"{name}.build", machine.build_seconds, "s")]
    for case, unit, insn, amount in cases(config):
        repeats = max(4, 200_000 // amount)
        spent = machine.seconds(frame + [insn] * repeats + finish) - empty
        value = spent / (repeats * amount) * 1e9
        limit = TARGETS[dot] if case == "gemm" else None
        fits = None if limit is None else value <= limit
        figures.append(Figure(f"{name}.{case}", value, unit, target=limit, ok=fits))
    return figures


def main(options: argparse.Namespace) -> int:
    config = VTAConfig.preset(options.config)
    figures = measure(config, "portable", native_target(), "portable")
    figures += measure(config, "exported", export_target(), "portable")
    if vnni_lanes(config, native_target()):
        figures += measure(config, "vnni", native_target(), "vnni")
    return report("simulator_micro", figures, options.json)


if __name__ == "__main__":
    parser = arguments(str(__doc__).splitlines()[0])
    parser.add_argument("--config", default="sim", help="preset (default: sim)")
    raise SystemExit(main(parser.parse_args()))
