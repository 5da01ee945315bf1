"""The compute queue's unit: GEMM, the vector ALU, and loads of micro-ops and accumulators."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from vta_byoc.hw.isa import MEMORY_TYPES, MemType, Opcode, Queue
from vta_byoc.hw.rtl.alu import AluLane
from vta_byoc.hw.rtl.dot import DotArray
from vta_byoc.hw.rtl.fields import INSN_BITS, field, uop_field
from vta_byoc.hw.rtl.loader import Loader
from vta_byoc.hw.rtl.loops import OPERANDS, LoopNest
from vta_byoc.hw.rtl.parameters import ADDRESS_BITS, BEATS_BITS, CoreParameters

STAGES = 5
"""Cycles from a step's turn in the loops to its write into ACC, both counted: the micro-op is
asked for, its operands' places are added up, inputs and weights are read, multiplied while the
accumulator is read, added."""


def computed_memories(core: CoreParameters) -> list[MemType]:
    """Memory types that the compute queue loads on a machine."""
    loadable = core.config.capabilities.loadable
    return [m for m in MemType if m in loadable and MEMORY_TYPES[m].queue == Queue.COMPUTE]


class ComputeUnit(wiring.Component):
    """Runs one instruction at a time; micro-op and accumulator memory lie in it.

    A step of GEMM or reset takes a cycle, one of the ALU `alu_imm_cycles` or `alu_tensor_cycles`.
    Steps follow each other through a pipeline that gives each the accumulators that the one before
    it wrote: equal destinations may follow each other. What is written to ACC and belongs into the
    OUT memory comes out as `out_*`: all of it, or where the machine has a separate OUT memory what
    GEMM and the ALU computed.
    """

    def __init__(self, core: CoreParameters, *, packed: bool) -> None:
        self.core, config = core, core.config
        self.packed = packed
        self.loader = Loader(core, computed_memories(core))
        self.bits = config.index_bits
        self.steps = LoopNest(config)
        super().__init__(
            {
                "start": In(1),
                "insn": In(INSN_BITS),
                "done": Out(1),
                "finished": Out(1),
                "uop_base": In(ADDRESS_BITS),
                "acc_base": In(ADDRESS_BITS),
                "request_valid": Out(1),
                "request_ready": In(1),
                "request_address": Out(ADDRESS_BITS),
                "request_beats": Out(BEATS_BITS),
                "beat": In(core.port_bits),
                "beat_valid": In(1),
                "beat_ready": Out(1),
                "operands_read": Out(1),
                "inp_index": Out(16),
                "wgt_index": Out(16),
                "inp": In(8 * config.inp_elem_bytes),
                "wgt": In(8 * config.wgt_elem_bytes),
                "out_write": Out(1),
                "out_index": Out(16),
                "out_data": Out(8 * core.lanes),
                "multiplied": Out(1),
                "operated": Out(1),
                "loaded": Out(len(computed_memories(core))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Decode, the loader, the pipeline, and the writes of both into ACC."""
        m = Module()
        config = self.core.config
        m.submodules.loader = loader = self.loader
        m.submodules.steps = self.steps
        uop = Memory(shape=unsigned(32), depth=config.uop_depth, init=[])
        acc_shape = unsigned(8 * config.acc_elem_bytes)
        acc = Memory(shape=acc_shape, depth=config.acc_depth, init=[])
        m.submodules.sram_uop, m.submodules.sram_acc = uop, acc
        self.uop_write, self.uop_read = uop.write_port(), uop.read_port()
        self.acc_write = acc.write_port()
        self.acc_read = acc.read_port(transparent_for=(self.acc_write,))
        opcode = field(config, self.insn, Opcode.FINISH, "opcode")
        self.gemm, self.alu = opcode == Opcode.GEMM, opcode == Opcode.ALU
        self.reset_bit = field(config, self.insn, Opcode.GEMM, "reset")
        loads = opcode == Opcode.LOAD
        self._load(m, loader, loads)
        busy = self._pipeline(m)
        ending, running = Signal(), Signal()
        with m.If(self.start):
            m.d.sync += running.eq(self.gemm | self.alu)
        with m.Elif(ending):
            m.d.sync += running.eq(0)
        m.d.comb += [
            ending.eq(running & ~busy),
            self.finished.eq(self.start & (opcode == Opcode.FINISH)),
            self.done.eq(Mux(loads, loader.done, ending) | self.finished),
        ]
        return m

    def _load(self, m: Module, loader: Loader, loads: Value) -> None:
        """The loader of micro-ops and accumulators, and where its elements go."""
        config = self.core.config
        is_uop = field(config, self.insn, Opcode.LOAD, "mem_type") == MemType.UOP
        m.d.comb += [
            loader.start.eq(self.start & loads),
            loader.insn.eq(self.insn),
            loader.base.eq(Mux(is_uop, self.uop_base, self.acc_base)),
            self.request_valid.eq(loader.request_valid),
            loader.request_ready.eq(self.request_ready),
            self.request_address.eq(loader.request_address),
            self.request_beats.eq(loader.request_beats),
            loader.beat.eq(self.beat),
            loader.beat_valid.eq(self.beat_valid),
            self.beat_ready.eq(loader.beat_ready),
            self.uop_write.addr.eq(loader.index),
            self.uop_write.data.eq(Mux(loader.zero, 0, loader.element[:32])),
            self.uop_write.en.eq(loader.write & is_uop),
        ]
        mem_type = field(config, self.insn, Opcode.LOAD, "mem_type")
        for number, mem in enumerate(computed_memories(self.core)):
            m.d.comb += self.loaded[number].eq(loader.data & (mem_type == mem))

    # ------------------------------------------------------------ the pipeline
    def _pipeline(self, m: Module) -> Value:
        """All stages; whether one of them holds a step."""
        f = self._field
        imm = f(Opcode.ALU, "use_imm")
        timing = self.core.config.timing
        # The second cycle of a step reads the destination, the first the other operand.
        twice, phase, leaves = Signal(), Signal(), Signal()
        m.d.comb += [
            twice.eq(self.alu & (~imm | (timing.alu_imm_cycles > 1))),
            leaves.eq(self.steps.valid & (~twice | phase)),
        ]
        with m.If(self.steps.valid & twice):
            m.d.sync += phase.eq(~phase)
        self._loops(m, leaves)
        valid = [self.steps.valid, *(Signal(name=f"valid_{s}") for s in "bcde")]
        final = [~twice | phase, *(Signal(name=f"final_{s}") for s in "bcde")]
        for before, after in pairwise(valid):
            m.d.sync += after.eq(before)
        for before, after in pairwise(final):
            m.d.sync += after.eq(before)
        places = self._places(m, valid, final)
        self._multiply(m, valid, places)
        self._finish_step(m, valid[4], final, places)
        return Cat(*valid[:4]).any()

    def _field(self, opcode: Opcode, name: str) -> Value:
        return field(self.core.config, self.insn, opcode, name)

    def _loops(self, m: Module, leaves: Value) -> None:
        """What the loops walk; GEMM's and the ALU's factors lie in different bits."""
        f, steps = self._field, self.steps
        m.d.comb += [
            steps.start.eq(self.start & (self.gemm | self.alu)),
            steps.advance.eq(leaves),
            self.uop_read.addr.eq(steps.uop),
            self.uop_read.en.eq(steps.valid),
        ]
        for name in ("uop_bgn", "uop_end", "iter_out", "iter_in"):
            m.d.comb += getattr(steps, name).eq(f(Opcode.GEMM, name))
        for name in OPERANDS:
            for axis in ("out", "in"):
                factor = f"{name}_factor_{axis}"
                of_gemm = f(Opcode.GEMM, factor)
                of_alu = f(Opcode.ALU, factor) if name != "wgt" else 0
                m.d.comb += getattr(steps, factor).eq(Mux(self.alu, of_alu, of_gemm))

    def _places(self, m: Module, valid: list[Value], final: list[Value]) -> dict[str, list[Signal]]:
        """Indices of each operand, from stage C on."""
        places = {}
        for name in OPERANDS:
            offset = Signal(16, name=f"{name}_offset_b")
            chain = [Signal(16, name=f"{name}_{stage}") for stage in "cde"]
            m.d.sync += offset.eq(getattr(self.steps, f"{name}_offset"))
            m.d.sync += chain[0].eq(uop_field(self.core.config, self.uop_read.data, name) + offset)
            for before, after in pairwise(chain):
                m.d.sync += after.eq(before)
            places[name] = chain
        return places

    def _multiply(self, m: Module, valid: list[Value], places: dict[str, list[Signal]]) -> None:
        """Stage C reads inputs and weights, stage D multiplies and reads the accumulators."""
        config, f = self.core.config, self._field
        m.submodules.dot = self.dot = DotArray(config.batch, config.block, packed=self.packed)
        works = self.gemm & ~self.reset_bit
        m.d.comb += [
            self.operands_read.eq(valid[2] & works),
            self.inp_index.eq(places["src"][0]),
            self.wgt_index.eq(places["wgt"][0]),
            self.dot.enable.eq(valid[3] & works),
            self.dot.inp.eq(self.inp),
            self.dot.wgt.eq(self.wgt),
            self.acc_read.en.eq(valid[3]),
        ]
        imm = f(Opcode.ALU, "use_imm")
        self.reads_src = Signal()
        from_src = imm if config.capabilities.imm_reads_src else 0
        m.d.comb += self.acc_read.addr.eq(
            Mux(self.reads_src | (self.alu & from_src), places["src"][1], places["dst"][1])
        )

    def _finish_step(
        self, m: Module, valid: Value, final: list[Value], places: dict[str, list[Signal]]
    ) -> None:
        """Stage E: the result of a step, or what the loader brought, goes into ACC."""
        config, f = self.core.config, self._field
        lanes = self.core.lanes
        imm = f(Opcode.ALU, "use_imm")
        m.d.comb += self.reads_src.eq(self.alu & ~imm & ~final[3])
        other = Signal(32 * lanes)
        with m.If(valid & ~final[4]):
            m.d.sync += other.eq(self.acc_read.data)
        results = []
        for lane in range(lanes):
            here = self.acc_read.data[32 * lane : 32 * lane + 32]
            m.submodules[f"alu_{lane}"] = alu = AluLane(config.capabilities)
            bits = self.dot.sum_bits
            total = self.dot.sums[bits * lane : bits * lane + bits].as_signed()
            m.d.comb += [
                alu.op.eq(f(Opcode.ALU, "alu_opcode")),
                alu.modulo.eq(~imm & config.capabilities.shift_modulo),
                alu.left.eq(here),
                alu.right.eq(
                    Mux(imm, f(Opcode.ALU, "imm"), other[32 * lane : 32 * lane + 32].as_signed())
                ),
            ]
            result = Signal(32, name=f"result_{lane}")
            m.d.comb += result.eq(
                Mux(self.alu, alu.result, Mux(self.reset_bit, 0, here.as_signed() + total))
            )
            results.append(result)
        self._write_acc(m, valid & final[4], places["dst"][2], results)

    def _write_acc(self, m: Module, writes: Value, place: Signal, results: list[Signal]) -> None:
        config, loader = self.core.config, self.loader
        mem_type = self._field(Opcode.LOAD, "mem_type")
        wide = loader.element[: 32 * self.core.lanes]
        octets = [loader.element[8 * i : 8 * i + 8] for i in range(self.core.lanes)]
        narrow = Cat(*(_widened(octet) for octet in octets))
        is_narrow = mem_type == MemType.ACC_8BIT
        loaded = Mux(loader.zero, 0, Mux(is_narrow, narrow, wide))
        fills = loader.write & (mem_type != MemType.UOP)
        m.d.comb += [
            self.acc_write.en.eq(writes | fills),
            self.acc_write.addr.eq(Mux(fills, loader.index, place)),
            self.acc_write.data.eq(Mux(fills, loaded, Cat(*results))),
            self.out_index.eq(self.acc_write.addr),
            self.multiplied.eq(writes & self.gemm & ~self.reset_bit),
            self.operated.eq(writes & self.alu),
        ]
        computed = writes & ~(self.gemm & self.reset_bit)
        follows = computed if config.capabilities.out_sram else self.acc_write.en
        low = [self.acc_write.data[32 * i : 32 * i + 8] for i in range(self.core.lanes)]
        m.d.comb += [self.out_write.eq(follows), self.out_data.eq(Cat(*low))]


def _widened(octet: Value) -> Value:
    """An int8 as the 32 bits of an int32."""
    return Cat(octet, octet[7].replicate(24))
