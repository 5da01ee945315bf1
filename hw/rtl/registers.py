"""The control registers: the published map, and behind it what the core is and has counted."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.rtl.parameters import VERSION, CoreParameters

LAUNCH, FINISH, READ_FAILED, WRITE_FAILED = 1, 2, 4, 8
"""Bits of the control register: a write of LAUNCH starts a run, FINISH says that it is over, the
others that memory answered a read or a write of the run with an error, which ended it."""
MAGIC = 0x56544100 | VERSION
"""The identity register: "VTA" and the version."""
PUBLISHED = ("control", "cycles", "count", "insn", "uop", "inp", "wgt", "acc", "out")
"""The registers of the published cores, from byte 0 on, 4 bytes each."""
IDENTITY = ("identity", "geometry", "depths", "capabilities")
"""Registers of what the core is, behind the published ones."""
EVENTS = ("gemm_steps", "alu_steps", "inp", "wgt", "uop", "acc", "acc_8bit", "out")
"""Counted since the launch: steps, then elements that were loaded or stored, by memory type."""
OFFSETS = {
    **{name: 4 * place for place, name in enumerate(PUBLISHED)},
    "mode": 0x50,
    **{name: 0x40 + 4 * place for place, name in enumerate(IDENTITY)},
    **{f"counted_{name}": 0x60 + 4 * place for place, name in enumerate(EVENTS)},
}
"""Byte offset of every register."""
SERIAL = 1
"""The bit of the mode register that lets one instruction run at a time, in program order."""
_WRITTEN = ("count", "insn", "uop", "inp", "wgt", "acc", "out")


class Registers(wiring.Component):
    """Registers of 32 bits, one access a cycle: `address` in bytes, reads in the same cycle.

    A write of LAUNCH while nothing runs gives one cycle of `launch`; counters start at 0. After
    `finished`, `idle` ends the run: FINISH is not to be read before. An error of memory sets
    `failed`, behind which `halted` ends the run. The other registers keep what is written whatever
    runs.
    """

    def __init__(self, core: CoreParameters) -> None:
        self.core = core
        super().__init__(
            {
                "address": In(8),
                "write": In(1),
                "write_data": In(32),
                "read_data": Out(32),
                "launch": Out(1),
                "finished": In(1),
                "idle": In(1),
                "read_error": In(1),
                "write_error": In(1),
                "halted": In(1),
                "failed": Out(1),
                "events": In(len(EVENTS)),
                "running": Out(1),
                "serial": Out(1),
                **{name: Out(32) for name in _WRITTEN},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """What is written, what is counted, and the choice of what is read."""
        m = Module()
        finish_seen, over, cycles = Signal(), Signal(), Signal(32)
        errors = Signal(2)
        counters = [Signal(32, name=f"count_{name}") for name in EVENTS]
        values = {
            "control": Cat(self.running, over, errors),
            "cycles": cycles,
            "mode": self.serial,
            "identity": MAGIC,
            "geometry": self.core.geometry_word,
            "depths": self.core.depth_word,
            "capabilities": self.core.capability_word,
            **{f"counted_{n}": c for n, c in zip(EVENTS, counters, strict=True)},
            **{name: getattr(self, name) for name in _WRITTEN},
        }
        with m.Switch(self.address):
            for name, value in values.items():
                with m.Case(OFFSETS[name]):
                    m.d.comb += self.read_data.eq(value)
        for name in _WRITTEN:
            with m.If(self.write & (self.address == OFFSETS[name])):
                m.d.sync += getattr(self, name).eq(self.write_data)
        with m.If(self.write & (self.address == OFFSETS["mode"])):
            m.d.sync += self.serial.eq(self.write_data[0])
        asked = self.write & (self.address == OFFSETS["control"]) & self.write_data[0]
        m.d.comb += [self.launch.eq(asked & ~self.running), self.failed.eq(errors.any())]
        with m.If(self.launch):
            m.d.sync += [self.running.eq(1), finish_seen.eq(0), over.eq(0), cycles.eq(0)]
            m.d.sync += errors.eq(0)
            m.d.sync += [counter.eq(0) for counter in counters]
        with m.Elif(self.running):
            m.d.sync += cycles.eq(cycles + 1)
            m.d.sync += errors.eq(errors | Cat(self.read_error, self.write_error))
            for event, counter in enumerate(counters):
                m.d.sync += counter.eq(counter + self.events[event])
            with m.If(self.finished):
                m.d.sync += finish_seen.eq(1)
            with m.If(((self.finished | finish_seen) & self.idle) | (self.failed & self.halted)):
                m.d.sync += [over.eq(1), self.running.eq(0)]
        return m
