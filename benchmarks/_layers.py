"""One layer as a module, as a program, and in numpy: what `layers.py` compiles and checks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from vta_byoc.codegen import ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.partition import Placement
from vta_byoc.pipeline import compile_module
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.scales import Rescale
from vta_byoc.runtime.execute import profile
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategy import STRATEGIES

KEPT = 40
"""The standard deviation that an int8 result should have, for random data."""


@dataclass(frozen=True)
class Layer:
    """A layer with weights; ``op`` is conv2d, conv2d_transpose or dense.

    Sizes as in a workload; the epilogue is bias, shift and clip to int8.
    """

    op: str
    batch: int
    in_channels: int
    out_channels: int
    size: tuple[int, int] = (1, 1)
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    @property
    def text(self) -> str:
        """Sizes in one line."""
        (h, w), (kh, kw) = self.size, self.kernel
        plain = f"{self.in_channels}→{self.out_channels}"
        if self.op == "dense":
            return f"{self.batch} x {plain}"
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        return f"{self.batch} x {plain} {h}x{w}, {kh}x{kw} stride {self.strides[0]}{groups}"

    @property
    def input_shape(self) -> tuple[int, ...]:
        flat = (self.batch, self.in_channels)
        return flat if self.op == "dense" else (*flat, *self.size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """As the operator takes it."""
        if self.op == "dense":
            return self.in_channels, self.out_channels
        if self.op == "conv2d_transpose":
            return self.in_channels, self.out_channels // self.groups, *self.kernel
        return self.out_channels, self.in_channels // self.groups, *self.kernel

    @property
    def shift(self) -> int:
        """Right shift that brings random products to int8."""
        products = self.in_channels // self.groups * math.prod(self.kernel)
        if self.op == "conv2d_transpose":
            products //= math.prod(self.strides)
        return max(0, round(math.log2(74 * 74 * math.sqrt(products) / KEPT)))


@dataclass(frozen=True)
class Tensors:
    """Random data of a layer; ``bias`` has the rounding constant in it."""

    data: np.ndarray
    weight: np.ndarray
    bias: np.ndarray


def tensors(layer: Layer, seed: int = 0) -> Tensors:
    """Seeded int8 data and weights, int32 bias."""
    rng = np.random.default_rng(seed)
    data = rng.integers(-128, 128, layer.input_shape, np.int8)
    weight = rng.integers(-127, 128, layer.weight_shape, np.int8)
    bias = rng.integers(-1000, 1000, layer.out_channels) + Rescale(layer.shift).rounding
    return Tensors(data, weight, bias.astype(np.int32))


# ---------------------------------------------------------------- compiled
class _Writer(DialectWriter):
    def module(self, layer: Layer, given: Tensors) -> tvm.IRModule:
        x = relax.Var("x", relax.TensorType(layer.input_shape, "int8"))
        rescale = Rescale(layer.shift)
        if layer.op == "dense":
            out = self.matmul(x, given.weight, given.bias, rescale, "layer")
        else:
            attrs = SimpleNamespace(
                strides=list(layer.strides),
                padding=list(layer.padding),
                dilation=[1, 1],
                output_padding=[0, 0],
                groups=layer.groups,
            )
            out = getattr(self, layer.op)(x, given.weight, given.bias, attrs, rescale, "layer")
        main = self.finish(SimpleNamespace(params=[x], attrs=None), out)
        mod = tvm.IRModule({"main": main.with_attr("global_symbol", "main")})
        return relax.transform.Normalize()(mod)


@dataclass(frozen=True)
class Result:
    """A layer compiled alone: its program, how long that took, and whether it is bit-exact."""

    program: Program
    placement: Placement
    seconds: float
    exact: bool

    def cycles(self, timing: Timing) -> int:
        return simulate(self.program, timing).cycles

    @property
    def gemm(self) -> int:
        """GEMM micro-ops without resets."""
        return self.program.counters()["gemm_counter"]


def compiled(layer: Layer, config: VTAConfig) -> Result:
    """Compile a layer from the dialect to an executable, run it, compare with numpy."""
    given = tensors(layer)
    mod = _Writer().module(layer, given)
    start = time.perf_counter()
    built = compile_module(mod, config)
    seconds = time.perf_counter() - start
    (program,) = built.programs.values()
    (got,) = profile(built.exe, given.data).outputs
    exact = np.array_equal(got, reference(layer, given))
    return Result(program, built.placement[0], seconds, exact)


def program_of(strategy: str, work: Any, config: VTAConfig) -> Program:
    """A workload alone in a program by one strategy, weights zero: for counters and cycles."""
    chosen = STRATEGIES[strategy]
    schedule = chosen.choose(LayerWork(work), config)
    params = chosen.compute(schedule, config).params
    builder, names = ProgramBuilder(config), [f"t{i}" for i in range(len(params))]
    for position, (name, param) in enumerate(zip(names, params, strict=True)):
        shape, dtype = [int(s) for s in param.shape], str(param.dtype)
        if position == 0 or position == len(params) - 1:
            builder.symbol(name, "output" if position else "input", shape, dtype)
        else:
            builder.constant(name, np.zeros(shape, dtype))
    for kernel in chosen.functions(schedule, config):
        builder.layer("layer", kernel.func, [names[i] for i in kernel.args])
    return builder.finish()


# ---------------------------------------------------------------- numpy
def reference(layer: Layer, given: Tensors) -> np.ndarray:
    """The layer in numpy: products in float64, which holds every int32 exactly."""
    if layer.op == "dense":
        acc = given.data.astype(np.float64) @ given.weight.astype(np.float64)
    elif layer.op == "conv2d":
        acc = _correlated(layer, given)
    else:
        acc = _transposed(layer, given)
    bias = given.bias if layer.op == "dense" else given.bias[:, None, None]
    moved = (acc.astype(np.int64) + bias) >> layer.shift
    return np.clip(moved, -128, 127).astype(np.int8)


def _correlated(layer: Layer, given: Tensors) -> np.ndarray:
    top, left, bottom, right = layer.padding
    x = np.pad(given.data.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    (kh, kw), (sh, sw) = layer.kernel, layer.strides
    rows, cols = (x.shape[2] - kh) // sh + 1, (x.shape[3] - kw) // sw + 1
    x = _by_group(x, layer.groups)
    weight = given.weight.astype(np.float64)
    weight = weight.reshape(layer.groups, -1, *weight.shape[1:])
    acc = np.zeros((layer.batch, layer.groups, weight.shape[1], rows * cols))
    for r, s in np.ndindex(kh, kw):
        window = x[..., r : r + (rows - 1) * sh + 1 : sh, s : s + (cols - 1) * sw + 1 : sw]
        acc += weight[..., r, s] @ window.reshape(*window.shape[:3], -1)
    return acc.reshape(layer.batch, layer.out_channels, rows, cols)


def _transposed(layer: Layer, given: Tensors) -> np.ndarray:
    """Every input pixel adds its multiple of the kernel; then the result is cropped."""
    top, left, bottom, right = layer.padding
    (h, w), (kh, kw), (sh, sw) = layer.size, layer.kernel, layer.strides
    x = _by_group(given.data.astype(np.float64), layer.groups)
    x = x.reshape(*x.shape[:3], -1)
    weight = given.weight.astype(np.float64)
    weight = weight.reshape(layer.groups, -1, *weight.shape[1:])
    rows, cols = (h - 1) * sh + kh, (w - 1) * sw + kw
    acc = np.zeros((layer.batch, layer.groups, weight.shape[2], rows, cols))
    for r, s in np.ndindex(kh, kw):
        product = weight[..., r, s].swapaxes(1, 2) @ x
        part = acc[..., r : r + (h - 1) * sh + 1 : sh, s : s + (w - 1) * sw + 1 : sw]
        part += product.reshape(part.shape)
    whole = acc.reshape(layer.batch, layer.out_channels, rows, cols)
    return whole[:, :, top : rows - bottom, left : cols - right]


def _by_group(x: np.ndarray, groups: int) -> np.ndarray:
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:])


# ---------------------------------------------------------------- counts from shapes
def useful_gemm(layer: Layer, config: VTAConfig) -> int:
    """GEMM micro-ops of a transposed convolution that do not multiply by an inserted zero."""
    ci, co = (-(-c // config.block) for c in (layer.in_channels, layer.out_channels))
    images = -(-layer.batch // config.batch)
    return images * ci * co * math.prod(_hits(layer, axis) for axis in (0, 1))


def _hits(layer: Layer, axis: int) -> int:
    """Pairs of an output position and a tap that meets an input position, borders included."""
    stride, kernel, before = layer.strides[axis], layer.kernel[axis], layer.padding[axis]
    outputs = (layer.size[axis] - 1) * stride + kernel - before - layer.padding[axis + 2]
    return sum((o + before - t) % stride == 0 for o in range(outputs) for t in range(kernel))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))
