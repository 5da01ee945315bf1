"""The read side of the memory port, shared by fetch, load and compute."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, CoreParameters

CLIENTS = ("fetch", "load", "compute")
"""Units that read memory."""


class ReadChannel(wiring.Component):
    """Takes bursts of the clients in turn, and gives each the beats of its own.

    Memory answers bursts in the order in which it took them. A request waits in a register, so that
    it does not change until memory takes it.
    """

    def __init__(self, core: CoreParameters) -> None:
        self.core = core
        ports: dict[str, In | Out] = {}
        for name in CLIENTS:
            ports |= {
                f"{name}_valid": In(1),
                f"{name}_ready": Out(1),
                f"{name}_address": In(ADDRESS_BITS),
                f"{name}_beats": In(BEATS_BITS),
                f"{name}_beat_valid": Out(1),
                f"{name}_beat_ready": In(1),
            }
        super().__init__(
            {
                **ports,
                "ar_valid": Out(1),
                "ar_ready": In(1),
                "ar_address": Out(ADDRESS_BITS),
                "ar_beats": Out(BEATS_BITS),
                "r_valid": In(1),
                "r_ready": Out(1),
                "pending": Out(range(core.pending + 2)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Whose turn it is, the request that waits, and a FIFO of whose beats come next."""
        m = Module()
        width = 2 + BEATS_BITS
        m.submodules.order = order = SyncFIFOBuffered(width=width, depth=self.core.pending)
        last, chosen, free = Signal(2), Signal(2), Signal()
        valids = Cat(*(getattr(self, f"{name}_valid") for name in CLIENTS))
        m.d.comb += free.eq((~self.ar_valid | self.ar_ready) & order.w_rdy)
        with m.Switch(last):
            for turn in range(len(CLIENTS)):
                with m.Case(turn):
                    after = [(turn + 1 + i) % len(CLIENTS) for i in range(len(CLIENTS))]
                    first, second, third = after
                    picked = Mux(valids[second], second, third)
                    m.d.comb += chosen.eq(Mux(valids[first], first, picked))
        with m.If(self.ar_ready):
            m.d.sync += self.ar_valid.eq(0)
        with m.If(free & valids.any()):
            m.d.sync += [self.ar_valid.eq(1), last.eq(chosen)]
            m.d.comb += order.w_en.eq(1)
        with m.Switch(chosen):
            for number, name in enumerate(CLIENTS):
                with m.Case(number):
                    beats = getattr(self, f"{name}_beats")
                    m.d.comb += [
                        getattr(self, f"{name}_ready").eq(free),
                        order.w_data.eq(Cat(chosen, beats)),
                    ]
                    with m.If(free & valids.any()):
                        m.d.sync += [
                            self.ar_address.eq(getattr(self, f"{name}_address")),
                            self.ar_beats.eq(beats),
                        ]
        self._answer(m, order)
        m.d.comb += self.pending.eq(order.level)
        return m

    def _answer(self, m: Module, order: SyncFIFOBuffered) -> None:
        """Beats go to the client of the oldest burst."""
        whose, beats = order.r_data[:2], order.r_data[2:]
        seen = Signal(BEATS_BITS)
        with m.Switch(whose):
            for number, name in enumerate(CLIENTS):
                with m.Case(number):
                    m.d.comb += [
                        getattr(self, f"{name}_beat_valid").eq(self.r_valid & order.r_rdy),
                        self.r_ready.eq(getattr(self, f"{name}_beat_ready") & order.r_rdy),
                    ]
        with m.If(self.r_valid & self.r_ready):
            m.d.sync += seen.eq(seen + 1)
            with m.If(seen + 1 == beats):
                m.d.sync += seen.eq(0)
                m.d.comb += order.r_en.eq(1)
