"""A device behind memory-mapped registers: the driver protocol over a transport."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.protocol import (
    Buffer,
    DeviceError,
    DeviceTimeout,
    DeviceVersion,
    Flush,
)
from vta_byoc.hw.driver.register_map import BASES, BUS_DEAD, RegisterMap
from vta_byoc.hw.driver.transport import Region, Transport
from vta_byoc.hw.isa import INSN_BYTES

POLL_SECONDS = 50e-6
"""Between two looks at the register `done`, at first; it doubles up to POLL_MOST."""
POLL_MOST = 2e-3
TRIES = 3
"""How often a register or a copy that did not arrive is written."""
ADDRESS_LIMIT = 1 << 32
"""The address registers have 32 bits."""
_BITSTREAM = re.compile(r"(\d+)x(\d+)_i8w8a32_(\d+)_(\d+)_(\d+)_(\d+)")
"""How published bitstreams are named: batch, block, and the logarithms of the four buffers."""


class RegisterDriver:
    """One board, or one simulated register file.

    Attributes:
        lost_interrupts: runs whose end was seen in the register and not by the interrupt.
        repeated: copies and register writes that had to be done again.
    """

    def __init__(
        self, name: str, registers: RegisterMap, machine: VTAConfig, transport: Transport
    ) -> None:
        self.name = name
        self.lost_interrupts = 0
        self.repeated = 0
        self._registers = registers
        self._machine = machine
        self._transport = transport
        self._regions: dict[int, Region] = {}
        self._next = 0
        self._check_design()

    # ------------------------------------------------------------ what it is
    def version(self) -> DeviceVersion:
        """As the board's description says it, and the design that is loaded."""
        with self._failing("asked for its design"):
            design = self._transport.design()
        return DeviceVersion(self.name, self._registers.interface, self._machine.hw_ver, design)

    def capabilities(self) -> VTAConfig:
        """The machine that the board's description names."""
        return self._machine

    def _check_design(self) -> None:
        """Refuse a design whose name says that it is another machine."""
        found = self.version()
        named = _BITSTREAM.search(found.design)
        machine = self._machine
        have = (
            machine.batch,
            machine.block,
            machine.log_uop_buff_size,
            machine.log_inp_buff_size,
            machine.log_wgt_buff_size,
            machine.log_acc_buff_size,
        )
        if named is not None and tuple(map(int, named.groups())) != have:
            wanted = "{}x{}_i8w8a32_{}_{}_{}_{}".format(*have)
            raise DeviceError(
                f'{self.name} has the design "{found.design}"; the machine {machine.target} is '
                f"{wanted}; load that design, or name the machine of this one"
            )

    # ------------------------------------------------------------ memory
    def allocate(self, nbytes: int, align: int) -> Buffer:
        """Contiguous memory of the transport."""
        try:
            region = self._transport.allocate(nbytes, align)
        except (OSError, MemoryError) as err:
            raise DeviceError(
                f"{self.name} has no {nbytes:,} bytes of contiguous memory "
                f"({_reason(err)}); free some, or give the board more (a larger udmabuf or CMA)"
            ) from err
        if region.address % align or region.address + nbytes > ADDRESS_LIMIT:
            self._transport.free(region)
            raise DeviceError(
                f"{self.name} has memory at {region.address:#x}, {nbytes:,} bytes; it takes "
                f"multiples of {align} below {ADDRESS_LIMIT:#x}; place the board's memory there"
            )
        self._next += 1
        self._regions[self._next] = region
        return Buffer(region.address, nbytes, self._next)

    def free(self, buffer: Buffer) -> None:
        """Give the memory back to the transport."""
        self._transport.free(self._regions.pop(buffer.number))

    def map(self, buffer: Buffer) -> np.ndarray:
        """The memory itself."""
        return self._regions[buffer.number].memory[: buffer.nbytes]

    def copy_to(self, buffer: Buffer, data: np.ndarray, offset: int = 0) -> None:
        """Copy, read back, and copy again what did not arrive, at most TRIES times."""
        region = self._regions[buffer.number]
        for _ in range(TRIES):
            with self._failing("copied to"):
                count = self._transport.write(region, offset, data)
                back = self._transport.read(region, offset, len(data))
            if count == len(data) and np.array_equal(back, data):
                return
            self.repeated += 1
        wrong = len(data) - _equal_bytes(back, data)
        raise DeviceError(
            f"{self.name}: a copy of {len(data):,} bytes to {buffer.address + offset:#x} left "
            f"{wrong:,} of them as they were, {TRIES} times; all must arrive; check the memory "
            "that the board's description names",
            transient=True,
        )

    def copy_from(self, buffer: Buffer, nbytes: int, offset: int = 0) -> np.ndarray:
        """Copy twice and compare; again where they differ, at most TRIES times."""
        region = self._regions[buffer.number]
        for _ in range(TRIES):
            with self._failing("read from"):
                first = self._transport.read(region, offset, nbytes)
                second = self._transport.read(region, offset, nbytes)
            if len(first) == len(second) == nbytes and np.array_equal(first, second):
                return first
            self.repeated += 1
        raise DeviceError(
            f"{self.name}: of {nbytes:,} bytes at {buffer.address + offset:#x}, "
            f"{_equal_bytes(first, second):,} could be read twice the same, {TRIES} times; all "
            "must be; check the memory that the board's description names",
            transient=True,
        )

    def flush(self, buffer: Buffer, direction: Flush) -> None:
        """Flush or invalidate the host's caches."""
        with self._failing("flushed"):
            self._transport.flush(self._regions[buffer.number], direction is Flush.FOR_DEVICE)

    # ------------------------------------------------------------ running
    def start(self, instructions: Buffer, count: int) -> None:
        """Write the registers, read them back, and start."""
        most = instructions.nbytes // INSN_BYTES
        if not 0 < count <= most:
            raise DeviceError(
                f"{count} instructions of a buffer of {most}; a run has 1 to {most}; copy the "
                "stream first"
            )
        registers = self._registers
        with self._failing("started"):
            for name in BASES:
                self._set(name, 0)
            self._set("insn", instructions.address)
            self._set("count", count)
            for offset, value in registers.start:
                self._transport.write32(offset, value)

    def _set(self, name: str, value: int) -> None:
        """Write a register until it reads what was written, at most TRIES times."""
        offset = self._registers[name]
        for _ in range(TRIES):
            self._transport.write32(offset, value)
            found = self._transport.read32(offset)
            if found == value:
                return
            self.repeated += 1
        if found == BUS_DEAD:
            raise DeviceError(
                f"{self.name}: register {name} at {offset:#x} reads {found:#x}, as a bus does "
                "where nothing answers; load the design, switch its clock on, and check the base "
                "address"
            )
        raise DeviceError(
            f"{self.name}: register {name} at {offset:#x} reads {found:#x} after {value:#x} was "
            f"written {TRIES} times; it must read what was written; check the interface "
            f"({self._registers.interface}) and the base address",
            transient=True,
        )

    def wait(self, timeout: float) -> None:
        """Wait for interrupts, and look at the register whether there is one or not."""
        registers = self._registers
        deadline, pause, told = time.monotonic() + timeout, POLL_SECONDS, False
        with self._failing("waited for"):
            while True:
                value = self._transport.read32(registers["done"])
                if value == BUS_DEAD:
                    raise DeviceError(
                        f"{self.name}: register done reads {value:#x}, as a bus does where "
                        "nothing answers; load the design again",
                        transient=True,
                    )
                if value & registers.done_mask:
                    self.lost_interrupts += not told
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeviceTimeout(
                        f"{self.name} did not finish within {timeout:g} s (register done reads "
                        f"{value:#x}); the program must end by itself; reset the device, and allow "
                        "more time if the program needs it"
                    )
                told = self._transport.interrupt(min(pause, left)) or told
                pause = min(2 * pause, POLL_MOST)

    def reset(self) -> None:
        """Stop the cores and reset the design; where nothing can, the cores are only stopped."""
        with self._failing("reset"):
            self._transport.reset()
            for offset, value in self._registers.stop:
                self._transport.write32(offset, value)

    def close(self) -> None:
        """Free all buffers and close the transport."""
        for region in self._regions.values():
            self._transport.free(region)
        self._regions.clear()
        self._transport.close()

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """What the operating system says of the transport, as an error of the device."""
        try:
            yield
        except OSError as err:
            raise DeviceError(
                f"{self.name} could not be {what}: {_reason(err)}; a device answers; check that it "
                "is there and that this user may open it",
                transient=True,
            ) from err


def _reason(err: BaseException) -> str:
    return str(getattr(err, "strerror", None) or err or type(err).__name__)


def _equal_bytes(found: np.ndarray, wanted: np.ndarray) -> int:
    shared = min(len(found), len(wanted))
    return int((found[:shared] == wanted[:shared]).sum())
