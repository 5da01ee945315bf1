"""Random correct programs: any order that their tokens allow gives the same bytes.

Where ``random_programs.py`` draws anything that two simulators must agree about, this draws what a
compiler may emit: every read is of something written, distances and capabilities are kept, and
tokens order every hazard.  Hazards are found by listing elements, not by the verifier's sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import (
    IMMEDIATE_LOW,
    ISA,
    MEMORY_TYPES,
    AluOp,
    Instruction,
    MemType,
    Opcode,
    Queue,
)
from vta_byoc.hw.program.program import Layer, Program, Relocation, Symbol, link
from vta_byoc.hw.testing.random_programs import IDLE, IMMEDIATES

Elements = tuple[str, np.ndarray]
_SOURCE = {
    MemType.UOP: "u",
    MemType.WGT: "w",
    MemType.INP: "x",
    MemType.ACC: "b",
    MemType.ACC_8BIT: "x",
}
"""The symbols with data for each memory type; types without are not drawn."""


# ---------------------------------------------------------------- tokens
@dataclass
class _Stream:
    """Instructions with tokens for every hazard, and some tokens that nothing needs."""

    rng: np.random.Generator
    insns: list[tuple[Opcode, dict[str, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines: dict[Queue, list[int]] = {q: [] for q in Queue}
        self._know = {q: [-1, -1, -1] for q in Queue}
        self._after: list[list[int]] = []
        self._last: dict[tuple[str, int, Queue, bool], int] = {}
        self._pushed: dict[tuple[Queue, Queue], int] = {}

    def add(
        self,
        opcode: Opcode,
        fields: dict[str, int],
        reads: Iterable[Elements] = (),
        writes: Iterable[Elements] = (),
    ) -> int:
        """Append an instruction that waits for what it depends on; its index."""
        queue = Instruction(opcode, fields).queue
        sets = [(name, at, False) for name, at in reads] + [(name, at, True) for name, at in writes]
        touches = [(name, e, write) for name, at, write in sets for e in at.tolist()]
        needs = {other: self._need(queue, other, touches) for other in Queue if other != queue}
        if queue != Queue.COMPUTE:
            far = Queue.STORE if queue == Queue.LOAD else Queue.LOAD
            relay = self._relay(queue, far, needs.pop(far))
            needs[Queue.COMPUTE] = max(needs[Queue.COMPUTE], relay)
        for other, index in needs.items():
            self._wait(queue, fields, other, self._maybe_later(queue, other, index))
        index = self._issue(opcode, fields)
        for name, element, write in touches:
            self._last[name, element, queue, write] = index
        return index

    def _need(self, queue: Queue, other: Queue, touches: list[tuple[str, int, bool]]) -> int:
        """The last instruction of ``other`` that one in ``queue`` must wait for; -1 when none."""
        need = -1
        for name, element, write in touches:
            for wrote in (True, False) if write else (True,):
                need = max(need, self._last.get((name, element, other, wrote), -1))
        return need if need > self._know[queue][other] else -1

    def _relay(self, queue: Queue, far: Queue, need: int) -> int:
        """A compute instruction that knows ``need`` of a queue without tokens to ``queue``."""
        if need < 0:
            return -1
        fields = {"mem_type": int(MemType.UOP)}
        if self._know[Queue.COMPUTE][far] < need:
            self._wait(Queue.COMPUTE, fields, far, need)
        return self._issue(Opcode.LOAD, fields)

    def _maybe_later(self, queue: Queue, other: Queue, need: int) -> int:
        """``need``, or now and then a later instruction than needed."""
        line = self._lines[other]
        free = [i for i in line if i > self._pushed.get((other, queue), -1) and i >= need]
        return free[int(self.rng.integers(len(free)))] if free and self.rng.random() < 0.2 else need

    def _wait(self, queue: Queue, fields: dict[str, int], other: Queue, index: int) -> None:
        if index < 0:
            return
        self._pushed[other, queue] = index
        self.insns[index][1]["push_next" if queue > other else "push_prev"] = 1
        fields["pop_next" if other > queue else "pop_prev"] = 1
        mine, theirs = self._know[queue], self._after[index]
        self._know[queue] = [max(a, b) for a, b in zip(mine, theirs, strict=True)]

    def _issue(self, opcode: Opcode, fields: dict[str, int]) -> int:
        queue, index = Instruction(opcode, fields).queue, len(self.insns)
        self.insns.append((opcode, fields))
        self._lines[queue].append(index)
        self._know[queue] = [*self._know[queue]]
        self._know[queue][queue] = index
        self._after.append(self._know[queue])
        return index

    def finish(self) -> None:
        """Wait for every queue, then FINISH."""
        fields = {"mem_type": int(MemType.UOP)}
        for other in (Queue.LOAD, Queue.STORE):
            if self._lines[other] and self._lines[other][-1] > self._know[Queue.COMPUTE][other]:
                self._wait(Queue.COMPUTE, fields, other, self._lines[other][-1])
        self._issue(Opcode.LOAD, fields)
        self._issue(Opcode.FINISH, {})


# ---------------------------------------------------------------- instructions
class _Draw:
    """Draws instructions over the first few elements of every memory."""

    def __init__(self, config: VTAConfig, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        self.stream = _Stream(rng)
        self.relocations: list[Relocation] = []
        self.room = {
            "uop": min(config.uop_depth, 4 + self.below(8)),
            "inp": min(config.inp_depth, 6 + self.below(20)),
            "wgt": min(config.wgt_depth, 2 + self.below(6)),
            "acc": min(config.acc_depth, 8 + self.below(24)),
        }
        self.sizes = {"x": 64, "w": 12, "b": 40, "u": 24, "t": 96, "y": 64}
        self.table = self._table()
        self.uops: list[tuple[int, int, int]] = [(0, 0, 0)] * self.room["uop"]
        self.computed: set[int] = set()
        self.stored: list[tuple[str, int, int, int, int]] = []

    def below(self, limit: int) -> int:
        return int(self.rng.integers(limit))

    def _table(self) -> list[tuple[int, int, int]]:
        """Micro-ops whose operands leave room for loops."""
        acc, inp, wgt = self.room["acc"], self.room["inp"], self.room["wgt"]
        tops = (acc // 2, min(acc, inp) // 2, wgt)
        drawn = [[self.below(top) for top in tops] for _ in range(self.sizes["u"])]
        table = []
        for k, (dst, src, weight) in enumerate(drawn):
            # by thirds: for the ALU on immediates, for the ALU, for GEMM
            kind = 3 * k // len(drawn)
            table.append((src, src, 0) if not kind else (dst, src, weight if kind > 1 else 0))
        return table

    # ------------------------------------------------------------ transfers
    def fill(self) -> None:
        """Write every memory once, in pieces."""
        for mem in (MemType.UOP, MemType.INP, MemType.WGT, MemType.ACC):
            at = 0
            while at < self.room[MEMORY_TYPES[mem].sram]:
                at += self.load(mem, at)

    def load(self, mem: MemType, base: int) -> int:
        """A LOAD to ``base`` from data, or from what was stored; elements written."""
        room = self.room[MEMORY_TYPES[mem].sram] - base
        pads = {f"{a}_pad_{k}": self.below(3) * self.below(2) for a in "yx" for k in "01"}
        y_pads, x_pads = (pads[f"{a}_pad_0"] + pads[f"{a}_pad_1"] for a in "yx")
        if (y_pads + 1) * (x_pads + 1) > room:
            pads, y_pads, x_pads = dict.fromkeys(pads, 0), 0, 0
        x = 1 + self.below(min(8, room // (y_pads + 1) - x_pads))
        y = 1 + self.below(min(4, room // (x_pads + x) - y_pads))
        symbol, at, y, x, stride = self._source(mem, y, x)
        count = (y_pads + y) * (x_pads + x)
        target = np.arange(base, base + count)
        fields = {"mem_type": int(mem), "sram_base": base, "y_size": y, "x_size": x}
        rows = at + np.arange(y)[:, None] * stride + np.arange(x)
        if mem == MemType.UOP:
            sides = [(pads[f"{a}_pad_0"], pads[f"{a}_pad_1"]) for a in "yx"]
            for k, entry in enumerate(np.pad(rows, sides, constant_values=-1).ravel().tolist()):
                self.uops[base + k] = (0, 0, 0) if entry < 0 else self.table[entry]
        if MEMORY_TYPES[mem].sram == "acc":
            self.computed -= set(target.tolist())
        reads = [(symbol, rows.reshape(-1))] if symbol in "ty" else []
        writes = [(MEMORY_TYPES[mem].sram, target)]
        index = self.stream.add(Opcode.LOAD, fields | pads | {"x_stride": stride}, reads, writes)
        self.relocations.append(Relocation(index, symbol, at))
        return count

    def _source(self, mem: MemType, y: int, x: int) -> tuple[str, int, int, int, int]:
        """(symbol, first element, rows, columns, stride) of data of at most ``y`` by ``x``."""
        if mem in (MemType.INP, MemType.ACC_8BIT) and self.stored and self.below(2):
            symbol, at, rows, cols, stride = self.stored[self.below(len(self.stored))]
            y, x = min(y, rows), min(x, cols)
            down, right = self.below(rows - y + 1), self.below(cols - x + 1)
            return symbol, at + down * stride + right, y, x, stride
        symbol = _SOURCE[mem]
        stride = (0, x, x + self.below(4))[self.below(3)]
        if (y - 1) * stride + x > self.sizes[symbol]:
            stride = 0
        last = (y - 1) * stride + x
        return symbol, self.below(self.sizes[symbol] - last + 1), y, x, stride

    def store(self) -> None:
        """STORE a run of computed vectors; computes some first where there are none."""
        if not self.computed:
            self.alu()
            return
        begin = sorted(self.computed)[self.below(len(self.computed))]
        count = 1
        while begin + count in self.computed and count < 12:
            count += 1
        x = 1 + self.below(count)
        y = 1 + self.below(count // x)
        symbol = "ty"[self.below(2)]
        stride = x + self.below(3)
        if (y - 1) * stride + x > self.sizes[symbol]:
            y = 1
        at = self.below(self.sizes[symbol] - (y - 1) * stride - x + 1)
        rows = (at + np.arange(y)[:, None] * stride + np.arange(x)).reshape(-1)
        fields = {"mem_type": int(MemType.OUT), "sram_base": begin}
        fields |= {"y_size": y, "x_size": x, "x_stride": stride}
        reads = [("acc", np.arange(begin, begin + y * x))]
        index = self.stream.add(Opcode.STORE, fields, reads, [(symbol, rows)])
        self.relocations.append(Relocation(index, symbol, at))
        self.stored.append((symbol, at, y, x, stride))

    def empty(self) -> None:
        """A transfer that moves nothing, in any queue."""
        opcode, mem = IDLE[Queue(self.below(3))]
        self.stream.add(opcode, {"mem_type": int(mem), "y_size": self.below(3)})

    # ------------------------------------------------------------ GEMM and ALU
    def loops(self, names: dict[str, str]) -> tuple[dict[str, int], np.ndarray]:
        """Loop fields and the operands of every step, (steps, 3), inside the filled elements."""
        begin = self.below(self.room["uop"])
        end = begin + 1 + self.below(min(4, self.room["uop"] - begin))
        fields = {"uop_bgn": begin, "uop_end": end}
        fields |= {"iter_out": 1 + self.below(4), "iter_in": 1 + self.below(5)}
        uops = np.array(self.uops[begin:end], np.int64).reshape(-1, 3)
        factors = np.zeros((2, 3), np.int64)
        for k, name in enumerate(("dst", "src", "wgt")):
            if name in names:
                room = self.room[names[name]] - 1 - int(uops[:, k].max())
                self._factors(k, room, fields, factors)
        y, x = np.arange(fields["iter_out"]), np.arange(fields["iter_in"])
        moved = y[:, None, None] * factors[0] + x[:, None] * factors[1]
        steps = (moved[:, :, None] + uops).reshape(-1, 3)
        for k, name in enumerate(("dst", "src", "wgt")):
            if name in names:
                out, inner = factors[:, k].tolist()
                fields |= {f"{name}_factor_out": out, f"{name}_factor_in": inner}
        return fields, steps

    def _factors(self, k: int, room: int, fields: dict[str, int], factors: np.ndarray) -> None:
        for row, axis in enumerate(("out", "in")):
            steps = max(fields[f"iter_{axis}"] - 1, 0)
            top = room // steps if steps else 3
            factors[row, k] = self.below(min(top, 9) + 1)
            room -= int(factors[row, k]) * steps

    def gemm(self) -> None:
        distance = self.config.capabilities.dst_distance
        names = {"dst": "acc", "src": "inp", "wgt": "wgt"}
        for _ in range(8):
            fields, steps = self.loops(names)
            if self.below(4) and not _close(steps[:, 0], steps[:, 0], distance):
                self._compute(Opcode.GEMM, fields, steps, names, {})
                return
        fields, steps = self.loops({"dst": "acc"})
        self._compute(Opcode.GEMM, fields, steps, {"dst": "acc"}, {"reset": 1})

    def alu(self) -> None:
        caps = self.config.capabilities
        codes = caps.alu_ops
        code = codes[self.below(len(codes))]
        use_imm = 1 if code == AluOp.SHR else self.below(2)
        imm = self.below(2 * caps.max_shift + 1) - caps.max_shift
        imm = imm if code == AluOp.SHR or self.below(2) else self.below(IMMEDIATES) + IMMEDIATE_LOW
        names = {"dst": "acc"} if use_imm else {"dst": "acc", "src": "acc"}
        for _ in range(24):
            fields, steps = self.loops(names)
            uops = np.array(self.uops[fields["uop_bgn"] : fields["uop_end"]])
            if uops[:, 2].any() or (use_imm and (uops[:, 0] != uops[:, 1]).any()):
                continue
            if use_imm:
                fields |= {f"src_factor_{a}": fields[f"dst_factor_{a}"] for a in ("out", "in")}
            read = steps[:, 0 if use_imm else 1]
            if any(_close(steps[:, 0], r, min(2, caps.dst_distance)) for r in (read, steps[:, 0])):
                continue
            more = {"alu_opcode": int(code), "use_imm": use_imm, "imm": imm}
            self._compute(Opcode.ALU, fields, steps, names, more)
            return

    def _compute(
        self,
        opcode: Opcode,
        fields: dict[str, int],
        steps: np.ndarray,
        names: dict[str, str],
        more: dict[str, int],
    ) -> None:
        sets = [(names[n], np.unique(steps[:, k])) for k, n in enumerate(names)]
        written = set(steps[:, 0].tolist())
        reset = more.get("reset", 0)
        self.computed = self.computed - written if reset else self.computed | written
        self.stream.add(opcode, fields | more, () if reset else sets, sets[:1])


def _close(earlier: np.ndarray, later: np.ndarray, distance: int) -> bool:
    """Whether ``later`` repeats an element of ``earlier`` less than ``distance`` steps on."""
    return any((earlier[:-k] == later[k:]).any() for k in range(1, min(distance, len(earlier))))


# ---------------------------------------------------------------- programs
def random_safe_program(
    config: VTAConfig, rng: np.random.Generator, length: int = 24
) -> tuple[Program, dict[str, np.ndarray]]:
    """A correct program of ``length`` random instructions (and those that fill SRAM), with inputs.

    Its symbols: input x, constants w and b, micro-ops u, temporary t, output y.
    """
    draw = _Draw(config, rng)
    draw.fill()
    middle = len(draw.stream.insns)
    loads = [mem for mem in config.capabilities.loadable if mem in _SOURCE]

    def load() -> None:
        mem = loads[draw.below(len(loads))]
        draw.load(mem, draw.below(draw.room[MEMORY_TYPES[mem].sram]))

    kinds = (load, load, draw.gemm, draw.gemm, draw.alu, draw.store, draw.store, draw.empty)
    for _ in range(length):
        kinds[draw.below(len(kinds))]()
    draw.stream.finish()
    layers = (Layer("fill", 0, middle), Layer("work", middle, len(draw.stream.insns), "y"))
    constants = _constants(config, rng, draw)
    program = link(
        config, draw.stream.insns, _symbols(config, draw), constants, draw.relocations, layers
    )
    x = program.symbol("x")
    return program, {"x": rng.integers(-128, 128, x.shape).astype(np.int8)}


def _symbols(config: VTAConfig, draw: _Draw) -> list[Symbol]:
    b, k = config.batch, config.block
    shapes = {"x": (b, k), "w": (k, k), "b": (b, k), "u": (), "t": (b, k), "y": (b, k)}
    kinds = {"x": "input", "w": "const", "b": "const", "u": "uop", "t": "temp", "y": "output"}
    dtypes = {"b": "int32", "u": "uint32"}
    align = max(config.acc_elem_bytes, config.wgt_elem_bytes)
    return [
        Symbol(n, kinds[n], (draw.sizes[n], *shapes[n]), dtypes.get(n, "int8"), align)
        for n in kinds
    ]


def _constants(config: VTAConfig, rng: np.random.Generator, draw: _Draw) -> dict[str, np.ndarray]:
    b, k = config.batch, config.block
    isa = ISA.of(config)
    words = [isa.encode_uop(*uop) for uop in draw.table]
    bias = rng.integers(-(2**31), 2**31, (draw.sizes["b"], b, k)) >> rng.integers(0, 32)
    return {
        "w": rng.integers(-128, 128, (draw.sizes["w"], k, k)).astype(np.int8),
        "b": bias.astype(np.int32),
        "u": np.array(words, np.uint32),
    }
