"""Which elements an instruction touches: exact strided sets, never bounding boxes.

SRAM is counted in elements of its memory ("uop", "inp", "wgt", "acc"), DRAM in grains, the largest
unit of which every tensor element is a multiple.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import ISA, MEMORY_TYPES, UOP_BITS, Instruction, MemType, Opcode

Where = slice | np.ndarray
"""Elements of one space: a contiguous slice or an array of indices."""


def end_of(where: Where) -> int:
    """One past the last element of an ascending set; 0 for an empty one."""
    if isinstance(where, slice):
        return int(where.stop)
    return int(where[-1]) + 1 if where.size else 0


def compact(indices: np.ndarray) -> Where:
    """Ascending indices, as a slice where they have no gap: those are read and written fast."""
    if indices.size and int(indices[-1]) - int(indices[0]) == indices.size - 1:
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def dram_grain(config: VTAConfig) -> int:
    """Bytes of a DRAM grain: all sizes are powers of two, so the smallest divides the others."""
    return min(config.inp_elem_bytes, config.wgt_elem_bytes, config.out_elem_bytes)


# ---------------------------------------------------------------- LOAD and STORE
class Transfer(NamedTuple):
    """The geometry of a LOAD or STORE of a known memory type.

    Attributes:
        insn: the instruction.
        mem: its memory type.
        elem_bytes: of an element in DRAM.
        space: the SRAM that it fills or reads.
        sram: the SRAM elements; rows, with their padding, follow one another without gaps.
        dram_range: the first DRAM byte and the one past the last.
    """

    insn: Instruction
    mem: MemType
    elem_bytes: int
    space: str
    sram: slice
    dram_range: tuple[int, int]

    @classmethod
    def of(cls, config: VTAConfig, insn: Instruction) -> Transfer:
        """The geometry of `insn`, a LOAD or STORE of a known memory type."""
        mem = MemType(insn["mem_type"])
        elem, start, base = dram_elem_bytes(config, mem), insn["sram_base"], insn["dram_base"]
        rows = insn["y_pad_0"] + insn["y_size"] + insn["y_pad_1"]
        width = insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"]
        end = base + (insn["y_size"] - 1) * insn["x_stride"] + insn["x_size"]
        sram = slice(start, start + rows * width)
        return cls(insn, mem, elem, MEMORY_TYPES[mem].sram, sram, (base * elem, end * elem))

    @property
    def empty(self) -> bool:
        """Whether it moves tokens only."""
        return self.insn["x_size"] == 0 or self.insn["y_size"] == 0

    @property
    def width(self) -> int:
        """Elements of a row in SRAM, padding included."""
        return self.insn["x_pad_0"] + self.insn["x_size"] + self.insn["x_pad_1"]

    def elements(self) -> np.ndarray:
        """DRAM element of each datum, (y_size, x_size) int64."""
        insn = self.insn
        rows = insn["dram_base"] + np.arange(insn["y_size"], dtype=np.int64) * insn["x_stride"]
        return rows[:, None] + np.arange(insn["x_size"], dtype=np.int64)

    def targets(self) -> np.ndarray:
        """SRAM element of each datum, (y_size, x_size) int64."""
        insn = self.insn
        rows = (insn["y_pad_0"] + np.arange(insn["y_size"], dtype=np.int64)) * self.width
        start = insn["sram_base"] + insn["x_pad_0"]
        return rows[:, None] + (start + np.arange(insn["x_size"], dtype=np.int64))

    def grains(self, grain: int, base: int) -> Where:
        """DRAM grains, counted from byte ``base``."""
        low, high = self.dram_range
        dense = self.insn["y_size"] == 1 or self.insn["x_stride"] == self.insn["x_size"]
        if dense or self.elem_bytes < grain:
            return slice((low - base) // grain, -(-(high - base) // grain))
        parts = self.elem_bytes // grain
        first = self.elements().reshape(-1, 1) * parts - base // grain
        return (first + np.arange(parts)).reshape(-1)


# ---------------------------------------------------------------- GEMM and ALU
@functools.lru_cache(maxsize=16)
def _uop_fields(config: VTAConfig) -> tuple[tuple[str, int, int], ...]:
    return tuple((f.name, f.lsb, (1 << f.width) - 1) for f in ISA.of(config).uop)


def decode_uops(config: VTAConfig, words: np.ndarray) -> dict[str, np.ndarray]:
    """Operands dst, src, wgt of micro-ops (n,) uint32 as int64 arrays."""
    wide = words.astype(np.int64)
    return {name: (wide >> lsb) & mask for name, lsb, mask in _uop_fields(config)}


def reserved_uop_bits(config: VTAConfig, words: np.ndarray) -> int:
    """The reserved bits that any of ``words`` sets."""
    used = sum(mask << lsb for _, lsb, mask in _uop_fields(config))
    return int(np.bitwise_or.reduce(words, initial=0)) & ~used & ((1 << UOP_BITS) - 1)


def operands(config: VTAConfig, insn: Instruction) -> dict[str, str]:
    """The SRAM that each operand of a GEMM or ALU instruction addresses, by operand name."""
    if insn.opcode == Opcode.GEMM:
        return {"dst": "acc"} if insn["reset"] else {"dst": "acc", "src": "inp", "wgt": "wgt"}
    unused = insn["use_imm"] and not config.capabilities.imm_reads_src
    return {"dst": "acc"} if unused else {"dst": "acc", "src": "acc"}


@dataclass(frozen=True)
class Loops:
    """The two hardware loops of a GEMM or ALU instruction around its micro-ops."""

    insn: Instruction
    uops: Mapping[str, np.ndarray]

    @property
    def steps(self) -> int:
        """Micro-op executions."""
        count = self.insn["uop_end"] - self.insn["uop_bgn"]
        return count * self.insn["iter_out"] * self.insn["iter_in"]

    def _factors(self, name: str) -> tuple[int, int]:
        return self.insn[f"{name}_factor_out"], self.insn[f"{name}_factor_in"]

    def last(self, name: str) -> int:
        """The largest element that operand ``name`` addresses."""
        out, inner = self._factors(name)
        reach = (self.insn["iter_out"] - 1) * out + (self.insn["iter_in"] - 1) * inner
        return int(self.uops[name].max()) + reach

    def touched(self, name: str, depth: int) -> np.ndarray:
        """Elements below ``depth`` that operand ``name`` addresses, ascending."""
        mask = np.zeros(depth, bool)
        values = self.uops[name]
        mask[values[values < depth]] = True
        out, inner = self._factors(name)
        _spread(mask, self.insn["iter_in"], inner)
        _spread(mask, self.insn["iter_out"], out)
        return np.flatnonzero(mask)

    def window(self, name: str, distance: int) -> np.ndarray:
        """Elements of ``name`` in execution order, over enough steps to see every difference.

        Loops are affine: any two steps less than ``distance`` apart differ as two steps do that
        begin in the first row, among its last columns or before the first wrap.
        """
        rows, cols = self.insn["iter_out"], self.insn["iter_in"]
        kept = min(cols, 2 * distance)
        begin = cols - kept
        at = np.arange(begin, min(rows * cols, begin + kept + distance), dtype=np.int64)
        out, inner = self._factors(name)
        moved = (at // cols) * out + (at % cols) * inner
        return (moved[:, None] + self.uops[name]).reshape(-1)

    def repeat(self, name: str, distance: int) -> tuple[int, int] | None:
        """(element, steps) of the closest two steps where `name` addresses the same element.

        They are less than `distance` apart; None when there are none.
        """
        if distance <= 1:
            return None
        steps = self.window(name, distance)
        for gap in range(1, min(distance, len(steps))):
            same = np.flatnonzero(steps[:-gap] == steps[gap:])
            if len(same):
                return int(steps[same[0]]), gap
        return None

    def follows(self, earlier: str, later: str) -> int | None:
        """An element that `later` addresses one step after `earlier` did; None when there is none.

        The operands must lie inside their memories.
        """
        rows, cols = self.insn["iter_out"], self.insn["iter_in"]
        (out, inner), (next_out, next_in) = self._factors(earlier), self._factors(later)
        first, second = self.uops[earlier], self.uops[later]
        end = first[-1:] + (cols - 1) * inner
        cases = (  # the next step is the next micro-op; the first of the next column; of a new row
            (first[:-1], second[1:], rows, cols),
            (first[-1:], second[:1] + next_in, rows, cols - 1),
            (end, second[:1] + next_out, rows - 1, 1),
        )
        for before, after, count_out, count_in in cases:
            found = _zero(before - after, out - next_out, inner - next_in, count_out, count_in)
            if found is not None:
                at, y, x = found
                return int(before[at]) + y * out + x * inner
        return None


def _zero(
    constants: np.ndarray, a: int, b: int, rows: int, cols: int
) -> tuple[int, int, int] | None:
    """(k, y, x) with constants[k] + y a + x b = 0, y in [0, rows), x in [0, cols); None if none."""
    if rows <= 0 or cols <= 0:
        return None
    rest = constants[:, None] + np.arange(rows if a else 1, dtype=np.int64) * a
    x, odd = np.divmod(-rest, b) if b else (np.zeros_like(rest), rest)
    hits = np.argwhere((odd == 0) & (x >= 0) & (x < cols))
    if not len(hits):
        return None
    k, y = hits[0].tolist()
    return k, y, int(x[k, y])


def _spread(mask: np.ndarray, count: int, factor: int) -> None:
    """Add to a set its copies moved by ``factor``, twice that, up to ``count - 1`` times."""
    done = 1
    while done < count and factor > 0:
        step = min(done, count - done)
        if step * factor >= len(mask):
            return
        mask[step * factor :] |= mask[: -step * factor]
        done += step
