"""Values of a configuration file: what each may be, and what is said of one that may not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.json_object import shown


def want(name: str, value: Any, low: int, high: int) -> None:
    """Refuse ``value`` unless it is an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise VTAError(
            f"configuration key {name} is {shown(value)}; it must be an integer from {low} to "
            f"{high}; correct it in the configuration file"
        )


def want_text(name: str, value: Any) -> None:
    """Refuse ``value`` unless it is a string."""
    if not isinstance(value, str):
        raise VTAError(
            f"configuration key {name} is {shown(value)}; it must be a string; correct it in the "
            "configuration file"
        )


def group(cls: Any, data: Any, where: str, name: str) -> dict[str, Any]:
    """The values of the object `name`, of which each key must be a field of the dataclass `cls`."""
    if not isinstance(data, Mapping):
        raise VTAError(
            f"{where}: {name} is {shown(data)}; it must be an object of KEY: value pairs"
        )
    refuse_unknown(data, {f.name for f in dataclasses.fields(cls)}, f"{where}: {name}")
    for item in dataclasses.fields(cls):
        if item.type == "bool" and not isinstance(data.get(item.name, True), bool):
            raise VTAError(
                f"{where}: {name}.{item.name} is {shown(data[item.name])}; it must be true or "
                "false; correct it"
            )
    return dict(data)


def refuse_unknown(data: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse keys of `data` that are not among `known`."""
    unknown = sorted(set(data) - known)
    if unknown:
        raise VTAError(
            f"{where}: unknown key {', '.join(shown(key)[1:-1] for key in unknown)}; known keys: "
            f"{', '.join(sorted(known))}; correct or remove it"
        )
