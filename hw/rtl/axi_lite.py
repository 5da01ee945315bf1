"""A slave of AXI4-Lite in front of the control registers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

REGISTER_BITS = 32
ADDRESS_BITS = 8
"""Bits of the byte address of a register."""
OKAY, SLVERR = 0b00, 0b10
"""Answers: done, and refused."""


def lite_ports(prefix: str = "") -> dict[str, In | Out]:
    """The ports of a slave of AXI4-Lite, by their names behind a prefix."""
    ports = {
        "awaddr": In(ADDRESS_BITS),
        "awprot": In(3),
        "awvalid": In(1),
        "awready": Out(1),
        "wdata": In(REGISTER_BITS),
        "wstrb": In(REGISTER_BITS // 8),
        "wvalid": In(1),
        "wready": Out(1),
        "bresp": Out(2),
        "bvalid": Out(1),
        "bready": In(1),
        "araddr": In(ADDRESS_BITS),
        "arprot": In(3),
        "arvalid": In(1),
        "arready": Out(1),
        "rdata": Out(REGISTER_BITS),
        "rresp": Out(2),
        "rvalid": Out(1),
        "rready": In(1),
    }
    return {f"{prefix}{name}": port for name, port in ports.items()}


class AxiLite(wiring.Component):
    """Takes one write and one read at a time, and answers each.

    Address and data of a write come in any order. Of a write and a read that are both there the
    write is first. A register is written whole: a write with some of its bytes alone is answered
    with SLVERR, one with none writes nothing. No output depends on an input of the same cycle but
    `write`, `write_data` and `address` of the registers, which depend on none either. Registers
    answer `read_data` in the cycle of `address`; the lower two bits of addresses are not looked at.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                **lite_ports(),
                "address": Out(ADDRESS_BITS),
                "write": Out(1),
                "write_data": Out(REGISTER_BITS),
                "read_data": In(REGISTER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """What has been taken of a write and of a read, and whether an answer waits."""
        m = Module()
        strobes = Signal(REGISTER_BITS // 8)
        has_address, has_data, has_read = Signal(), Signal(), Signal()
        write_at, read_at = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        writes, reads = Signal(), Signal()
        at = Mux(writes, write_at, read_at)
        m.d.comb += [
            self.awready.eq(~has_address),
            self.wready.eq(~has_data),
            self.arready.eq(~has_read),
            writes.eq(has_address & has_data & ~self.bvalid),
            reads.eq(has_read & ~self.rvalid & ~writes),
            self.write.eq(writes & strobes.all()),
            self.address.eq(Cat(Const(0, 2), at[2:])),
        ]
        with m.If(self.awvalid & self.awready):
            m.d.sync += [has_address.eq(1), write_at.eq(self.awaddr)]
        with m.If(self.wvalid & self.wready):
            m.d.sync += [has_data.eq(1), self.write_data.eq(self.wdata), strobes.eq(self.wstrb)]
        with m.If(self.arvalid & self.arready):
            m.d.sync += [has_read.eq(1), read_at.eq(self.araddr)]
        with m.If(self.bready):
            m.d.sync += self.bvalid.eq(0)
        with m.If(self.rready):
            m.d.sync += self.rvalid.eq(0)
        with m.If(writes):
            part = strobes.any() & ~strobes.all()
            m.d.sync += [has_address.eq(0), has_data.eq(0), self.bvalid.eq(1)]
            m.d.sync += self.bresp.eq(Mux(part, SLVERR, OKAY))
        with m.If(reads):
            m.d.sync += [has_read.eq(0), self.rvalid.eq(1), self.rdata.eq(self.read_data)]
        return m
