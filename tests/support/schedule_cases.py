"""Random legal schedules of random layers, in programs of their own beside numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from alu_cases import (
    clamp,
    depthwise_reference,
    elementwise_reference,
    named,
    operand_values,
    pool_reference,
    random_depthwise,
    random_elementwise,
    random_int8,
    random_pool,
    run_program,
)
from conv_cases import random_transpose, random_work
from conv_numpy import numpy_conv, numpy_conv_transpose

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.verify.verifier import check
from vta_byoc.pipeline import Compiled
from vta_byoc.strategies.te.kernel import Kernel, KernelSpace
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.tuning.schedule import Schedule
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import Epilogue, Step

SIM = VTAConfig.preset("sim")
KINDS = ("conv2d", "conv2d_transpose", "depthwise", "elementwise", "max", "sum")
MOST_VALUES = 4000
MOST_TILES = 400
"""Larger programs only cost the tests time."""
DRAWS = 200


def digests(compiled: Compiled) -> list[str]:
    """Of all programs, in order."""
    return [program.digest() for program in compiled.programs.values()]


def random_layer(kind: str, rng: np.random.Generator) -> tuple[str, Any]:
    """Strategy and a workload of it with an int8 result; the machine multiplies."""
    makers: dict[str, Any] = {
        "conv2d": random_work,
        "conv2d_transpose": random_transpose,
        "depthwise": random_depthwise,
        "elementwise": random_elementwise,
    }
    while True:
        work = makers[kind](rng) if kind in makers else random_pool(rng, kind)
        if kind.startswith("conv2d"):
            work = dataclasses.replace(work, epilogue=Epilogue((Step("shr", 7), *clamp())))
        if np.prod(work.out_shape) <= MOST_VALUES:
            return kind if kind in makers else "pool", work


def random_kernel(space: KernelSpace, rng: np.random.Generator) -> Kernel:
    """Any tiling of the space, whether it fits or not."""
    grouping, tiles = space.candidates[int(rng.integers(len(space.candidates)))]
    tile = {axis: int(rng.choice(list(sizes))) for axis, sizes in tiles.axes.items()}
    slots = tuple(int(n) for n in rng.integers(1, 3, 3))
    return Kernel(Choice(tile, str(rng.choice(list(tiles.variants))), slots), grouping)  # type: ignore[arg-type]


def random_schedule(
    kind: str, config: VTAConfig, rng: np.random.Generator
) -> Schedule | None:
    """A legal schedule of a random layer, None where the machine takes none or none was drawn."""
    strategy, work = random_layer(kind, rng)
    computation = Computation(STRATEGIES[strategy], work)
    try:
        default = Schedule.of(computation, config)
    except VTAError:
        return None
    spaces = default.spaces(config)
    for _ in range(DRAWS):
        kernels = tuple(random_kernel(space, rng) for space in spaces)
        found = dataclasses.replace(default, kernels=kernels)
        try:
            found.check(config, "drawn")
        except VTAError:
            continue
        if all(_tiles(kernel, work) <= MOST_TILES for kernel in kernels):
            return found
    return None


def _tiles(kernel: Kernel, work: Any) -> float:
    """About how many tiles a result has, were they all of this kernel."""
    size = np.prod([n for axis, n in kernel.choice.tile.items() if axis not in ("ci", "kh", "kw")])
    return float(np.prod(work.out_shape) / max(int(size), 1) / 4)


def given_for(
    schedule: Schedule, rng: np.random.Generator
) -> tuple[list[np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Random operands, constants by name, and what numpy makes of them."""
    work, strategy = schedule.work, schedule.strategy
    data = [random_int8(rng, *shape) for shape in work.in_shapes]
    steps = list(work.epilogue.steps)
    if strategy == "elementwise":
        steps = [s for side in work.prologues for s in side.steps] + steps
    operands = operand_values(rng, steps, work.out_shape)
    if strategy == "elementwise":
        return data, named(operands), elementwise_reference(work, data, operands)
    if strategy == "pool":
        data = [np.maximum(x, np.int8(work.low)) for x in data]
        return data, named(operands), pool_reference(work, data[0], operands)
    if strategy == "depthwise":
        weight = random_int8(rng, work.in_channels, 1, *work.kernel)
        result = depthwise_reference(work, data[0], weight, operands)
    elif strategy == "conv2d_transpose":
        weight = random_int8(rng, work.in_channels, work.out_channels // work.groups, *work.kernel)
        result = numpy_conv_transpose(work, data[0], weight, *operands)
    else:
        weight = random_int8(rng, work.out_channels, work.in_channels // work.groups, *work.kernel)
        result = numpy_conv(work, data[0], weight, *operands)
    return data, {"weight": weight, **named(operands)}, result


def program_of(
    schedule: Schedule, config: VTAConfig, constants: dict[str, np.ndarray]
) -> Program:
    """The verified program of a schedule: operands "x0", ..., result "y"."""
    computation = schedule.computation()
    strategy, work = computation.strategy, schedule.work
    builder = ProgramBuilder(config)
    names = [f"x{i}" for i in range(len(work.in_shapes))]
    for name, shape in zip(names, work.in_shapes, strict=True):
        builder.symbol(name, "input", packed_shape(shape, config), "int8")
    values = strategy.constants(computation.schedule(config), constants, config)
    for number, value in enumerate(values):
        names.append(builder.constant(f"c{number}", value))
    builder.symbol("y", "output", packed_shape(work.out_shape, config), "int8")
    names.append("y")
    for kernel in computation.functions(config):
        builder.layer("layer", kernel.func, [names[i] for i in kernel.args])
    program = builder.finish()
    check(program)
    return program


def check_exact(schedule: Schedule, config: VTAConfig, seed: int) -> Program:
    """The program of a schedule, whose result equals numpy's."""
    data, constants, expected = given_for(schedule, np.random.default_rng(seed))
    program = program_of(schedule, config, constants)
    got = run_program(program, data, schedule.work.out_shape)
    np.testing.assert_array_equal(got, expected)
    return program
