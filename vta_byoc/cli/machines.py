"""Which machine a command takes: the option, a variable, a file of the folder, or the default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vta_byoc.cli.consoles import say
from vta_byoc.hw.errors import VTAError

if TYPE_CHECKING:
    from vta_byoc.hw.config import VTAConfig

DEFAULT_CONFIG = "sim"
VARIABLE = "VTA_BYOC_CONFIG"
"""The environment variable that names a preset or a JSON file."""
FILE = "vta_config.json"
"""What is taken of the working folder."""


class FoundConfig(str):
    """A preset or a file that no option named; `origin` says what did."""

    origin: str

    def __new__(cls, name: str, origin: str) -> FoundConfig:
        """`name`, with where it comes from."""
        made = super().__new__(cls, name)
        made.origin = origin
        return made


def chosen_config(_ctx: click.Context, _param: click.Parameter, given: str | None) -> str:
    """The name of a machine: what `--config` gives, or else what is found."""
    if given is not None:
        return given
    named = os.environ.get(VARIABLE, "")
    if named:
        return FoundConfig(named, f"the variable {VARIABLE}")
    return FoundConfig(FILE, "the working folder") if Path(FILE).exists() else DEFAULT_CONFIG


config_option = click.option(
    "--config",
    metavar="PRESET|FILE",
    callback=chosen_config,
    help=f"The machine: a preset (see `vta-byoc configs`) or a JSON file. Default: that of the "
    f"variable {VARIABLE}, else {FILE} of the working folder, else {DEFAULT_CONFIG}.",
)


def read_config(name: str) -> VTAConfig:
    """A preset by name, or a JSON file; one that was found is told on stderr.

    Raises:
        VTAError: it cannot be read, or is no machine.
    """
    if not isinstance(name, FoundConfig):
        return _read(name)
    try:
        machine = _read(name)
    except VTAError as error:
        away = f"remove {name}" if name == FILE else f"correct or unset {VARIABLE}"
        text = f"the machine of {name.origin}: {error}; or {away}, or give --config"
        raise VTAError(text) from error
    say(f"machine: {name} of {name.origin}: {machine.target} ({machine.name})", err=True)
    return machine


def _read(name: str) -> VTAConfig:
    from vta_byoc.hw.config import VTAConfig

    if name in VTAConfig.presets():
        return VTAConfig.preset(name)
    path = Path(name)
    is_file = path.suffix or path.name != name or path.exists()
    return VTAConfig.from_json(path) if is_file else VTAConfig.preset(name)
