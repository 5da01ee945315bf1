"""The devices that run programs: one row each in `DRIVERS`.

A driver gives a runtime module whose function `interpreter.symbol` has the signature that every
device shares (see `hw/sim/interpreter.py`).  TVM is imported where a module is built, so that the
table can be read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from vta_byoc.hw.driver.register_map import CHISEL, HLS, RegisterMap
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.plugins import load_installed
from vta_byoc.hw.registry import Registry

if TYPE_CHECKING:
    import tvm
    from tvm.target import Target

    from vta_byoc.hw.config import VTAConfig
    from vta_byoc.hw.driver.address import Address
    from vta_byoc.hw.driver.protocol import AnyRunner, DeviceDriver


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


@dataclass(frozen=True)
class SimulatedBoard:
    """A simulated register file with the functional simulator behind it."""

    name: str
    about: str
    registers: RegisterMap
    timed: bool = False
    computes: bool = True

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """A function that hands programs to the register driver of this process."""
        return _forwarding(self.name, config, target, lambda: self.open(config))

    def open(self, config: VTAConfig) -> DeviceDriver:
        """A new board, which is the machine `config`."""
        from vta_byoc.hw.driver.register_driver import RegisterDriver
        from vta_byoc.hw.sim.simulated_registers import SimulatedRegisters

        transport = SimulatedRegisters(self.registers, config)
        return RegisterDriver(self.name, self.registers, config, transport)


@dataclass(frozen=True)
class Board:
    """A board by its description (`vta_byoc.hw.driver.board`)."""

    name: str
    path: str
    about: str = "a board by its description"
    timed: bool = False
    computes: bool = True

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """A function that hands programs to the board's driver in this process."""
        return _forwarding(self.name, config, target, lambda: self.open(config))

    def open(self, config: VTAConfig) -> DeviceDriver:
        """The board; whether it is the machine `config` is asked before each run."""
        from vta_byoc.hw.driver.board import open_board

        return open_board(self.path)


@dataclass(frozen=True)
class Remote:
    """The device of a device server, by its address (`vta_byoc.hw.driver.remote`)."""

    name: str
    address: Address
    about: str = "the device of a server"
    timed: bool = False
    computes: bool = True

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """A function that hands programs to the server; it connects when it is first called."""
        from vta_byoc.hw.driver.remote import RemoteRunner

        return _answered(self.name, config, target, lambda: RemoteRunner(self.address))

    def open(self, config: VTAConfig) -> DeviceDriver:
        """The server's device, opened as machine `config`."""
        from vta_byoc.hw.driver.connection import Connection
        from vta_byoc.hw.driver.remote import RemoteDriver

        return RemoteDriver(Connection(self.address), config)


@dataclass(frozen=True)
class Pooled:
    """Whichever device of a pool (`vta_byoc.runtime.pool`) takes the call."""

    name: str
    about: str = "a device of a pool"
    timed: bool = False
    computes: bool = True

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """A function that hands programs to what the calling thread has chosen."""
        from vta_byoc.hw.driver.chosen_runner import ChosenRunner

        return _answered(self.name, config, target, ChosenRunner)


def _remote(name: str) -> Remote:
    from vta_byoc.hw.driver.address import Address

    return Remote(name, Address.of(name))


def _forwarding(
    name: str,
    config: VTAConfig,
    target: Target | Mapping[str, Any] | None,
    opened: Callable[[], DeviceDriver],
) -> tvm.runtime.Module:
    from vta_byoc.hw.driver.self_test import checked_runner

    return _answered(name, config, target, lambda: checked_runner(opened()))


def _answered(
    name: str,
    config: VTAConfig,
    target: Target | Mapping[str, Any] | None,
    runner: Callable[[], AnyRunner],
) -> tvm.runtime.Module:
    from vta_byoc.hw.sim.forwarding_device import answer_with, build_forwarding_device

    answer_with(name, config, runner)
    return build_forwarding_device(name, config, target)


@dataclass(frozen=True)
class RegisterTransferLevel:
    """The core of `hw/rtl/`, compiled by Verilator, with a DRAM of the machine's latency."""

    name: str = "rtl"
    about: str = "the core itself, cycle by cycle (extra rtl)"
    timed: bool = False
    computes: bool = True

    def module(
        self, config: VTAConfig, target: Target | Mapping[str, Any] | None = None
    ) -> tvm.runtime.Module:
        """A function that hands the buffers of a program to the core, in this process."""
        from vta_byoc.hw.sim.core_device import build_core_device

        return build_core_device(config, target)


DRIVERS: Registry[Driver] = Registry("device")
"""Name -> driver."""
for _device in (
    Simulator("sim", "the functional simulator"),
    Simulator("tsim", "the same with cycles from the timing model", timed=True),
    NullDevice(),
    RegisterTransferLevel(),
    SimulatedBoard("hls-registers", "the register file of the HLS boards, simulated", HLS),
    SimulatedBoard("chisel-registers", "that of the Chisel core's boards, simulated", CHISEL),
):
    DRIVERS.add(_device.name, _device)


POOL_KIND = "pool"
"""What stands there for several devices, which samples are shared between."""
SCHEMES: Registry[Callable[[str], Driver]] = Registry("kind of device")
"""What stands before the first colon of a device's name -> what makes the driver of such a name."""
SCHEMES.add("board", lambda name: Board(name, name.partition(":")[2]))
SCHEMES.add(POOL_KIND, Pooled)
for _scheme in ("rpc", "tracker"):
    SCHEMES.add(_scheme, _remote)


def driver(name: str) -> Driver:
    """The driver `name`.

    Args:
        name: a row of `DRIVERS`, or a name with a colon whose beginning is a row of `SCHEMES`, such
            as `board:pynq.json`.

    Raises:
        VTAError: there is no such device, of the compiler or of a plug-in.
    """
    if name in DRIVERS:
        return DRIVERS[name]
    load_installed()
    if name in DRIVERS:
        return DRIVERS[name]
    scheme, colon, rest = name.partition(":")
    if colon and rest and scheme in SCHEMES:
        return SCHEMES[scheme](name)
    kinds = "".join(f", {kind}:..." for kind in SCHEMES)
    raise VTAError(f"unknown device {name!r}; known: {', '.join(DRIVERS)}{kinds}; choose one")


def open_device(name: str, config: VTAConfig) -> DeviceDriver:
    """The device `name` opened behind the driver protocol.

    Args:
        name: as `driver` takes it.
        config: the machine; a device that is a board says itself which one it is.

    Raises:
        VTAError: there is no such device, or it cannot be opened.
    """
    found = driver(name)
    own = getattr(found, "open", None)
    if own is not None:
        opened: DeviceDriver = own(config)
        return opened
    from vta_byoc.hw.sim.function_driver import open_function

    return open_function(name, config, found.module)
