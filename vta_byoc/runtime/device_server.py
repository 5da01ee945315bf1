"""A device server: TVM's RPC server with the functions of `hw/sim/device_server.py`."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vta_byoc.hw.driver.address import Address
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.device_server import register_session

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 9091
START_SECONDS = 60.0
"""How long a server of this computer may take until it listens."""
LISTENS = "device server listens at "
"""What the line begins with that a server prints when it listens."""
TRIES = 10


@dataclass(frozen=True)
class Serving:
    """How a server listens.

    Attributes:
        device: the device that runs programs.
        host: the address to listen at; others than loopback open it to the network.
        port: the port; 0 for any that is free.
        key: what clients must give.
        tracker: a tracker that is told of the server, as (host, port).
    """

    device: str = "sim"
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    key: str = ""
    tracker: tuple[str, int] | None = None

    @property
    def opened(self) -> bool:
        """Whether other computers can reach it."""
        return self.host not in (LOOPBACK, "localhost", "::1")


OPENED = (
    "this server is open to the network: who reaches it can run any code as this user and write "
    "files; nothing is encrypted, and the key is no password; use it in a network that you trust, "
    "or listen at 127.0.0.1 behind a tunnel (ssh -L)"
)
"""What is said of a server that does not listen at loopback."""


def serve(serving: Serving, told: Callable[[Address], None]) -> None:
    """Serve until the process ends.

    Args:
        serving: how.
        told: called with the address when the server listens.

    Raises:
        VTAError: no such device, the port is in use, or the address is none of this computer.
    """
    register_session(serving.device)
    port = _listen(serving)
    told(Address(serving.host, port, serving.key))
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    while True:
        signal.pause()


def _listen(serving: Serving) -> int:
    """Start TVM's server in a thread of this process; the port."""
    from tvm.rpc.server import PopenRPCServerState, logger

    logger.setLevel(logging.ERROR)
    for _ in range(TRIES):
        port = serving.port or _free_port(serving.host)
        given = {"key": serving.key, "tracker_addr": serving.tracker, "silent": True}
        try:
            PopenRPCServerState.current = PopenRPCServerState(serving.host, port, port + 1, **given)
        except ValueError:
            if serving.port:
                raise VTAError(
                    f"port {port} of {serving.host} is in use; a server needs one of its own; give "
                    "another --port, or 0 for any"
                ) from None
            continue
        except OSError as err:
            raise _no_address(serving.host, err) from err
        return port
    raise VTAError(f"no free port at {serving.host} in {TRIES} attempts; give one with --port")


def _free_port(host: str) -> int:
    try:
        family = socket.getaddrinfo(host, None)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.bind((host, 0))
            return int(listener.getsockname()[1])
    except OSError as err:
        raise _no_address(host, err) from err


def _no_address(host: str, err: OSError) -> VTAError:
    return VTAError(
        f"cannot listen at {host}: {err.strerror or err}; it must be an address of this computer; "
        "give 127.0.0.1, or one that `ip address` shows"
    )


# ---------------------------------------------------------------- servers of this computer
@dataclass
class LocalServer:
    """A server of this computer, a process of its own.

    Attributes:
        address: where it listens.
        process: the server; sessions are its children, in one group of processes with it.
    """

    address: Address
    process: subprocess.Popen[str]

    def stop(self) -> None:
        """End the server and its sessions."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def local_servers(count: int, device: str = "sim") -> Iterator[list[LocalServer]]:
    """Within the block `count` servers of `device` listen at loopback.

    Raises:
        VTAError: one does not listen within START_SECONDS.
    """
    servers: list[LocalServer] = []
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            started.append(_started(device))
        deadline = time.monotonic() + START_SECONDS
        for process in started:
            servers.append(LocalServer(_address_of(process, deadline), process))
        yield servers
    finally:
        for process in started:
            LocalServer(Address(LOOPBACK, 1), process).stop()


def _started(device: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vta_byoc", "device-server", "--port", "0"]
    return subprocess.Popen(
        [*command, "--device", device],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _address_of(process: subprocess.Popen[str], deadline: float) -> Address:
    """The address that a server prints."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
    line = process.stdout.readline() if ready else ""
    if not line.startswith(LISTENS):
        raise VTAError(
            f"a device server of this computer did not listen within {START_SECONDS:g} s; it "
            "prints where it listens; run vta-byoc device-server to see why"
        )
    return Address.of(line.removeprefix(LISTENS).split()[0])
