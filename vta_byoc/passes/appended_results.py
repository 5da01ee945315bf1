"""Results that a cache takes, stored there by the layers that compute them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx

from vta_byoc.codegen import View, with_views
from vta_byoc.codegen.linear import row_major
from vta_byoc.codegen.views import views_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.partitioning.appended import APPENDED
from vta_byoc.partitioning.region import Region
from vta_byoc.strategies.base import KernelFunction
from vta_byoc.workload.workloads import MoveWorkload


@dataclass(frozen=True)
class InState:
    """Where a result is stored: its pieces of ``piece`` scalars, ``pitch`` apart in ``state``."""

    state: str
    piece: int
    pitch: int

    def view(self, shape: Sequence[int]) -> View | None:
        """A result of ``shape`` in the state; None where a piece ends inside a dimension."""
        for axis in range(len(shape) + 1):
            if math.prod(shape[axis:]) == self.piece:
                outer = [step * self.pitch for step in row_major(shape[:axis])]
                return View(0, (*outer, *row_major(shape[axis:])))
        return None

    def stored(self, kernel: KernelFunction) -> KernelFunction | None:
        """The kernel, its result in the state; None where that is in parts or does not fit."""
        if -1 not in kernel.args:
            return kernel
        position = kernel.args.index(-1)
        param = kernel.func.params[position]
        view = self.view([int(size) for size in param.shape])
        if view is None or param in views_of(kernel.func):
            return None
        func: tirx.PrimFunc = with_views(kernel.func, {position: view})
        return dataclasses.replace(kernel, func=func)


def appended_results(
    mod: tvm.IRModule,
    region: Region,
    kernels: Mapping[str, Sequence[KernelFunction]],
    joined: Container[str],
    config: VTAConfig,
) -> dict[str, tuple[InState, list[KernelFunction]]]:
    """The layers whose result only a cache takes, by it, with the kernels that store it there.

    Args:
        mod: the region's module.
        region: its steps.
        kernels: of each step, by its result.
        joined: results that have the results of other steps inside.
        config: the machine.
    """
    reads = Counter([*(arg for step in region.steps for arg in step.args), *region.outputs])
    found = {}
    for step in region.steps:
        if step.composite != APPENDED:
            continue
        part = step.args[0]
        if part not in kernels or reads[part] > 1 or part in joined:
            continue
        place = _in_state(step.output, step.computation(mod).work, config)
        stored = [place.stored(kernel) for kernel in kernels[part]]
        whole = [kernel for kernel in stored if kernel is not None]
        if len(whole) == len(stored):
            found[part] = place, whole
    return found


def _in_state(state: str, work: object, config: VTAConfig) -> InState:
    assert isinstance(work, MoveWorkload)
    (box,) = work.boxes
    lanes = config.batch * config.block
    return InState(state, box.size[1] * lanes, box.steps[0] * lanes)
