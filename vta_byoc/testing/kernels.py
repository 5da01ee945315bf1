"""`check_kernel`: a user's schedule against the definition that it is for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from tvm import tirx

from vta_byoc.extend.kernels import Schedule, compiler_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.sim import simulator
from vta_byoc.schedule import random_inputs, reference
from vta_byoc.schedule.nests import shape_of
from vta_byoc.testing.cases import Conformance, Suite, check_verified, compare
from vta_byoc.testing.cases import machines as default_machines

SEEDS = 1 << 31


def check_kernel(
    schedule: Schedule,
    draw: Callable[[np.random.Generator, VTAConfig], tirx.PrimFunc],
    *,
    constants: Collection[str] = (),
    slots: int | Mapping[str, int] | None = None,
    machines: Sequence[VTAConfig] | None = None,
    seed: int = 0,
    cases: int = 16,
    case: int | None = None,
) -> Conformance:
    """Check a schedule on definitions of yours.

    Each definition runs on llvm, and the program of its schedule on the simulator, with the same
    random values: the results must have the same bits, and the verifier must find nothing.

    Args:
        schedule: as `vta_byoc.extend.register_kernel` takes it.
        draw: (generator, machine) -> a function that the kernel is for, in any shape.
        constants: names of the parameters that are given at compile time.
        slots: as `vta_byoc.extend.register_kernel` takes it.
        machines: they take turns; those of `vta_byoc.testing.machines` when None. Name those that
            the schedule is for.
        seed: equal seeds draw equal cases.
        cases: how many.
        case: the only one to try, as an error names it.

    Raises:
        ConformanceError: the first case that is wrong, with the arguments that repeat it.
    """
    compiled = compiler_of(schedule, slots)

    def attempt(rng: np.random.Generator, config: VTAConfig) -> None:
        definition = draw(rng, config)
        where = ", ".join(f"{p.name} {p.dtype} {shape_of(p)}" for p in definition.params)
        values = random_inputs(definition, int(rng.integers(SEEDS)))
        names = [str(param.name) for param in definition.params[:-1]]
        given = dict(zip(names, values, strict=True))
        fixed = {name: given.pop(name) for name in constants}
        program = compiled(definition, config, "kernel", fixed)
        check_verified(program, where)
        (output,) = program.of_kind("output")
        found = simulator.run(program, given).outputs[output.name]
        compare(output.name, found, reference(definition, *values), where)

    name = getattr(schedule, "__name__", type(schedule).__name__)
    what = f'kernel of "{name}"'
    return Suite(what, seed, cases, case, machines or default_machines()).run(attempt)
