"""The memory scopes of a machine: what each can hold, and which units read and write it."""

from __future__ import annotations

from dataclasses import dataclass

from vta_byoc.hw.errors import VTAError

GLOBAL = "global"
"""The scope that the host reads and writes; every tensor that nobody asks about lives there."""
HOST = "host"
"""The unit that runs what a demand function does not know, and that makes copies."""


@dataclass(frozen=True)
class Fact:
    """What is asked of a tensor before it is given a scope; ``nbytes`` of its data."""

    name: str
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class Serves:
    """A tensor of `dtype` kept in the scope that says so is as good as one in `scope`.

    `rule` says why in decisions.
    """

    scope: str
    dtype: str
    rule: str


@dataclass(frozen=True)
class Scope:
    """One memory scope.

    Attributes:
        name: as in VDevice and buffers.
        capacity: bytes; None is no limit, 0 a buffer that this configuration does not have.
        element: bytes that are addressed as one; a tensor takes whole elements.
        dtypes: what it holds; () is anything.
        readers, writers: units that can; HOST where copies can be made from it, and to it.
        serves: other scopes' demands that a tensor kept here satisfies.
    """

    name: str
    capacity: int | None = None
    element: int = 1
    dtypes: tuple[str, ...] = ()
    readers: tuple[str, ...] = (HOST,)
    writers: tuple[str, ...] = (HOST,)
    serves: tuple[Serves, ...] = ()

    def taken(self, nbytes: int) -> int:
        """Bytes that a tensor of ``nbytes`` takes here."""
        return -(-nbytes // self.element) * self.element

    def serving(self, scope: str, dtype: str) -> Serves | None:
        """Why a tensor kept here satisfies a demand for ``scope``; None if it does not."""
        return next((s for s in self.serves if (s.scope, s.dtype) == (scope, dtype)), None)


@dataclass(frozen=True)
class ScopeTable:
    """All scopes of ``machine``, `global` among them."""

    machine: str
    scopes: tuple[Scope, ...]

    def __post_init__(self) -> None:
        names = [scope.name for scope in self.scopes]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise VTAError(
                f'scope "{twice}" is in the table of {self.machine} twice; keep one row of each'
            )
        if GLOBAL not in names:
            raise VTAError(
                f"the scope table of {self.machine} has {', '.join(names) or 'no scope'}; "
                f'it needs "{GLOBAL}", where everything else lives: add Scope("{GLOBAL}")'
            )

    def known(self, name: str, asked: str) -> Scope:
        """The scope ``name``; ``asked`` begins the message if there is none."""
        for scope in self.scopes:
            if scope.name == name:
                return scope
        names = ", ".join(scope.name for scope in self.scopes)
        raise VTAError(
            f'{asked} scope "{name}", which {self.machine} does not know; it has {names}; '
            "name one of them or add a row to the scope table"
        )

    def check_read(self, tensor: Fact, consumer: str, unit: str, name: str) -> None:
        """That ``consumer``, which runs on ``unit``, can have ``tensor`` in the scope ``name``.

        Raises:
            VTAError: unknown scope, no such buffer, wrong type, too large, unreadable.
        """
        asked = f'tensor "{tensor.name}": consumer "{consumer}" demands'
        scope = self.known(name, asked)
        self._check_holds(tensor, asked, scope)
        if unit not in scope.readers:
            raise VTAError(
                f'{asked} scope "{name}": need {unit}, which runs it, among its readers, have '
                f"{_listed(scope.readers)}; demand a scope that {unit} reads"
            )

    def check_write(self, tensor: Fact, producer: str, unit: str, name: str) -> None:
        """That ``producer``, which runs on ``unit``, can write ``tensor`` to the scope ``name``.

        Raises:
            VTAError: unknown scope, no such buffer, wrong type, too large, unwritable.
        """
        asked = f'tensor "{tensor.name}": producer "{producer}" writes'
        scope = self.known(name, asked)
        self._check_holds(tensor, asked, scope)
        if unit not in scope.writers:
            raise VTAError(
                f'{asked} scope "{name}": need {unit}, which runs it, among its writers, have '
                f"{_listed(scope.writers)}; write a scope that {unit} writes"
            )

    def _check_holds(self, tensor: Fact, asked: str, scope: Scope) -> None:
        asked = f'{asked} scope "{scope.name}"'
        if scope.capacity == 0:
            raise VTAError(
                f"{asked}: need a buffer, have none: {self.machine} is configured without it; "
                f"choose a configuration that has it or name {GLOBAL}"
            )
        if scope.dtypes and tensor.dtype not in scope.dtypes:
            raise VTAError(
                f"{asked}: need {tensor.dtype}, have {_listed(scope.dtypes)} on {self.machine}; "
                "convert the tensor or name another scope"
            )
        need = scope.taken(tensor.nbytes)
        if scope.capacity is not None and need > scope.capacity:
            raise VTAError(
                f"{asked}: need {need} bytes in elements of {scope.element}, have "
                f"{scope.capacity} on {self.machine}; name {GLOBAL} or cut the tensor into tiles"
            )

    def check_copy(self, tensor: Fact, source: str, target: str) -> None:
        """That the host can copy ``tensor`` from one scope to another."""
        asked = f'tensor "{tensor.name}": a copy uses'
        reads, writes = self.known(source, asked), self.known(target, asked)
        if HOST not in writes.writers:
            raise VTAError(
                f'tensor "{tensor.name}" is wanted in scope "{target}" and made in "{source}": '
                f'need its producer or the {HOST} to write "{target}", have as writers '
                f"{_listed(writes.writers)}; let the producer write it or demand another scope"
            )
        if HOST not in reads.readers:
            raise VTAError(
                f'tensor "{tensor.name}" is wanted in scope "{target}" and made in "{source}": '
                f'need the {HOST} to read "{source}" for a copy, have as readers '
                f"{_listed(reads.readers)}; let the producer write a scope that the {HOST} reads"
            )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
