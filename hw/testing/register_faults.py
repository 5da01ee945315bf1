"""Boards that fail: a transport with one kind of fault, for a number of times or for ever."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.driver.register_map import BUS_DEAD, RegisterMap
from vta_byoc.hw.driver.transport import Region, Transport

HANG = "hang"
LOST_INTERRUPT = "lost interrupt"
SPURIOUS_INTERRUPT = "spurious interrupt"
STALE_DONE = "stale done"
EARLY_DONE = "early done"
LOST_WRITE = "lost register write"
BENT_WRITE = "bent register write"
SHORT_COPY = "short copy"
SILENT_SHORT_COPY = "silent short copy"
SHORT_READ = "short read"
BENT_READ = "bent read"
FAILED_FLUSH = "failed flush"
DEAD_BUS = "dead bus"
NO_MEMORY = "no memory"
HIGH_MEMORY = "memory above 4 GiB"
GONE = "device gone"
WRONG_VERSION = "wrong version"

KINDS = (
    HANG,
    LOST_INTERRUPT,
    SPURIOUS_INTERRUPT,
    STALE_DONE,
    EARLY_DONE,
    LOST_WRITE,
    BENT_WRITE,
    SHORT_COPY,
    SILENT_SHORT_COPY,
    SHORT_READ,
    BENT_READ,
    FAILED_FLUSH,
    DEAD_BUS,
    NO_MEMORY,
    HIGH_MEMORY,
    GONE,
    WRONG_VERSION,
)
"""Every kind of fault that can be injected."""
FOR_EVER = 1 << 30
OTHER_DESIGN = "2x16_i8w8a32_15_15_18_18"
EARLY_LOOKS = 5
"""Looks at `done` for which EARLY_DONE says so before the run is made."""


@dataclass
class FaultyTransport:
    """A transport that has one kind of fault.

    Attributes:
        inner: what works.
        registers: the register map of the device.
        kind: one of KINDS.
        times: how often the fault happens from the first use on.
        skip: uses of the same kind before that go well.
        happened: how often it has.
    """

    inner: Transport
    registers: RegisterMap
    kind: str
    times: int = FOR_EVER
    skip: int = 0
    happened: int = 0
    _dead: bool = False
    _early: int = 0
    _held: tuple[tuple[int, int], ...] = ()

    def _fails(self, kind: str) -> bool:
        """Whether this use of what `kind` breaks goes wrong."""
        if kind != self.kind:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.happened >= self.times:
            return False
        self.happened += 1
        return True

    def read32(self, offset: int) -> int:
        """Dead buses, devices that are gone, ends that are no ends."""
        if self._fails(GONE):
            raise OSError(errno.ENODEV, "No such device")
        if self._fails(DEAD_BUS):
            return BUS_DEAD
        done = offset == self.registers["done"]
        if done and self._dead:
            return self.registers.done_mask if self.kind == STALE_DONE else 0
        if done and self._early:
            self._early -= 1
            if not self._early:
                self._release()
            return self.registers.done_mask
        return self.inner.read32(offset)

    def write32(self, offset: int, value: int) -> None:
        """Writes that are lost or change a bit; starts that hang or come late."""
        first = self.registers.start[0]
        if (offset, value) == first:
            self._dead = self._fails(HANG) or self._fails(STALE_DONE)
            self._early = EARLY_LOOKS if self._fails(EARLY_DONE) else 0
            self._held = ()
        if (offset, value) in self.registers.start and (self._dead or self._early):
            self._held = (*self._held, (offset, value))
            return
        if offset == self.registers["insn"] and self._fails(LOST_WRITE):
            return
        if offset == self.registers["count"] and self._fails(BENT_WRITE):
            value ^= 4
        self.inner.write32(offset, value)

    def _release(self) -> None:
        held, self._held = self._held, ()
        for offset, value in held:
            self.inner.write32(offset, value)

    def allocate(self, nbytes: int, align: int) -> Region:
        """No memory, or memory that 32 bits do not reach."""
        if self._fails(NO_MEMORY):
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        region = self.inner.allocate(nbytes, align)
        if self._fails(HIGH_MEMORY):
            return Region(region.address + (1 << 32), region.memory)
        return region

    def free(self, region: Region) -> None:
        """As the inner transport."""
        self.inner.free(Region(region.address % (1 << 32), region.memory))

    def write(self, region: Region, offset: int, data: np.ndarray) -> int:
        """Copies of the first half."""
        short, silent = self._fails(SHORT_COPY), self._fails(SILENT_SHORT_COPY)
        if not short and not silent:
            return self.inner.write(region, offset, data)
        count = self.inner.write(region, offset, data[: len(data) // 2])
        return len(data) if silent else count

    def read(self, region: Region, offset: int, nbytes: int) -> np.ndarray:
        """Reads of the first half, and reads with a bit that is not in memory."""
        data = self.inner.read(region, offset, nbytes)
        if self._fails(SHORT_READ):
            return data[: nbytes // 2]
        if self._fails(BENT_READ):
            data[(self.happened * 7919) % len(data)] ^= 1 << (self.happened % 8)
        return data

    def flush(self, region: Region, for_device: bool) -> None:
        """Flushes that the kernel refuses."""
        if self._fails(FAILED_FLUSH):
            raise OSError(errno.EIO, "Input/output error")
        self.inner.flush(region, for_device)

    def interrupt(self, timeout: float) -> bool:
        """Interrupts that are lost, or another's."""
        if self._fails(LOST_INTERRUPT):
            return False
        if self._fails(SPURIOUS_INTERRUPT):
            return True
        return self.inner.interrupt(timeout)

    def design(self) -> str:
        """The name of another machine's design."""
        return OTHER_DESIGN if self._fails(WRONG_VERSION) else self.inner.design()

    def reset(self) -> bool:
        """As the inner transport; what was held is dropped."""
        self._held, self._early, self._dead = (), 0, False
        return self.inner.reset()

    def close(self) -> None:
        """As the inner transport."""
        self.inner.close()
