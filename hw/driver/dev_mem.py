"""A board by `/dev/mem` and u-dma-buf: registers mapped, memory that the kernel keeps contiguous.

u-dma-buf (`/dev/udmabuf0`) gives one contiguous block; it is handed out from its start on. It is
opened with O_SYNC, so the host's caches do not stand between: a flush is the kernel's.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import time
from pathlib import Path

import numpy as np

from vta_byoc.hw.driver.gaps import Gaps
from vta_byoc.hw.driver.transport import MappedRegions, Region

DEV_MEM = Path("/dev/mem")
UDMABUF = Path("/sys/class/u-dma-buf")


class DevMem(MappedRegions):
    """Registers at a physical address, one u-dma-buf, and perhaps a UIO interrupt.

    Args:
        base: physical address of the first register.
        span: bytes of registers.
        memory: the name of the u-dma-buf, such as `udmabuf0`.
        interrupt: the UIO device of the interrupt, such as `/dev/uio0`; "" where there is none.
        design: what is loaded, as the board's description says it.
        registers: the file whose bytes from `base` on are the registers.
        buffers: the folder in which the kernel describes its u-dma-bufs.
        devices: the folder of device files.
    """

    def __init__(
        self,
        base: int,
        span: int,
        memory: str,
        interrupt: str = "",
        design: str = "",
        registers: Path = DEV_MEM,
        buffers: Path = UDMABUF,
        devices: Path = Path("/dev"),
    ) -> None:
        self._design = design
        self._interrupt = -1
        self._registers = _mapped(registers, base, span)
        self._words = np.frombuffer(self._registers, np.uint32)
        about = buffers / memory
        size = int((about / "size").read_text())
        self._memory = _mapped(devices / memory, 0, size)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._about = about
        self._gaps = Gaps(int((about / "phys_addr").read_text(), 16), size)
        if interrupt:
            self._interrupt = os.open(interrupt, os.O_RDWR | os.O_NONBLOCK)
            self._enable()

    def read32(self, offset: int) -> int:
        """One aligned load."""
        return int(self._words[offset // 4])

    def write32(self, offset: int, value: int) -> None:
        """One aligned store."""
        self._words[offset // 4] = value

    def allocate(self, nbytes: int, align: int) -> Region:
        """The first gap of the u-dma-buf that is large enough."""
        start = self._gaps.take(nbytes, align)
        return Region(self._gaps.address + start, self._bytes[start : start + nbytes])

    def free(self, region: Region) -> None:
        """The gap is there again."""
        self._gaps.give_back(region.address - self._gaps.address, len(region.memory))

    def flush(self, region: Region, for_device: bool) -> None:
        """Let the kernel write back or invalidate the range."""
        start = region.address - self._gaps.address
        (self._about / "sync_offset").write_text(str(start))
        (self._about / "sync_size").write_text(str(len(region.memory)))
        (self._about / "sync_direction").write_text("1" if for_device else "2")
        (self._about / ("sync_for_device" if for_device else "sync_for_cpu")).write_text("1")

    def interrupt(self, timeout: float) -> bool:
        """Wait at the UIO device; without one, for the time alone."""
        if self._interrupt < 0:
            time.sleep(timeout)
            return False
        if not select.select([self._interrupt], [], [], timeout)[0]:
            return False
        os.read(self._interrupt, 4)
        self._enable()
        return True

    def _enable(self) -> None:
        os.write(self._interrupt, struct.pack("=I", 1))

    def design(self) -> str:
        """What the board's description says."""
        return self._design

    def reset(self) -> bool:
        """Nothing here resets a design."""
        return False

    def close(self) -> None:
        """Drop the mappings; they end when nobody has a view of them any more."""
        if self._interrupt >= 0:
            os.close(self._interrupt)
            self._interrupt = -1
        del self._words, self._bytes, self._registers, self._memory


def _mapped(path: Path, offset: int, nbytes: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_SYNC)
    try:
        return mmap.mmap(descriptor, nbytes, offset=offset)
    except ValueError as err:
        raise OSError(0, f"{path} cannot be mapped at {offset:#x}: {err}") from err
    finally:
        os.close(descriptor)
