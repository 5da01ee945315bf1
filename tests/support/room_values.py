"""The dataclasses of a room: which may be changed, and which are compared by identity."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any


def values(room: str) -> Iterator[Any]:
    """Every dataclass that the modules of package `room`, or the one module `room`, define."""
    inside = getattr(importlib.import_module(room), "__path__", [])
    names = [m.name for m in pkgutil.walk_packages(inside, f"{room}.")]
    for name in [room, *names]:
        for value in vars(importlib.import_module(name)).values():
            own = inspect.isclass(value) and value.__module__ == name
            if own and dataclasses.is_dataclass(value):
                yield value


def changeable(room: str) -> set[str]:
    """Those whose fields may be set after they were made."""
    return {v.__name__ for v in values(room) if not v.__dataclass_params__.frozen}


def by_identity(room: str) -> set[str]:
    """Those of which two with the same fields differ."""
    return {v.__name__ for v in values(room) if not v.__dataclass_params__.eq}
