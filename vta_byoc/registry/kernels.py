"""Kernels of users by name: what a `call_tir` of a network may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.registry import Registry

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


KERNELS: Registry[KernelEntry] = Registry("kernel")
"""Name -> kernel."""


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
    KERNELS.add(entry.name, entry, entry.by)


def kernel_entry(name: str) -> KernelEntry:
    """The kernel ``name``.

    Raises:
        VTAError: nobody registered it.
    """
    if name not in KERNELS:
        known = ", ".join(sorted(KERNELS)) or "none"
        raise VTAError(
            f'kernel "{name}" is not registered; registered: {known}; register it with '
            "vta_byoc.extend.register_kernel before the module is partitioned"
        )
    return KERNELS[name]
