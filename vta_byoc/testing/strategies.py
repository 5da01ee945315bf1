"""`check_strategy`: a strategy's programs against its own definition, and its estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.schedule import random_inputs, reference
from vta_byoc.schedule.nests import shape_of
from vta_byoc.strategies.base import LayerSchedule, LayerWork, Strategy
from vta_byoc.testing.cases import Conformance, Mismatch, Refused, Suite, check_verified, compare
from vta_byoc.testing.cases import machines as default_machines

FACTOR = 4.0
"""How far an estimate may be from the timing model, up or down."""
SEEDS = 1 << 31


def check_strategy(
    strategy: Strategy[Any] | type[Strategy[Any]],
    draw: Callable[[np.random.Generator, VTAConfig], tuple[Any, Mapping[str, np.ndarray]]],
    *,
    machines: Sequence[VTAConfig] | None = None,
    seed: int = 0,
    cases: int = 16,
    case: int | None = None,
    factor: float = FACTOR,
) -> Conformance:
    """Check a strategy on workloads of yours.

    Of each case the definition (`Strategy.compute`) runs on llvm and the program of the chosen
    schedule on the simulator, on the same random operands: their results must have the same bits.
    The verifier must find nothing, and the estimate be within `factor` of the cycles of the timing
    model.

    Args:
        strategy: as `vta_byoc.extend.register_strategy` takes it; a class is made without
            arguments.
        draw: (generator, machine) -> a workload of the strategy's class, small enough to run in
            a moment, and the constants that `Strategy.constants` packs ("weight", "operand0", ...).
        machines: they take turns; those of `vta_byoc.testing.machines` when None.
        seed: equal seeds draw equal cases.
        cases: how many.
        case: the only one to try, as an error names it.
        factor: how far estimate and timing model may be apart, up or down.

    Raises:
        ConformanceError: the first case that is wrong, with the arguments that repeat it.
    """
    made = strategy() if isinstance(strategy, type) else strategy

    def attempt(rng: np.random.Generator, config: VTAConfig) -> float:
        work, constants = draw(rng, config)
        try:
            schedule = made.choose(LayerWork(work), config)
        except VTAError as refused:
            raise Refused(str(refused)) from refused
        where = f"{work}"
        cycles = _finite(made.estimate(schedule, config), where)
        definition = made.compute(schedule, config)
        operands = random_inputs(definition, int(rng.integers(SEEDS)))[: len(work.in_shapes)]
        values = [*operands, *made.constants(schedule, constants, config)]
        program = layer_program(made, schedule, config, definition, values)
        check_verified(program, where)
        given = {f"x{i}": value for i, value in enumerate(operands)}
        found = simulator.run(program, given).outputs["y"]
        compare("the result", found, reference(definition, *values), where)
        return _ratio(cycles, simulate(program).cycles, factor, where)

    what = f'strategy "{made.name}"'
    return Suite(what, seed, cases, case, machines or default_machines()).run(attempt)


def layer_program(
    strategy: Strategy[Any],
    schedule: LayerSchedule[Any],
    config: VTAConfig,
    definition: tirx.PrimFunc,
    values: Sequence[np.ndarray],
) -> Program:
    """The program of one layer: operands "x0", ..., constants "c0", ..., result "y"."""
    builder = ProgramBuilder(config)
    count = len(schedule.work.in_shapes)
    names = [
        builder.symbol(f"x{i}", "input", value.shape, str(value.dtype))
        for i, value in enumerate(values[:count])
    ]
    names += [builder.constant(f"c{i}", value) for i, value in enumerate(values[count:])]
    names += [
        builder.symbol(f"s{i}", "temp", each.shape, each.dtype)
        for i, each in enumerate(strategy.scratch(schedule, config))
    ]
    result = definition.params[-1]
    names.append(builder.symbol("y", "output", shape_of(result), str(result.dtype)))
    for kernel in strategy.functions(schedule, config):
        builder.layer(strategy.name, kernel.func, [names[i] for i in kernel.args])
    return builder.finish()


def _finite(cycles: float, where: str) -> float:
    """An estimate that is a number of cycles."""
    if not (math.isfinite(cycles) and cycles > 0):
        raise Mismatch(
            f"{where}: the estimate is {cycles} cycles; it must be above 0 and finite, as the "
            "compiler compares it with others"
        )
    return cycles


def _ratio(estimate: float, cycles: float, factor: float, where: str) -> float:
    """The estimate by what the timing model gives."""
    ratio = estimate / cycles
    if not 1 / factor <= ratio <= factor:
        raise Mismatch(
            f"{where}: the estimate is {estimate:,.0f} cycles, the timing model gives "
            f"{cycles:,}; they must be within a factor of {factor:g}"
        )
    return ratio
