"""The functions of a device server: what TVM's RPC server answers for `hw/driver/remote.py`.

A session is a process of its own, forked by TVM's server from the one that registers here; what a
session loads and opens is gone with it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.driver.connection import (
    GIVEN,
    PREFIX,
    PROTOCOL,
    READS,
    SAYS,
    SAYS_END,
    WRITES,
)
from vta_byoc.hw.driver.exchange import attached, mapped
from vta_byoc.hw.driver.protocol import Buffer, DeviceDriver, Flush
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.faults import COUNTER_SLOTS, STATUS_SLOT, Fault, static_message
from vta_byoc.hw.sim.devices import driver, open_device
from vta_byoc.hw.sim.interpreter import NO_REGION, symbol

_DIE_WITH_PARENT = 1
"""Linux: PR_SET_PDEATHSIG."""


@dataclass
class _Loaded:
    """A program on the server: its tensors, and the function that runs it."""

    function: Any
    insns: Any
    image: Any
    arena: Any
    counters: Any
    inputs: Any = None


class Session:
    """What one session has loaded, and its functions.

    Args:
        device: the device that runs programs.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._programs: list[_Loaded] = []
        self._driver: DeviceDriver | None = None
        self.shared: mmap.mmap | None = None

    def describe(self, _about: dict[str, Any]) -> dict[str, Any]:
        """What this server is."""
        _end_with_parent()
        device = driver(self._device)
        about = {"device": device.name, "about": device.about, "computes": device.computes}
        versions = {"version": version("vta_byoc"), "tvm": tvm.__version__}
        return {"protocol": PROTOCOL, **versions, **about}

    def share(self, about: dict[str, Any]) -> dict[str, Any]:
        """Map the client's file, if the client is on this computer."""
        self.shared = attached(about["path"], about["token"])
        return {"shared": self.shared is not None}

    def load(self, about: dict[str, Any], insns: np.ndarray, image: np.ndarray) -> dict[str, Any]:
        """Keep a program: its configuration, instructions and image; its number."""
        config = VTAConfig.from_dict(about["config"])
        module = driver(self._device).module(config)
        tensor = tvm.runtime.tensor
        self._programs.append(
            _Loaded(
                module[symbol(config)],
                tensor(insns),
                tensor(image),
                tvm.runtime.empty((about["arena_bytes"],), "int8"),
                tvm.runtime.empty((COUNTER_SLOTS,), "int64"),
            )
        )
        return {"program": len(self._programs) - 1}

    def run(self, about: dict[str, Any], inputs: np.ndarray, rest: np.ndarray) -> dict[str, Any]:
        """Run a program on inputs; writes the arena behind its constants to `rest`."""
        loaded = self._programs[about["program"]]
        if loaded.inputs is None:
            loaded.inputs = tvm.runtime.empty(inputs.shape, "int8")
        given = loaded.inputs.copyfrom(inputs)
        begin = time.perf_counter()
        loaded.function(loaded.insns, given, loaded.image, NO_REGION, loaded.arena, loaded.counters)
        seconds = time.perf_counter() - begin
        counters = loaded.counters.numpy()
        fault = Fault(int(counters[STATUS_SLOT]))
        if fault is not Fault.NONE:
            raise VTAError(static_message(fault))
        head = len(inputs) + int(loaded.image.shape[0])
        rest[:] = np.from_dlpack(loaded.arena)[head:]
        named = dict(zip(COUNTER_NAMES, counters.tolist(), strict=False))
        return {"counters": named, "seconds": seconds}

    # ------------------------------------------------------------ the driver protocol
    def driver(self, about: dict[str, Any], *tensors: np.ndarray) -> dict[str, Any]:
        """One call of the driver protocol; "open" comes first."""
        name = about.pop("call")
        if name == "open":
            self._driver = open_device(self._device, VTAConfig.from_dict(about["config"]))
            return {}
        if self._driver is None:
            raise VTAError(f"{name} before open; a session opens its device first; open it")
        for key in ("buffer", "instructions"):
            if key in about:
                about[key] = Buffer(**about[key])
        if "direction" in about:
            about["direction"] = Flush(about["direction"])
        if name == "copy_to":
            about["data"] = tensors[0]
        found = getattr(self._driver, name)(**about)
        if name == "copy_from":
            tensors[0][:] = found
            return {}
        if isinstance(found, VTAConfig):
            return {"value": found.to_dict()}
        return {"value": None if found is None else vars(found)}


def register_session(device: str) -> None:
    """Register the functions of a server whose programs `device` runs.

    Raises:
        VTAError: there is no such device.
    """
    driver(device)
    session = Session(device)
    for function in (
        session.describe,
        session.share,
        session.load,
        session.run,
        session.driver,
    ):
        name = PREFIX + function.__name__
        tvm_ffi.register_global_func(name, _saying(session, function), override=True)


def _saying(session: Session, function: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """`function` from and to JSON, with errors that can be told from those of the connection."""

    @functools.wraps(function)
    def said(data: bytes, *tensors: Any) -> str:
        try:
            about = json.loads(bytes(data))
            read, write = about.pop(READS, []), about.pop(WRITES, [])
            if read or write:
                assert session.shared is not None
                views = [mapped(session.shared, place) for place in (*read, *write)]
                return json.dumps(function(about, *views))
            count = about.pop(GIVEN, 0)
            given = [tensor.numpy() for tensor in tensors[:count]]
            written = [np.empty(t.shape, str(t.dtype)) for t in tensors[count:]]
            found = function(about, *given, *written)
            for tensor, array in zip(tensors[count:], written, strict=True):
                tensor.copyfrom(array)
            return json.dumps(found)
        except Exception as err:
            kind = "" if isinstance(err, VTAError) else f"{type(err).__name__}: "
            raise RuntimeError(f"{SAYS}{kind}{err}{SAYS_END}") from err

    return said


def _end_with_parent() -> None:
    """Let this session end with the server that it belongs to, where the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
