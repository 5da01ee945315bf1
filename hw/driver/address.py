"""Where a device server or a tracker is, and whether anybody listens there."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from vta_byoc.hw.driver.protocol import DeviceError
from vta_byoc.hw.errors import VTAError

RPC, TRACKER = "rpc", "tracker"


@dataclass(frozen=True)
class Address:
    """Where a device server is.

    Attributes:
        host: name or number.
        port: 1 to 65535.
        key: what the server was started with; "" for none.
        tracker: whether host and port are a tracker's, which knows servers by their key.
    """

    host: str
    port: int
    key: str = ""
    tracker: bool = False

    def __str__(self) -> str:
        scheme = TRACKER if self.tracker else RPC
        return f"{scheme}://{self.host}:{self.port}" + (f"/{self.key}" if self.key else "")

    @classmethod
    def of(cls, text: str) -> Address:
        """Read `rpc://host:port[/key]` or `tracker://host:port/key`.

        Raises:
            VTAError: it is neither.
        """
        try:
            parts = urlsplit(text)
            host, port, key = parts.hostname, parts.port, parts.path.strip("/")
        except ValueError:
            parts, host, port, key = urlsplit(""), None, None, ""
        tracker = parts.scheme == TRACKER
        if parts.scheme not in (RPC, TRACKER) or not host or not port or (tracker and not key):
            raise VTAError(
                f"device {text!r} is no address; it must be rpc://HOST:PORT[/KEY] or "
                "tracker://HOST:PORT/KEY; correct it"
            )
        return cls(host, port, key, tracker)


def check_listens(address: Address, timeout: float) -> None:
    """Refuse an address where nobody listens: TVM's client would try for a minute."""
    try:
        socket.create_connection((address.host, address.port), timeout).close()
    except OSError as err:
        what, how = "device server", "vta-byoc device-server"
        if address.tracker:
            what, how = "tracker", "python -m tvm.exec.rpc_tracker"
        raise DeviceError(
            f"no {what} at {address.host}:{address.port} ({err.strerror or err}); one must "
            f"listen there; start it ({how}), or correct the address",
            transient=True,
        ) from err
