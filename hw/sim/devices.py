"""The devices that run programs: one row each in `DRIVERS`.

A driver gives a runtime module whose function `interpreter.symbol` has the signature that every
device shares (see `hw/sim/interpreter.py`).  TVM is imported where a module is built, so that the
table can be read without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.plugins import load_installed
from vta_byoc.hw.registry import Registry

if TYPE_CHECKING:
    import tvm
    from tvm.target import Target

    from vta_byoc.hw.config import VTAConfig


class Driver(Protocol):
    """A device: what it is, and the module that runs programs of one configuration."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def about(self) -> str:
        """What it does, in a few words."""

    @property
    def computes(self) -> bool:
        """Whether it executes programs; the results of one that does not are zeros."""

    @property
    def timed(self) -> bool:
        """Whether its runs have the cycles of the timing model."""

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """The module for programs of `config`, compiled for an LLVM `target`."""


@dataclass(frozen=True)
class Simulator:
    """The functional simulator; `dot` as in `interpreter.build_interpreter`."""

    name: str
    about: str
    dot: str = "auto"
    timed: bool = False
    computes: bool = True

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """The compiled interpreter."""
        from vta_byoc.hw.sim.interpreter import build_interpreter

        return build_interpreter(config, target, self.dot)


@dataclass(frozen=True)
class NullDevice:
    """Executes nothing and reports zeros."""

    name: str = "null"
    about: str = "a dry run that computes nothing"
    timed: bool = False
    computes: bool = False

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """A function that clears its outputs."""
        from vta_byoc.hw.sim.null_device import build_null_device

        return build_null_device(config, target)


DRIVERS: Registry[Driver] = Registry("device")
"""Name -> driver."""
for _device in (
    Simulator("sim", "the functional simulator"),
    Simulator("tsim", "the same with cycles from the timing model", timed=True),
    NullDevice(),
):
    DRIVERS.add(_device.name, _device)


def driver(name: str) -> Driver:
    """The driver `name`.

    Raises:
        VTAError: there is no such device, of the compiler or of a plug-in.
    """
    if name not in DRIVERS:
        load_installed()
    if name not in DRIVERS:
        raise VTAError(f"unknown device {name!r}; known: {', '.join(DRIVERS)}; choose one")
    return DRIVERS[name]
