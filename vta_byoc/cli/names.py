"""Values of options that are names of a table, which plug-ins may have added to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click

from vta_byoc.hw.sim.devices import DRIVERS, POOL_KIND, SCHEMES, driver


class RegisteredName(click.Choice[str]):
    """One of the names of a table, as it is when the command line is read."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names
        super().__init__(())

    @property
    def choices(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self._names())

    @choices.setter
    def choices(self, _names: Sequence[str]) -> None:
        """What `click.Choice` sets is not kept: the table has it."""


class DeviceName(RegisteredName):
    """A device: a name of the table, or one with a colon, such as `rpc://127.0.0.1:9091`."""

    name = "device"

    def __init__(self, *more: str, pools: bool = False) -> None:
        """Names of the table, and `more`; `pools` where the command runs many samples."""
        self._pools = pools
        super().__init__(lambda: [*DRIVERS, *more, *(f"{kind}:..." for kind in self._kinds())])

    def _kinds(self) -> list[str]:
        return [kind for kind in SCHEMES if self._pools or kind != POOL_KIND]

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Names of a kind of device are read by the kind; others must be in the table."""
        scheme, colon, rest = value.partition(":")
        if colon and rest and rest != "..." and scheme in self._kinds():
            return driver(value).name
        return super().convert(value, param, ctx)
