"""One run of a program through the driver protocol, with what a run needs to be trusted.

A device may say that it has finished when it has not: a register may still hold the end of the run
before, an interrupt may be another's. So the bytes that the program stores last hold a pattern
before it starts, a new one for every attempt, and a run is over when they do not any more.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES, count_stream
from vta_byoc.hw.driver.addressing import arena_align, last_stored, moved
from vta_byoc.hw.driver.protocol import (
    Buffer,
    DeviceDriver,
    DeviceError,
    DeviceTimeout,
    Flush,
    check_machine,
)
from vta_byoc.hw.isa import INSN_BYTES

PAGE = 4096
"""What buffers' sizes are rounded up to."""
PATTERN_BYTES = 64
"""Of the bytes that are stored last, at most so many hold a pattern."""
RECHECK_SECONDS = 1e-3


@dataclass(frozen=True)
class Limits:
    """How long a run may take, and how often it is tried.

    Attributes:
        timeout: seconds of one attempt from its start.
        attempts: how often a run that failed for a transient reason is made.
    """

    timeout: float = 10.0
    attempts: int = 3


class Runner:
    """Runs programs on one open device; its buffers stay from run to run and grow.

    Attributes:
        repeated: runs that needed more than one attempt.
    """

    def __init__(self, driver: DeviceDriver, limits: Limits | None = None) -> None:
        self.driver = driver
        self.limits = limits or Limits()
        self.repeated = 0
        self._buffers: dict[str, Buffer] = {}
        self._patterns = np.random.default_rng(0)

    def run(
        self,
        config: VTAConfig,
        insns: np.ndarray,
        inputs: np.ndarray,
        image: np.ndarray,
        arena_bytes: int,
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, int]]:
        """Run a stream on an arena that begins with inputs and image, and is 0 behind them.

        Args:
            config: the machine that the stream is for.
            insns: uint64 (n, 2), addresses from the arena's first byte.
            inputs: int8 (bytes,).
            image: constants and micro-ops, int8 (bytes,).
            arena_bytes: the length of the arena.
            out: where the arena is written to, int8 (arena_bytes,); a new array where None.

        Returns:
            The arena, int8 (arena_bytes,), and the seven counters of the stream by name.

        Raises:
            DeviceError: another machine, or no result within the limits.
        """
        check_machine(self.driver, config)
        arena = np.zeros(arena_bytes, np.uint8)
        head = np.concatenate([inputs, image]).view(np.uint8)
        if len(head) > arena_bytes:
            raise DeviceError(
                f"inputs and image are {len(head):,} bytes; the arena has {arena_bytes:,}; make "
                "the arena at least as large"
            )
        arena[: len(head)] = head
        for attempt in range(1, self.limits.attempts + 1):
            try:
                found = self._attempt(config, insns, arena, len(head))
                self.repeated += attempt > 1
                result = found.view(np.int8)
                if out is not None:
                    out[:], result = result, out
                return result, counted(config, insns)
            except DeviceError as err:
                if not err.transient:
                    raise
                last = err
            self._recover(last)
        name = self.driver.version().device
        raise DeviceError(
            f"{name} gave no result in {self.limits.attempts} attempts; the last one: {last}"
        ) from last

    def _recover(self, failed: DeviceError) -> None:
        """Reset the device after a failed attempt, so that nothing of it goes on."""
        try:
            self.driver.reset()
        except DeviceError as err:
            raise DeviceError(f"{failed}; then the reset failed: {err}") from err

    def _attempt(
        self, config: VTAConfig, insns: np.ndarray, arena: np.ndarray, head: int
    ) -> np.ndarray:
        driver = self.driver
        place = self._buffer("arena", len(arena), max(arena_align(config), PAGE))
        stream = self._buffer("instructions", len(insns) * INSN_BYTES, PAGE)
        prepared, marked = self._marked(config, insns, arena, head)
        words = moved(config, insns, place.address)
        driver.copy_to(place, prepared)
        driver.copy_to(stream, words.reshape(-1).view(np.uint8))
        driver.flush(place, Flush.FOR_DEVICE)
        driver.flush(stream, Flush.FOR_DEVICE)
        left = self.limits.timeout
        deadline = time.monotonic() + left
        driver.start(stream, len(insns))
        while True:
            driver.wait(left)
            driver.flush(place, Flush.FOR_HOST)
            if marked is None or self._stored(place, prepared, marked):
                return driver.copy_from(place, len(arena))
            left = deadline - time.monotonic()
            if left < 0:
                raise DeviceTimeout(
                    f"{driver.version().device} says that it has finished, but after "
                    f"{self.limits.timeout:g} s what the program stores last was not there; "
                    "reset the device, and allow more time if the program needs it"
                )
            time.sleep(RECHECK_SECONDS)

    def _marked(
        self, config: VTAConfig, insns: np.ndarray, arena: np.ndarray, head: int
    ) -> tuple[np.ndarray, slice | None]:
        """The arena with a new pattern where the program stores last, and where that is."""
        last = last_stored(config, insns)
        if last is None or last.offset + last.nbytes > len(arena) or last.offset < head:
            return arena, None
        end = last.offset + last.nbytes
        place = slice(end - min(last.nbytes, PATTERN_BYTES), end)
        result = arena.copy()
        result[place] = self._patterns.integers(0, 256, place.stop - place.start, np.uint8)
        return result, place

    def _stored(self, buffer: Buffer, prepared: np.ndarray, place: slice) -> bool:
        found = self.driver.copy_from(buffer, place.stop - place.start, place.start)
        return not np.array_equal(found, prepared[place])

    def _buffer(self, use: str, nbytes: int, align: int) -> Buffer:
        """The buffer for a use, made larger where it is too small."""
        have = self._buffers.get(use)
        if have is not None and have.nbytes >= nbytes and have.address % align == 0:
            return have
        if have is not None:
            del self._buffers[use]
            self.driver.free(have)
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        self._buffers[use] = self.driver.allocate(size, align)
        return self._buffers[use]

    def close(self) -> None:
        """Give the device back."""
        self._buffers.clear()
        self.driver.close()


def counted(config: VTAConfig, insns: np.ndarray) -> dict[str, int]:
    """The seven counters of a stream by name, decoded once."""
    values = _counted(config, np.ascontiguousarray(insns).tobytes())
    return dict(zip(COUNTER_NAMES, values, strict=True))


@functools.lru_cache(maxsize=64)
def _counted(config: VTAConfig, words: bytes) -> tuple[int, ...]:
    found = count_stream(config, np.frombuffer(words, np.uint64).reshape(-1, 2))
    return tuple(found[name] for name in COUNTER_NAMES)
