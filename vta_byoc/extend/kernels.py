"""`register_kernel`: a schedule of one's own for calls inside a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import s_tir, tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.registry import registrant
from vta_byoc.registry.kernels import KERNEL_ATTR, Compile, KernelEntry, add_kernel
from vta_byoc.schedule import ScheduleError, kernel
from vta_byoc.schedule.nests import function_of, shape_of

Schedule = Callable[[tirx.PrimFunc, VTAConfig], "tirx.PrimFunc | s_tir.Schedule"]
"""(definition, machine) -> the same function, scheduled."""


def register_kernel(
    name: str, schedule: Schedule, *, slots: int | Mapping[str, int] | None = None
) -> None:
    """Let calls of functions with the attribute ``vta.kernel`` = ``name`` run on VTA.

    A network calls such a function with `call_tir`. Its tensors are int8 or int32 in the layouts
    that the function has; arguments that are constants become part of the program. The call is a
    region of its own, with a row in the placement record, counters and a place in reports.

    Args:
        name: an identifier; each stands for one kernel.
        schedule: called with the function of a call and the machine; returns the function
            scheduled, as `vta_byoc.schedule.kernel` takes it.
        slots: as of `vta_byoc.schedule.kernel`.

    Raises:
        VTAError: the name is taken, or is no identifier.
    """
    by = registrant(schedule)
    add_kernel(KernelEntry(name, compiler_of(schedule, slots), by))


def compiler_of(schedule: Schedule, slots: int | Mapping[str, int] | None = None) -> Compile:
    """How a call of the kernel is compiled, whose schedule and slots are those."""

    def compiled(
        definition: tirx.PrimFunc,
        config: VTAConfig,
        layer: str,
        constants: Mapping[str, np.ndarray],
    ) -> Program:
        scheduled = _scheduled(schedule, definition, config)
        return kernel(
            scheduled, config=config, name=layer, constants=constants, slots=slots
        ).program

    return compiled


def _scheduled(schedule: Schedule, definition: tirx.PrimFunc, config: VTAConfig) -> tirx.PrimFunc:
    """What ``schedule`` returns, which must have the parameters of ``definition``."""
    try:
        result = schedule(definition, config)
    except VTAError:
        raise
    except Exception as err:
        lines = str(err).strip().splitlines() or ["no message"]
        raise ScheduleError(
            f"its schedule raised {type(err).__name__}: {lines[-1].strip()}; run it by itself on "
            "the function of the call to see where"
        ) from err
    func = function_of(result)
    have, want = _signature(func), _signature(definition)
    if have != want:
        raise ScheduleError(
            f"its schedule returned a function of {have}; the call is of one of {want}; return the "
            "same function, scheduled"
        )
    return func


def _signature(func: tirx.PrimFunc) -> str:
    return ", ".join(f"{p.name} {p.dtype} {shape_of(p)}" for p in func.params)


def with_kernel(definition: tirx.PrimFunc, name: str) -> tirx.PrimFunc:
    """``definition`` as a network calls it: the registered kernel ``name`` computes it on VTA.

    Add it with `BlockBuilder.add_func` under a name of its own.
    """
    return definition.with_attr(KERNEL_ATTR, name).without_attr("global_symbol")
