"""Running executables: inputs by name, counters of every region, exported libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.interpreter import SYMBOL_PREFIX

Inputs = Mapping[str, np.ndarray] | Sequence[np.ndarray] | np.ndarray


@dataclass
class RegionRun:
    """One execution of a region: its counters and (when asked for) its arena."""

    name: str
    counters: dict[str, int]
    arena: np.ndarray | None = None


@dataclass
class Profile:
    """Outputs and counters of one run.

    ``counters`` are the seven published counters summed over regions; byte counters are true DRAM
    bytes.
    """

    outputs: list[np.ndarray]
    regions: list[RegionRun] = field(default_factory=list)

    @property
    def counters(self) -> dict[str, int]:
        return {n: sum(r.counters[n] for r in self.regions) for n in COUNTER_NAMES}


def profile(exe: Any, inputs: Inputs, *, arenas: bool = False) -> Profile:
    """Run ``main`` of an executable once and collect what its regions counted.

    Args:
        exe: what :func:`vta_byoc.build` returned, or a library loaded with
            ``tvm.runtime.load_module``.
        inputs: one array, a sequence in order, or a mapping by parameter name (in order).
        arenas: keep a copy of each region's DRAM after it ran.  Tensors that share bytes are not
            all in it any more: :func:`vta_byoc.check.stored_tensors` gives every one.
    """
    runs: list[RegionRun] = []

    def observe(_func: Any, name: str, before: bool, _result: Any, *args: Any) -> None:
        if before or not name.startswith(SYMBOL_PREFIX):
            return
        arena, counters = (a.numpy() for a in args[-2:])
        values = {n: int(c) for n, c in zip(COUNTER_NAMES, counters, strict=False)}
        runs.append(RegionRun(f"region{len(runs)}", values, arena if arenas else None))

    vm = relax.VirtualMachine(exe, tvm.cpu())
    vm.set_instrument(observe)
    return Profile(run_vm(vm, inputs), runs)


def run_vm(vm: relax.VirtualMachine, inputs: Inputs) -> list[np.ndarray]:
    """Outputs of ``main`` as numpy arrays."""
    result = vm["main"](*[tvm.runtime.tensor(np.asarray(x, order="C")) for x in _ordered(inputs)])
    results = result if isinstance(result, (list, tuple, tvm.ir.Array)) else [result]
    return [r.numpy() for r in results]


def _ordered(inputs: Inputs) -> list[np.ndarray]:
    if isinstance(inputs, np.ndarray):
        return [inputs]
    return list(inputs.values()) if isinstance(inputs, Mapping) else list(inputs)
