"""Programs written by hand, instruction by instruction, for tests of verifier and simulators."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode, Queue
from vta_byoc.hw.program.program import Layer, Program, Relocation, Symbol, link

NO_OPS = {
    Queue.LOAD: (Opcode.LOAD, MemType.INP),
    Queue.COMPUTE: (Opcode.LOAD, MemType.UOP),
    Queue.STORE: (Opcode.STORE, MemType.OUT),
}


@dataclass
class Line:
    """An instruction; a transfer that moves data addresses ``symbol`` at element ``at``."""

    opcode: Opcode
    fields: dict[str, int]
    symbol: str = ""
    at: int = 0

    @property
    def queue(self) -> Queue:
        return Instruction(self.opcode, self.fields).queue

    def set(self, symbol: str | None = None, at: int | None = None, **fields: int) -> None:
        """Change any of it."""
        self.symbol = self.symbol if symbol is None else symbol
        self.at = self.at if at is None else at
        self.fields.update(fields)


@dataclass
class Hand:
    """Collects lines; :meth:`done` links them.

    Symbols, in elements: input x 64 INP, constants w 8 WGT and b 32 ACC, micro-ops u, temporary
    t 64 INP, output y 64 OUT.
    """

    config: VTAConfig = field(default_factory=VTAConfig)
    uops: Sequence[tuple[int, int, int]] = ((0, 0, 0),)
    lines: list[Line] = field(default_factory=list)

    def add(self, opcode: Opcode, symbol: str = "", at: int = 0, **fields: int) -> Line:
        self.lines.append(Line(opcode, fields, symbol, at))
        return self.lines[-1]

    def load(
        self,
        mem: MemType,
        symbol: str,
        at: int = 0,
        sram: int = 0,
        y: int = 1,
        x: int = 1,
        **more: int,
    ) -> Line:
        sizes = {"sram_base": sram, "y_size": y, "x_size": x, "x_stride": x}
        return self.add(Opcode.LOAD, symbol, at, **{"mem_type": int(mem), **sizes, **more})

    def store(
        self, symbol: str = "y", at: int = 0, sram: int = 0, y: int = 1, x: int = 1, **more: int
    ) -> Line:
        sizes = {"sram_base": sram, "y_size": y, "x_size": x, "x_stride": x}
        return self.add(Opcode.STORE, symbol, at, **{"mem_type": int(MemType.OUT), **sizes, **more})

    def gemm(self, count: int = 1, **fields: int) -> Line:
        """``count`` iterations of micro-op 0, destination and source moving by one."""
        loops = {"uop_end": 1, "iter_out": 1, "iter_in": count}
        steps = {"dst_factor_in": 1, "src_factor_in": 1}
        return self.add(Opcode.GEMM, **{**loops, **steps, **fields})

    def alu(
        self, op: AluOp = AluOp.MIN, imm: int | None = 127, count: int = 1, **fields: int
    ) -> Line:
        """``count`` iterations of micro-op 0, destination and source moving by one."""
        code = {"alu_opcode": int(op), "use_imm": int(imm is not None), "imm": imm or 0}
        loops = {"uop_end": 1, "iter_out": 1, "iter_in": count}
        steps = {"dst_factor_in": 1, "src_factor_in": 1}
        return self.add(Opcode.ALU, **{**code, **loops, **steps, **fields})

    def no_op(self, queue: Queue = Queue.COMPUTE, **flags: int) -> Line:
        opcode, mem = NO_OPS[queue]
        return self.add(opcode, mem_type=int(mem), **flags)

    def finish(self, *waits_for: Queue, **flags: int) -> None:
        """FINISH, after a no-op that waits for the last instruction of the queues given."""
        names = {Queue.LOAD: ("push_next", "pop_prev"), Queue.STORE: ("push_prev", "pop_next")}
        pops = {}
        for queue in waits_for:
            push, pop = names[queue]
            [line for line in self.lines if line.queue == queue][-1].set(**{push: 1})
            pops[pop] = 1
        if pops:
            self.no_op(**pops)
        self.add(Opcode.FINISH, **flags)

    # ---------------------------------------------------------------- linking
    def symbols(self) -> list[Symbol]:
        b, k = self.config.batch, self.config.block
        return [
            Symbol("x", "input", (64, b, k), "int8", 256),
            Symbol("w", "const", (8, k, k), "int8", 256),
            Symbol("b", "const", (32, b, k), "int32", 256),
            Symbol("u", "uop", (len(self.uops),), "uint32", 4),
            Symbol("t", "temp", (64, b, k), "int8", 256),
            Symbol("y", "output", (64, b, k), "int8", 256),
        ]

    def constants(self) -> dict[str, np.ndarray]:
        rng, b, k = np.random.default_rng(0), self.config.batch, self.config.block
        isa = ISA.of(self.config)
        return {
            "w": rng.integers(-128, 128, (8, k, k)).astype(np.int8),
            "b": rng.integers(-1000, 1000, (32, b, k)).astype(np.int32),
            "u": np.array([isa.encode_uop(*u) for u in self.uops], np.uint32),
        }

    def done(self) -> Program:
        insns = [(line.opcode, line.fields) for line in self.lines]
        relocations = [
            Relocation(i, line.symbol, line.at) for i, line in enumerate(self.lines) if line.symbol
        ]
        layers = [Layer("conv", 0, len(insns), "y")]
        return link(self.config, insns, self.symbols(), self.constants(), relocations, layers)


def inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a program."""
    rng = np.random.default_rng(seed)
    return {
        s.name: rng.integers(-128, 128, s.shape).astype(np.int8) for s in program.of_kind("input")
    }


def product(hand: Hand | None = None, vectors: int = 4, *, finish: bool = True) -> Hand:
    """``vectors`` products, bounded and stored: a correct program of nine instructions.

    0 LOAD UOP, 1 LOAD WGT, 2 LOAD INP, 3 reset, 4 GEMM, 5 ALU, 6 STORE, 7 no-op, 8 FINISH; without
    ``finish`` the last two are left out, and the STORE gives no token.
    """
    hand = hand or Hand()
    hand.load(MemType.UOP, "u", x=len(hand.uops))
    hand.load(MemType.WGT, "w")
    hand.load(MemType.INP, "x", x=vectors, push_next=1)
    hand.gemm(vectors, reset=1)
    hand.gemm(vectors, pop_prev=1)
    hand.alu(count=vectors, push_next=1)
    hand.store(x=vectors, pop_prev=1)
    if finish:
        hand.finish(Queue.STORE)
    return hand


def changed(program: Program, index: int, **fields: int) -> Program:
    """`program` with other fields in one instruction."""
    isa, insns = ISA.of(program.config), program.insns.copy()
    insn = isa.decode(*insns[index].tolist())
    values = {k: v for k, v in {**insn.fields, **fields}.items() if k != "opcode"}
    insns[index] = isa.encode(insn.opcode, **values)
    return dataclasses.replace(program, insns=insns)
