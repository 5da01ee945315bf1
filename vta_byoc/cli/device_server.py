"""`vta-byoc device-server`: a device of this computer for clients of others."""

from __future__ import annotations

import click

from vta_byoc.cli import commands
from vta_byoc.cli.consoles import say
from vta_byoc.cli.names import DeviceName
from vta_byoc.hw.errors import VTAError


@click.command("device-server", short_help="Let other processes run programs on a device here.")
@click.option("--device", type=DeviceName(), default="sim", show_default=True, help="The device.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at. Another one than loopback opens the server to the network: who "
    "reaches it can run any code as you.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9091,
    show_default=True,
    help="The port; 0 for any that is free.",
)
@click.option("--key", default="", help="What clients must give: rpc://HOST:PORT/KEY.")
@click.option(
    "--tracker",
    metavar="HOST:PORT",
    help="A tracker of TVM's that is told of the server; it needs a --key.",
)
@commands.debug_option
def device_server(device: str, host: str, port: int, key: str, tracker: str | None) -> None:
    """Serve a device over TVM's RPC until the process ends; one session at a time.

    \b
    Examples:
      vta-byoc device-server --port 9091
      vta-byoc run resnet18.onnx --device rpc://127.0.0.1:9091
      vta-byoc device-server --device board:pynq.json --host 0.0.0.0 --key pynq
    """
    from vta_byoc.hw.driver.address import Address
    from vta_byoc.runtime.device_server import LISTENS, OPENED, Serving, serve

    where = None
    if tracker is not None:
        found = Address.of(f"tracker://{tracker}/{key or 'key'}")
        where = (found.host, found.port)
        if not key:
            raise VTAError(
                f"--tracker {tracker} without --key; a tracker knows servers by their key; give one"
            )
    serving = Serving(device, host, port, key, where)

    def told(address: Address) -> None:
        say(f"{LISTENS}{address} (device {device})")
        if serving.opened:
            say(f"warning: {OPENED}", err=True)

    serve(serving, told)
