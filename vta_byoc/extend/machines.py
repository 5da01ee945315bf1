"""`register_device` and `register_preset`: what programs run on, and what they are made for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tvm.target import register_tag

from vta_byoc._autoload import MACHINE, PIPELINE
from vta_byoc.extend.made import instance
from vta_byoc.hw.config import PRESETS, VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.registry import registrant
from vta_byoc.hw.sim.devices import DRIVERS, Driver

NEEDED = ("name", "about", "computes", "timed", "module")
"""What a driver has."""


def register_device(device: type[Driver] | Driver) -> None:
    """Let programs run on a device of yours: `device=` and `--device` take its name.

    Args:
        device: as `vta_byoc.hw.sim.devices.Driver` says; a class is called without arguments. Its
            `module(config, target)` returns a runtime module whose function
            `vta_byoc.hw.sim.interpreter.symbol(config)` takes instructions uint64 (n, 2), inputs
            and constants int8 (bytes,), the number of the region, the arena int8 (bytes,) and the
            counters int64, and writes the last two alone.

    Raises:
        VTAError: the name is taken, or the device lacks something of a driver.
    """
    by = registrant(device if isinstance(device, type) else type(device))
    made = instance(device, "device", by)
    missing = [name for name in NEEDED if not hasattr(made, name)]
    if not missing and not callable(made.module):
        missing = ["module()"]
    if missing:
        raise VTAError(
            f"device {type(made).__name__} of {by} has no {', '.join(missing)}; a device has "
            f"{', '.join(NEEDED)}; add what it lacks"
        )
    DRIVERS.add(str(made.name), made, by)


def register_preset(name: str, machine: VTAConfig | Mapping[str, Any]) -> None:
    """Give a machine a name that `VTAConfig.preset`, `--config` and `Target("vta/NAME")` take.

    Args:
        name: the name.
        machine: the machine, or the keys of its `vta_config.json`.

    Raises:
        VTAError: the name is taken, or there can be no such machine.
    """
    by = registrant(sys.modules.get(sys._getframe(1).f_globals.get("__name__", "")))
    made = machine
    if not isinstance(made, VTAConfig):
        made = VTAConfig.from_dict(made, where=f'preset "{name}" of {by}')
    PRESETS.add(name, _Given(made), by)
    register_tag(f"{PIPELINE}/{name}", {**MACHINE, "model": name}, override=True)


class _Given:
    """A machine that is there already, as what makes it."""

    def __init__(self, machine: VTAConfig) -> None:
        self._machine = machine

    def __call__(self) -> VTAConfig:
        """The machine."""
        return self._machine
