"""LOAD: rows from DRAM, with zeros around them, to consecutive elements of SRAM."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.isa import MemType, Opcode
from vta_byoc.hw.rtl.assembler import Assembler
from vta_byoc.hw.rtl.bursts import BurstGenerator
from vta_byoc.hw.rtl.fields import INSN_BITS, field
from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, CoreParameters


class Loader(wiring.Component):
    """Runs one LOAD at a time of the memory types that it is made for.

    `start` begins the LOAD `insn`, which must stay until `done`; `base` is the address that its
    memory type counts from. Elements are written in order of address, one in a cycle: where `write`
    is set, `element` (or 0 where `zero` is set) belongs at `index`. `data` marks elements that came
    from DRAM.
    """

    def __init__(self, core: CoreParameters, mems: Sequence[MemType]) -> None:
        self.core, self.mems = core, tuple(mems)
        self.assembler = Assembler(core.port_bytes, [core.log_bytes(mem) for mem in self.mems])
        super().__init__(
            {
                "start": In(1),
                "insn": In(INSN_BITS),
                "base": In(ADDRESS_BITS),
                "done": Out(1),
                "request_valid": Out(1),
                "request_ready": In(1),
                "request_address": Out(ADDRESS_BITS),
                "request_beats": Out(BEATS_BITS),
                "beat": In(core.port_bits),
                "beat_valid": In(1),
                "beat_ready": Out(1),
                "write": Out(1),
                "data": Out(1),
                "zero": Out(1),
                "index": Out(16),
                "element": Out(self.assembler.element_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Requests of rows on one side, a walk over the padded box on the other."""
        m = Module()
        core = self.core
        m.submodules.bursts = bursts = BurstGenerator(core.port_bytes, core.window)
        m.submodules.assembler = assembler = self.assembler
        self._ask(m, bursts)
        self._walk(m, assembler)
        m.d.comb += [
            bursts.arrived.eq(self.beat_valid & self.beat_ready),
            assembler.start.eq(self.start),
            assembler.beat.eq(self.beat),
            assembler.beat_valid.eq(self.beat_valid),
            self.beat_ready.eq(assembler.beat_ready),
            self.element.eq(assembler.element),
        ]
        return m

    def _field(self, name: str) -> Value:
        return field(self.core.config, self.insn, Opcode.LOAD, name)

    def _ask(self, m: Module, bursts: BurstGenerator) -> None:
        """Rows to bursts: sizes in bytes are shifts by the size of an element."""
        with m.Switch(self._field("mem_type")):
            for number, mem in enumerate(self.mems):
                log = self.core.log_bytes(mem)
                with m.Case(mem):
                    m.d.comb += [
                        self.assembler.kind.eq(number),
                        bursts.address.eq(self.base + (self._field("dram_base") << log)),
                        bursts.row_bytes.eq(self._field("x_size") << log),
                        bursts.stride.eq(self._field("x_stride") << log),
                    ]
        some = self._field("x_size").any()
        m.d.comb += [
            bursts.start.eq(self.start),
            bursts.rows.eq(Mux(some, self._field("y_size"), 0)),
            self.request_valid.eq(bursts.valid),
            bursts.ready.eq(self.request_ready),
            self.request_address.eq(bursts.burst_address),
            self.request_beats.eq(bursts.burst_beats),
        ]

    def _walk(self, m: Module, assembler: Assembler) -> None:
        """One element of the padded box a cycle; data wait for the assembler."""
        f = self._field
        left, width = f("x_pad_0"), Signal(17)
        top, height = f("y_pad_0"), Signal(17)
        x, y, busy = Signal(17), Signal(17), Signal()
        sub = Signal(8)
        inside, last_x, step = Signal(), Signal(), Signal()
        rows_end, columns_end = Signal(17), Signal(17)
        m.d.comb += [
            columns_end.eq(left + f("x_size")),
            rows_end.eq(top + f("y_size")),
            width.eq(columns_end + f("x_pad_1")),
            height.eq(rows_end + f("y_pad_1")),
            inside.eq((x >= left) & (x < columns_end) & (y >= top) & (y < rows_end)),
            last_x.eq(x + 1 == width),
            step.eq(busy & (~inside | assembler.valid)),
            assembler.take.eq(busy & inside),
            assembler.sub.eq(Mux(self.start, f("dram_base"), sub + f("x_stride"))),
            assembler.row_last.eq(x + 1 == columns_end),
            # The next row of data begins behind the last element of this one.
            assembler.row.eq(self.start | (step & inside & assembler.row_last)),
            self.write.eq(step),
            self.data.eq(step & inside),
            self.zero.eq(~inside),
        ]
        empty = ~f("x_size").any() | ~f("y_size").any()
        finished = step & last_x & (y + 1 == height)
        m.d.comb += self.done.eq(finished | (self.start & empty))
        with m.If(assembler.row):
            m.d.sync += sub.eq(assembler.sub)
        with m.If(self.start):
            m.d.sync += [busy.eq(~empty), x.eq(0), y.eq(0), self.index.eq(f("sram_base"))]
        with m.Elif(step):
            m.d.sync += [x.eq(Mux(last_x, 0, x + 1)), self.index.eq(self.index + 1)]
            with m.If(last_x):
                m.d.sync += y.eq(y + 1)
            with m.If(finished):
                m.d.sync += busy.eq(0)
