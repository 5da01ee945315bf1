"""A simulated board: the register file of an interface, with the functional simulator behind it."""

from __future__ import annotations

import functools

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.register_map import RegisterMap
from vta_byoc.hw.driver.transport import MappedRegions, Region
from vta_byoc.hw.faults import Fault
from vta_byoc.hw.sim.interpreter import build_interpreter
from vta_byoc.hw.sim.simulated_memory import SimulatedMemory

POLLS = 2
"""Looks at `done` that a run takes."""


class SimulatedRegisters(MappedRegions):
    """The transport to a simulated board.

    Attributes:
        runs: how many streams ran to their end.
    """

    def __init__(self, registers: RegisterMap, machine: VTAConfig, design: str = "") -> None:
        self.runs = 0
        self._map = registers
        self._design = design
        build = functools.partial(build_interpreter, machine, probe=True)
        self._memory = SimulatedMemory(machine, build, probe=True)
        self._values: dict[int, int] = {}
        self._started: set[int] = set()
        self._polls_left = 0
        self._finished = False

    def read32(self, offset: int) -> int:
        """A register; `done` says so after some looks at it."""
        if offset != self._map["done"]:
            return self._values.get(offset, 0)
        if self._polls_left:
            self._polls_left -= 1
            return 0
        return self._map.done_mask if self._finished else 0

    def write32(self, offset: int, value: int) -> None:
        """Write a register; the last one of those that start a run starts it."""
        self._values[offset] = value
        if (offset, value) in self._map.stop:
            self._started.clear()
        if (offset, value) not in self._map.start:
            return
        self._started.add(offset)
        if len(self._started) == len(self._map.start):
            self._started.clear()
            self.execute()

    def execute(self) -> None:
        """Run the stream that the registers name; one that faults never ends."""
        self._finished, self._polls_left = False, POLLS
        address, count = (self._values[self._map[name]] for name in ("insn", "count"))
        self._finished = self._memory.run(address, count) is Fault.NONE
        self.runs += self._finished

    def allocate(self, nbytes: int, align: int) -> Region:
        """Memory of the simulated DRAM."""
        return self._memory.allocate(nbytes, align)

    def free(self, region: Region) -> None:
        """Give memory back."""
        self._memory.free(region)

    def flush(self, region: Region, for_device: bool) -> None:
        """Nothing stands between the host and the simulated DRAM."""

    def interrupt(self, timeout: float) -> bool:
        """The end of a run is an interrupt."""
        return self._finished

    def design(self) -> str:
        """As it was made."""
        return self._design

    def reset(self) -> bool:
        """Forget what runs."""
        self._finished, self._polls_left = False, 0
        self._started.clear()
        return True

    def close(self) -> None:
        """Nothing is open."""
