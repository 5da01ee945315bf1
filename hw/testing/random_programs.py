"""Random valid programs for any machine: what two implementations of it must agree about.

:func:`random_stream` draws every opcode, memory type and ALU operation, padding, strides of 0,
empty transfers, resets and loops, over data that wraps.  Tokens are consistent in program order:
each pop finds a token, none is left at FINISH.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import (
    IMMEDIATE_HIGH,
    IMMEDIATE_LOW,
    ISA,
    MEMORY_TYPES,
    PADS,
    Instruction,
    MemType,
    Opcode,
    Queue,
)

EXTREMES = (-(2**31), -(2**31) + 1, -(2**16), -33, -32, -31, -5, -1, 0, 1, 7, 31, 32, 33, 2**31 - 1)
_UOPS = 64  # micro-ops at the start of the arena


IDLE = {
    Queue.LOAD: (Opcode.LOAD, MemType.INP),
    Queue.COMPUTE: (Opcode.LOAD, MemType.UOP),
    Queue.STORE: (Opcode.STORE, MemType.OUT),
}
"""A transfer of each queue that, empty, moves tokens only."""
IMMEDIATES = IMMEDIATE_HIGH - IMMEDIATE_LOW + 1


@dataclass
class _Draw:
    """A stream under construction: random choices, tokens so far, instructions so far."""

    config: VTAConfig
    rng: np.random.Generator
    arena_bytes: int
    caps: dict[str, int]
    tokens: Counter[tuple[Queue, Queue]] = field(default_factory=Counter)
    words: list[tuple[int, int]] = field(default_factory=list)

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""
        return int(self.rng.integers(limit))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    # ------------------------------------------------------------ tokens
    def emit(self, opcode: Opcode, **values: int) -> None:
        """Append an instruction with random tokens that are legal here."""
        here = Instruction(opcode, values).queue
        for side, there in _neighbours(here):
            if self.tokens[there, here] and self.chance(0.5):
                values[f"pop_{side}"] = 1
            room = self.tokens[here, there] < self.config.capabilities.max_tokens
            if room and opcode != Opcode.FINISH and self.chance(0.3):
                values[f"push_{side}"] = 1
        self.append(opcode, **values)

    def append(self, opcode: Opcode, **values: int) -> None:
        here = Instruction(opcode, values).queue
        for side, there in _neighbours(here):
            self.tokens[there, here] -= values.get(f"pop_{side}", 0)
            self.tokens[here, there] += values.get(f"push_{side}", 0)
        self.words.append(ISA.of(self.config).encode(opcode, **values))

    def drain(self) -> None:
        """Take every token that is left with empty transfers, then FINISH."""
        for (there, here), count in sorted(self.tokens.items()):
            opcode, mem = IDLE[here]
            side = "prev" if there < here else "next"
            for _ in range(count):
                self.append(opcode, mem_type=mem, **{f"pop_{side}": 1})
        self.append(Opcode.FINISH)

    # ------------------------------------------------------------ instructions
    def near(self, limit: int, usual: int = 12) -> int:
        """A number in [0, limit), mostly below ``usual``: instructions meet each other's data."""
        return self.below(min(limit, usual) if self.chance(0.8) else limit)

    def load(self, mem: MemType | None = None) -> None:
        known = sorted(self.config.capabilities.loadable)
        mem = known[self.below(len(known))] if mem is None else mem
        depth = self.config.depths[MEMORY_TYPES[mem].sram]
        pads = {p: self.below(3) if self.chance(0.3) else 0 for p in PADS}
        width, height = self.extent(depth, pads)
        y, x = height - pads["y_pad_0"] - pads["y_pad_1"], width - pads["x_pad_0"] - pads["x_pad_1"]
        self.transfer(Opcode.LOAD, mem, depth - width * height, y, x, **pads)

    def extent(self, depth: int, pads: dict[str, int]) -> tuple[int, int]:
        """Width and height, padding included, that fit ``depth``; shrinks the pads to fit."""
        while True:
            x_pads, y_pads = (pads[f"{a}_pad_0"] + pads[f"{a}_pad_1"] for a in "xy")
            room = depth // (1 + y_pads) - x_pads
            if room >= 1:
                width = x_pads + 1 + self.below(min(room, 9))
                return width, y_pads + 1 + self.below(min(depth // width - y_pads, 5))
            pads.update(dict.fromkeys(PADS, 0))

    def store(self) -> None:
        depth = self.config.acc_depth
        x = 1 + self.below(min(depth, 9))
        y = 1 + self.below(min(depth // x, 5))
        self.transfer(Opcode.STORE, MemType.OUT, depth - x * y, y, x)

    def transfer(
        self, opcode: Opcode, mem: MemType, room: int, y: int, x: int, **pads: int
    ) -> None:
        """A transfer inside the arena; micro-ops come from its head, nothing is stored there."""
        size = dram_elem_bytes(self.config, mem)
        first, last = 0, _UOPS
        if mem != MemType.UOP:
            first, last = -(-_UOPS * self.config.uop_elem_bytes // size), self.arena_bytes // size
        stride = (0, x, x + self.below(8))[self.below(3)]
        if first + (y - 1) * stride + x > last:
            stride, y = 0, min(y, 1)
        base = first + self.below(last - first - (y - 1) * stride - x + 1)
        if self.chance(0.1):
            y, x = (0, x) if self.chance(0.5) else (y, 0)
        self.emit(
            opcode,
            mem_type=mem,
            sram_base=self.near(room + 1, 4),
            dram_base=base,
            y_size=y,
            x_size=x,
            x_stride=stride,
            **pads,
        )

    def gemm(self) -> None:
        loops = self.loops()
        for name in ("dst", "src", "wgt"):
            depth = self.config.depths[_SRAM[name]]
            loops.update(self.factors(name, depth, loops))
        self.emit(Opcode.GEMM, reset=int(self.chance(0.2)), **loops)

    def alu(self) -> None:
        loops = self.loops()
        for name in ("dst", "src"):
            loops.update(self.factors(name, self.config.acc_depth, loops))
        codes = self.config.capabilities.alu_ops
        imm = self.below(IMMEDIATES) + IMMEDIATE_LOW if self.chance(0.5) else self.below(81) - 40
        self.emit(
            Opcode.ALU,
            alu_opcode=codes[self.below(len(codes))],
            use_imm=self.below(2),
            imm=imm,
            **loops,
        )

    def loops(self) -> dict[str, int]:
        """Up to 8 micro-ops in up to 5 by 5 iterations, rarely none."""
        end = self.near(self.config.uop_depth + 1)
        empty = self.chance(0.05)
        return {
            "uop_bgn": max(0, end - 1 - self.below(8)),
            "uop_end": end,
            "iter_out": 0 if empty else 1 + self.below(5),
            "iter_in": 1 + self.below(5),
        }

    def factors(self, name: str, depth: int, loops: dict[str, int]) -> dict[str, int]:
        """Factors that keep an operand, at most its cap in a micro-op, below ``depth``."""
        room = depth - self.caps[name]
        result = {}
        for axis in ("out", "in"):
            steps = max(loops[f"iter_{axis}"] - 1, 0)
            limit = depth - 1 if steps == 0 else min(room // steps, depth - 1)
            factor = 0 if self.chance(0.2) else self.near(limit + 1, 4)
            room -= factor * steps
            result[f"{name}_factor_{axis}"] = factor
        return result


_SRAM = {"dst": "acc", "src": "inp", "wgt": "wgt"}


def _neighbours(here: Queue) -> list[tuple[str, Queue]]:
    sides = (("prev", here - 1), ("next", here + 1))
    return [(side, Queue(q)) for side, q in sides if q in set(Queue)]


def random_stream(
    config: VTAConfig, rng: np.random.Generator, length: int = 16
) -> tuple[np.ndarray, np.ndarray]:
    """A valid stream of about ``length`` instructions, (n, 2) uint64, and its arena, int8."""
    depths = {"dst": config.acc_depth, "src": min(config.acc_depth, config.inp_depth)}
    depths["wgt"] = config.wgt_depth
    few = rng.random() < 0.8
    caps = {n: int(rng.integers(1, (min(d, 12) if few else d) + 1)) for n, d in depths.items()}
    unit = max(config.wgt_elem_bytes, config.acc_elem_bytes)
    arena = random_arena(config, rng, max(24 * unit, 2048), caps)
    draw = _Draw(config, rng, arena.size, caps)
    kinds = (draw.load, draw.load, draw.gemm, draw.alu, draw.store)
    for mem in sorted(config.capabilities.loadable):
        draw.load(mem)
    for _ in range(length - len(config.capabilities.loadable)):
        kinds[draw.below(len(kinds))]()
    draw.drain()
    return np.array(draw.words, np.uint64), arena


def random_arena(
    config: VTAConfig, rng: np.random.Generator, nbytes: int, caps: dict[str, int]
) -> np.ndarray:
    """Micro-ops with operands below ``caps``, then int32 extremes among random bytes."""
    arena = rng.integers(-128, 128, nbytes, np.int8)
    words = arena[: nbytes // 4 * 4].view(np.int32)
    extreme = rng.random(words.size) < 0.4
    words[extreme] = rng.choice(np.array(EXTREMES, np.int32), int(extreme.sum()))
    isa = ISA.of(config)
    operands = ({n: int(rng.integers(cap)) for n, cap in caps.items()} for _ in range(_UOPS))
    uops = [isa.encode_uop(**operand) for operand in operands]
    arena[: 4 * _UOPS] = np.array(uops, np.uint32).view(np.int8)
    return arena
