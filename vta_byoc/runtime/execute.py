"""Running executables: inputs by name, counters of every region, exported libraries."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
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
from vta_byoc.runtime.profile import Compilation, Profile, RegionRun

LOG = logging.getLogger(__name__)

Inputs = Mapping[str, np.ndarray] | Sequence[np.ndarray] | np.ndarray


def profile(
    exe: relax.VMExecutable | tvm.runtime.Module | Compilation,
    inputs: Inputs,
    *,
    arenas: bool = False,
) -> Profile:
    """Run ``main`` of an executable once and collect what its regions counted.

    Args:
        exe: what :func:`vta_byoc.build` returned, or a library loaded with
            ``tvm.runtime.load_module``; of what ``vta_byoc.pipeline.compile_module`` returned the
            profile has the times and the placement, too.
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
        arena, counters = args[-2], args[-1].numpy()
        values = {n: int(c) for n, c in zip(COUNTER_NAMES, counters, strict=False)}
        name = region_name(int(args[REGION_ARGUMENT]))
        runs.append(RegionRun(name, values, arena.numpy() if arenas else None))

    compiled = None if isinstance(exe, (relax.VMExecutable, tvm.runtime.Module)) else exe
    vm = relax.VirtualMachine(exe if compiled is None else compiled.exe, tvm.cpu())
    arrays = _checked(vm, inputs)
    vm.set_instrument(observe)
    begin = time.perf_counter()
    outputs = _outputs(vm, arrays)
    LOG.info("main: %.3f s, regions that ran: %d", time.perf_counter() - begin, len(runs))
    for run in runs:
        LOG.debug("%s: %s", run.name, run.counters)
    if compiled is None:
        return Profile(outputs, runs)
    return Profile(outputs, runs, compiled.programs, compiled.placement)


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
