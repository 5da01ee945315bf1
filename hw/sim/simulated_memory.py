"""DRAM that a simulated device shares with its driver, and the functional simulator on it."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import tvm

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.addressing import moved
from vta_byoc.hw.driver.gaps import Gaps
from vta_byoc.hw.driver.protocol import DeviceError
from vta_byoc.hw.driver.transport import Region
from vta_byoc.hw.faults import STATUS_SLOT, Fault
from vta_byoc.hw.isa import INSN_BYTES
from vta_byoc.hw.sim.interpreter import call

MOST_BYTES = 1 << 28
"""DRAM of a simulated device; the host has what was written of it."""
DRAM_ADDRESS = 0x1000_0000
"""The physical address of its first byte."""


class SimulatedMemory:
    """Contiguous memory, and runs of streams in it.

    Args:
        config: the machine.
        module: makes the module whose function runs programs; called once, before the first run.
        probe: whether the function takes the SRAMs too and leaves faults in the counters.
    """

    def __init__(
        self, config: VTAConfig, module: Callable[[], tvm.runtime.Module], *, probe: bool
    ) -> None:
        self._config = config
        self._make, self._probe = module, probe
        self._module: tvm.runtime.Module | None = None
        # Zeros that the system maps where they are written: `np.zeros` may clear all of them.
        mapped = mmap.mmap(-1, MOST_BYTES, access=mmap.ACCESS_COPY)
        self._bytes: np.ndarray = np.frombuffer(mapped, np.uint8)
        self._gaps = Gaps(DRAM_ADDRESS, MOST_BYTES)

    def allocate(self, nbytes: int, align: int) -> Region:
        """The first gap that is large enough; MemoryError where there is none."""
        start = self._gaps.take(nbytes, align)
        return Region(DRAM_ADDRESS + start, self._bytes[start : start + nbytes])

    def free(self, region: Region) -> None:
        """The gap is there again."""
        self._gaps.give_back(region.address - DRAM_ADDRESS, len(region.memory))

    def run(self, address: int, count: int) -> Fault:
        """Run `count` instructions at a physical address; what stopped them."""
        start = address - DRAM_ADDRESS
        if start < 0 or start + count * INSN_BYTES > self._gaps.end:
            return Fault.DRAM_RANGE
        words = self._bytes[start : start + count * INSN_BYTES].copy().view(np.uint64)
        try:
            insns = moved(self._config, words.reshape(-1, 2), -DRAM_ADDRESS)
        except DeviceError:
            return Fault.DRAM_RANGE
        if self._module is None:
            self._module = self._make()
        dram = self._bytes[: self._gaps.end]
        none = np.zeros(0, np.int8)
        arena, counters, _ = call(
            self._config,
            self._module,
            insns,
            dram.view(np.int8),
            none,
            dram.size,
            probe=self._probe,
        )
        dram[:] = arena.view(np.uint8)
        return Fault(int(counters[STATUS_SLOT]))
