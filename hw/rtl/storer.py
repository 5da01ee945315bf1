"""STORE: consecutive elements of the OUT memory to rows in DRAM."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.isa import MemType, Opcode
from vta_byoc.hw.rtl.bursts import BurstGenerator
from vta_byoc.hw.rtl.fields import INSN_BITS, field
from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, CoreParameters

_AHEAD = 4
"""Elements that are read ahead of the memory port, and bursts that are asked for ahead of data."""


class Storer(wiring.Component):
    """Runs one STORE at a time.

    `start` begins the STORE `insn`, which must stay until `done`: memory has then acknowledged
    every burst. Elements are read from the OUT memory at `index` and come as `element` a cycle
    later. Data of a burst are offered with its address, whichever memory takes first.
    """

    def __init__(self, core: CoreParameters) -> None:
        self.core = core
        self.element_bits = 8 * core.lanes
        super().__init__(
            {
                "start": In(1),
                "insn": In(INSN_BITS),
                "base": In(ADDRESS_BITS),
                "done": Out(1),
                "read": Out(1),
                "index": Out(16),
                "element": In(self.element_bits),
                "stored": Out(1),
                "aw_valid": Out(1),
                "aw_ready": In(1),
                "aw_address": Out(ADDRESS_BITS),
                "aw_beats": Out(BEATS_BITS),
                "w_valid": Out(1),
                "w_ready": In(1),
                "w_data": Out(core.port_bits),
                "w_strobe": Out(core.port_bytes),
                "w_last": Out(1),
                "b_valid": In(1),
                "b_ready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Elements are read ahead into a FIFO; beats leave it as bursts are granted."""
        m = Module()
        m.submodules.bursts = bursts = BurstGenerator(self.core.port_bytes, None)
        m.submodules.elements = elements = SyncFIFOBuffered(
            width=self.element_bits, depth=_AHEAD + 1
        )
        m.submodules.lengths = lengths = SyncFIFOBuffered(width=BEATS_BITS, depth=_AHEAD)
        f = self._field
        empty = ~f("x_size").any() | ~f("y_size").any()
        beat_done, row_done, active = Signal(), Signal(), Signal()
        rows, unanswered = Signal(16), Signal(16)
        offered, answered = Signal(), Signal()
        self._ask(m, bursts, lengths, offered, empty)
        self._read(m, elements, empty)
        self._write(m, elements, lengths, beat_done, row_done)
        m.d.comb += [
            answered.eq(self.b_valid & self.b_ready),
            self.b_ready.eq(1),
        ]
        m.d.sync += unanswered.eq(unanswered + offered - answered)
        with m.If(self.start):
            m.d.sync += [active.eq(~empty), rows.eq(f("y_size"))]
        with m.Elif(row_done):
            m.d.sync += rows.eq(rows - 1)
        finished = active & ~rows.any() & ~unanswered.any()
        with m.If(finished):
            m.d.sync += active.eq(0)
        m.d.comb += self.done.eq(finished | (self.start & empty))
        return m

    def _field(self, name: str) -> Value:
        return field(self.core.config, self.insn, Opcode.STORE, name)

    def _ask(
        self,
        m: Module,
        bursts: BurstGenerator,
        lengths: SyncFIFOBuffered,
        offered: Signal,
        empty: Value,
    ) -> None:
        """Rows to bursts. Data follow from the cycle on in which an address is first `offered`.

        Memory may wait for data before it takes an address, so that data wait for no address.
        """
        f, log = self._field, self.core.log_bytes(MemType.OUT)
        waits = Signal()
        m.d.sync += waits.eq(self.aw_valid & ~self.aw_ready)
        m.d.comb += [
            bursts.start.eq(self.start),
            bursts.address.eq(self.base + (f("dram_base") << log)),
            bursts.row_bytes.eq(f("x_size") << log),
            bursts.stride.eq(f("x_stride") << log),
            bursts.rows.eq(Mux(empty, 0, f("y_size"))),
            self.aw_valid.eq(bursts.valid & (lengths.w_rdy | waits)),
            offered.eq(self.aw_valid & ~waits),
            bursts.ready.eq(self.aw_valid & self.aw_ready),
            self.aw_address.eq(bursts.burst_address),
            self.aw_beats.eq(bursts.burst_beats),
            lengths.w_en.eq(offered),
            lengths.w_data.eq(bursts.burst_beats),
        ]

    def _read(self, m: Module, elements: SyncFIFOBuffered, empty: Value) -> None:
        """Read element after element while the FIFO has room for what is under way."""
        f = self._field
        under_way, reading = Signal(), Signal()
        x, rows = Signal(16), Signal(16)
        m.d.comb += [
            self.read.eq(reading & (elements.level + under_way < _AHEAD)),
            self.stored.eq(self.read),
            elements.w_en.eq(under_way),
            elements.w_data.eq(self.element),
        ]
        m.d.sync += under_way.eq(self.read)
        with m.If(self.start):
            m.d.sync += [
                reading.eq(~empty),
                x.eq(f("x_size")),
                rows.eq(f("y_size")),
                self.index.eq(f("sram_base")),
            ]
        with m.Elif(self.read):
            m.d.sync += [self.index.eq(self.index + 1), x.eq(x - 1)]
            with m.If(x == 1):
                m.d.sync += [x.eq(f("x_size")), rows.eq(rows - 1), reading.eq(rows != 1)]

    def _write(
        self,
        m: Module,
        elements: SyncFIFOBuffered,
        lengths: SyncFIFOBuffered,
        beat_done: Signal,
        row_done: Signal,
    ) -> None:
        """Beats of elements, counted against the length of the burst; the last of each row."""
        f = self._field
        left, sent = Signal(16), Signal(BEATS_BITS)
        give = Signal()
        last_element = left == 1
        parts = self.element_bits // self.core.port_bits
        if parts >= 1:
            part = Signal(range(max(parts, 2)))
            last_part = part == parts - 1
            m.d.comb += [
                self.w_data.eq(elements.r_data.word_select(part, self.core.port_bits)),
                self.w_strobe.eq(~0),
                self.w_valid.eq(elements.r_rdy & lengths.r_rdy),
                beat_done.eq(self.w_valid & self.w_ready),
                give.eq(beat_done & last_part),
            ]
            with m.If(beat_done):
                m.d.sync += part.eq(Mux(last_part, 0, part + 1))
        else:
            self._pack(m, elements, lengths, beat_done, give, last_element)
        m.d.comb += [
            elements.r_en.eq(give),
            self.w_last.eq(sent + 1 == lengths.r_data),
            lengths.r_en.eq(beat_done & self.w_last),
            row_done.eq(give & last_element),
        ]
        with m.If(self.start):
            m.d.sync += left.eq(f("x_size"))
        with m.Elif(give):
            m.d.sync += left.eq(Mux(last_element, f("x_size"), left - 1))
        with m.If(beat_done):
            m.d.sync += sent.eq(Mux(self.w_last, 0, sent + 1))

    def _pack(
        self,
        m: Module,
        elements: SyncFIFOBuffered,
        lengths: SyncFIFOBuffered,
        beat_done: Signal,
        give: Signal,
        last_element: Value,
    ) -> None:
        """Elements smaller than a beat gather in a register until the beat or the row is full."""
        f, port = self._field, self.core.port_bytes
        size = self.element_bits // 8
        each = port // size
        log_each = each.bit_length() - 1
        place, row_place = Signal(log_each), Signal(log_each)
        held, held_strobe = Signal(8 * port), Signal(port)
        data, strobe, full = Signal(8 * port), Signal(port), Signal()
        m.d.comb += [
            data.eq(held | (elements.r_data << (place * (8 * size)))),
            strobe.eq(held_strobe | (((1 << size) - 1) << (place * size))),
            full.eq((place == each - 1) | last_element),
            self.w_data.eq(data),
            self.w_strobe.eq(strobe),
            self.w_valid.eq(elements.r_rdy & lengths.r_rdy & full),
            beat_done.eq(self.w_valid & self.w_ready),
            give.eq(elements.r_rdy & Mux(full, beat_done, 1)),
        ]
        first = (f("dram_base") + (self.base >> (size.bit_length() - 1)))[:log_each]
        with m.If(self.start):
            m.d.sync += [place.eq(first), row_place.eq(first), held.eq(0), held_strobe.eq(0)]
        with m.Elif(give):
            following = (row_place + f("x_stride"))[:log_each]
            m.d.sync += [
                held.eq(Mux(full, 0, data)),
                held_strobe.eq(Mux(full, 0, strobe)),
                place.eq(Mux(last_element, following, place + 1)),
            ]
            with m.If(last_element):
                m.d.sync += row_place.eq(following)
