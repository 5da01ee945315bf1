"""The core behind its buses in Amaranth's simulator, with a memory and a processor."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.sim import Simulator
from axi_memory import AxiLiteMaster, AxiMemory
from core_machines import SMALL

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.rtl.axi_core import AxiCore
from vta_byoc.hw.rtl.registers import FINISH, OFFSETS

MOST_POLLS = 600
"""How often a run is asked whether it is over."""


class Board:
    """The core of a machine, a memory, and what runs a stream on it."""

    def __init__(self, seed: int, order: str, nbytes: int, config: VTAConfig = SMALL) -> None:
        self.rng = np.random.default_rng(seed)
        self.top = AxiCore(config)
        share = float(self.rng.choice((0.25, 0.6, 1.0)))
        data = np.zeros(nbytes, np.uint8)
        self.memory = AxiMemory(self.top, data, self.rng, order, share)
        self.master = AxiLiteMaster(self.top, self.rng)

    def run(self, bench: Any) -> None:
        simulator = Simulator(self.top)
        simulator.add_clock(1e-6)
        simulator.add_testbench(self.memory.serve, background=True)
        simulator.add_testbench(bench)
        simulator.run()

    async def launch(self, ctx: Any, insns: np.ndarray, arena: np.ndarray) -> int:
        """Place a stream behind an arena at 0, run it, and give the control register."""
        place, stream = -(-arena.size // 4096) * 4096, insns.reshape(-1).view(np.uint8)
        self.memory.data[: arena.size] = arena.view(np.uint8)
        self.memory.data[place : place + stream.size] = stream
        for name, value in (("count", len(insns)), ("insn", place), ("control", 1)):
            assert await self.master.write(ctx, OFFSETS[name], value) == 0
        for _ in range(MOST_POLLS):
            found = await self.master.read(ctx, OFFSETS["control"])
            if found & FINISH:
                assert not found & 1
                return found
            await ctx.tick().repeat(20)
        raise AssertionError("the run does not end")
