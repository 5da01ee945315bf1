"""The hardware loops of GEMM and ALU: for out, for in, for micro-op."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Opcode

OPERANDS = ("dst", "src", "wgt")
"""Operands whose index is a micro-op's plus what the loops add."""


class LoopNest(wiring.Component):
    """Walks the loops of one instruction, a step in each cycle in which `advance` is set.

    `start` takes the trip counts and factors, which must stay while `valid`. While `valid` is set,
    `uop` is the micro-op of the step, and `<operand>_offset` what is added to its operand. Loops
    without a trip give no step.
    """

    def __init__(self, config: VTAConfig) -> None:
        isa = ISA.of(config)
        placed = {f.name: f.width for f in isa.instructions[Opcode.GEMM]}
        wide = {f.name: f.width for f in isa.instructions[Opcode.ALU]}
        self.uop_bits = placed["uop_end"]
        self.trip_bits = placed["iter_out"]
        self.bits = {"dst": placed["dst_factor_in"], "wgt": placed["wgt_factor_in"]}
        self.bits["src"] = max(placed["src_factor_in"], wide["src_factor_in"])
        factors = {
            f"{name}_factor_{axis}": In(self.bits[name])
            for name in OPERANDS
            for axis in ("out", "in")
        }
        offsets = {f"{name}_offset": Out(self.bits[name]) for name in OPERANDS}
        super().__init__(
            {
                "start": In(1),
                "uop_bgn": In(self.uop_bits),
                "uop_end": In(self.uop_bits),
                "iter_out": In(self.trip_bits),
                "iter_in": In(self.trip_bits),
                **factors,
                "advance": In(1),
                "valid": Out(1),
                "uop": Out(self.uop_bits),
                **offsets,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Counters, and for each operand the offset of this row and of this step."""
        m = Module()
        outer, inner = Signal(self.trip_bits), Signal(self.trip_bits)
        last_uop, last_in, last_out = Signal(), Signal(), Signal()
        m.d.comb += [
            last_uop.eq(self.uop + 1 == self.uop_end),
            last_in.eq(inner == 1),
            last_out.eq(outer == 1),
        ]
        some = (self.uop_bgn < self.uop_end) & self.iter_out.any() & self.iter_in.any()
        with m.If(self.start):
            m.d.sync += [
                self.valid.eq(some),
                self.uop.eq(self.uop_bgn),
                outer.eq(self.iter_out),
                inner.eq(self.iter_in),
            ]
        with m.Elif(self.advance & self.valid):
            m.d.sync += self.uop.eq(Mux(last_uop, self.uop_bgn, self.uop + 1))
            with m.If(last_uop):
                m.d.sync += inner.eq(Mux(last_in, self.iter_in, inner - 1))
                with m.If(last_in):
                    m.d.sync += [outer.eq(outer - 1), self.valid.eq(~last_out)]
        for name in OPERANDS:
            self._offset(m, name, last_uop, last_in)
        return m

    def _offset(self, m: Module, name: str, last_uop: Signal, last_in: Signal) -> None:
        offset, row = getattr(self, f"{name}_offset"), Signal(self.bits[name], name=f"{name}_row")
        next_row = Signal(self.bits[name], name=f"{name}_next_row")
        m.d.comb += next_row.eq(row + getattr(self, f"{name}_factor_out"))
        with m.If(self.start):
            m.d.sync += [offset.eq(0), row.eq(0)]
        with m.Elif(self.advance & self.valid & last_uop):
            with m.If(last_in):
                m.d.sync += [offset.eq(next_row), row.eq(next_row)]
            with m.Else():
                m.d.sync += offset.eq(offset + getattr(self, f"{name}_factor_in"))
