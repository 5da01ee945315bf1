"""What is registered, by whom, and for how long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from vta_byoc.hw.plugins import load_installed, load_named
from vta_byoc.hw.registry import REGISTRIES, Registry, undone

Arguments = ParamSpec("Arguments")
INSTEAD = " (instead of the built-in one)"
"""Behind the name of who replaced an entry."""


def load_plugin(name: str) -> None:
    """Load a plug-in that is not installed: a module, `module:function`, or a `.py` file.

    `--plugin` of the command line does this. A plug-in that is loaded is not loaded again.

    Raises:
        VTAError: it cannot be loaded; nothing of it is registered.
    """
    load_named(name)


@contextlib.contextmanager
def registered(
    register: Callable[Arguments, None] | None = None,
    *args: Arguments.args,
    **keywords: Arguments.kwargs,
) -> Iterator[None]:
    """Register for the time of a `with` statement; everything registered in it is gone behind it.

    Args:
        register: one of the functions that register; None: the block calls them itself.
        args: the arguments of that function.
        keywords: its keyword arguments.
    """
    with undone():
        if register is not None:
            register(*args, **keywords)
        yield


def rows(*, builtin: bool = False) -> list[tuple[str, str, str]]:
    """Kind, name and registrant of each entry that plug-ins added; `builtin`: of all entries."""
    load_installed()
    return [(registry.kind, name, registry.by(name)) for registry, name in _listed(builtin)]


def _listed(builtin: bool) -> list[tuple[Registry[Any], str]]:
    return [
        (registry, name)
        for registry in REGISTRIES
        for name in registry
        if builtin or not registry.is_built_in(name)
    ]


def table(*, builtin: bool = False) -> str:
    """What is registered and by whom, as text: a line each of kind, name, module or distribution.

    Args:
        builtin: whether what the compiler has by itself is listed too.
    """
    load_installed()
    found = [
        (f"{registry.kind} {name}", registry.by(name) + INSTEAD * registry.is_replaced(name))
        for registry, name in _listed(builtin)
    ]
    width = max((len(what) for what, _ in found), default=0)
    return "".join(f"{what:<{width}}  {by}\n" for what, by in found)
