"""A second opinion: the machine in plain numpy, slow and obvious, written from the specification.

It shares nothing with the interpreter but the decoder.  One method an instruction; whatever the
machine refuses raises VTAError (the reasons are those of ``hw/faults.py``, told more briefly).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, dram_elem_bytes
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import MAX_STEPS
from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode, Queue
from vta_byoc.hw.result import RunResult

# Said again and not read from isa.MEMORY_TYPES: the model is an opinion of its own.
_COUNTER = {
    MemType.UOP: "uop_load_nbytes",
    MemType.WGT: "wgt_load_nbytes",
    MemType.INP: "inp_load_nbytes",
    MemType.ACC: "acc_load_nbytes",
    MemType.ACC_8BIT: "acc_load_nbytes",
}


def run_stream(config: VTAConfig, insns: np.ndarray, arena: np.ndarray) -> RunResult:
    """Run a raw stream, (n, 2) uint64, on a copy of a raw arena, int8."""
    model = NumpyModel(config, arena)
    for index, words in enumerate(insns.tolist()):
        insn = ISA.of(config).decode(*words)
        model.step(insn)
        if insn.opcode == Opcode.FINISH:
            _need(index == len(insns) - 1, "FINISH is not last")
            _need(not any(model.tokens.values()), "tokens are left")
            return model.result()
    raise VTAError("the stream ends without FINISH; add one")


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise VTAError(reason)


class NumpyModel:
    """The state of the machine: arena, SRAM, tokens, counters; all zero but the arena."""

    def __init__(self, config: VTAConfig, arena: np.ndarray) -> None:
        c = config
        self.config = config
        self.isa = ISA.of(config)
        self.arena = arena.copy()
        self.uop: np.ndarray = np.zeros(c.uop_depth, np.uint32)
        self.inp: np.ndarray = np.zeros((c.inp_depth, c.batch, c.block), np.int8)
        self.wgt: np.ndarray = np.zeros((c.wgt_depth, c.block, c.block), np.int8)
        self.acc: np.ndarray = np.zeros((c.acc_depth, c.batch, c.block), np.int32)
        self.out: np.ndarray = np.zeros((c.out_depth, c.batch, c.block), np.int8)
        self.tokens: dict[tuple[Queue, Queue], int] = {}
        self.counters = dict.fromkeys(COUNTER_NAMES, 0)

    def result(self) -> RunResult:
        """What the run has left: arena, counters and the contents of each SRAM."""
        sram = {"uop": self.uop, "inp": self.inp, "wgt": self.wgt, "acc": self.acc}
        return RunResult(self.arena, self.counters, sram=sram)

    def step(self, insn: Instruction) -> None:
        """Take tokens, execute, give tokens."""
        here = insn.queue
        for flag, change in (("pop", -1), ("push", 1)):
            if flag == "push":
                self.execute(insn)
            for side, offset in (("prev", -1), ("next", 1)):
                if insn[f"{flag}_{side}"]:
                    self.move_token(here, here + offset, change)

    def move_token(self, here: Queue, there: int, change: int) -> None:
        """Push a token from queue `here` to `there`, or where `change` is -1 pop one of `there`."""
        _need(there in set(Queue), "no such queue")
        pair = (here, Queue(there)) if change > 0 else (Queue(there), here)
        count = self.tokens.get(pair, 0) + change
        _need(0 <= count <= self.config.capabilities.max_tokens, f"{count} tokens")
        self.tokens[pair] = count

    def execute(self, insn: Instruction) -> None:
        """Do what the instruction does beside moving tokens."""
        action = {
            Opcode.LOAD: self.load,
            Opcode.STORE: self.store,
            Opcode.GEMM: self.gemm,
            Opcode.ALU: self.alu,
        }.get(insn.opcode)
        if action is not None:
            action(insn)

    # ------------------------------------------------------------ DMA
    def load(self, insn: Instruction) -> None:
        """LOAD: rows from DRAM, with zeros around them, to consecutive SRAM elements."""
        _need(insn["mem_type"] in _COUNTER, "memory type")
        mem = MemType(insn["mem_type"])
        _need(mem != MemType.ACC_8BIT or self.config.capabilities.acc_8bit, "no ACC_8BIT")
        ys, xs = insn["y_size"], insn["x_size"]
        if ys * xs == 0:
            return
        y0, x0 = insn["y_pad_0"], insn["x_pad_0"]
        height, width = y0 + ys + insn["y_pad_1"], x0 + xs + insn["x_pad_1"]
        target = self.memory(mem)
        _need(insn["sram_base"] + height * width <= len(target), "SRAM range")
        self.dram_rows(insn, mem)
        for y in range(height):
            for x in range(width):
                inside = y0 <= y < y0 + ys and x0 <= x < x0 + xs
                element = insn["dram_base"] + (y - y0) * insn["x_stride"] + (x - x0)
                value = self.read(mem, element) if inside else 0
                target[insn["sram_base"] + y * width + x] = value
        self.counters[_COUNTER[mem]] += ys * xs * dram_elem_bytes(self.config, mem)

    def store(self, insn: Instruction) -> None:
        """STORE: the low byte of each accumulator lane, rows apart in DRAM."""
        pads = [insn[n] for n in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")]
        _need(insn["mem_type"] == MemType.OUT and not any(pads), "STORE takes OUT without padding")
        ys, xs = insn["y_size"], insn["x_size"]
        if ys * xs == 0:
            return
        _need(insn["sram_base"] + ys * xs <= len(self.acc), "SRAM range")
        size = self.config.out_elem_bytes
        source = self.out if self.config.capabilities.out_sram else self.acc
        for y, element in enumerate(self.dram_rows(insn, MemType.OUT)):
            start = insn["sram_base"] + y * xs
            data = source[start : start + xs].astype(np.int8)
            self.arena[element * size : (element + xs) * size] = data.ravel()
        self.counters["out_store_nbytes"] += ys * xs * size

    def dram_rows(self, insn: Instruction, mem: MemType) -> list[int]:
        """First element of each row, all within the arena."""
        rows = [insn["dram_base"] + y * insn["x_stride"] for y in range(insn["y_size"])]
        size = dram_elem_bytes(self.config, mem)
        _need((rows[-1] + insn["x_size"]) * size <= self.arena.size, "DRAM range")
        return rows

    def memory(self, mem: MemType) -> np.ndarray:
        """The SRAM that LOAD of `mem` writes."""
        return {MemType.UOP: self.uop, MemType.WGT: self.wgt, MemType.INP: self.inp}.get(
            mem, self.acc
        )

    def read(self, mem: MemType, element: int) -> np.ndarray:
        """One element of DRAM, shaped and typed as in SRAM."""
        size = dram_elem_bytes(self.config, mem)
        octets = self.arena[element * size : (element + 1) * size]
        target = self.memory(mem)
        dtype = np.dtype(np.int8) if mem == MemType.ACC_8BIT else target.dtype
        return octets.view(dtype).reshape(target.shape[1:]).astype(target.dtype)

    # ------------------------------------------------------------ compute
    def gemm(self, insn: Instruction) -> None:
        """GEMM: multiply and add, or clear where `reset` is set, step by step."""
        for dst, src, wgt in self.loops(insn):
            if insn["reset"]:
                self.acc[dst] = 0
                continue
            product = self.inp[src].astype(np.int64) @ self.wgt[wgt].astype(np.int64).T
            self.result_of(dst, self.acc[dst].astype(np.int64) + product)
            self.counters["gemm_counter"] += 1

    def alu(self, insn: Instruction) -> None:
        """ALU: one operation on accumulator vectors, each result visible to the next step."""
        _need(not insn["reset"], "ALU reset")
        _need(insn["alu_opcode"] in set(AluOp), "ALU opcode")
        op = AluOp(insn["alu_opcode"])
        _need(op != AluOp.MUL or self.config.capabilities.mul, "no MUL")
        caps = self.config.capabilities
        for dst, src, _ in self.loops(insn):
            first = src if insn["use_imm"] and caps.imm_reads_src else dst
            left = self.acc[first].astype(np.int64)
            other = insn["imm"] if insn["use_imm"] else self.acc[src]
            right = np.broadcast_to(other, left.shape).astype(np.int64)
            if op == AluOp.SHR and caps.shift_modulo and not insn["use_imm"]:
                right = right % 32
            self.result_of(dst, _alu(op, left, right))
            self.counters["alu_counter"] += 1

    def result_of(self, dst: int, value: np.ndarray) -> None:
        """GEMM or ALU writes ``value`` (int64) into both memories of results."""
        self.acc[dst] = value.astype(np.int32)
        self.out[dst] = value.astype(np.int8)

    def loops(self, insn: Instruction) -> Iterator[tuple[int, int, int]]:
        """Operand indices (dst, src, wgt) in program order, checked before the first is given."""
        begin, end = insn["uop_bgn"], insn["uop_end"]
        _need(begin <= end <= len(self.uop), "micro-op range")
        _need((end - begin) * insn["iter_out"] * insn["iter_in"] <= MAX_STEPS, "too many steps")
        used = self.operands(insn)
        uops = [self.isa.decode_uop(word) for word in self.uop[begin:end].tolist()]
        if insn["iter_out"] and insn["iter_in"]:
            self.check_uops(begin, end)
            for name, depth in used.items():
                reach = _index(insn, name, 0, insn["iter_out"] - 1, insn["iter_in"] - 1)
                _need(all(u[name] + reach < depth for u in uops), f"{name} range")
        for y in range(insn["iter_out"]):
            for x in range(insn["iter_in"]):
                for u in uops:
                    at = {name: _index(insn, name, u[name], y, x) for name in used}
                    yield at["dst"], at.get("src", 0), at.get("wgt", 0)

    def operands(self, insn: Instruction) -> dict[str, int]:
        """The operands an instruction uses, and how many elements each may reach."""
        c = self.config
        if insn.opcode == Opcode.GEMM:
            rest = {} if insn["reset"] else {"src": c.inp_depth, "wgt": c.wgt_depth}
        else:
            unused = insn["use_imm"] and not c.capabilities.imm_reads_src
            rest = {} if unused else {"src": c.acc_depth}
        return {"dst": c.acc_depth, **rest}

    def check_uops(self, begin: int, end: int) -> None:
        """No micro-op in use may set a reserved bit."""
        for word in self.uop[begin:end].tolist():
            _need(self.isa.encode_uop(**self.isa.decode_uop(word)) == word, "micro-op bits")


def _index(insn: Instruction, name: str, base: int, y: int, x: int) -> int:
    return base + y * insn[f"{name}_factor_out"] + x * insn[f"{name}_factor_in"]


def _alu(op: AluOp, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """int64 in, int64 out; the caller keeps the low 32 bits.

    The arithmetic is this model's own: the compiler's is the table of `workload/alu.py`.
    """
    if op == AluOp.MIN:
        return np.minimum(left, right)
    if op == AluOp.MAX:
        return np.maximum(left, right)
    if op == AluOp.ADD:
        return left + right
    if op == AluOp.MUL:
        return left * right
    return np.where(right >= 0, left >> (right & 31), left << (-right & 31))
