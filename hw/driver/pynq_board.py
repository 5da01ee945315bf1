"""A board by PYNQ: the overlay is loaded, and memory comes from its allocator."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from vta_byoc.hw.driver.transport import MappedRegions, Region
from vta_byoc.hw.errors import VTAError


class PynqBoard(MappedRegions):
    """Registers by `pynq.MMIO`, memory by `pynq.allocate`.

    Args:
        bitstream: the file to load; reset loads it again.
        base: physical address of the first register.
        span: bytes of registers.

    Raises:
        VTAError: PYNQ is not installed.
    """

    def __init__(self, bitstream: str, base: int, span: int) -> None:
        try:
            self._pynq: Any = import_module("pynq")
        except ImportError as err:
            raise VTAError(
                'the package "pynq" is not installed; a board\'s memory "pynq" needs it; run this '
                'on the board\'s PYNQ image, or name a u-dma-buf as "memory"'
            ) from err
        self._bitstream = bitstream
        self._overlay = self._pynq.Overlay(bitstream)
        self._registers = self._pynq.MMIO(base, span)
        self._arrays: dict[int, Any] = {}

    def read32(self, offset: int) -> int:
        """One register."""
        return int(self._registers.read(offset))

    def write32(self, offset: int, value: int) -> None:
        """One register."""
        self._registers.write(offset, value)

    def allocate(self, nbytes: int, align: int) -> Region:
        """A buffer of the contiguous memory allocator, whose pages are aligned."""
        array = self._pynq.allocate(shape=(nbytes + align,), dtype=np.uint8)
        start = -int(array.device_address) % align
        address = int(array.device_address) + start
        self._arrays[address] = array
        return Region(address, np.asarray(array)[start : start + nbytes])

    def free(self, region: Region) -> None:
        """Back to the allocator."""
        self._arrays.pop(region.address).freebuffer()

    def flush(self, region: Region, for_device: bool) -> None:
        """Flush or invalidate the buffer."""
        array = self._arrays[region.address]
        if for_device:
            array.flush()
        else:
            array.invalidate()

    def interrupt(self, timeout: float) -> bool:
        """The published overlays have none: wait for the time alone."""
        time.sleep(timeout)
        return False

    def design(self) -> str:
        """The name of the bitstream that is loaded."""
        return Path(str(self._overlay.bitfile_name)).stem

    def reset(self) -> bool:
        """Load the bitstream again."""
        self._overlay.download()
        return True

    def close(self) -> None:
        """Free the buffers."""
        for array in self._arrays.values():
            array.freebuffer()
        self._arrays.clear()
