"""One lane of the vector ALU."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.config import Capabilities
from vta_byoc.hw.isa import AluOp


class AluLane(wiring.Component):
    """`result` = `left` op `right`, int32 that wraps, in the cycle of its operands.

    SHR shifts right, and left by what is below 0, both by the low 5 bits. Where `modulo` is set the
    sign of the amount is ignored. MUL is there where the machine has it; else it gives 0.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.has_mul = capabilities.has("mul")
        super().__init__(
            {
                "op": In(3),
                "modulo": In(1),
                "left": In(signed(32)),
                "right": In(signed(32)),
                "result": Out(signed(32)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One expression for each operation."""
        m = Module()
        amount, back = Signal(5), Signal(5)
        less = self.left < self.right
        m.d.comb += [amount.eq(self.right[:5]), back.eq(-self.right[:5])]
        with m.Switch(self.op):
            with m.Case(AluOp.MIN):
                m.d.comb += self.result.eq(Mux(less, self.left, self.right))
            with m.Case(AluOp.MAX):
                m.d.comb += self.result.eq(Mux(less, self.right, self.left))
            with m.Case(AluOp.ADD):
                m.d.comb += self.result.eq(self.left + self.right)
            with m.Case(AluOp.SHR):
                with m.If(self.right[31] & ~self.modulo):
                    m.d.comb += self.result.eq(self.left.as_unsigned() << back)
                with m.Else():
                    m.d.comb += self.result.eq(self.left >> amount)
            if self.has_mul:
                with m.Case(AluOp.MUL):
                    m.d.comb += self.result.eq(self.left * self.right)
        return m
