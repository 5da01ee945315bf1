"""A device of another process or computer: programs on it, and the driver protocol over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.driver.address import Address
from vta_byoc.hw.driver.connection import CALL_SECONDS, LOAD_SECONDS, Connection
from vta_byoc.hw.driver.protocol import (
    Buffer,
    DeviceError,
    DeviceTimeout,
    DeviceVersion,
    Flush,
)

_WORD = 8


@dataclass
class _Sent:
    """A program that the server has."""

    insns: np.ndarray
    image: np.ndarray
    arena_bytes: int
    number: int

    def may_be(self, insns: np.ndarray, image: np.ndarray, arena_bytes: int) -> bool:
        """Whether it is the program as far as instructions and sizes tell."""
        return (
            self.arena_bytes == arena_bytes
            and self.image.shape == image.shape
            and np.array_equal(self.insns, insns)
        )

    def has_image(self, image: np.ndarray) -> bool:
        """Whether constants and micro-ops are the same: int8 (bytes,), compared in words."""
        words = len(image) // _WORD * _WORD
        return np.array_equal(self.image[words:], image[words:]) and np.array_equal(
            self.image[:words].view(np.uint64), image[:words].view(np.uint64)
        )


class RemoteRunner:
    """Runs programs on a server's device: instructions and constants travel once.

    Args:
        address: where the server is.
        timeout: seconds that a call may take.

    Attributes:
        device_seconds: what the server's device took, all runs together.
        connections: how often it connected.
    """

    def __init__(self, address: Address, timeout: float = CALL_SECONDS) -> None:
        self.address = address
        self.timeout = timeout
        self.device_seconds = 0.0
        self.connections = 0
        self._connection: Connection | None = None
        self._sent: list[_Sent] = []

    def run(
        self,
        config: VTAConfig,
        insns: np.ndarray,
        inputs: np.ndarray,
        image: np.ndarray,
        arena_bytes: int,
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, int]]:
        """As `vta_byoc.hw.driver.execution.Runner.run`; a lost connection is made again, once.

        Raises:
            DeviceError: no server, another machine, an error of the device; `DeviceTimeout` where
                there was no answer.
        """
        arena = np.empty(arena_bytes, np.int8) if out is None else out
        for attempt in (1, 2):
            fresh = self._connection is None
            try:
                return arena, self._once(config, insns, inputs, image, arena)
            except DeviceTimeout:
                self.close()
                raise
            except DeviceError as err:
                if err.transient:
                    self.close()
                if not err.transient or fresh or attempt == 2:
                    raise
        raise AssertionError("two attempts")

    def connect(self) -> Connection:
        """The connection, made where there is none."""
        if self._connection is None:
            self._connection = Connection(self.address, self.timeout)
            self._sent = []
            self.connections += 1
        return self._connection

    def _once(
        self,
        config: VTAConfig,
        insns: np.ndarray,
        inputs: np.ndarray,
        image: np.ndarray,
        arena: np.ndarray,
    ) -> dict[str, int]:
        """One attempt: writes the arena, and returns the counters."""
        connection = self.connect()
        sent = self._alike(insns, image, len(arena))
        if sent is None:
            sent = self._load(connection, config, insns, image, len(arena))
        head = len(inputs) + len(image)
        # A copy: a call that is given up may read it when the caller's is gone.
        given, rest = inputs.copy(), [((len(arena) - head,), "int8")]
        wait = connection.begin("run", {"program": sent.number}, given, results=rest)
        # While the server runs: most of the arena is known here, and so is whether the constants
        # are those of the program that runs.
        arena[: len(inputs)] = inputs
        arena[len(inputs) : head] = image
        same = sent.has_image(image)
        answer, (tail,) = wait()
        self.device_seconds += answer["seconds"]
        if not same:
            self._load(connection, config, insns, image, len(arena))
            return self._once(config, insns, inputs, image, arena)
        arena[head:] = tail
        counters: dict[str, int] = answer["counters"]
        return counters

    def _alike(self, insns: np.ndarray, image: np.ndarray, arena_bytes: int) -> _Sent | None:
        """The program that the server has, or the only one that it may be but for constants."""
        found = [sent for sent in self._sent if sent.may_be(insns, image, arena_bytes)]
        if len(found) > 1:
            return next((sent for sent in found if sent.has_image(image)), None)
        return found[0] if found else None

    def _load(
        self,
        connection: Connection,
        config: VTAConfig,
        insns: np.ndarray,
        image: np.ndarray,
        arena_bytes: int,
    ) -> _Sent:
        about = {"config": config.to_dict(), "arena_bytes": arena_bytes}
        # Copies: a call that is given up may read them when the caller's are gone.
        sent = _Sent(insns.copy(), image.copy(), arena_bytes, len(self._sent))
        allowed = max(self.timeout, LOAD_SECONDS)
        said, _ = connection.call("load", about, sent.insns, sent.image, timeout=allowed)
        sent.number = said["program"]
        self._sent.append(sent)
        return sent

    def close(self) -> None:
        """End the session."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class RemoteDriver:
    """The driver protocol call by call over a connection; buffers are the server's."""

    def __init__(self, connection: Connection, config: VTAConfig) -> None:
        self._connection = connection
        self._ask("open", {"config": config.to_dict()})

    def _ask(self, name: str, about: dict[str, Any], *arrays: np.ndarray) -> Any:
        return self._connection.call("driver", {"call": name, **about}, *arrays)[0].get("value")

    def version(self) -> DeviceVersion:
        """What the server's device says that it is."""
        found = DeviceVersion(**self._ask("version", {}))
        return DeviceVersion(
            f"{self._connection.address} ({found.device})",
            found.interface,
            found.hw_ver,
            found.design,
        )

    def capabilities(self) -> VTAConfig:
        """The machine of the server's device."""
        return VTAConfig.from_dict(self._ask("capabilities", {}))

    def allocate(self, nbytes: int, align: int) -> Buffer:
        """Memory of the server's device."""
        return Buffer(**self._ask("allocate", {"nbytes": nbytes, "align": align}))

    def free(self, buffer: Buffer) -> None:
        """Give the memory back."""
        self._ask("free", {"buffer": vars(buffer)})

    def map(self, buffer: Buffer) -> np.ndarray:
        """Another computer's memory cannot be mapped.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(
            f"buffer {buffer.number} of {self._connection.address} cannot be mapped: it is memory "
            "of another process; copy it"
        )

    def copy_to(self, buffer: Buffer, data: np.ndarray, offset: int = 0) -> None:
        """The bytes travel with the call."""
        self._ask("copy_to", {"buffer": vars(buffer), "offset": offset}, data)

    def copy_from(self, buffer: Buffer, nbytes: int, offset: int = 0) -> np.ndarray:
        """The bytes travel with the answer."""
        about = {"call": "copy_from", "buffer": vars(buffer), "nbytes": nbytes, "offset": offset}
        (found,) = self._connection.call("driver", about, results=[((nbytes,), "uint8")])[1]
        return found

    def flush(self, buffer: Buffer, direction: Flush) -> None:
        """At the server."""
        self._ask("flush", {"buffer": vars(buffer), "direction": direction.value})

    def start(self, instructions: Buffer, count: int) -> None:
        """At the server."""
        self._ask("start", {"instructions": vars(instructions), "count": count})

    def wait(self, timeout: float) -> None:
        """At the server; the call itself may take the time of a call besides."""
        self._ask("wait", {"timeout": timeout})

    def reset(self) -> None:
        """At the server."""
        self._ask("reset", {})

    def close(self) -> None:
        """End the session."""
        self._connection.close()
