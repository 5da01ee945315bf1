"""A command queue: holds instructions and starts each when its tokens are there."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.isa import DEP_FIELDS, Opcode
from vta_byoc.hw.rtl.fields import INSN_BITS, field
from vta_byoc.hw.rtl.parameters import CoreParameters


class Sequencer(wiring.Component):
    """Starts the instructions of one queue in order, each behind the end of the one before it.

    An instruction is `start`ed in the cycle behind the one in which its tokens are taken; `insn`
    stays until `done`, in which cycle its tokens are pushed and the next one's may be taken.
    `push_<side>` and `pop_<side>` go to the token counters, whose `ready` comes as `<side>_ready`.
    While `stop` is set none is started; `flush` drops those that wait.
    """

    def __init__(self, core: CoreParameters) -> None:
        self.core, self.depth = core, core.config.timing.queue_depth
        super().__init__(
            {
                "enter": In(INSN_BITS),
                "enter_valid": In(1),
                "enter_ready": Out(1),
                "prev_ready": In(1),
                "next_ready": In(1),
                "stop": In(1),
                "flush": In(1),
                "start": Out(1),
                "insn": Out(INSN_BITS),
                "done": In(1),
                "busy": Out(1),
                "level": Out(range(self.depth + 1)),
                "waits": Out(1),
                **{name: Out(1) for name in DEP_FIELDS},
            }
        )

    def elaborate(self, platform: object) -> Module:
        """A FIFO, the instruction that runs, and whether one does."""
        m = Module()
        queue = SyncFIFOBuffered(width=INSN_BITS, depth=self.depth)
        m.submodules.queue = ResetInserter(self.flush)(queue)
        here = {n: field(self.core.config, queue.r_data, Opcode.FINISH, n) for n in DEP_FIELDS}
        running = {n: field(self.core.config, self.insn, Opcode.FINISH, n) for n in DEP_FIELDS}
        ready = (~here["pop_prev"] | self.prev_ready) & (~here["pop_next"] | self.next_ready)
        issue = Signal()
        m.d.comb += [
            queue.w_data.eq(self.enter),
            queue.w_en.eq(self.enter_valid),
            self.enter_ready.eq(queue.w_rdy),
            issue.eq(queue.r_rdy & ready & (~self.busy | self.done) & ~self.stop),
            queue.r_en.eq(issue),
            self.pop_prev.eq(issue & here["pop_prev"]),
            self.pop_next.eq(issue & here["pop_next"]),
            self.push_prev.eq(self.done & running["push_prev"]),
            self.push_next.eq(self.done & running["push_next"]),
            self.level.eq(queue.level),
            self.waits.eq(queue.r_rdy & ~ready),
        ]
        m.d.sync += self.start.eq(issue)
        with m.If(issue):
            m.d.sync += [self.insn.eq(queue.r_data), self.busy.eq(1)]
        with m.Elif(self.done):
            m.d.sync += self.busy.eq(0)
        return m
