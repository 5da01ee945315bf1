"""A slow, strict VTA for the tests of code generation.

It runs a Program in program order or in any order that the tokens allow, and refuses what a real
core may get wrong: reads of undefined SRAM, unordered conflicting accesses of two queues, a STORE
of what GEMM or ALU did not write last, an ALU read one step after a write, addresses outside the
symbol that a relocation names, lost and leaked tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import ISA, AluOp, Instruction, MemType, Opcode, Queue
from vta_byoc.hw.program.program import Program

QUEUES = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)
GRAIN = 4
"""DRAM is tracked in units of this many bytes: every element is a multiple of it."""
MEMORY = {
    MemType.UOP: "uop",
    MemType.WGT: "wgt",
    MemType.INP: "inp",
    MemType.ACC: "acc",
    MemType.ACC_8BIT: "acc",
    MemType.OUT: "acc",
}
ALU = {
    AluOp.MIN: np.minimum,
    AluOp.MAX: np.maximum,
    AluOp.ADD: np.add,
    AluOp.MUL: np.multiply,
}
WIDE = ("acc", "uop")
Span = tuple[str, np.ndarray]


@dataclass
class Effect:
    """What one instruction touches: (space, indices) read and written."""

    reads: list[Span] = field(default_factory=list)
    writes: list[Span] = field(default_factory=list)


def neighbours(insn: Instruction, queue: Queue, what: str) -> list[Queue]:
    """The queues that ``insn`` pops from or pushes to (``what``: "pop" or "push")."""
    found = []
    assert not (insn[f"{what}_prev"] and queue == Queue.LOAD), "LOAD has no previous queue"
    if insn[f"{what}_prev"]:
        found.append(QUEUES[queue - 1])
    if insn[f"{what}_next"]:
        found.append(QUEUES[queue + 1])
    return found


class Machine:
    """One run of one program; SRAM starts as noise.

    ``saturated``: a STORE may not truncate.
    """

    def __init__(
        self,
        program: Program,
        inputs: dict[str, np.ndarray],
        seed: int = 0,
        *,
        saturated: bool = True,
    ):
        cfg = program.config
        rng = np.random.default_rng(seed)
        self.program = program
        self.config = cfg
        self.arena = program.new_arena(inputs)
        self.saturated = saturated
        shapes = {
            "inp": (cfg.inp_depth, cfg.batch, cfg.block),
            "wgt": (cfg.wgt_depth, cfg.block, cfg.block),
            "acc": (cfg.acc_depth, cfg.batch, cfg.block),
            "uop": (cfg.uop_depth, 3),
        }
        self.sram = {
            name: rng.integers(-128, 128, shape).astype("int32" if name in WIDE else "int8")
            for name, shape in shapes.items()
        }
        self.defined = {name: np.zeros(shape[0], bool) for name, shape in shapes.items()}
        self.computed = np.zeros(cfg.acc_depth, bool)
        isa = ISA.of(cfg)
        self.insns = [isa.decode(*words) for words in program.insns.tolist()]
        self.symbols = {r.index: program.symbol(r.symbol) for r in program.relocations}

    # ---------------------------------------------------------------- addresses
    def dram_elements(self, number: int, insn: Instruction) -> np.ndarray:
        """Element indices that a transfer touches in DRAM, (y, x)."""
        rows = np.arange(insn["y_size"])[:, None] * insn["x_stride"]
        where = insn["dram_base"] + rows + np.arange(insn["x_size"])
        elem = dram_elem_bytes(self.config, MemType(insn["mem_type"]))
        if where.size:
            symbol = self.symbols[number]
            low, high = int(where.min()) * elem, (int(where.max()) + 1) * elem
            assert symbol.offset <= low, f"{number}: reads before {symbol.name}"
            assert high <= symbol.offset + symbol.nbytes, f"{number}: reads past {symbol.name}"
        return where

    def sram_range(self, insn: Instruction) -> np.ndarray:
        """SRAM elements that a transfer touches, (rows, columns)."""
        rows = insn["y_pad_0"] + insn["y_size"] + insn["y_pad_1"]
        cols = insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"]
        if not insn["x_size"] or not insn["y_size"]:
            rows = cols = 0
        where = insn["sram_base"] + np.arange(rows * cols).reshape(rows, cols)
        depth = len(self.sram[MEMORY[MemType(insn["mem_type"])]])
        assert not where.size or where.max() < depth, f"SRAM {where.max()} of {depth}"
        return where

    def steps(self, insn: Instruction) -> np.ndarray:
        """(dst, src, wgt) of every micro-op execution, in order: (n, 3)."""
        at = np.arange(insn["uop_bgn"], insn["uop_end"])
        assert self.defined["uop"][at].all(), "micro-op not loaded"
        seq = self.sram["uop"][at].astype(np.int64)
        for loop in ("in", "out"):
            names = ("dst", "src", "wgt")
            factor = np.array([insn.fields.get(f"{n}_factor_{loop}", 0) for n in names])
            count = np.arange(insn[f"iter_{loop}"])[:, None, None]
            seq = (count * factor + seq[None]).reshape(-1, 3)
        return seq

    # ---------------------------------------------------------------- instructions
    def execute(self, number: int) -> Effect:
        """Run instruction ``number``; returns what it touched."""
        insn = self.insns[number]
        if insn.opcode == Opcode.LOAD:
            return self._load(number, insn)
        if insn.opcode == Opcode.STORE:
            return self._store(number, insn)
        if insn.opcode == Opcode.GEMM:
            return self._gemm(insn)
        return self._alu(insn) if insn.opcode == Opcode.ALU else Effect()

    def _bytes(self, where: np.ndarray, elem: int) -> np.ndarray:
        return (where.reshape(-1, 1) * elem + np.arange(elem)).reshape(-1)

    def _dram_span(self, where: np.ndarray, elem: int) -> Span:
        grains = where.reshape(-1, 1) * (elem // GRAIN) + np.arange(elem // GRAIN)
        return "dram", grains.reshape(-1)

    def _load(self, number: int, insn: Instruction) -> Effect:
        mem = MemType(insn["mem_type"])
        name = MEMORY[mem]
        elem = dram_elem_bytes(self.config, mem)
        where, target = self.dram_elements(number, insn), self.sram_range(insn)
        if not where.size:
            return Effect()
        raw = self.arena[self._bytes(where, elem)]
        if mem == MemType.UOP:
            isa = ISA.of(self.config)
            fields = [isa.decode_uop(w) for w in raw.view(np.uint32).tolist()]
            data = np.array([[f["dst"], f["src"], f["wgt"]] for f in fields])
        else:
            data = raw.view(np.int32 if mem == MemType.ACC else np.int8)
        data = data.reshape(*where.shape, *self.sram[name].shape[1:])
        y, x = insn["y_pad_0"], insn["x_pad_0"]
        self.sram[name][target] = 0
        self.sram[name][target[y : y + where.shape[0], x : x + where.shape[1]]] = data
        self.defined[name][target] = True
        if name == "acc":
            self.computed[target] = False
        return Effect([self._dram_span(where, elem)], [(name, target.reshape(-1))])

    def _store(self, number: int, insn: Instruction) -> Effect:
        assert insn["mem_type"] == MemType.OUT
        assert not any(insn[f"{a}_pad_{k}"] for a in "xy" for k in "01"), "a store cannot pad"
        where, source = self.dram_elements(number, insn), self.sram_range(insn)
        assert self.computed[source].all(), f"{number}: STORE of what GEMM and ALU did not write"
        elem = dram_elem_bytes(self.config, MemType.OUT)
        values = self.sram["acc"][source]
        fits = ((values >= -128) & (values <= 127)).all()
        assert fits or not self.saturated, f"{number}: STORE of unsaturated values"
        self.arena[self._bytes(where, elem)] = values.astype(np.int8).reshape(-1)
        return Effect([("acc", source.reshape(-1))], [self._dram_span(where, elem)])

    def _gemm(self, insn: Instruction) -> Effect:
        dst, src, wgt = self.steps(insn).T
        acc = self.sram["acc"]
        if insn["reset"]:
            acc[dst] = 0
            self.defined["acc"][dst] = True
            self.computed[dst] = False
            return Effect([], [("acc", np.unique(dst))])
        self._want(("acc", dst), ("inp", src), ("wgt", wgt))
        self._want_distance(dst, self.config.capabilities.dst_distance)
        left = self.sram["inp"][src].astype(np.int32)
        right = self.sram["wgt"][wgt].astype(np.int32)
        np.add.at(acc, dst, np.einsum("nbi,noi->nbo", left, right, optimize=True))
        self.computed[dst] = True
        spans = [(n, np.unique(i)) for n, i in (("acc", dst), ("inp", src), ("wgt", wgt))]
        return Effect(spans, spans[:1])

    def _alu(self, insn: Instruction) -> Effect:
        steps = self.steps(insn)
        dst = steps[:, 0]
        src = dst if insn["use_imm"] else steps[:, 1]
        self._want(("acc", dst), ("acc", src))
        assert not (src[1:] == dst[:-1]).any(), "ALU reads what it wrote one step before"
        self._want_distance(dst, 2)
        acc, op = self.sram["acc"], AluOp(insn["alu_opcode"])
        once = len(np.unique(dst)) == len(dst)
        if once and (insn["use_imm"] or not np.isin(src, dst).any()):
            acc[dst] = self._value(op, acc[dst], insn["imm"] if insn["use_imm"] else acc[src])
        else:
            for d, s in zip(dst, src, strict=True):
                acc[d] = self._value(op, acc[d], insn["imm"] if insn["use_imm"] else acc[s])
        self.computed[dst] = True
        return Effect([("acc", np.unique(np.append(dst, src)))], [("acc", np.unique(dst))])

    @staticmethod
    def _value(op: AluOp, left: np.ndarray, right: np.ndarray | int) -> np.ndarray:
        if op != AluOp.SHR:
            return ALU[op](left, np.asarray(right, np.int32))
        assert isinstance(right, int) and -16 < right < 16, f"shift by {right}"
        return left >> right if right >= 0 else left << -right

    def _want(self, *spans: Span) -> None:
        for name, where in spans:
            depth = len(self.sram[name])
            assert where.min() >= 0 and where.max() < depth, f"{name} {where.max()} of {depth}"
            assert self.defined[name][where].all(), f"reads undefined {name}"

    @staticmethod
    def _want_distance(dst: np.ndarray, distance: int) -> None:
        for k in range(1, min(distance, len(dst))):
            assert not (dst[k:] == dst[:-k]).any(), f"equal destinations {k} steps apart"

    # ---------------------------------------------------------------- orders
    def run(self, order: np.random.Generator | None = None) -> np.ndarray:
        """All instructions: in program order with the hazard check, or in a random legal order.

        Returns the arena.
        """
        if order is None:
            self._in_program_order()
        else:
            self._in_any_order(order)
        return self.arena

    def _in_program_order(self) -> None:
        clocks = _Clocks(self)
        for number in range(len(self.insns)):
            clocks.check(number, self.execute(number))
        clocks.finish()

    def _in_any_order(self, rng: np.random.Generator) -> None:
        waiting = {q: deque(i for i, n in enumerate(self.insns) if n.queue == q) for q in QUEUES}
        tokens = {(a, b): 0 for a in QUEUES for b in QUEUES}
        favourite = rng.choice([None, *QUEUES])
        while any(waiting.values()):
            ready = [
                q
                for q in QUEUES
                if waiting[q]
                and all(tokens[p, q] for p in neighbours(self.insns[waiting[q][0]], q, "pop"))
            ]
            assert ready, "deadlock"
            queue = favourite if favourite in ready else ready[rng.integers(len(ready))]
            number = waiting[queue].popleft()
            for p in neighbours(self.insns[number], queue, "pop"):
                tokens[p, queue] -= 1
            self.execute(number)
            for p in neighbours(self.insns[number], queue, "push"):
                tokens[queue, p] += 1
            if self.insns[number].opcode == Opcode.FINISH:
                assert not any(waiting.values()), "FINISH before the last instruction"
        assert not any(tokens.values()), "tokens left"


class _Clocks:
    """Vector clocks: what each instruction knows to be finished, against what it touches."""

    def __init__(self, machine: Machine):
        self._insns = machine.insns
        self._limit = machine.config.capabilities.max_tokens
        self._count = dict.fromkeys(QUEUES, 0)
        self._clock = {q: np.full(3, -1) for q in QUEUES}
        self._tokens: dict[tuple[Queue, Queue], deque[np.ndarray]] = {
            (a, b): deque() for a in QUEUES for b in QUEUES
        }
        self._pops: dict[tuple[Queue, Queue], list[int]] = {k: [] for k in self._tokens}
        self._pushes: dict[tuple[Queue, Queue], list[int]] = {k: [] for k in self._tokens}
        sizes = {name: len(mem) for name, mem in machine.sram.items()}
        sizes["dram"] = len(machine.arena) // GRAIN + 1
        self._last = {
            (name, write): np.full((3, size), -1)
            for name, size in sizes.items()
            for write in (False, True)
        }

    def check(self, number: int, effect: Effect) -> None:
        """Account for instruction ``number``: its tokens, then its conflicts."""
        insn = self._insns[number]
        queue = insn.queue
        clock = self._clock[queue]
        for source in neighbours(insn, queue, "pop"):
            assert self._tokens[source, queue], f"{number} pops a token pushed later or never"
            clock = np.maximum(clock, self._tokens[source, queue].popleft())
            self._pops[source, queue].append(self._count[queue])
        for span in effect.reads:
            self._ordered(number, queue, clock, span, (True,))
        for span in effect.writes:
            self._ordered(number, queue, clock, span, (False, True))
        for write, spans in ((False, effect.reads), (True, effect.writes)):
            for name, where in spans:
                self._last[name, write][queue, where] = self._count[queue]
        clock = clock.copy()
        clock[queue] = self._count[queue]
        self._clock[queue] = clock
        for target in neighbours(insn, queue, "push"):
            self._tokens[queue, target].append(clock)
            self._pushes[queue, target].append(int(clock[target]))
        self._count[queue] += 1

    def _ordered(
        self, number: int, queue: Queue, clock: np.ndarray, span: Span, kinds: tuple[bool, ...]
    ) -> None:
        name, where = span
        for other in QUEUES:
            if other == queue or not len(where):
                continue
            for write in kinds:
                last = int(self._last[name, write][other, where].max())
                assert last <= clock[other], (
                    f"instruction {number} ({queue.name}) does not wait for {other.name} {last} "
                    f"that {'wrote' if write else 'read'} the same {name}"
                )

    def finish(self) -> None:
        """Nothing left, and never too many tokens."""
        assert not any(self._tokens.values()), "tokens left"
        assert self._insns[-1].opcode == Opcode.FINISH
        clock = self._clock[Queue.COMPUTE]
        assert all(clock[q] == self._count[q] - 1 for q in QUEUES), "FINISH does not wait for all"
        for pair, pushes in self._pushes.items():
            pops = np.array(self._pops[pair])
            for k, known in enumerate(pushes):
                waiting = k + 1 - int(np.searchsorted(pops, known, side="right"))
                assert waiting <= self._limit, f"{waiting} tokens {pair}"
