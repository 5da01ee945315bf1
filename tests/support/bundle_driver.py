"""The C runtime from Python: its structures, and a driver whose functions tests replace."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bundle_runs import C_FOLDER, STRICT, compiler

U32, U64, PTR = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
OK, DEVICE, TIMEOUT = 0, 7, 8
HEADER_MACHINE = 18
"""Numbers of a vta_machine."""
FUNCTIONS = (
    *("version", "capabilities", "allocate", "release", "map", "copy_to", "copy_from"),
    *("flush", "start", "wait", "reset", "explain"),
)
"""Of a vta_driver, in order."""


class Error(ctypes.Structure):
    _fields_ = (("status", ctypes.c_int), ("message", ctypes.c_char * 256))


class Source(ctypes.Structure):
    _fields_ = (("state", PTR), ("size", PTR), ("read", PTR))


class Info(ctypes.Structure):
    _fields_ = (
        ("version", U32),
        ("machine", U32 * HEADER_MACHINE),
        ("host_bytes", U64),
        ("device_bytes", U64),
    )


class Driver(ctypes.Structure):
    _fields_ = (
        ("interface_version", U32),
        ("state", PTR),
        *((name, PTR) for name in FUNCTIONS),
    )


def shared_library(folder: Path) -> ctypes.CDLL:
    """Runtime and simulator as a library that Python loads."""
    target = folder / "libvta.so"
    sources = [str(C_FOLDER / name) for name in ("vta_runtime.c", "vta_sim.c")]
    command = [compiler(), *STRICT, "-O2", "-fPIC", "-shared", *sources, "-lm", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(target))
    library.vta_sim_bytes.restype = U64
    library.vta_sim_bytes.argtypes = (PTR, U64)
    library.vta_sim_init.restype = PTR
    library.vta_sim_init.argtypes = (PTR, U64, PTR, ctypes.c_size_t)
    library.vta_sim_driver.argtypes = (PTR, PTR)
    library.vta_close.argtypes = (PTR,)
    library.vta_run.argtypes = (PTR, PTR, PTR, U32, PTR)
    return library


class Bundle:
    """A bundle on the simulator; change `driver` before `open`."""

    def __init__(self, library: ctypes.CDLL, folder: Path) -> None:
        self.library, self.error, self.model = library, Error(), PTR()
        self.info, self.source, self.driver = Info(), Source(), Driver()
        self._path = ctypes.create_string_buffer(str(folder).encode())
        self._kept: list[Any] = []
        library.vta_folder(ctypes.byref(self.source), self._path)
        assert self._call("vta_look", ctypes.byref(self.source), ctypes.byref(self.info)) == ""
        machine, device = ctypes.byref(self.info.machine), self.info.device_bytes
        self._board = ctypes.create_string_buffer(library.vta_sim_bytes(machine, device))
        self.sim = library.vta_sim_init(machine, device, self._board, len(self._board))
        assert self.sim
        library.vta_sim_driver(self.sim, ctypes.byref(self.driver))
        self.host = ctypes.create_string_buffer(self.info.host_bytes)

    def replace(self, name: str, function: Callable[..., int], *types: Any) -> None:
        """Let a Python function stand in for one of the driver; it takes the state first."""
        pointer = ctypes.CFUNCTYPE(ctypes.c_int, PTR, *types)(function)
        self._kept.append(pointer)
        setattr(self.driver, name, ctypes.cast(pointer, PTR).value)

    def original(self, name: str, *types: Any) -> Callable[..., int]:
        """A function of the simulator's driver, for a replacement that goes on with it."""
        return ctypes.CFUNCTYPE(ctypes.c_int, PTR, *types)(getattr(self.driver, name))

    def open(self) -> str:
        """The message of `vta_open`, "" where it succeeds."""
        given = map(ctypes.byref, (self.model, self.source, self.driver))
        return self._call("vta_open", *given, self.host, ctypes.c_size_t(len(self.host)))

    def run(self, inputs: list[np.ndarray], outputs: list[np.ndarray], timeout: int = 1000) -> str:
        """The message of `vta_run`; outputs are filled in place."""
        given = (PTR * len(inputs))(*(array.ctypes.data for array in inputs))
        made = (PTR * len(outputs))(*(array.ctypes.data for array in outputs))
        return self._call("vta_run", self.model, given, made, timeout)

    def close(self) -> None:
        self.library.vta_close(self.model)

    def _call(self, name: str, *args: Any) -> str:
        status = getattr(self.library, name)(*args, ctypes.byref(self.error))
        return "" if status == OK else self.error.message.decode()
