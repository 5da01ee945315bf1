"""The driver protocol: the calls that every device behind a driver answers.

A run is `allocate`, `copy_to`, `flush`, `start`, `wait`, `flush`, `copy_from`;
`vta_byoc.hw.driver.execution.Runner` makes it from a program.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError


class DeviceError(VTAError):
    """A device did not do what it was asked to.

    Attributes:
        transient: whether the same call may succeed after `reset`.
    """

    def __init__(self, problem: str | Refusal, *, transient: bool = False) -> None:
        super().__init__(problem)
        self.transient = transient


class DeviceTimeout(DeviceError):
    """A device did not answer in the time that it was given."""

    def __init__(self, problem: str | Refusal) -> None:
        super().__init__(problem, transient=True)


class Flush(enum.Enum):
    """For whom the bytes of a buffer must be visible."""

    FOR_DEVICE = "device"
    FOR_HOST = "host"


@dataclass(frozen=True)
class Buffer:
    """Memory that device and host see.

    Attributes:
        address: the first byte, as the device addresses it.
        nbytes: the length.
        number: tells the buffers of one device apart.
    """

    address: int
    nbytes: int
    number: int


@dataclass(frozen=True)
class DeviceVersion:
    """What a device says that it is.

    Attributes:
        device: the name of the device.
        interface: how it is driven: "function", "hls", "chisel".
        hw_ver: the version of the hardware, as `HW_VER` of a configuration has it.
        design: the design that is loaded, as the device names it; "" where it does not.
    """

    device: str
    interface: str
    hw_ver: str
    design: str = ""

    def __str__(self) -> str:
        design = f", design {self.design}" if self.design else ""
        return f"{self.device}: interface {self.interface}, hardware {self.hw_ver}{design}"


@runtime_checkable
class DeviceDriver(Protocol):
    """One open device. Calls are made by one thread at a time.

    What fails raises `DeviceError`; where its `transient` is true, `reset` and the same calls again
    may succeed.
    """

    def version(self) -> DeviceVersion:
        """What the device is."""

    def capabilities(self) -> VTAConfig:
        """The machine whose programs it runs: geometry and capabilities."""

    def allocate(self, nbytes: int, align: int) -> Buffer:
        """Memory of `nbytes` bytes whose address is a multiple of `align`, a power of two."""

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back."""

    def map(self, buffer: Buffer) -> np.ndarray:
        """The bytes of a buffer in this process: uint8 (nbytes,), no copy."""

    def copy_to(self, buffer: Buffer, data: np.ndarray, offset: int = 0) -> None:
        """Write the bytes of `data`, uint8 (n,), from byte `offset` of a buffer on."""

    def copy_from(self, buffer: Buffer, nbytes: int, offset: int = 0) -> np.ndarray:
        """A copy of `nbytes` bytes from byte `offset` of a buffer on: uint8 (nbytes,)."""

    def flush(self, buffer: Buffer, direction: Flush) -> None:
        """Make what one side wrote visible to the other."""

    def start(self, instructions: Buffer, count: int) -> None:
        """Let the device run the first `count` instructions of a buffer; returns at once."""

    def wait(self, timeout: float) -> None:
        """Return when the device says that it has finished; `DeviceTimeout` after `timeout` s."""

    def reset(self) -> None:
        """Stop what runs; buffers stay."""

    def close(self) -> None:
        """Give everything back; the driver is not used any more."""


class AnyRunner(Protocol):
    """What runs programs: on an open device, or at a server."""

    def run(
        self,
        config: VTAConfig,
        insns: np.ndarray,
        inputs: np.ndarray,
        image: np.ndarray,
        arena_bytes: int,
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, int]]:
        """As `vta_byoc.hw.driver.execution.Runner.run`."""


def check_machine(driver: DeviceDriver, config: VTAConfig) -> None:
    """Refuse programs of `config` on a device that is another machine.

    Raises:
        DeviceError: geometry, instruction fields or capabilities differ.
    """
    have = driver.capabilities()
    if have.key != config.key:
        raise DeviceError(
            f"the program is for machine {config.key} ({config.name}); {driver.version().device} "
            f"is {have.key} ({have.name}); compile it for that machine"
        )
    if have.capabilities != config.capabilities:
        wanted, found = vars(config.capabilities), vars(have.capabilities)
        unlike = [f"{n} is {wanted[n]}, there {found[n]}" for n in wanted if wanted[n] != found[n]]
        raise DeviceError(
            f"the program is for a machine of other capabilities than {driver.version().device}: "
            f"{'; '.join(unlike)}; compile it with the CAPABILITIES of that device"
        )
