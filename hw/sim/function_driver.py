"""The driver protocol over a device's function: memory of this process, a run in one call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.protocol import Buffer, DeviceError, DeviceVersion, Flush
from vta_byoc.hw.driver.transport import Region
from vta_byoc.hw.faults import Fault, static_message
from vta_byoc.hw.sim.simulated_memory import SimulatedMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    import tvm


class FunctionDriver:
    """An open device whose runtime module runs programs in this process."""

    def __init__(
        self, name: str, config: VTAConfig, module: Callable[[], tvm.runtime.Module]
    ) -> None:
        self._name = name
        self._config = config
        self._memory = SimulatedMemory(config, module, probe=False)
        self._regions: dict[int, Region] = {}
        self._next = 0
        self._result: Fault | None = None

    def version(self) -> DeviceVersion:
        """The device is a function."""
        return DeviceVersion(self._name, "function", self._config.hw_ver)

    def capabilities(self) -> VTAConfig:
        """The machine that it was opened for."""
        return self._config

    def allocate(self, nbytes: int, align: int) -> Buffer:
        """Memory of this process."""
        try:
            region = self._memory.allocate(nbytes, align)
        except MemoryError as err:
            raise DeviceError(
                f"{self._name} has no {nbytes:,} bytes ({err}); free buffers, or run a smaller "
                "program"
            ) from err
        self._next += 1
        self._regions[self._next] = region
        return Buffer(region.address, nbytes, self._next)

    def free(self, buffer: Buffer) -> None:
        """Give the memory back."""
        self._memory.free(self._regions.pop(buffer.number))

    def map(self, buffer: Buffer) -> np.ndarray:
        """The memory itself."""
        return self._regions[buffer.number].memory

    def copy_to(self, buffer: Buffer, data: np.ndarray, offset: int = 0) -> None:
        """Copy in memory."""
        self.map(buffer)[offset : offset + len(data)] = data

    def copy_from(self, buffer: Buffer, nbytes: int, offset: int = 0) -> np.ndarray:
        """Copy in memory."""
        return self.map(buffer)[offset : offset + nbytes].copy()

    def flush(self, buffer: Buffer, direction: Flush) -> None:
        """Host and device are one process."""

    def start(self, instructions: Buffer, count: int) -> None:
        """The whole run."""
        self._result = self._memory.run(instructions.address, count)

    def wait(self, timeout: float) -> None:
        """The run is over; a fault of the program is an error."""
        if self._result is None:
            raise DeviceError(f"{self._name} was not started; it must be, before wait; start it")
        if self._result is not Fault.NONE:
            raise DeviceError(f"{self._name}: {static_message(self._result)}")

    def reset(self) -> None:
        """Forget the last run."""
        self._result = None

    def close(self) -> None:
        """Free the memory."""
        self._regions.clear()


def open_function(
    name: str, config: VTAConfig, module: Callable[[VTAConfig], tvm.runtime.Module]
) -> FunctionDriver:
    """The protocol over the device `name`, whose `module` makes the module of a machine."""
    return FunctionDriver(name, config, functools.partial(module, config))
