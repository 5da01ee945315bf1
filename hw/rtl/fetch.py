"""Fetch: reads the instruction stream in bursts and hands every instruction to its queue."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.isa import INSN_BYTES, Queue
from vta_byoc.hw.rtl.assembler import Assembler
from vta_byoc.hw.rtl.fields import INSN_BITS, goes_to
from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, BURST_BEATS, CoreParameters


class Fetch(wiring.Component):
    """`launch` begins a stream of `count` instructions at `address`, `busy` until all have left.

    A burst is asked for when all instructions of the one before it have left, so that what comes
    always finds room: a queue that is full never blocks the memory port. A burst ends at a
    multiple of its length. While `hold` is set no instruction is handed on. While `stop` is set no
    burst is asked for, and none is under way when `quiet` is set.
    """

    def __init__(self, core: CoreParameters) -> None:
        self.core = core
        self.burst = min(
            core.config.timing.fetch_burst, BURST_BEATS * core.port_bytes // INSN_BYTES
        )
        queues = {f"{q.name.lower()}_ready": In(1) for q in Queue}
        super().__init__(
            {
                "launch": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(32),
                "hold": In(1),
                "stop": In(1),
                "busy": Out(1),
                "quiet": Out(1),
                "handed": Out(32),
                "request_valid": Out(1),
                "request_ready": In(1),
                "request_address": Out(ADDRESS_BITS),
                "request_beats": Out(BEATS_BITS),
                "beat": In(core.port_bits),
                "beat_valid": In(1),
                "beat_ready": Out(1),
                "insn": Out(INSN_BITS),
                **{f"{q.name.lower()}_valid": Out(1) for q in Queue},
                **queues,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Requests on one side, a FIFO of a burst and the choice of a queue on the other."""
        m = Module()
        log_insn = INSN_BYTES.bit_length() - 1
        m.submodules.assembler = assembler = Assembler(self.core.port_bytes, [log_insn])
        fifo = SyncFIFOBuffered(width=INSN_BITS, depth=max(self.burst, 2))
        m.submodules.fifo = ResetInserter(self.launch)(fifo)
        left, expected = Signal(32), Signal(range(self.burst + 1))
        place = Signal(ADDRESS_BITS - log_insn)
        self._ask(m, left, expected, place)
        taken = Signal()
        m.d.comb += [
            assembler.beat.eq(self.beat),
            assembler.beat_valid.eq(self.beat_valid),
            self.beat_ready.eq(assembler.beat_ready),
            assembler.take.eq(fifo.w_rdy),
            assembler.start.eq(self.launch),
            assembler.row.eq(self.request_valid & self.request_ready),
            assembler.sub.eq(place),
            fifo.w_en.eq(assembler.valid),
            fifo.w_data.eq(assembler.element),
            self.insn.eq(fifo.r_data),
            self.busy.eq(left.any() | expected.any()),
            fifo.r_en.eq(taken),
        ]
        # A burst that ends inside of a beat leaves the rest of it.
        arrived = Signal(range(self.burst + 1))
        m.d.comb += [assembler.row_last.eq(arrived == 1), self.quiet.eq(~arrived.any())]
        with m.If(self.request_valid & self.request_ready):
            m.d.sync += arrived.eq(self._next(left, place))
        with m.Elif(assembler.valid & fifo.w_rdy):
            m.d.sync += arrived.eq(arrived - 1)
        for queue in Queue:
            name = queue.name.lower()
            mine = goes_to(self.core.config, fifo.r_data, queue)
            valid, ready = getattr(self, f"{name}_valid"), getattr(self, f"{name}_ready")
            m.d.comb += valid.eq(fifo.r_rdy & mine & ~self.hold)
            with m.If(valid & ready):
                m.d.comb += taken.eq(1)
        with m.If(self.launch):
            m.d.sync += self.handed.eq(0)
        with m.Elif(taken):
            m.d.sync += [self.handed.eq(self.handed + 1), expected.eq(expected - 1)]
        return m

    def _next(self, left: Signal, place: Signal) -> Signal:
        """Instructions of the next burst."""
        room = self.burst - place[: self.burst.bit_length() - 1] if self.burst > 1 else 1
        return Mux(left < room, left, room)

    def _ask(self, m: Module, left: Signal, expected: Signal, place: Signal) -> None:
        log_insn = INSN_BYTES.bit_length() - 1
        size = Signal(range(self.burst + 1))
        port = self.core.port_bytes
        offset = (place << log_insn)[: self.core.log_port]
        nbytes = (size << log_insn) + offset
        m.d.comb += [
            size.eq(self._next(left, place)),
            self.request_valid.eq(left.any() & ~expected.any() & ~self.stop),
            self.request_address.eq(
                (place << log_insn)[self.core.log_port :] << self.core.log_port
            ),
            self.request_beats.eq((nbytes + (port - 1)) >> self.core.log_port),
        ]
        with m.If(self.launch):
            m.d.sync += [left.eq(self.count), place.eq(self.address >> log_insn), expected.eq(0)]
        with m.Elif(self.request_valid & self.request_ready):
            m.d.sync += [left.eq(left - size), place.eq(place + size), expected.eq(size)]
