"""A scheduled function on the host's processor: what its result must be, and random inputs."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import s_tir, tirx

from vta_byoc.hw.sim.machine_code import with_machine_code
from vta_byoc.hw.sim.target import unoptimized_target
from vta_byoc.schedule.nests import ScheduleError, function_of, last_line, shape_of

_SPAN = {"int8": (-128, 128), "int32": (-(1 << 15), 1 << 15)}
"""[low, high) of random values: int32 operands are biases, which no sum may carry out of int32."""


def random_inputs(
    func_or_schedule: tirx.PrimFunc | s_tir.Schedule, seed: int = 0
) -> list[np.ndarray]:
    """Random values for every parameter but the last, in order.

    Args:
        func_or_schedule: its parameters are of int8 (all values) or int32 (those of 16 bits).
        seed: equal seeds give equal values.

    Raises:
        ScheduleError: a parameter of another dtype, or of a shape that is not constant.
    """
    rng = np.random.default_rng(seed)
    found = []
    for param in function_of(func_or_schedule).params[:-1]:
        if str(param.dtype) not in _SPAN:
            raise ScheduleError(
                f"parameter {param.name} is {param.dtype}; VTA reads {' and '.join(_SPAN)}; give "
                "it one of them"
            )
        found.append(rng.integers(*_SPAN[str(param.dtype)], shape_of(param), str(param.dtype)))
    return found


def reference(func_or_schedule: tirx.PrimFunc | s_tir.Schedule, *arrays: np.ndarray) -> np.ndarray:
    """The result of a function on the host's processor, built by LLVM.

    It takes the unscheduled definition as well as any schedule of it: memory scopes and pragmas
    mean nothing there. LLVM does not optimize: that takes seconds for long definitions, and what
    it saves is a fifth of a second for a convolution of a hundred million products.

    Args:
        func_or_schedule: its last parameter is the output.
        arrays: one for each of the other parameters, in order.

    Raises:
        ScheduleError: another number of arrays, or a function that LLVM cannot build.
    """
    func = function_of(func_or_schedule)
    names = [str(param.name) for param in func.params[:-1]]
    if len(arrays) != len(names):
        raise ScheduleError(
            f"{len(arrays)} arrays given; the function takes {len(names)}: {', '.join(names)}; "
            "give one for each"
        )
    output = func.params[-1]
    result = tvm.runtime.tensor(np.zeros(shape_of(output), str(output.dtype)))
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    try:
        built = with_machine_code(tvm.tirx.build(module, target=unoptimized_target()))
        built["main"](*(tvm.runtime.tensor(np.ascontiguousarray(a)) for a in arrays), result)
    except (RuntimeError, TypeError, ValueError) as err:
        raise ScheduleError(
            f"the function does not run on the host: {last_line(err)}; give the parameters in the "
            "order inputs, output, and arrays of their shapes and dtypes"
        ) from err
    return result.numpy()
