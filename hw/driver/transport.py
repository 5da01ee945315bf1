"""What a register driver needs of a board: registers, memory, and perhaps an interrupt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Region:
    """Memory that is contiguous for the device.

    Attributes:
        address: physical address of the first byte.
        memory: the bytes in this process: uint8 (nbytes,).
    """

    address: int
    memory: np.ndarray


class Transport(Protocol):
    """The way to one board. Failures are `OSError`."""

    def read32(self, offset: int) -> int:
        """The register at byte `offset` from the first one of the device."""

    def write32(self, offset: int, value: int) -> None:
        """Write a register."""

    def allocate(self, nbytes: int, align: int) -> Region:
        """Contiguous memory whose physical address is a multiple of `align`."""

    def free(self, region: Region) -> None:
        """Give memory back."""

    def write(self, region: Region, offset: int, data: np.ndarray) -> int:
        """Copy uint8 `data` into a region; how many bytes were copied."""

    def read(self, region: Region, offset: int, nbytes: int) -> np.ndarray:
        """Copy bytes out of a region; as many as could be read, uint8."""

    def flush(self, region: Region, for_device: bool) -> None:
        """Write cached bytes to memory (for the device), or forget them (for the host)."""

    def interrupt(self, timeout: float) -> bool:
        """Wait for an interrupt, or for `timeout` seconds; whether there was one."""

    def design(self) -> str:
        """The design in the device, such as a bitstream's name; "" where it cannot be asked."""

    def reset(self) -> bool:
        """Reset the device, such as by loading its design again; False where nothing can."""

    def close(self) -> None:
        """Give everything back."""


class MappedRegions:
    """Of a transport whose regions are memory of this process: their bytes are copied."""

    def write(self, region: Region, offset: int, data: np.ndarray) -> int:
        """Copy uint8 `data` into a region; how many bytes were copied."""
        place = region.memory[offset : offset + len(data)]
        place[:] = data[: len(place)]
        return len(place)

    def read(self, region: Region, offset: int, nbytes: int) -> np.ndarray:
        """Copy bytes out of a region; as many as could be read, uint8."""
        return region.memory[offset : offset + nbytes].copy()
