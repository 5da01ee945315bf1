"""Fetch beside a memory of its own: every width of the port, every place a stream can begin at."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="needs the extra rtl")

from amaranth.sim import Simulator
from core_machines import SMALL
from draws import draws

from vta_byoc.hw.isa import INSN_BYTES, ISA, MemType, Opcode, Queue
from vta_byoc.hw.rtl.fetch import Fetch
from vta_byoc.hw.rtl.parameters import BURST_BEATS, CoreParameters
from vta_byoc.hw.timing_parameters import Timing

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
STREAM_BYTES = 1 << 11


class Bench:
    """A fetch unit, what memory owes it, and what it has handed on."""

    def __init__(self, port: int, burst: int, seed: int) -> None:
        timing = Timing(port_bytes=port, fetch_burst=burst)
        self.fetch = Fetch(CoreParameters.of(dataclasses.replace(SMALL, timing=timing)))
        self.port, self.rng = port, np.random.default_rng(seed)
        isa = ISA.of(SMALL)
        kinds = (
            (Opcode.LOAD, MemType.INP, Queue.LOAD),
            (Opcode.LOAD, MemType.ACC, Queue.COMPUTE),
            (Opcode.STORE, MemType.OUT, Queue.STORE),
        )
        self.queues, self.memory = [], bytearray()
        for number in range(STREAM_BYTES // INSN_BYTES):
            opcode, mem, queue = kinds[self.rng.integers(3)]
            words = isa.encode(opcode, mem_type=mem, dram_base=number, x_size=number % 7)
            self.memory += np.array(words, np.uint64).tobytes()
            self.queues.append(queue)
        self.owed: deque[int] = deque()
        self.handed: list[tuple[Queue, int]] = []
        self.offered = False

    async def cycle(self, ctx: Any, *, hold: bool = False, stop: bool = False) -> None:
        """Memory and queues take and give by chance."""
        fetch, rng = self.fetch, self.rng
        ready = {q: int(rng.random() < 0.6) for q in Queue}
        for queue, value in ready.items():
            ctx.set(getattr(fetch, f"{queue.name.lower()}_ready"), value)
        ctx.set(fetch.hold, int(hold))
        ctx.set(fetch.stop, int(stop))
        takes = int(rng.random() < 0.7)
        ctx.set(fetch.request_ready, takes)
        self.offered = bool(self.owed) and (self.offered or rng.random() < 0.7)
        ctx.set(fetch.beat_valid, int(self.offered))
        if self.offered:
            beat = self.memory[self.owed[0] : self.owed[0] + self.port]
            ctx.set(fetch.beat, int.from_bytes(beat, "little"))
        for queue in Queue:
            if ctx.get(getattr(fetch, f"{queue.name.lower()}_valid")) and ready[queue]:
                self.handed.append((queue, int(ctx.get(fetch.insn))))
        given = self.offered and ctx.get(fetch.beat_ready)
        if takes and ctx.get(fetch.request_valid):
            assert not stop and not self.owed
            first, beats = ctx.get(fetch.request_address), ctx.get(fetch.request_beats)
            assert 1 <= beats <= BURST_BEATS and first % self.port == 0
            self.owed += range(first, first + beats * self.port, self.port)
        if given:
            self.owed.popleft()
            self.offered = False
        await ctx.tick()

    async def launch(self, ctx: Any, first: int, count: int) -> list[tuple[Queue, int]]:
        """Begin a stream; what is to be handed on."""
        for name, value in (("address", first * INSN_BYTES), ("count", count), ("launch", 1)):
            ctx.set(getattr(self.fetch, name), value)
        ctx.set(self.fetch.beat_valid, 0)
        ctx.set(self.fetch.request_ready, 0)
        await ctx.tick()
        ctx.set(self.fetch.launch, 0)
        self.handed = []
        places = range(first * INSN_BYTES, (first + count) * INSN_BYTES, INSN_BYTES)
        texts = [self.memory[place : place + INSN_BYTES] for place in places]
        words = [int.from_bytes(text, "little") for text in texts]
        return list(zip(self.queues[first : first + count], words, strict=True))

    def run(self, bench: Any) -> None:
        simulator = Simulator(self.fetch)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()


@pytest.mark.parametrize("burst", (1, 4, 16))
@pytest.mark.parametrize("port", (4, 8, 16, 32, 64))
def test_every_instruction_is_handed_on_once_in_order(port: int, burst: int) -> None:
    bench = Bench(port, burst, 100 * port + burst)

    async def streams(ctx: Any) -> None:
        for _ in range(draws(7, 14)):
            first, count = (int(v) for v in bench.rng.integers((0, 0), (40, 40)))
            wanted = await bench.launch(ctx, first, count)
            for _ in range(3000):
                if not ctx.get(bench.fetch.busy):
                    break
                await bench.cycle(ctx, hold=bench.rng.random() < 0.1)
            assert bench.handed == wanted and not bench.owed
            assert ctx.get(bench.fetch.handed) == count and ctx.get(bench.fetch.quiet)

    bench.run(streams)


@pytest.mark.parametrize("port", (8, 64))
def test_a_stopped_stream_is_quiet_and_the_next_one_is_whole(port: int) -> None:
    bench = Bench(port, 8, port)

    async def streams(ctx: Any) -> None:
        for _ in range(draws(7, 14)):
            await bench.launch(ctx, int(bench.rng.integers(40)), 40)
            for _ in range(int(bench.rng.integers(2, 60))):
                await bench.cycle(ctx)
            for _ in range(300):
                await bench.cycle(ctx, hold=True, stop=True)
            assert ctx.get(bench.fetch.quiet) and not bench.owed
            wanted = await bench.launch(ctx, int(bench.rng.integers(40)), 20)
            while ctx.get(bench.fetch.busy):
                await bench.cycle(ctx)
            assert bench.handed == wanted

    bench.run(streams)
