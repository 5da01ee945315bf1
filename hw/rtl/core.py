"""The whole core: units, memories, token counters and the memory port."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.faults import TOKEN_PAIRS
from vta_byoc.hw.isa import MEMORY_TYPES, MemType, Opcode, Queue
from vta_byoc.hw.rtl.compute import ComputeUnit, computed_memories
from vta_byoc.hw.rtl.fetch import Fetch
from vta_byoc.hw.rtl.fields import field
from vta_byoc.hw.rtl.loader import Loader
from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, CoreParameters
from vta_byoc.hw.rtl.read_channel import ReadChannel
from vta_byoc.hw.rtl.registers import Registers
from vta_byoc.hw.rtl.sequencer import Sequencer
from vta_byoc.hw.rtl.storer import Storer
from vta_byoc.hw.rtl.tokens import TokenCounter

LOADED = [m for m in MemType if MEMORY_TYPES[m].queue == Queue.LOAD]
"""Memory types that the load queue loads."""
_SHOWN = ("busy", "waits", "done", "start")
"""What each queue shows beside its level."""


def core_ports(core: CoreParameters) -> dict[str, In | Out]:
    """The ports of a core: registers, memory, and what shows its state."""
    depth = core.config.timing.queue_depth
    names = [queue.name.lower() for queue in Queue]
    return {
        "reg_address": In(8),
        "reg_write": In(1),
        "reg_write_data": In(32),
        "reg_read_data": Out(32),
        "ar_valid": Out(1),
        "ar_ready": In(1),
        "ar_address": Out(ADDRESS_BITS),
        "ar_beats": Out(BEATS_BITS),
        "r_valid": In(1),
        "r_ready": Out(1),
        "r_data": In(core.port_bits),
        "r_resp": In(2),
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
        "b_resp": In(2),
        "running": Out(1),
        "stepping": Out(1),
        "handed": Out(32),
        "overflow": Out(len(TOKEN_PAIRS)),
        **{f"tokens_{n}": Out(core.token_bits) for n in range(len(TOKEN_PAIRS))},
        **{f"level_{name}": Out(range(depth + 1)) for name in names},
        **{f"{what}_{name}": Out(1) for what in _SHOWN for name in names},
    }


class Core(wiring.Component):
    """VTA: a bus of registers, a memory port to read and one to write, and what shows its state.

    The memory ports are those of AXI4 with one identifier, INCR bursts of whole beats and `beats`
    for the length plus one. No output depends on an input of the same cycle but `reg_read_data`.
    `packed` is that of the GEMM array.
    """

    def __init__(self, config: VTAConfig, *, packed: bool = True) -> None:
        self.core = CoreParameters.of(config)
        self.packed = packed
        super().__init__(core_ports(self.core))

    def elaborate(self, platform: object) -> Module:
        """The units, and the wires between them."""
        m, core = Module(), self.core
        m.submodules.registers = self.registers = Registers(core)
        m.submodules.fetch = self.fetch = Fetch(core)
        m.submodules.reads = self.reads = ReadChannel(core)
        m.submodules.loader = self.loader = Loader(core, LOADED)
        m.submodules.compute = self.compute = ComputeUnit(core, packed=self.packed)
        m.submodules.storer = self.storer = Storer(core)
        self.queues = {queue: Sequencer(core) for queue in Queue}
        for queue, sequencer in self.queues.items():
            m.submodules[f"queue_{queue.name.lower()}"] = sequencer
        self._queues(m)
        self._tokens(m)
        self._memories(m)
        self._read_port(m)
        self._write_port(m)
        self._control(m)
        return m

    def _queues(self, m: Module) -> None:
        """Fetch to queues, queues to units."""
        units: dict[Queue, Loader | ComputeUnit | Storer] = {
            Queue.LOAD: self.loader,
            Queue.COMPUTE: self.compute,
            Queue.STORE: self.storer,
        }
        for queue, sequencer in self.queues.items():
            name, unit = queue.name.lower(), units[queue]
            m.d.comb += [
                sequencer.enter.eq(self.fetch.insn),
                sequencer.enter_valid.eq(getattr(self.fetch, f"{name}_valid")),
                getattr(self.fetch, f"{name}_ready").eq(sequencer.enter_ready),
                unit.start.eq(sequencer.start),
                unit.insn.eq(sequencer.insn),
                sequencer.done.eq(unit.done),
                sequencer.stop.eq(self.registers.failed),
                sequencer.flush.eq(self.registers.launch),
                getattr(self, f"level_{name}").eq(sequencer.level),
                getattr(self, f"busy_{name}").eq(sequencer.busy),
                getattr(self, f"waits_{name}").eq(sequencer.waits),
                getattr(self, f"done_{name}").eq(unit.done),
                getattr(self, f"start_{name}").eq(sequencer.start),
            ]

    def _tokens(self, m: Module) -> None:
        """The four counters, in the order of TOKEN_PAIRS."""
        load, compute, store = (self.queues[queue] for queue in Queue)
        pairs = (
            (load.push_next, compute.pop_prev, compute.prev_ready),
            (compute.push_prev, load.pop_next, load.next_ready),
            (compute.push_next, store.pop_prev, store.prev_ready),
            (store.push_prev, compute.pop_next, compute.next_ready),
        )
        for number, (push, pop, ready) in enumerate(pairs):
            counter = TokenCounter(self.core.config.capabilities.max_tokens)
            m.submodules[f"tokens_{number}"] = counter
            m.d.comb += [
                counter.push.eq(push),
                counter.pop.eq(pop),
                counter.flush.eq(self.registers.launch),
                ready.eq(counter.ready),
                getattr(self, f"tokens_{number}").eq(counter.level),
                self.overflow[number].eq(counter.overflow),
            ]

    def _memories(self, m: Module) -> None:
        """INP, WGT and the OUT memory: one writes, another reads."""
        config, loader, compute = self.core.config, self.loader, self.compute
        mem_type = field(config, loader.insn, Opcode.LOAD, "mem_type")
        for mem, name in ((MemType.INP, "inp"), (MemType.WGT, "wgt")):
            bits = 8 * config.elem_bytes(name)
            memory = Memory(shape=unsigned(bits), depth=config.depths[name], init=[])
            m.submodules[f"sram_{name}"] = memory
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.addr.eq(loader.index),
                write.data.eq(Mux(loader.zero, 0, loader.element[:bits])),
                write.en.eq(loader.write & (mem_type == mem)),
                read.addr.eq(getattr(compute, f"{name}_index")),
                read.en.eq(compute.operands_read),
                getattr(compute, name).eq(read.data),
            ]
        out_bits = 8 * self.core.lanes
        out = Memory(shape=unsigned(out_bits), depth=config.out_depth, init=[])
        m.submodules.sram_out = out
        write, read = out.write_port(), out.read_port()
        m.d.comb += [
            write.addr.eq(compute.out_index),
            write.data.eq(compute.out_data),
            write.en.eq(compute.out_write),
            read.addr.eq(self.storer.index),
            read.en.eq(self.storer.read),
            self.storer.element.eq(read.data),
        ]

    def _read_port(self, m: Module) -> None:
        reads = self.reads
        clients: dict[str, Fetch | Loader | ComputeUnit] = {
            "fetch": self.fetch,
            "load": self.loader,
            "compute": self.compute,
        }
        for name, unit in clients.items():
            m.d.comb += [
                getattr(reads, f"{name}_valid").eq(unit.request_valid),
                unit.request_ready.eq(getattr(reads, f"{name}_ready")),
                getattr(reads, f"{name}_address").eq(unit.request_address),
                getattr(reads, f"{name}_beats").eq(unit.request_beats),
                unit.beat.eq(self.r_data),
                unit.beat_valid.eq(getattr(reads, f"{name}_beat_valid")),
                getattr(reads, f"{name}_beat_ready").eq(unit.beat_ready),
            ]
        m.d.comb += [
            self.ar_valid.eq(reads.ar_valid),
            reads.ar_ready.eq(self.ar_ready),
            self.ar_address.eq(reads.ar_address),
            self.ar_beats.eq(reads.ar_beats),
            reads.r_valid.eq(self.r_valid),
            self.r_ready.eq(reads.r_ready),
        ]

    def _write_port(self, m: Module) -> None:
        for name in ("aw_valid", "aw_address", "aw_beats", "b_ready"):
            m.d.comb += getattr(self, name).eq(getattr(self.storer, name))
        for name in ("w_valid", "w_data", "w_strobe", "w_last"):
            m.d.comb += getattr(self, name).eq(getattr(self.storer, name))
        for name in ("aw_ready", "w_ready", "b_valid"):
            m.d.comb += getattr(self.storer, name).eq(getattr(self, name))

    def _control(self, m: Module) -> None:
        """Registers to units: bases, the launch, and when a run is over."""
        registers, compute = self.registers, self.compute
        loader_mem = field(self.core.config, self.loader.insn, Opcode.LOAD, "mem_type")
        busy = [sequencer.busy for sequencer in self.queues.values()]
        level = [sequencer.level.any() for sequencer in self.queues.values()]
        computed = {mem: compute.loaded[i] for i, mem in enumerate(computed_memories(self.core))}
        loaded = {mem: self.loader.data & (loader_mem == mem) for mem in LOADED}
        by_type = {**computed, **loaded, MemType.OUT: self.storer.stored}
        order = ("INP", "WGT", "UOP", "ACC", "ACC_8BIT", "OUT")
        events = [compute.multiplied, compute.operated]
        events += [by_type.get(MemType[name], 0) for name in order]
        m.d.comb += [
            registers.address.eq(self.reg_address),
            registers.write.eq(self.reg_write),
            registers.write_data.eq(self.reg_write_data),
            self.reg_read_data.eq(registers.read_data),
            registers.finished.eq(compute.finished),
            registers.idle.eq(~(Cat(*busy, *level).any() | self.fetch.busy)),
            registers.events.eq(Cat(*(Cat(event)[:1] for event in events))),
            self.fetch.launch.eq(registers.launch),
            self.fetch.address.eq(registers.insn),
            self.fetch.count.eq(registers.count),
            self.handed.eq(self.fetch.handed),
            self.running.eq(registers.running),
            self.stepping.eq(compute.steps.valid),
            self.fetch.hold.eq(registers.failed | (registers.serial & Cat(*busy, *level).any())),
            self.fetch.stop.eq(registers.failed),
            # SLVERR and DECERR have the upper bit.
            registers.read_error.eq(self.r_valid & self.r_ready & self.r_resp[1]),
            registers.write_error.eq(self.b_valid & self.b_ready & self.b_resp[1]),
            registers.halted.eq(~Cat(*busy).any() & self.fetch.quiet),
            self.loader.base.eq(Mux(loader_mem == MemType.INP, registers.inp, registers.wgt)),
            compute.uop_base.eq(registers.uop),
            compute.acc_base.eq(registers.acc),
            self.storer.base.eq(registers.out),
        ]
