"""Running executables: inputs by name, counters of every region, exported libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import DRIVERS
from vta_byoc.hw.sim.interpreter import REGION_ARGUMENT, SYMBOL_PREFIX
from vta_byoc.hw.sim.simulator import changed_buffer
from vta_byoc.runtime.executable import check_inputs, input_types, named_in_order, region_name

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

    ``regions`` are in the order in which they ran, which need not be that of their numbers;
    ``counters`` are the seven published counters summed over regions; byte counters are true DRAM
    bytes.
    """

    outputs: list[np.ndarray]
    regions: list[RegionRun] = field(default_factory=list)

    @property
    def counters(self) -> dict[str, int]:
        """The seven published counters, summed over regions."""
        return {n: sum(r.counters[n] for r in self.regions) for n in COUNTER_NAMES}

    @property
    def by_region(self) -> dict[str, RegionRun]:
        """The runs by the name of their region."""
        return {run.name: run for run in self.regions}


def profile(
    exe: relax.VMExecutable | tvm.runtime.Module, inputs: Inputs, *, arenas: bool = False
) -> Profile:
    """Run ``main`` of an executable once and collect what its regions counted.

    Args:
        exe: what :func:`vta_byoc.build` returned, or a library loaded with
            ``tvm.runtime.load_module``.
        inputs: one array, a sequence in the model's order, or a mapping by the names of the
            model's inputs in any order; dtypes and shapes are those of the model.
        arenas: keep a copy of each region's DRAM after it ran.  Tensors that share bytes are not
            all in it any more: :func:`vta_byoc.validation.bit_exact.stored_tensors` gives every
            one.

    Raises:
        VTAError: names, a number of arrays, shapes or dtypes that ``main`` does not take.
    """
    runs: list[RegionRun] = []
    reads: list[np.ndarray] = []

    def observe(
        _func: object,
        callee: str,
        before: bool,
        _result: object,
        *args: Any,  # tensors and numbers, as the driver takes them
    ) -> None:
        if not callee.startswith(SYMBOL_PREFIX):
            return
        if before:
            reads[:] = [a.numpy().copy() for a in args[:REGION_ARGUMENT]] if DRIVERS.added() else []
            return
        if reads:
            _check_unchanged(reads, args)
        arena, counters = (a.numpy() for a in args[-2:])
        values = {n: int(c) for n, c in zip(COUNTER_NAMES, counters, strict=False)}
        name = region_name(int(args[REGION_ARGUMENT]))
        runs.append(RegionRun(name, values, arena if arenas else None))

    vm = relax.VirtualMachine(exe, tvm.cpu())
    arrays = _checked(vm, inputs)
    vm.set_instrument(observe)
    return Profile(_outputs(vm, arrays), runs)


def _check_unchanged(reads: Sequence[np.ndarray], args: Sequence[Any]) -> None:
    """Refuse the run of a device that changed what it only reads, where plug-ins added devices."""
    changed = changed_buffer(reads, [a.numpy() for a in args[:REGION_ARGUMENT]])
    if changed is not None:
        added = ", ".join(f'"{name}" of {DRIVERS.by(name)}' for name in DRIVERS.added())
        raise VTAError(
            f"the device changed the {changed} of {region_name(int(args[REGION_ARGUMENT]))}; it "
            f"only reads them; write to the arena and the counters alone (devices of plug-ins: "
            f"{added})"
        )


def run_vm(vm: relax.VirtualMachine, inputs: Inputs) -> list[np.ndarray]:
    """Outputs of ``main`` as numpy arrays; ``inputs`` as of :func:`profile`."""
    return _outputs(vm, _checked(vm, inputs))


def _outputs(vm: relax.VirtualMachine, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    result = vm["main"](*map(tvm.runtime.tensor, arrays))
    results = result if isinstance(result, (list, tuple, tvm.ir.Array)) else [result]
    return [r.numpy() for r in results]


def _checked(vm: relax.VirtualMachine, inputs: Inputs) -> list[np.ndarray]:
    """Contiguous arrays for ``main``, in order."""
    wanted = input_types(vm)
    if isinstance(inputs, np.ndarray):
        ordered: Sequence[np.ndarray] = [inputs]
    elif isinstance(inputs, Mapping):
        ordered = named_in_order(inputs, wanted)
    else:
        ordered = inputs
    arrays = [np.asarray(x, order="C") for x in ordered]
    check_inputs(arrays, wanted)
    return arrays
