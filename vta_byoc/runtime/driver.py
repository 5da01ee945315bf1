"""Devices behind the driver protocol: what users and their own drivers import.

`open_device` opens a device by name; `DeviceDriver` is what it answers and what a device of one's
own implements; `Runner` makes a run of a program from its calls.
"""

from vta_byoc.hw.driver import register_map
from vta_byoc.hw.driver.execution import Limits, Runner
from vta_byoc.hw.driver.protocol import (
    Buffer,
    DeviceDriver,
    DeviceError,
    DeviceTimeout,
    DeviceVersion,
    Flush,
)
from vta_byoc.hw.driver.register_driver import RegisterDriver
from vta_byoc.hw.driver.register_map import RegisterMap
from vta_byoc.hw.driver.self_test import checked_runner
from vta_byoc.hw.driver.transport import Region, Transport
from vta_byoc.hw.sim.devices import open_device

__all__ = [
    "CHISEL",
    "HLS",
    "Buffer",
    "DeviceDriver",
    "DeviceError",
    "DeviceTimeout",
    "DeviceVersion",
    "Flush",
    "Limits",
    "Region",
    "RegisterDriver",
    "RegisterMap",
    "Runner",
    "Transport",
    "checked_runner",
    "open_device",
]

HLS: RegisterMap = register_map.HLS
"""The registers of boards with the four HLS cores."""
CHISEL: RegisterMap = register_map.CHISEL
"""The registers of boards with the Chisel core."""
