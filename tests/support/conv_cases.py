"""Convolution and sum cases for the tests: programs with their results, random layers, tiles."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from conv_numpy import (
    Rng,
    numpy_conv,
    numpy_conv_transpose,
    numpy_elementwise,
    operand_shape,
    random_int8,
    rescale,
)

from vta_byoc.codegen import BEST, LoopCompression, ProgramBuilder
from vta_byoc.cost.search import Choice, Space, cost_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.strategies.base import LayerSchedule, LayerWork, Strategy
from vta_byoc.strategies.conv.bias import reach
from vta_byoc.strategies.conv.conv2d import CONV2D, grouping_of
from vta_byoc.strategies.conv.conv2d_transpose import CONV2D_TRANSPOSE
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.conv.tile_space import conv_space
from vta_byoc.strategies.elementwise.elementwise import ELEMENTWISE
from vta_byoc.strategies.te.kernel import Grouping, Kernel
from vta_byoc.strategies.te.window import divisors
from vta_byoc.workload.packing import pack_activation, packed_shape, unpack_activation
from vta_byoc.workload.workloads import (
    CHANNEL,
    FULL,
    MAP,
    Conv2dWorkload,
    ConvTransposeWorkload,
    ElementwiseWorkload,
    Epilogue,
    Prologue,
    Step,
)

MOST_STEPS = 300
"""Larger programs only cost the tests time."""


# ---------------------------------------------------------------- programs
@dataclasses.dataclass
class Case:
    """A Program with its inputs, the NCHW result that numpy expects and where it is."""

    program: Program
    inputs: dict[str, np.ndarray]
    expected: np.ndarray
    output: str = "y"

    def check(self, arena: np.ndarray) -> None:
        """The output of a run must equal the reference, bit for bit."""
        batch, channels = self.expected.shape[:2]
        packed = joined(self.program.view(arena, self.output), str(self.expected.dtype))
        np.testing.assert_array_equal(unpack_activation(packed, batch, channels), self.expected)


def joined(packed: np.ndarray, dtype: str) -> np.ndarray:
    """A packed int8 result, or the int32 one of four byte planes."""
    if dtype == "int8":
        return packed
    planes = np.ascontiguousarray(np.moveaxis(packed, 0, -1))
    return planes.view("<i4")[..., 0]


class NetBuilder:
    """Layers in one Program next to their numpy results."""

    def __init__(
        self,
        config: VTAConfig,
        seed: int = 0,
        compression: LoopCompression = BEST,
        *,
        reuse: bool = True,
    ):
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.builder = ProgramBuilder(config, compression, reuse_resident=reuse)
        self.values: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, name: str, *shape: int) -> str:
        """A random int8 input of NCHW ``shape``."""
        self.values[name] = random_int8(self.rng, *shape)
        self.inputs[name] = pack_activation(self.values[name], self.config)
        return self.builder.symbol(name, "input", self.inputs[name].shape, "int8")

    def _layer(
        self,
        name: str,
        strategy: Strategy,
        schedule: LayerSchedule[Any],
        inputs: Sequence[str],
        given: Mapping[str, np.ndarray],
        expected: np.ndarray,
        kind: str,
    ) -> str:
        constants = strategy.constants(schedule, given, self.config)
        names = [f"{name}_{i}" for i in range(len(constants))]
        for constant, value in zip(names, constants, strict=True):
            self.builder.constant(constant, value)
        self.values[name] = expected
        shape = packed_shape(expected.shape, self.config, str(expected.dtype))
        self.builder.symbol(name, kind, shape, "int8")
        args = [*inputs, *names, name]
        for kernel in strategy.functions(schedule, self.config):
            self.builder.layer(name, kernel.func, [args[i] for i in kernel.args])
        return name

    def operands(self, work: Any, kinds: Sequence[str]) -> dict[str, np.ndarray]:
        """Random tensor operands of steps, by the names that strategies take."""
        shapes = [operand_shape(kind, work) for kind in kinds]
        values = [self.rng.integers(-5000, 5000, shape).astype(np.int32) for shape in shapes]
        return {f"operand{i}": value for i, value in enumerate(values)}

    def _given(
        self, work: Any, weight: np.ndarray
    ) -> tuple[dict[str, np.ndarray], Any, list[np.ndarray]]:
        """The constants, the same layer whose bias is a step, and the operands of its steps."""
        operands = self.operands(work, work.epilogue.tensors)
        if not work.bias:
            return {"weight": weight, **operands}, work, list(operands.values())
        most = reach(self.config.block)
        bias = self.rng.integers(-most, most + 1, work.out_channels).astype(np.int32)
        end = dataclasses.replace(work.epilogue, steps=(Step("add", CHANNEL), *work.epilogue.steps))
        added = dataclasses.replace(work, bias=False, epilogue=end)
        return {"weight": weight, "bias": bias, **operands}, added, [bias, *operands.values()]

    def conv(
        self,
        name: str,
        x: str,
        work: Conv2dWorkload,
        tile: Choice | None = None,
        kind: str = "temp",
        grouping: Grouping | None = None,
    ) -> str:
        """A convolution of ``x`` with random weights and operands; tile chosen when None."""
        if tile is None:
            schedule = chosen(work, self.config)
        else:
            kernel = Kernel(tile, grouping or groupings(work, self.config)[0])
            schedule = LayerSchedule(work, kernels=(kernel,))
        weight = random_int8(
            self.rng, work.out_channels, work.in_channels // work.groups, *work.kernel
        )
        given, added, values = self._given(work, weight)
        expected = numpy_conv(added, self.values[x], weight, *values)
        return self._layer(name, CONV2D, schedule, [x], given, expected, kind)

    def conv_transpose(
        self, name: str, x: str, work: ConvTransposeWorkload, kind: str = "temp"
    ) -> str:
        """A transposed convolution of ``x`` with random weights and operands."""
        shape = (work.in_channels, work.out_channels // work.groups, *work.kernel)
        weight = random_int8(self.rng, *shape)
        given, added, values = self._given(work, weight)
        expected = numpy_conv_transpose(added, self.values[x], weight, *values)
        schedule = CONV2D_TRANSPOSE.choose(LayerWork(work), self.config)
        return self._layer(name, CONV2D_TRANSPOSE, schedule, [x], given, expected, kind)

    def add(
        self,
        name: str,
        lhs: str,
        rhs: str,
        work: ElementwiseWorkload,
        tile: Choice | None = None,
        kind: str = "temp",
    ) -> str:
        """A sum of ``lhs`` and ``rhs``; tile chosen when None."""
        expected = numpy_elementwise(work, [self.values[lhs], self.values[rhs]])
        schedule = ELEMENTWISE.choose(LayerWork(work), self.config)
        if tile is not None:
            schedule = LayerSchedule(work, kernels=(Kernel(tile),))
        return self._layer(name, ELEMENTWISE, schedule, [lhs, rhs], {}, expected, kind)

    def finish(self, output: str) -> Case:
        return Case(self.builder.finish(), self.inputs, self.values[output], output)


def conv_case(
    work: Conv2dWorkload,
    config: VTAConfig,
    tile: Choice | None = None,
    seed: int = 0,
    compression: LoopCompression = BEST,
    grouping: Grouping | None = None,
    *,
    reuse: bool = True,
) -> Case:
    """One convolution as a Program; with ``reuse`` as the compiler makes it."""
    net = NetBuilder(config, seed, compression, reuse=reuse)
    net.input("x", *work.in_shapes[0])
    return net.finish(net.conv("y", "x", work, tile, "output", grouping))


def conv_transpose_case(work: ConvTransposeWorkload, config: VTAConfig, seed: int = 0) -> Case:
    """One transposed convolution as a Program."""
    net = NetBuilder(config, seed)
    net.input("x", *work.in_shapes[0])
    return net.finish(net.conv_transpose("y", "x", work, "output"))


def add_case(
    work: ElementwiseWorkload, config: VTAConfig, tile: Choice | None = None, seed: int = 0
) -> Case:
    """One sum as a Program."""
    net = NetBuilder(config, seed)
    for name, shape in zip(("lhs", "rhs"), work.in_shapes, strict=True):
        net.input(name, *shape)
    return net.finish(net.add("y", "lhs", "rhs", work, tile, "output"))


def add_work(
    shape: Sequence[int], left: int = 0, right: int = 0, rounding: int = 0, shift: int = 0
) -> ElementwiseWorkload:
    """``int8(clamp(((lhs << left) + (rhs << right) + rounding) >> shift))`` of NCHW ``shape``."""
    sides = tuple(
        Prologue(number, (Step("shl", amount),) if amount else ())
        for number, amount in enumerate((left, right))
    )
    steps = [Step("add", rounding)] if rounding else []
    end = rescale(shift, bias=False).steps
    return ElementwiseWorkload(*shape, sides, "add", Epilogue((*steps, *end)))


# ---------------------------------------------------------------- tiles
def conv_tile(
    work: Conv2dWorkload,
    co: int,
    oh: int,
    ow: int,
    ci: int,
    variant: str = "weights held",
    slots: tuple[int, int, int] = (2, 2, 2),
) -> Choice:
    """A tile by hand: one image, one set of groups, the whole kernel."""
    tile = {"n": 1, "g": 1, "co": co, "oh": oh, "ow": ow, "ci": ci}
    return Choice(tile | dict(zip(("kh", "kw"), work.kernel, strict=True)), variant, slots)


@functools.cache
def chosen(work: Conv2dWorkload, config: VTAConfig) -> LayerSchedule[Conv2dWorkload]:
    """What the strategy chooses, once in a process; VTAError where nothing fits."""
    return CONV2D.choose(LayerWork(work), config)


def chosen_tiling(work: Conv2dWorkload, config: VTAConfig) -> tuple[Grouping, Choice]:
    """The grouping and the tile that the strategy chooses; VTAError where nothing fits."""
    (kernel,) = chosen(work, config).kernels
    return grouping_of(kernel), kernel.choice


def random_tiling(
    rng: Rng, work: Conv2dWorkload, config: VTAConfig
) -> tuple[Grouping, Choice] | None:
    """A random way to join groups and a random tile that fits, or None when no try does."""
    found = groupings(work, config)
    grouping = found[int(rng.integers(len(found)))]
    space = conv_space(work, grouping, config)
    for _ in range(40):
        tile = {name: int(rng.integers(1, axis[-1] + 1)) for name, axis in space.axes.items()}
        for name, taps in zip(("kh", "kw"), work.kernel, strict=True):
            tile[name] = int(rng.choice(divisors(taps)))
        slots = tuple(int(s) for s in rng.integers(1, 3, 3))
        choice = Choice(tile, str(rng.choice(list(space.variants))), (slots[0], slots[1], slots[2]))
        if _steps(space, tile) <= MOST_STEPS and np.isfinite(cost_of(space, config, choice)):
            return grouping, choice
    return None


def _steps(space: Space, tile: Mapping[str, int]) -> int:
    """Steps of the loops over tiles."""
    return math.prod(-(-axis[-1] // tile[name]) for name, axis in space.axes.items())


def random_tile(rng: Rng, work: Conv2dWorkload, config: VTAConfig) -> Choice | None:
    """A random tile of a convolution without groups."""
    tiling = random_tiling(rng, work, config)
    return tiling[1] if tiling else None


# ---------------------------------------------------------------- random layers
MULTIPLIED = (
    *(Step("max", -32767), Step("min", 32767), Step("mul", CHANNEL)),
    *(Step("add", 1 << 14), Step("shr", 18)),
)


def random_epilogue(rng: Rng) -> Epilogue:
    """Steps of every kind; few enough bits that int32 does not overflow."""
    low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
    clamp = (Step("max", low), Step("min", high))
    shift = Step("shr", int(rng.choice([5, 8, 9, 12, 17])))
    bias = Step("add", CHANNEL)
    choices = [
        (bias, shift, *clamp),
        (bias, shift, Step("max", 0), Step("min", 6)),
        (bias, *MULTIPLIED, *clamp),
        (Step("add", CHANNEL), Step("shl", 1), Step("add", -77), shift, *clamp),
        (Step("add", MAP), shift, *clamp),
        (bias, Step("add", FULL), shift, *clamp),
        (Step("max", CHANNEL), Step("min", MAP), shift, Step("add", FULL)),
        (),
    ]
    weights = np.array([8, 2, 3, 3, 2, 2, 2, 1])
    steps = choices[int(rng.choice(len(choices), p=weights / weights.sum()))]
    return Epilogue(steps, "int32" if rng.random() < 0.1 else "int8")


def random_work(rng: Rng, **fixed: Any) -> Conv2dWorkload:
    """A convolution whose output has at least one pixel; ``fixed`` fields are taken as given."""
    values = _random_fields(rng) | {"epilogue": random_epilogue(rng)} | fixed
    stride = int(rng.integers(1, 4))
    strides = (stride, stride) if rng.random() < 0.7 else (stride, int(rng.integers(1, 4)))
    values = {"strides": strides} | values
    work = Conv2dWorkload(height=1, width=1, **values)
    need = [
        max(
            work.extent[k] - work.padding[k] - work.padding[k + 2],
            1 - min(0, work.padding[k]) - min(0, work.padding[k + 2]),
        )
        for k in (0, 1)
    ]
    height, width = (max(1, n) + int(rng.integers(0, 14)) for n in need)
    return dataclasses.replace(work, height=height, width=width)


def random_transpose(rng: Rng, **fixed: Any) -> ConvTransposeWorkload:
    """A transposed convolution whose output has at least one pixel."""
    values = _random_fields(rng) | {"epilogue": random_epilogue(rng)}
    strides = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    extra = [int(rng.integers(0, s)) for s in strides]
    values |= {"strides": strides, "output_padding": (extra[0], extra[1])} | fixed
    values["padding"] = tuple(abs(p) % 4 for p in values["padding"])
    size = {"height": int(rng.integers(1, 9)), "width": int(rng.integers(1, 9))}
    work = ConvTransposeWorkload(**size, **values)
    while work.out_height < 1 or work.out_width < 1:
        work = dataclasses.replace(work, height=work.height + 1, width=work.width + 1)
    return work


def _random_fields(rng: Rng) -> dict[str, Any]:
    """What convolutions of both directions have; up to about 50 channels."""
    kernel = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    if rng.random() < 0.5:
        kernel = kernel[0], kernel[0]
    dilation = (1, 1) if rng.random() < 0.7 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    most, whole = (4, 16) if rng.random() < 0.3 else (50, 1)
    channels = {
        "groups": 1,
        "in_channels": whole * int(rng.integers(1, most)),
        "out_channels": whole * int(rng.integers(1, most)),
    }
    if rng.random() < 0.4:
        groups = int(rng.choice([2, 3, 4, 8, 16, 32, 40]))
        most = 1 + 80 // groups
        channels = {
            "groups": groups,
            "in_channels": groups * int(rng.integers(1, most)),
            "out_channels": groups * int(rng.integers(1, most)),
        }
        if rng.random() < 0.5:
            channels["in_channels"] = channels["out_channels"] = groups
    return {
        "batch": int(rng.choice([1, 1, 1, 2, 3, 4])),
        "kernel": kernel,
        "dilation": dilation,
        "padding": _random_padding(rng),
        **channels,
    }


def _random_padding(rng: Rng) -> tuple[int, int, int, int]:
    if rng.random() < 0.2:
        return (0, 0, 0, 0)
    low, high = (-2 if rng.random() < 0.2 else 0), (24 if rng.random() < 0.1 else 4)
    top, left, bottom, right = (int(p) for p in rng.integers(low, high, 4))
    return (top, left, bottom, right)
