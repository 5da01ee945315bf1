"""Loading plug-ins: the entry points of the group `vta_byoc.plugins`, and modules by name.

An entry point is a module that registers when it is imported, or a function without arguments that
registers. All are loaded once, when the compiler is first used. One that fails is a warning and
registers nothing; the others and the compiler work.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.hw.registry import loading

GROUP = "vta_byoc.plugins"
"""The group of entry points."""


class _Loaded:
    """Which plug-ins are loaded: whether entry points were looked for, and modules by name."""

    looked = False
    names: ClassVar[set[str]] = set()


def load_installed() -> None:
    """Load every installed plug-in that is not loaded yet; a call after the first does nothing."""
    if _Loaded.looked:
        return
    _Loaded.looked = True
    for point in entry_points(group=GROUP):
        try:
            _load(point.value, _described(point), point.load)
        except VTAError as err:
            # A plug-in that cannot be loaded takes nothing else with it.
            warnings.warn(f"{err}", VTAWarning, stacklevel=2)


def load_named(name: str) -> None:
    """Load the plug-in `name`: a module, `module:function`, or the path of a `.py` file.

    Raises:
        VTAError: it cannot be imported, or fails while it registers.
    """
    if name.endswith(".py"):
        path = Path(name).resolve()
        _load(str(path), name, lambda: _import_file(path, name))
        return
    if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")):
        raise VTAError(
            f'plug-in "{name}" is no name of a module; a module, module:function or a path that '
            "ends in .py is taken; give one of them"
        )
    point = EntryPoint(name, name, GROUP)
    _load(name, name, point.load)


def _described(point: EntryPoint) -> str:
    """An entry point as tables and errors call it: its distribution with version, its module."""
    dist = point.dist
    whose = "" if dist is None else f"{dist.name} {dist.version}"
    return f"{whose} ({point.value})" if whose else point.value


def _load(key: str, name: str, load: Callable[[], object]) -> None:
    """Load one plug-in under the name `name`, unless it is loaded: `key` says which it is."""
    if key in _Loaded.names:
        return
    try:
        with loading(name):
            found = load()
            if not isinstance(found, ModuleType):
                _call(found)
    except Exception as err:
        line = next(iter(str(err).strip().splitlines()), "") or "no message"
        kind = "" if isinstance(err, VTAError) else f"{type(err).__name__}: "
        raise VTAError(
            f"plug-in {name} cannot be loaded: {kind}{line}; nothing of it is registered; repair "
            "or uninstall it"
        ) from err
    _Loaded.names.add(key)


def _call(found: object) -> None:
    if not callable(found):
        raise VTAError(
            f"it is a {type(found).__name__}; a module or a function without arguments is taken"
        )
    found()


def _import_file(path: Path, shown: str) -> ModuleType:
    if not path.is_file():
        raise VTAError(f'there is no file "{shown}"; correct the path')
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # its name ends in .py
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module
