"""What the timing simulator says: of programs, of layers alone from their scheduled PrimFuncs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import tirx

from vta_byoc.codegen.views import views_of
from vta_byoc.cost.objective import Measured
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.te.program_builder import program_builder

Bound = tuple[tirx.PrimFunc, tuple[int, ...]]
"""A scheduled PrimFunc and the numbers of the tensors that its parameters are; it stores the last.
"""


def measured_alone(program: Program) -> Measured:
    """What a program takes with nothing beside it, by the timing of its machine."""
    return Measured(simulate(program).cycles, dram_bytes(program.counters()))


def cycles_alone(functions: Sequence[Bound], config: VTAConfig) -> int:
    """Simulated cycles of kernels that run one after the other, and nothing beside them.

    Time does not depend on data: constants are inputs here.

    Args:
        functions: the kernels, in order; number -1 is what they compute together.
        config: the machine.

    Raises:
        VTAError: no program can be made of them.
    """
    builder = program_builder(config)
    stored = {args[-1] for _, args in functions}
    for number, (size, dtype) in _tensors(functions).items():
        kind = ("output" if number == -1 else "temp") if number in stored else "input"
        builder.symbol(f"t{number}", kind, (size,), dtype)
    for func, args in functions:
        builder.layer("layer", func, [f"t{number}" for number in args])
    return simulate(builder.finish()).cycles


def _tensors(functions: Sequence[Bound]) -> dict[int, tuple[int, str]]:
    """Scalars and dtype of every tensor, as far as the parameters reach."""
    found: dict[int, tuple[int, str]] = {}
    for func, args in functions:
        views = views_of(func)
        for param, number in zip(func.params, args, strict=True):
            shape = [int(size) for size in param.shape]
            size = views[param].reach(shape)[1] if param in views else math.prod(shape)
            found[number] = max(size, found.get(number, (0, ""))[0]), str(param.dtype)
    return found
