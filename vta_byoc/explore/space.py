"""The machines of an exploration, from a JSON file."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vta_byoc.hw.config import PRESETS, VTAConfig
from vta_byoc.hw.config_values import refuse_unknown
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.json_object import read_object, shown

MOST_MACHINES = 10_000
KEYS = ("machines", "base", "vary")


@dataclass(frozen=True)
class Machine:
    """One machine of a space: its name, and its configuration."""

    name: str
    config: VTAConfig


@dataclass(frozen=True)
class Space:
    """Machines, in the order of the file.

    Attributes:
        machines: those that can exist.
        refused: the names of those that cannot, with the reason.
    """

    machines: tuple[Machine, ...]
    refused: dict[str, str]


def read_space(path: str | Path) -> Space:
    """Read `machines` (presets and configuration files) and every combination of `vary` on `base`.

    Raises:
        VTAError: the file cannot be read, a key or value is wrong, or no machine can exist.
    """
    where = f"space {path}"
    data = read_object(path, f"space file {path}", "name an existing JSON file")
    refuse_unknown(data, set(KEYS), where)
    named = _list(data.get("machines", []), "machines", where)
    machines = [Machine(str(name), _machine(str(name))) for name in named]
    refused: dict[str, str] = {}
    vary = data.get("vary", {})
    if not isinstance(vary, dict):
        raise VTAError(
            f"{where}: vary is {shown(vary)}; it must be an object of KEY: list; use one"
        )
    if vary:
        base = str(data.get("base", "pynq"))
        for name, keys in _combinations(vary, where):
            try:
                config = VTAConfig.from_dict({**_machine(base).to_dict(), **keys}, where=where)
            except VTAError as err:
                refused[f"{base} {name}"] = str(err)
            else:
                machines.append(Machine(f"{base} {name}", config))
    if not machines:
        why = f"; {next(iter(refused.values()))}" if refused else ""
        raise VTAError(
            f"{where} has no machine that can exist{why}; name machines, or vary a base's keys"
        )
    names = [machine.name for machine in machines]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise VTAError(f'{where} has the machine "{twice}" twice; keep one of them')
    return Space(tuple(machines), refused)


def _combinations(vary: dict[str, Any], where: str) -> list[tuple[str, dict[str, Any]]]:
    values = [_list(found, f"vary.{key}", where) for key, found in vary.items()]
    count = 1
    for each in values:
        count *= len(each)
    if not 0 < count <= MOST_MACHINES:
        raise VTAError(
            f"{where}: vary gives {count:,} machines; a space has 1 to {MOST_MACHINES:,}; give "
            "every key a value, and fewer of them"
        )
    made = []
    for chosen in itertools.product(*values):
        keys = dict(zip(vary, chosen, strict=True))
        made.append((" ".join(f"{key}={value}" for key, value in keys.items()), keys))
    return made


def _machine(name: str) -> VTAConfig:
    return VTAConfig.preset(name) if name in PRESETS else VTAConfig.from_json(name)


def _list(value: Any, what: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise VTAError(f"{where}: {what} is {shown(value)}; it must be a list; use [...]")
    return value
