"""Cases for the strategies beside convolution: machines, numpy references, programs, estimates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from small_models import PLAIN

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.sim.machine_code import with_machine_code
from vta_byoc.hw.sim.simulator import run
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.ir.chains import OTHER
from vta_byoc.strategies.base import LayerWork, Strategy
from vta_byoc.workload.borders import boxes
from vta_byoc.workload.packing import pack_activation, packed_shape, unpack_activation
from vta_byoc.workload.texts import from_json, to_json
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    Conv2dWorkload,
    ElementwiseWorkload,
    Epilogue,
    PoolWorkload,
    Prologue,
    Step,
)

SIM, PYNQ = VTAConfig.preset("sim"), VTAConfig.preset("pynq")
QUARTER = dataclasses.replace(
    SIM, log_uop_buff_size=13, log_inp_buff_size=13, log_wgt_buff_size=16, log_acc_buff_size=15
)
GEOMETRIES = {
    "1x16": SIM,
    "4x8": VTAConfig.preset("tophub_4x8"),
    "2x16": VTAConfig.preset("2x16"),
    "1x32": VTAConfig.preset("1x32"),
    "quarter": QUARTER,
}
BARE = PYNQ
"""A machine with neither MUL nor widening loads."""


def random_int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


# ---------------------------------------------------------------- numpy
FUNCTIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "shr": np.right_shift,
    "shl": np.left_shift,
}


def applied(
    value: np.ndarray,
    steps: Sequence[Step],
    operands: Sequence[np.ndarray],
    other: np.ndarray | None = None,
) -> np.ndarray:
    """int64 ``value`` (n, c, h, w) after ``steps``; every intermediate value must be int32.

    ``other`` is what steps of OTHER add.
    """
    waiting = list(operands)
    for step in steps:
        operand: Any = other if step.is_other else value if step.is_square else step.operand
        if step.is_tensor:
            array = waiting.pop(0).astype(np.int64)
            operand = array[:, None, None] if step.operand == CHANNEL else array
        value = FUNCTIONS[step.op](value, operand)
        assert abs(value).max(initial=0) < 1 << 31, f"{step} overflows"
    return value


def operand_values(
    rng: np.random.Generator, steps: Sequence[Step], shape: Sequence[int]
) -> list[np.ndarray]:
    """Random int32 tensor operands for ``steps`` on a result (n, c, h, w), unpacked."""
    _, c, h, w = shape
    extents = {CHANNEL: (c,), MAP: (h, w), FULL: (c, h, w)}
    low_high = {"mul": (-60, 60), "shr": (0, 9), "shl": (0, 4)}
    return [
        rng.integers(*low_high.get(s.op, (-5000, 5000)), extents[str(s.operand)]).astype(np.int32)
        for s in steps
        if s.is_tensor
    ]


def elementwise_reference(
    work: ElementwiseWorkload, data: Sequence[np.ndarray], operands: Sequence[np.ndarray]
) -> np.ndarray:
    """Expected int8 result, unpacked."""
    waiting, values = list(operands), []
    for side in work.prologues:
        count = sum(step.is_tensor for step in side.steps)
        mine, waiting = waiting[:count], waiting[count:]
        values.append(applied(data[side.operand].astype(np.int64), side.steps, mine))
    value = values[0] if work.op is None else FUNCTIONS[work.op](*values)
    assert abs(value).max(initial=0) < 1 << 31, f"{work.op} overflows"
    return applied(value, work.epilogue.steps, waiting, values[-1]).astype(np.int8)


def pool_reference(
    work: PoolWorkload, x: np.ndarray, operands: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """Expected int8 result, unpacked; padding is -128 to a maximum, 0 to a sum."""
    top, left, bottom, right = work.padding
    least = -128 if work.kind == "max" else 0
    pads = ((0, 0), (0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)))
    wide = np.pad(x.astype(np.int64), pads, constant_values=least)
    wide = wide[:, :, max(-top, 0) :, max(-left, 0) :]
    _, _, oh, ow = work.out_shape
    (sh, sw), (dh, dw) = work.strides, work.dilation
    value = None
    for i in range(work.kernel[0]):
        for j in range(work.kernel[1]):
            rows = wide[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh]
            seen = rows[:, :, :, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
            join = np.maximum if work.kind == "max" else np.add
            value = seen if value is None else join(value, seen)
    assert value is not None
    value = value * work.factor
    for box, factor in zip(boxes(work.window), work.factors, strict=False):
        (top, bottom), (left, right) = box
        value[:, :, top:bottom, left:right] *= factor
    return applied(value, work.epilogue.steps, operands).astype(np.int8)


def depthwise_reference(
    work: Conv2dWorkload, x: np.ndarray, weight: np.ndarray, operands: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """Expected int8 result of a convolution of single channels, unpacked."""
    top, left, bottom, right = work.padding
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    _, _, oh, ow = work.out_shape
    (sh, sw), (dh, dw) = work.strides, work.dilation
    value = np.zeros(work.out_shape, np.int64)
    for i in range(work.kernel[0]):
        for j in range(work.kernel[1]):
            rows = wide[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh]
            seen = rows[:, :, :, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
            value += seen * weight[:, 0, i, j].astype(np.int64)[:, None, None]
    return applied(value, work.epilogue.steps, operands).astype(np.int8)


# ---------------------------------------------------------------- programs
def build(
    strategy: Strategy, work: Any, config: VTAConfig, given: Mapping[str, np.ndarray]
) -> Program:
    """The program of one composite; its operands are inputs "x0", "x1", its result is "y"."""
    work = from_json(type(work), to_json(work))
    builder = ProgramBuilder(config)
    names = [f"x{i}" for i in range(len(work.in_shapes))]
    scopes = iter(strategy.scopes(work))
    for name, shape in zip(names, work.in_shapes, strict=True):
        builder.symbol(name, "input", packed_shape(shape, config), "int8", next(scopes))
    schedule = strategy.choose(LayerWork(work), config)
    for number, value in enumerate(strategy.constants(schedule, given, config)):
        names.append(builder.constant(f"c{number}", value, next(scopes)))
    assert next(scopes, None) is None, "a scope for each argument"
    names.append(builder.symbol("y", "output", packed_shape(work.out_shape, config), "int8"))
    for kernel in strategy.functions(schedule, config):
        builder.layer("layer", kernel.func, [names[i] for i in kernel.args])
    return builder.finish()


def run_program(program: Program, data: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The unpacked result of inputs "x0", "x1", ... in NCHW."""
    inputs = {f"x{i}": pack_activation(x, program.config) for i, x in enumerate(data)}
    result = run(program, inputs).outputs["y"]
    return unpack_activation(result, shape[0], shape[1])


def run_llvm(
    strategy: Strategy,
    work: Any,
    config: VTAConfig,
    data: Sequence[np.ndarray],
    given: Mapping[str, np.ndarray],
) -> np.ndarray:
    """The unpacked result of the strategy's compute on the CPU."""
    schedule = strategy.choose(LayerWork(work), config)
    func = strategy.compute(schedule, config).with_attr("global_symbol", "main")
    built = with_machine_code(tvm.tirx.build(tvm.IRModule({"main": func}), target=PLAIN))
    arrays = [pack_activation(x, config) for x in data]
    arrays += strategy.constants(schedule, given, config)
    out = np.zeros(packed_shape(work.out_shape, config), np.int8)
    args = [tvm.runtime.tensor(np.ascontiguousarray(a)) for a in (*arrays, out)]
    built["main"](*args)
    return unpack_activation(args[-1].numpy(), work.out_shape[0], work.out_shape[1])


def named(operands: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Tensor operands as the partition table names them."""
    return {f"operand{i}": value for i, value in enumerate(operands)}


def estimated(strategy: Strategy, work: Any, config: VTAConfig) -> float:
    """Cycles of the schedule that ``strategy`` chooses; VTAError where nothing fits."""
    return strategy.estimate(strategy.choose(LayerWork(work), config), config)


def choice_of(strategy: Strategy, work: Any, config: VTAConfig) -> Choice:
    """The tile of the only kernel that ``strategy`` chooses."""
    (kernel,) = strategy.choose(LayerWork(work), config).kernels
    return kernel.choice


def cycles_of(program: Program) -> int:
    """Cycles of the timing simulator."""
    return simulate(program).cycles


# ---------------------------------------------------------------- random workloads
def clamp(low: int = -128, high: int = 127) -> tuple[Step, ...]:
    return Step("max", low), Step("min", high)


def random_steps(
    rng: np.random.Generator,
    tensors: float = 0.3,
    mul: bool = True,
    kinds: Sequence[str] = (CHANNEL, MAP, FULL),
) -> list[Step]:
    """Up to three steps that keep int8 operands far from overflow."""
    steps = []
    for op in rng.choice(["add", "mul", "shr", "shl", "max", "min"], int(rng.integers(0, 4))):
        if op == "mul" and not mul:
            continue
        operand: int | str
        if op != "shl" and rng.random() < tensors:
            operand = str(rng.choice(list(kinds)))
        else:
            low, high = {"mul": (-40, 40), "shr": (0, 17), "shl": (0, 4)}.get(op, (-200, 200))
            operand = int(rng.integers(low, high))
        steps.append(Step(str(op), operand))
    return steps


AGAIN = ("add", "max", "min", "mul")
"""Operators whose right side may be added again behind them."""


def random_elementwise(
    rng: np.random.Generator, tensors: float = 0.3, mul: bool = True, same: float = 0.25
) -> ElementwiseWorkload:
    """One or two sides, any operator, every kind of step.

    ``same`` is how likely both sides are of one operand.
    """
    sizes = ([1, 1, 2, 5], [3, 16, 40, 96], [1, 4, 13], [1, 4, 13])
    batch, c, h, w = (int(rng.choice(values)) for values in sizes)
    ops = ["add", "sub", "max", "min", "mul", None]
    op = ops[int(rng.integers(0, len(ops)))]
    if op == "mul" and not mul:
        op = "add"
    alike = rng.random() < same
    sides = [Prologue(0, tuple(random_steps(rng, tensors, mul)))]
    if op is not None:
        sides.append(Prologue(0 if alike else 1, tuple(random_steps(rng, tensors, mul))))
    shift = Step("shr", int(rng.integers(0, 12)))
    again: tuple[Step, ...] = ()
    if alike and op in AGAIN and rng.random() < 0.7:
        again = (*random_steps(rng, tensors, mul)[:1], Step("add", OTHER), Step("shr", 2))
    rest = random_steps(rng, tensors, False)[:1]
    steps = (shift, *again, *rest, *clamp(int(rng.choice([-128, 0]))))
    return ElementwiseWorkload(batch, c, h, w, tuple(sides), op, Epilogue(steps))


def random_repeated(rng: np.random.Generator, config: VTAConfig) -> ElementwiseWorkload:
    """Two operands, of which one or both are repeated along some axes."""
    sizes = ([1, 1, 2, 3], [3, 16, 40, 70], [1, 4, 13, 6], [4, 13, 1])
    whole = [int(rng.choice(values)) for values in sizes]
    one = rng.random((2, 4)) < 0.5
    one[:, 0] &= config.batch == 1
    one[int(rng.integers(2))] &= one[::-1].all(axis=0) | (rng.random() < 0.7)
    one &= ~one.all(axis=0)
    shapes = tuple(tuple(np.where(each, 1, whole).tolist()) for each in one)
    mul = config.capabilities.mul
    op = str(rng.choice(["add", "sub", "max", "min", *(["mul", "mul"] if mul else [])]))
    sides = tuple(
        Prologue(i, tuple(random_steps(rng, 0.2 * mul, mul, kinds=(CHANNEL,)))) for i in range(2)
    )
    shift = Step("shr", int(rng.integers(0, 12)))
    epilogue = Epilogue((shift, *random_steps(rng, 0.3, False)[:1], *clamp()))
    return ElementwiseWorkload(*whole, sides, op, epilogue, shapes=shapes)


def random_pool(rng: np.random.Generator, kind: str) -> PoolWorkload:
    """Any window, padding smaller than it; a sum is scaled back to int8."""
    kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    if rng.random() < 0.5:
        kernel = kernel[0], kernel[0]
    strides = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    if rng.random() < 0.6:
        strides = strides[0], strides[0]
    dilation = (1, 1) if rng.random() < 0.8 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = [int(rng.integers(0, kernel[i % 2])) for i in range(4)]
    if rng.random() < 0.3:
        pads = [0] * 4
    size = [max(1, reach[i] - pads[i] - pads[i + 2]) + int(rng.integers(0, 12)) for i in (0, 1)]
    batch, channels = int(rng.choice([1, 1, 2, 3])), int(rng.choice([3, 16, 40, 70]))
    epilogue = Epilogue()
    if kind == "sum":
        operand: int | str = int(rng.integers(1, 90))
        if rng.random() < 0.4:
            operand = str(rng.choice([MAP, MAP, CHANNEL, FULL]))
        epilogue = Epilogue((Step("mul", operand), Step("add", 128), Step("shr", 8), *clamp()))
    low = int(rng.choice([-128, -128, 0]))
    pads_ = (pads[0], pads[1], pads[2], pads[3])
    return PoolWorkload(
        kind, batch, channels, *size, kernel, strides, pads_, dilation, low, epilogue
    )


def random_depthwise(rng: np.random.Generator) -> Conv2dWorkload:
    """A window of :func:`random_pool` with bias, per-channel or not, and shift."""
    pool = random_pool(rng, "max")
    bias: int | str = str(rng.choice([CHANNEL, CHANNEL, MAP, FULL]))
    if rng.random() < 0.3:
        bias = 1 << 9
    steps = (Step("add", bias), Step("shr", int(rng.integers(5, 12))), *clamp())
    return dataclasses.replace(pool.window, epilogue=Epilogue(steps))
