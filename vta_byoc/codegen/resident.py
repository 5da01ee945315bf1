"""What SRAM holds of DRAM while a stream is written, so that no LOAD brings what is there already.

Of every element of the INP, WGT and ACC buffers is known which element of which DRAM tensor it is
a copy of, if of any.  The stream runs as if in program order (tokens see to that), so a LOAD whose
whole destination holds the very elements that it would bring can be left out: layers and tiles
that share weights, a bias or an input then share one copy of it.
"""

from __future__ import annotations

import functools

import numpy as np

from vta_byoc.codegen.emit import ZEROS
from vta_byoc.codegen.stream import DRAM, Insn
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_elem_bytes
from vta_byoc.hw.isa import PADS, MemType, Opcode

UNKNOWN = -1
"""Of an element that GEMM or ALU wrote, or whose copy in DRAM was overwritten."""
ZERO = 0
TENSOR_BITS = 40
"""A copy is named by its tensor and memory type above these bits, by its DRAM byte in them."""


class Residency:
    """The DRAM elements that SRAM holds; feed it every instruction in program order."""

    def __init__(self, config: VTAConfig):
        self._config = config
        self._held = {
            space: np.full(depth, UNKNOWN, np.int64)
            for space, depth in config.depths.items()
            if space != "uop"
        }
        self._names: dict[str, dict[MemType, int]] = {}
        self._count = 0

    def needs(self, insn: Insn) -> bool:
        """Whether the stream needs ``insn``: False for a LOAD of what is in its place already.

        Notes what ``insn`` writes.
        """
        if insn.opcode == Opcode.LOAD and insn.reads:
            return self._load(insn)
        if insn.opcode == Opcode.STORE and insn.writes:
            (space, low, _), (*_, high) = insn.writes[0], insn.writes[-1]
            self._forget(space, low, high)
            return True
        for space, low, high in insn.writes:
            self._held[space][low:high] = UNKNOWN
        return True

    def _load(self, insn: Insn) -> bool:
        (source, first, _), (space, low, high) = insn.reads[0], insn.writes[0]
        held = self._held[space][low:high]
        brought = self._brought(insn.fields, source, first)
        if np.array_equal(held, brought):
            return False
        held[:] = brought
        return True

    def _brought(self, fields: dict[str, int], source: str, first: int) -> np.ndarray:
        """What a LOAD of DRAM tensor ``source`` from byte ``first`` brings, (elements,) int64."""
        mem = MemType(fields["mem_type"])
        offsets, padding = _pattern(
            fields["y_size"],
            fields["x_size"],
            fields["x_stride"],
            *(fields[pad] for pad in PADS),
        )
        if source == DRAM + ZEROS:
            return np.full(len(offsets), ZERO)
        brought = self._name(source, mem) + first + offsets * dram_elem_bytes(self._config, mem)
        brought[padding] = ZERO
        return brought

    def _name(self, tensor: str, mem: MemType) -> int:
        """What byte 0 of ``tensor`` is called where it is held as elements of ``mem``."""
        names = self._names.setdefault(tensor, {})
        if mem not in names:
            self._count += 1
            names[mem] = self._count << TENSOR_BITS
        return names[mem]

    def _forget(self, tensor: str, low: int, high: int) -> None:
        """A STORE wrote bytes [low, high) of ``tensor``: no copy of them is up to date."""
        for mem, name in self._names.get(tensor, {}).items():
            before = dram_elem_bytes(self._config, mem) - 1
            for held in self._held.values():
                held[(held >= name + low - before) & (held < name + high)] = UNKNOWN


@functools.lru_cache(maxsize=1 << 12)
def _pattern(
    rows: int, width: int, stride: int, top: int, bottom: int, left: int, right: int
) -> tuple[np.ndarray, np.ndarray]:
    """(DRAM offset in elements, whether it is padding) of each SRAM element of a LOAD."""
    shape = (top + rows + bottom, left + width + right)
    data = (slice(top, top + rows), slice(left, left + width))
    offsets, padding = np.zeros(shape, np.int64), np.ones(shape, bool)
    offsets[data] = np.arange(rows)[:, None] * stride + np.arange(width)
    padding[data] = False
    return offsets.reshape(-1), padding.reshape(-1)
