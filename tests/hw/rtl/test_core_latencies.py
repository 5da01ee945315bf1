"""Cycles that units of the core take by themselves, which the profile of its time counts on."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="needs the extra rtl")

from amaranth.sim import Simulator
from core_machines import SMALL

from vta_byoc.hw.isa import INSN_BYTES, ISA, MemType, Opcode, Queue
from vta_byoc.hw.rtl.fetch import Fetch
from vta_byoc.hw.rtl.parameters import CoreParameters
from vta_byoc.hw.timing_parameters import Timing

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("burst", (1, 4, 16))
def test_an_instruction_is_offered_two_cycles_behind_its_beat(burst: int) -> None:
    timing = Timing(port_bytes=INSN_BYTES, fetch_burst=burst)
    fetch = Fetch(CoreParameters.of(dataclasses.replace(SMALL, timing=timing)))
    low, high = ISA.of(SMALL).encode(Opcode.LOAD, mem_type=MemType.INP)
    offered = [getattr(fetch, f"{queue.name.lower()}_valid") for queue in Queue]

    async def bench(ctx: Any) -> None:
        for name, value in (("count", 1), ("launch", 1), ("request_ready", 1)):
            ctx.set(getattr(fetch, name), value)
        await ctx.tick()
        ctx.set(fetch.launch, 0)
        assert ctx.get(fetch.request_valid)
        await ctx.tick()
        ctx.set(fetch.beat, high << 64 | low)
        ctx.set(fetch.beat_valid, 1)
        await ctx.tick()
        ctx.set(fetch.beat_valid, 0)
        assert not any(ctx.get(each) for each in offered)
        await ctx.tick()
        assert [ctx.get(each) for each in offered] == [queue == Queue.LOAD for queue in Queue]

    simulator = Simulator(fetch)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
