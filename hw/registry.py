"""Tables of names: what is built in, and what plug-ins add to it, with who did."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeVar

from vta_byoc.hw.errors import VTAError

BUILT_IN = "vta_byoc"
"""Who registered what the compiler has by itself."""
Entry = TypeVar("Entry")
_PLUGIN: ContextVar[str | None] = ContextVar("plugin", default=None)
"""The plug-in that is being loaded."""


class Registry(dict[str, Entry]):
    """The entries of one kind by name, in the order of registration; each has one owner.

    Attributes:
        kind: what an entry is, as errors and tables call it.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self._owners: dict[str, str] = {}
        self._replaced: dict[str, Entry] = {}
        REGISTRIES.append(self)

    def add(self, name: str, entry: Entry, by: str = BUILT_IN, *, replace: bool = False) -> None:
        """Register `entry`.

        Args:
            name: each stands for one entry.
            entry: what the name stands for.
            by: the module or the distribution that registers it.
            replace: whether it takes the place of a built-in entry, until it is removed.

        Raises:
            VTAError: the name is taken.
        """
        if replace and name in self and self.is_built_in(name):
            self._replaced[name] = self[name]
        elif name in self:
            raise VTAError(
                f'{self.kind} "{name}" of {by} is registered already, by {self.by(name)}; each '
                f"name stands for one {self.kind}; give it another name"
            )
        self[name] = entry
        self._owners[name] = by

    def remove(self, name: str) -> None:
        """Forget the entry `name`, which is registered; what it replaced is there again."""
        del self[name], self._owners[name]
        if name in self._replaced:
            self[name] = self._replaced.pop(name)

    def by(self, name: str) -> str:
        """Who registered `name`."""
        return self._owners.get(name, BUILT_IN)

    def is_built_in(self, name: str) -> bool:
        """Whether the compiler has `name` by itself."""
        return self.by(name) == BUILT_IN

    def is_replaced(self, name: str) -> bool:
        """Whether `name` stands for something else than the compiler's own entry."""
        return name in self._replaced

    def added(self) -> list[str]:
        """The names that plug-ins and users registered."""
        return [name for name in self if not self.is_built_in(name)]


REGISTRIES: list[Registry[Any]] = []
"""Every table, in the order in which their modules are imported."""


def registrant(what: object) -> str:
    """Who registers `what`: the plug-in that is being loaded, or its module."""
    if _PLUGIN.get() is not None:
        return str(_PLUGIN.get())
    name = what.__name__ if isinstance(what, ModuleType) else getattr(what, "__module__", None)
    # A function that was defined in a notebook's or a script's session has no module.
    return str(name or "__main__")


@contextlib.contextmanager
def loading(plugin: str) -> Iterator[None]:
    """Within the block `plugin` registers; if the block fails, nothing of it stays."""
    token = _PLUGIN.set(plugin)
    try:
        with undone(only_failed=True):
            yield
    finally:
        _PLUGIN.reset(token)


@contextlib.contextmanager
def undone(*, only_failed: bool = False) -> Iterator[None]:
    """What the block registers is gone behind it; `only_failed`: only if the block fails."""
    before = {id(table): set(table.added()) for table in REGISTRIES}
    failed = True
    try:
        yield
        failed = False
    finally:
        if failed or not only_failed:
            for table in REGISTRIES:
                kept = before.get(id(table), set())
                for name in [name for name in table.added() if name not in kept]:
                    table.remove(name)
