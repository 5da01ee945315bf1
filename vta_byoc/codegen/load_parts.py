"""Parts of a LOAD of weights: some of its rows, or of the elements of its only row.

Weights are large; a part of them can pass the port while inputs are not there yet, and a part of
their place in SRAM is free before the rest is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from vta_byoc.codegen.stream import Insn
from vta_byoc.hw.isa import PADS, MemType, Opcode


@dataclass(frozen=True)
class Part:
    """Units [begin, end) of a LOAD, which are rows, or elements where there is one row."""

    whole: Insn
    begin: int
    end: int

    @property
    def insn(self) -> Insn:
        """The instruction that loads the part."""
        whole, count = self.whole, self.end - self.begin
        if count == units(whole):
            return whole
        size, stride = whole.fields["x_size"], whole.fields["x_stride"]
        one_row = whole.fields["y_size"] == 1
        chip, dram = (1, 1) if one_row else (size, stride)
        (source, first, _), (*_, last) = whole.reads[0], whole.reads[-1]
        space, low, _ = whole.writes[0]
        span = size if one_row else (whole.fields["y_size"] - 1) * stride + size
        each = (last - first) // span
        last_row = 1 if one_row else size
        begin, low = first + self.begin * dram * each, low + self.begin * chip
        end = begin + ((count - 1) * dram + last_row) * each
        rows = {"x_size": count, "x_stride": count} if one_row else {"y_size": count}
        return dataclasses.replace(
            whole,
            fields={**whole.fields, **rows, "sram_base": low},
            reads=[(source, begin, end)],
            writes=[(space, low, low + count * chip)],
            addend=whole.addend + self.begin * dram,
        )

    def joined(self, other: Part) -> Part | None:
        """This part and ``other`` as one, where the latter goes on where this one ends."""
        if other.whole is not self.whole or other.begin != self.end:
            return None
        return Part(self.whole, self.begin, other.end)


def units(insn: Insn) -> int:
    """How many units a LOAD has; 1 where it cannot be taken apart."""
    weights = insn.opcode == Opcode.LOAD and insn.fields["mem_type"] == MemType.WGT
    if not weights or any(insn.fields[pad] for pad in PADS):
        return 1
    rows = insn.fields["y_size"]
    return insn.fields["x_size"] if rows == 1 else rows


def parts(insn: Insn, cycles: int, most: int) -> list[Part]:
    """A LOAD of ``cycles`` in parts of about ``most``; any other instruction as it is."""
    count = units(insn)
    each = max(1, count * most // max(cycles, 1))
    return [Part(insn, at, min(at + each, count)) for at in range(0, count, each)]
