"""One of the four token counters between two queues."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class TokenCounter(wiring.Component):
    """Counts tokens that one queue pushes and another pops.

    `ready` says that a pop would find a token. A push in a cycle is seen in the next one. The
    counter keeps its greatest value where more are pushed, and `overflow` stays set until `flush`,
    which takes all tokens away.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        bits = most.bit_length()
        super().__init__(
            {
                "push": In(1),
                "pop": In(1),
                "flush": In(1),
                "ready": Out(1),
                "level": Out(bits),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The counter."""
        m = Module()
        full = Signal()
        m.d.comb += [self.ready.eq(self.level != 0), full.eq(self.level == self.most)]
        with m.If(self.flush):
            m.d.sync += [self.level.eq(0), self.overflow.eq(0)]
        with m.Elif(self.push & ~self.pop):
            with m.If(full):
                m.d.sync += self.overflow.eq(1)
            with m.Else():
                m.d.sync += self.level.eq(self.level + 1)
        with m.Elif(self.pop & ~self.push & self.ready):
            m.d.sync += self.level.eq(self.level - 1)
        return m
