"""Modules of the core in Amaranth's simulator, beside what each should do in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="needs the extra rtl")

from amaranth.hdl import Module
from amaranth.sim import Simulator
from core_machines import PLAIN, SMALL

from vta_byoc.hw.config import Capabilities
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import AluOp
from vta_byoc.hw.rtl.alu import AluLane
from vta_byoc.hw.rtl.assembler import Assembler
from vta_byoc.hw.rtl.bursts import BurstGenerator
from vta_byoc.hw.rtl.dot import DotArray
from vta_byoc.hw.rtl.loops import OPERANDS, LoopNest
from vta_byoc.hw.rtl.parameters import BURST_BEATS, PAGE_BYTES, CoreParameters
from vta_byoc.hw.rtl.registers import FINISH, OFFSETS, Registers
from vta_byoc.hw.rtl.tokens import TokenCounter
from vta_byoc.hw.timing_parameters import Timing

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
RNG = np.random.default_rng(0)


def clocked(module: Module, bench: Callable[..., object]) -> None:
    """Run `bench` on a module with a clock."""
    simulator = Simulator(module)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_token_counter_counts_and_keeps_its_greatest_value() -> None:
    counter, level, overflow = TokenCounter(5), 0, False

    async def bench(ctx: object) -> None:
        nonlocal level, overflow
        for push, pop in RNG.random((300, 2)) < (0.6, 0.45):
            assert ctx.get(counter.ready) == (level > 0)
            assert ctx.get(counter.level) == level
            assert ctx.get(counter.overflow) == overflow
            pop = pop and level > 0
            ctx.set(counter.push, int(push))
            ctx.set(counter.pop, int(pop))
            await ctx.tick()
            overflow |= bool(push and not pop and level == 5)
            level = min(level + int(push) - int(pop), 5)

    clocked(counter, bench)
    assert overflow


def steps_of(trips: dict[str, int], factors: dict[str, int]) -> Iterator[tuple[int, ...]]:
    """The walk of the loops, as the instruction set has it."""
    for y in range(trips["iter_out"]):
        for x in range(trips["iter_in"]):
            for uop in range(trips["uop_bgn"], trips["uop_end"]):
                yield (
                    uop,
                    *(
                        factors[f"{n}_factor_out"] * y + factors[f"{n}_factor_in"] * x
                        for n in OPERANDS
                    ),
                )


def test_loops_walk_every_step_in_order_and_none_of_an_empty_loop() -> None:
    nest = LoopNest(SMALL)

    async def bench(ctx: object) -> None:
        for _ in range(60):
            begin, count = (int(v) for v in RNG.integers(0, 5, 2))
            trips = {"uop_bgn": begin, "uop_end": begin + count}
            trips |= {name: int(RNG.integers(0, 5)) for name in ("iter_out", "iter_in")}
            factors = {
                f"{n}_factor_{a}": int(RNG.integers(4)) for n in OPERANDS for a in ("out", "in")
            }
            for name, value in (trips | factors).items():
                ctx.set(getattr(nest, name), value)
            ctx.set(nest.start, 1)
            await ctx.tick()
            ctx.set(nest.start, 0)
            for step in steps_of(trips, factors):
                while RNG.random() < 0.3:
                    ctx.set(nest.advance, 0)
                    await ctx.tick()
                assert ctx.get(nest.valid)
                found = [
                    ctx.get(nest.uop),
                    *(ctx.get(getattr(nest, f"{n}_offset")) for n in OPERANDS),
                ]
                assert tuple(found) == step
                ctx.set(nest.advance, 1)
                await ctx.tick()
            assert not ctx.get(nest.valid)

    clocked(nest, bench)


def beats_of(row: int, nbytes: int, port: int) -> list[int]:
    """Addresses of the beats that hold the bytes of a row."""
    return list(range(row - row % port, row + nbytes, port))


@pytest.mark.parametrize("port", (4, 8, 16))
def test_bursts_cover_the_beats_of_every_row_and_keep_to_pages(port: int) -> None:
    bursts = BurstGenerator(port, BURST_BEATS)

    async def bench(ctx: object) -> None:
        for _ in range(12):
            address = int(RNG.integers(3 * PAGE_BYTES)) // 4 * 4
            nbytes, stride = (int(v) * 4 for v in RNG.integers(1, 500, 2))
            rows, wanted, found, owed = int(RNG.integers(0, 4)), [], [], 0
            for y in range(rows):
                wanted += beats_of(address + y * stride, nbytes, port)
            for name, value in (("address", address), ("row_bytes", nbytes), ("stride", stride)):
                ctx.set(getattr(bursts, name), value)
            ctx.set(bursts.rows, rows)
            ctx.set(bursts.start, 1)
            await ctx.tick()
            ctx.set(bursts.start, 0)
            while ctx.get(bursts.busy) or owed:
                ready, arrives = RNG.random() < 0.7, owed > 0 and RNG.random() < 0.9
                ctx.set(bursts.ready, int(ready))
                ctx.set(bursts.arrived, int(arrives))
                taken = ready and ctx.get(bursts.valid)
                first, beats = ctx.get(bursts.burst_address), ctx.get(bursts.burst_beats)
                if taken:
                    assert 1 <= beats <= BURST_BEATS
                    assert first // PAGE_BYTES == (first + beats * port - 1) // PAGE_BYTES
                    assert owed < BURST_BEATS
                    found += range(first, first + beats * port, port)
                owed += (beats if taken else 0) - int(arrives)
                await ctx.tick()
            ctx.set(bursts.arrived, 0)
            assert found == wanted

    clocked(bursts, bench)


def test_bursts_take_as_many_rows_as_an_instruction_has() -> None:
    bursts = BurstGenerator(8, None)

    async def bench(ctx: object) -> None:
        ctx.set(bursts.row_bytes, 8)
        ctx.set(bursts.rows, (1 << 16) - 1)
        ctx.set(bursts.start, 1)
        await ctx.tick()
        ctx.set(bursts.rows, 1 << 15)
        assert ctx.get(bursts.busy)
        await ctx.tick()
        ctx.set(bursts.start, 0)
        ctx.set(bursts.ready, 1)
        await ctx.tick().repeat(3)
        assert ctx.get(bursts.busy) and ctx.get(bursts.valid)

    clocked(bursts, bench)


def test_the_assembler_takes_elements_out_of_beats_and_joins_beats_to_elements() -> None:
    assembler = Assembler(8, [2, 3, 5])

    async def bench(ctx: object) -> None:
        for kind, size in ((0, 4), (1, 8), (2, 32), (0, 4)):
            rows, columns, stride = 3, int(RNG.integers(1, 6)), int(RNG.integers(6, 9))
            data = RNG.bytes(64 * size)
            beats = [b for y in range(rows) for b in beats_of(y * stride * size, columns * size, 8)]
            ctx.set(assembler.kind, kind)
            for y in range(rows):
                for x in range(columns):
                    ctx.set(assembler.start, int(x == y == 0))
                    ctx.set(assembler.row, int(x == 0))
                    ctx.set(assembler.sub, y * stride)
                    ctx.set(assembler.beat_valid, 0)
                    if x == 0:
                        await ctx.tick()
                    ctx.set(assembler.start, 0)
                    ctx.set(assembler.row, 0)
                    ctx.set(assembler.row_last, int(x == columns - 1))
                    await take(ctx, beats, data, (y * stride + x) * size, size)
            assert not beats

    async def take(ctx: object, beats: list[int], data: bytes, at: int, size: int) -> None:
        """Offer beats until an element was taken."""
        taken = False
        while not taken:
            offered, takes = RNG.random() < 0.8, RNG.random() < 0.7
            ctx.set(assembler.beat_valid, int(offered))
            ctx.set(assembler.beat, int.from_bytes(data[beats[0] : beats[0] + 8], "little"))
            ctx.set(assembler.take, int(takes))
            if offered and ctx.get(assembler.beat_ready):
                beats.pop(0)
            taken = takes and ctx.get(assembler.valid)
            if taken:
                found = ctx.get(assembler.element) & ((1 << 8 * size) - 1)
                assert found.to_bytes(size, "little") == data[at : at + size]
            await ctx.tick()
        ctx.set(assembler.take, 0)

    clocked(assembler, bench)


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("has_mul", (True, False))
def test_an_alu_lane_wraps_and_shifts_both_ways(has_mul: bool) -> None:
    lane = AluLane(Capabilities(mul=has_mul))
    extremes = (-(2**31), -33, -1, 0, 1, 31, 32, 2**31 - 1)
    drawn = [(int(a), int(b)) for a, b in RNG.integers(-(2**31), 2**31, (20, 2))]
    pairs = drawn + [(a, b) for a in extremes for b in extremes]

    async def bench(ctx: object) -> None:
        for left, right in pairs:
            wanted = {
                AluOp.MIN: min(left, right),
                AluOp.MAX: max(left, right),
                AluOp.ADD: wrapped(left + right),
                AluOp.MUL: wrapped(left * right) if has_mul else 0,
            }
            back = wrapped(left << (-right & 31)) if right < 0 else left >> (right & 31)
            ctx.set(lane.left, left)
            ctx.set(lane.right, right)
            for modulo, shifted in ((0, back), (1, left >> (right & 31))):
                ctx.set(lane.modulo, modulo)
                for op, value in (wanted | {AluOp.SHR: shifted}).items():
                    ctx.set(lane.op, int(op))
                    assert ctx.get(lane.result) == value, (op, left, right, modulo)

    simulator = Simulator(lane)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("packed", (True, False), ids=("packed", "single"))
@pytest.mark.parametrize("batch, block", ((1, 1), (1, 4), (2, 8)))
def test_the_array_multiplies_all_lanes_and_holds_what_it_found(
    batch: int, block: int, packed: bool
) -> None:
    array = DotArray(batch, block, packed=packed)

    async def bench(ctx: object) -> None:
        for number in range(8):
            low, high = -128, 128 if number else -127  # the first: -128 everywhere
            inp = RNG.integers(low, high, (batch, block), np.int16).astype(np.int8)
            wgt = RNG.integers(low, high, (block, block), np.int16).astype(np.int8)
            ctx.set(array.inp, int.from_bytes(inp.tobytes(), "little"))
            ctx.set(array.wgt, int.from_bytes(wgt.tobytes(), "little"))
            ctx.set(array.enable, 1)
            await ctx.tick()
            ctx.set(array.enable, 0)
            await ctx.tick()
            bits, sums = array.sum_bits, ctx.get(array.sums)
            lanes = [(sums >> bits * i) & ((1 << bits) - 1) for i in range(batch * block)]
            signed = [v - (1 << bits) if v >> (bits - 1) else v for v in lanes]
            wanted = inp.astype(np.int64) @ wgt.astype(np.int64).T
            assert signed == wanted.ravel().tolist()

    clocked(array, bench)


def test_registers_launch_once_count_and_say_what_the_core_is() -> None:
    core = CoreParameters.of(PLAIN)
    registers = Registers(core)

    async def bench(ctx: object) -> None:
        async def write(name: str, value: int) -> None:
            ctx.set(registers.address, OFFSETS[name])
            ctx.set(registers.write_data, value)
            ctx.set(registers.write, 1)
            await ctx.tick()
            ctx.set(registers.write, 0)

        def read(name: str) -> int:
            ctx.set(registers.address, OFFSETS[name])
            return int(ctx.get(registers.read_data))

        await write("insn", 0x1000)
        assert (read("insn"), read("control")) == (0x1000, 0)
        assert read("identity") == 0x56544102
        assert read("geometry") == 0x2321  # version, 8-byte port, block 4, batch 2
        assert read("depths") == 0x05050607
        assert read("capabilities") == 15 << 8 | 0b11100
        await write("control", 1)
        ctx.set(registers.events, 1)
        await write("control", 1)  # a second launch is no launch
        await ctx.tick().repeat(3)
        ctx.set(registers.finished, 1)
        await ctx.tick()
        ctx.set(registers.finished, 0)
        assert read("control") == 1
        ctx.set(registers.idle, 1)
        await ctx.tick()
        assert read("control") == FINISH
        assert read("cycles") == read("counted_gemm_steps") == 6

    clocked(registers, bench)


@pytest.mark.parametrize(
    "timing, message",
    (
        (
            Timing(port_bytes=12),
            "TIMING.port_bytes 12; the core's memory port is 4, 8, 16, 32 or 64 bytes wide; choose "
            "one of them",
        ),
        (
            Timing(fetch_burst=12),
            "TIMING.fetch_burst 12; the core fetches a power of two of instructions, at most 256, "
            "at once; choose one",
        ),
    ),
)
def test_machines_that_the_core_cannot_be_built_for(timing: Timing, message: str) -> None:
    with pytest.raises(VTAError) as caught:
        CoreParameters.of(dataclasses.replace(SMALL, timing=timing))
    assert str(caught.value) == message
