"""Values of options that are names of a table, which plug-ins may have added to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click


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
