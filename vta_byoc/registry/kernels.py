"""Kernels of users by name: what a `call_tir` of a network may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program

KERNEL_ATTR = "vta.kernel"
"""The attribute of a PrimFunc that names the registered kernel which computes it on VTA."""

Compile = Callable[[tirx.PrimFunc, VTAConfig, str, Mapping[str, np.ndarray]], Program]
"""(definition, machine, name of the layer, values of parameters that are constant) -> program."""


@dataclass(frozen=True)
class KernelEntry:
    """One registered kernel: its name, how a call of it is compiled, and the module it is from."""

    name: str
    compile: Compile
    by: str


_ENTRIES: dict[str, KernelEntry] = {}


def add_kernel(entry: KernelEntry) -> None:
    """Register ``entry``.

    Raises:
        VTAError: the name is taken, or is none.
    """
    if not entry.name.isidentifier():
        raise VTAError(
            f"kernel {entry.name!r} of {entry.by}; the name of a kernel stands in modules and "
            "reports; give letters, digits and underscores"
        )
    if entry.name in _ENTRIES:
        raise VTAError(
            f'kernel "{entry.name}" of {entry.by} is registered already, by '
            f"{_ENTRIES[entry.name].by}; each name stands for one kernel; give it another name"
        )
    _ENTRIES[entry.name] = entry


def remove_kernel(name: str) -> None:
    """Forget the kernel ``name``, which is registered."""
    del _ENTRIES[name]


def kernel_entries() -> list[KernelEntry]:
    """Every registered kernel, in the order of registration."""
    return list(_ENTRIES.values())


def kernel_entry(name: str) -> KernelEntry:
    """The kernel ``name``.

    Raises:
        VTAError: nobody registered it.
    """
    if name not in _ENTRIES:
        known = ", ".join(sorted(_ENTRIES)) or "none"
        raise VTAError(
            f'kernel "{name}" is not registered; registered: {known}; register it with '
            "vta_byoc.extend.register_kernel before the module is partitioned"
        )
    return _ENTRIES[name]
