"""Producers with fused consumers, their programs, and what numpy expects of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from alu_cases import (
    clamp,
    elementwise_reference,
    named,
    operand_values,
    pool_reference,
    random_elementwise,
    random_int8,
)
from conv_cases import random_epilogue, random_transpose, random_work
from conv_numpy import numpy_conv, numpy_conv_transpose

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.simulator import run
from vta_byoc.hw.verify.verifier import check
from vta_byoc.strategies.fused.consumer import FusedConsumer, keeps_int8
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import STRATEGIES, Computation, LayerSchedule
from vta_byoc.workload.packing import pack_activation, packed_shape, unpack_activation
from vta_byoc.workload.workloads import Conv2dWorkload, Epilogue, PoolWorkload, Step

MOST_VALUES = 60_000
SATURATED = Epilogue((Step("shr", 7), *clamp()))


@dataclasses.dataclass(frozen=True)
class Head:
    """A producer: its strategy, workload, int8 inputs, constants and its result in numpy."""

    strategy: str
    work: Any
    inputs: list[np.ndarray]
    constants: dict[str, np.ndarray]
    result: np.ndarray


def head(kind: str, rng: np.random.Generator, work: Any = None) -> Head:
    """A random producer of int8 that keeps its result in the accumulators."""
    while True:
        found = work if work is not None else _random_head(kind, rng)
        if np.prod(found.out_shape) <= MOST_VALUES and keeps_int8(found):
            break
    inputs = [random_int8(rng, *shape) for shape in found.in_shapes]
    if kind == "elementwise":
        steps = [s for side in found.prologues for s in side.steps] + list(found.epilogue.steps)
        operands = operand_values(rng, steps, found.out_shape)
        result = elementwise_reference(found, inputs, operands)
        return Head(kind, found, inputs, named(operands), result)
    operands = operand_values(rng, found.epilogue.steps, found.out_shape)
    weight = random_int8(rng, *_weight_shape(kind, found))
    reference = numpy_conv_transpose if kind == "conv2d_transpose" else numpy_conv
    result = reference(found, inputs[0], weight, *operands)
    return Head(kind, found, inputs, {"weight": weight, **named(operands)}, result)


def _random_head(kind: str, rng: np.random.Generator) -> Any:
    if kind == "elementwise":
        return random_elementwise(rng)
    if kind == "conv2d_transpose":
        return dataclasses.replace(random_transpose(rng), epilogue=SATURATED)
    if kind == "conv2d":
        work = random_work(rng)
        return dataclasses.replace(work, epilogue=_int8(random_epilogue(rng)))
    channels = int(rng.choice([5, 16, 40]))
    size = int(rng.integers(3, 14)), int(rng.integers(3, 14))
    kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    pads = tuple(int(rng.integers(0, kernel[i % 2])) for i in range(4))
    stride = int(rng.integers(1, 3))
    return Conv2dWorkload(
        int(rng.integers(1, 3)),
        channels,
        channels,
        *size,
        kernel,
        (stride, stride),
        pads,
        groups=channels,
        epilogue=SATURATED,
    )


def _int8(epilogue: Epilogue) -> Epilogue:
    """``epilogue`` with int8 values at its end."""
    return Epilogue((*epilogue.steps, *clamp()))


def _weight_shape(kind: str, work: Any) -> tuple[int, ...]:
    if kind == "conv2d_transpose":
        return (work.in_channels, work.out_channels // work.groups, *work.kernel)
    return (work.out_channels, work.in_channels // work.groups, *work.kernel)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program of a producer with fused consumers, and what numpy expects of it."""

    computation: Computation
    program: Program
    inputs: dict[str, np.ndarray]
    expected: np.ndarray

    def check(self) -> None:
        """Bit-exact, and nothing in the program that could hang, race or read what is not there."""
        check(self.program)
        packed = run(self.program, self.inputs).outputs["y"]
        batch, channels = self.expected.shape[:2]
        np.testing.assert_array_equal(unpack_activation(packed, batch, channels), self.expected)


def case(
    producer: Head,
    consumers: Sequence[FusedConsumer],
    config: VTAConfig,
    rng: np.random.Generator,
    chosen: Chosen | None = None,
) -> Case:
    """The program of ``producer`` with ``consumers``; their other operands are random."""
    strategy = STRATEGIES[producer.strategy]
    together = Computation(strategy, producer.work, tuple(consumers), chosen=chosen)
    builder, inputs, names = ProgramBuilder(config), {}, []

    def given(value: np.ndarray) -> None:
        names.append(f"x{len(names)}")
        inputs[names[-1]] = pack_activation(value, config)
        builder.symbol(names[-1], "input", inputs[names[-1]].shape, "int8")

    def constants(values: Sequence[np.ndarray]) -> None:
        for value in values:
            names.append(builder.constant(f"c{len(names)}", value))

    for value in producer.inputs:
        given(value)
    constants(strategy.constants(together.schedule(config), producer.constants, config))
    expected = producer.result
    for consumer in consumers:
        data = [random_int8(rng, *shape) for shape in consumer.work.in_shapes]
        data[consumer.operand] = expected
        for number, value in enumerate(data):
            if number != consumer.operand:
                given(value)
        sides = () if isinstance(consumer.work, PoolWorkload) else consumer.work.prologues
        steps = [s for side in sides for s in side.steps] + list(consumer.work.epilogue.steps)
        operands = operand_values(rng, steps, consumer.work.out_shape)
        own = STRATEGIES[consumer.strategy]
        constants(own.constants(LayerSchedule(consumer.work), named(operands), config))
        if isinstance(consumer.work, PoolWorkload):
            expected = pool_reference(consumer.work, expected, operands)
        else:
            expected = elementwise_reference(consumer.work, data, operands)
    names.append(builder.symbol("y", "output", packed_shape(expected.shape, config), "int8"))
    for kernel in together.functions(config):
        builder.layer("layer", kernel.func, [names[i] for i in kernel.args])
    return Case(together, builder.finish(), inputs, expected)
