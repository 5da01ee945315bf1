"""The operators of random networks that compute: how their attributes are drawn.

Each function gets the maker of a network and a tensor, adds ONNX nodes and returns their result.
Attributes are drawn such that no result is empty; sizes stay small, so that hundreds of networks
can be compiled.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random_graphs import Maker

MOST_ELEMENTS = 12_000
"""Of one tensor."""
MOST_PRODUCTS = 2
"""Of two tensors in one network: values must stay finite."""
CHANNELS = (8, 16, 1, 3, 17, 24, 32, 37, 48)
ISLANDS = ("Abs", "Sigmoid", "Tanh", "Softmax", "Exp", "Sqrt", "HardSigmoid", "Erf", "Softplus")
"""Operators that stay float, or that the partition table does not know."""


@dataclass(frozen=True)
class Value:
    """A tensor of the network under construction."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def plane(self) -> tuple[int, ...]:
        """The sizes behind the channels."""
        return self.shape[2:]


# ---------------------------------------------------------------- windows
@dataclass(frozen=True)
class Taps:
    """A window along one axis; ``extra``: output padding of a transposed convolution."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    extra: int = 0

    def size(self, size: int) -> int:
        """Of the result of a sliding window."""
        reach = (self.kernel - 1) * self.dilation + 1
        return (size + self.before + self.after - reach) // self.stride + 1

    def spread(self, size: int) -> int:
        """Of the result of a transposed convolution."""
        whole = (size - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return whole + self.extra - self.before - self.after


def attributes(taps: Sequence[Taps], *names: str) -> dict[str, list[int]]:
    """As ONNX has them; ``names`` of dilations, kernel_shape, output_padding are wanted too."""
    attrs = {
        "strides": [t.stride for t in taps],
        "pads": [*(t.before for t in taps), *(t.after for t in taps)],
        "dilations": [t.dilation for t in taps],
        "kernel_shape": [t.kernel for t in taps],
        "output_padding": [t.extra for t in taps],
    }
    return {name: attrs[name] for name in ("strides", "pads", *names)}


def window(m: Maker, plane: Sequence[int], sizes: Sequence[int], dilated: bool) -> list[Taps]:
    """A window that fits ``plane``, with pads below the kernel's size, maybe asymmetric."""
    taps: list[Taps] = []
    square = m.chance(70)
    for size in plane:
        if not taps or not square or taps[0].size(size) < 1:
            taps.append(_taps(m, size, sizes, dilated))
        else:
            taps.append(taps[0])
    return taps


def _taps(m: Maker, size: int, sizes: Sequence[int], dilated: bool) -> Taps:
    kernel = m.pick([k for k in sizes if k <= size])
    stride = m.pick([1, 1, 2]) if size > 2 else 1
    pads = range(min(kernel - 1, 2) + 1)
    drawn = Taps(kernel, stride, m.pick([1, 1, 1, 2]) if dilated else 1, m.pick(pads), m.pick(pads))
    return drawn if drawn.size(size) > 0 else dataclasses.replace(drawn, dilation=1)


# ---------------------------------------------------------------- layers
def conv(m: Maker, x: Value) -> Value:
    """Conv of one or two dimensions: plain, grouped, depthwise."""
    taps = window(m, x.plane, (1, 3, 2, 5), dilated=True)
    attrs: dict[str, Any] = attributes(taps, "dilations")
    plane = [t.size(size) for t, size in zip(taps, x.plane, strict=True)]
    if m.chance(8):
        attrs = {"strides": attrs["strides"], "auto_pad": m.pick(["SAME_UPPER", "SAME_LOWER"])}
        plane = [-(-size // t.stride) for t, size in zip(taps, x.plane, strict=True)]
    groups = m.pick([g for g in (1, 1, 2, 3, x.channels) if x.channels % g == 0])
    most = MOST_ELEMENTS // (x.shape[0] * math.prod(plane))
    channels = m.pick([c for c in CHANNELS if c <= most] or [1])
    if groups > 1:
        channels = groups * m.pick([n for n in (1, 1, 2) if n * groups <= max(most, groups)])
    kernel = [t.kernel for t in taps]
    per_group = x.channels // groups
    weight = m.weight((channels, per_group, *kernel), per_group * math.prod(kernel))
    inputs = [x.name, weight, *([m.net.normal(channels, scale=0.2)] if m.chance(70) else [])]
    return m.add("Conv", inputs, (x.shape[0], channels, *plane), group=groups, **attrs)


def conv_transpose(m: Maker, x: Value) -> Value:
    taps = []
    for size in x.plane:
        kernel, stride = m.pick([2, 3, 1, 4]), m.pick([2, 1, 3]) if size < 8 else 1
        dilation = m.pick([1, 1, 1, 2])
        room = (size - 1) * stride + (kernel - 1) * dilation
        before = m.pick(range(min(room, kernel - 1, 1) + 1))
        after = m.pick(range(min(room - before, kernel - 1, 1) + 1))
        taps.append(Taps(kernel, stride, dilation, before, after, m.pick(range(min(stride, 2)))))
    plane = [t.spread(size) for t, size in zip(taps, x.plane, strict=True)]
    groups = m.pick([g for g in (1, 1, 2, x.channels) if x.channels % g == 0])
    most = MOST_ELEMENTS // (3 * groups * x.shape[0] * math.prod(plane))
    per_group = m.pick([c for c in (1, 3, 8, 16, 24) if c <= most] or [1])
    shape = (x.shape[0], groups * per_group, *plane)
    kernels = [t.kernel for t in taps]
    weight = m.weight((x.channels, per_group, *kernels), x.channels // groups * kernels[0])
    inputs = [x.name, weight, *([m.net.normal(shape[1], scale=0.2)] if m.chance(50) else [])]
    attrs = attributes(taps, "output_padding", "dilations")
    return m.add("ConvTranspose", inputs, shape, group=groups, **attrs)


def dense(m: Maker, x: Value) -> Value:
    """Gemm of a matrix in one of its forms; MatMul of anything by its last axis."""
    rows, channels = x.shape[-1], m.pick([10, 1, 16, 32, 40])
    if len(x.shape) != 2 or m.chance(30):
        shape = (*x.shape[:-1], channels)
        return m.add("MatMul", [x.name, m.weight((rows, channels), rows)], shape)
    transposed = m.pick([1, 0])
    weight = m.weight((channels, rows) if transposed else (rows, channels), rows)
    inputs = [x.name, weight, *([m.net.normal(channels, scale=0.3)] if m.chance(70) else [])]
    scales = {"alpha": 0.5, "beta": 2.0} if m.chance(30) else {}
    return m.add("Gemm", inputs, (x.shape[0], channels), transB=transposed, **scales)


def batch_norm(m: Maker, x: Value) -> Value:
    c = x.channels
    scale, mean = m.net.normal(c, scale=0.2, offset=1.0), m.net.normal(c, scale=0.3)
    inputs = [x.name, scale, m.net.normal(c, scale=0.3), mean, m.net.const([1.5] * c)]
    return m.add("BatchNormalization", inputs, x.shape)


# ---------------------------------------------------------------- elementwise
def relu(m: Maker, x: Value) -> Value:
    return m.add("Relu", [x.name], x.shape)


def clip(m: Maker, x: Value) -> Value:
    low = m.net.const(m.pick([0.0, -0.5])) if m.chance(80) else ""
    return m.add("Clip", [x.name, low, m.net.const(m.pick([6.0, 1.0]))], x.shape)


def leaky(m: Maker, x: Value) -> Value:
    if m.chance(25) and len(x.shape) == 4:
        step = m.pick([0.0, 0.01])
        slopes = [[[0.25 + step * c]] for c in range(x.channels)]
        return m.add("PRelu", [x.name, m.net.const(slopes)], x.shape)
    return m.add("LeakyRelu", [x.name], x.shape, alpha=m.pick([0.125, 0.1, 0.3]))


def binary(m: Maker, x: Value) -> Value:
    """Two tensors: the same one twice, two of one shape, or one that broadcasts."""
    y = m.pick([v for v in m.values if _broadcasts(v, x)])
    op = m.pick(["Add", "Add", "Sub", "Mul", "Max", "Min"])
    if op == "Mul":
        op = "Mul" if m.products < MOST_PRODUCTS else "Add"
        m.products += 1
    names = [y.name, x.name] if m.chance(30) else [x.name, y.name]
    return m.add(op, names, x.shape)


def _broadcasts(small: Value, large: Value) -> bool:
    if len(small.shape) != len(large.shape):
        return False
    return all(a in (1, b) for a, b in zip(small.shape, large.shape, strict=True))


def total(m: Maker, x: Value) -> Value:
    """Sum of three tensors, some of them the same."""
    same = [v for v in m.values if v.shape == x.shape]
    op = m.pick(["Sum", "Sum", "Mean", "Max"])
    return m.add(op, [x.name, m.pick(same).name, m.pick(same).name], x.shape)


def constant(m: Maker, x: Value) -> Value:
    """Arithmetic with a constant: one number or one for each channel."""
    shape: tuple[int, ...] = (x.channels, *(1 for _ in x.plane)) if m.chance(60) else ()
    if m.chance(10):
        shape = x.shape[-1:]
    op = m.pick(["Mul", "Add", "Sub", "Div"])
    number = m.net.normal(*shape, scale=0.3, offset=1.0 if op in ("Mul", "Div") else 0.0)
    if op == "Div":
        number = m.net.const(1.5)
    names = [number, x.name] if op != "Div" and m.chance(25) else [x.name, number]
    return m.add(op, names, x.shape)


def negative(m: Maker, x: Value) -> Value:
    return m.add("Neg", [x.name], x.shape)


def island(m: Maker, x: Value) -> Value:
    """An operator that stays on the CPU."""
    op = m.pick(ISLANDS)
    if op in ("Sqrt", "Exp"):
        x = m.add("Abs" if op == "Sqrt" else "Tanh", [x.name], x.shape)
    attrs = {"axis": m.pick([1, -1])} if op == "Softmax" else {}
    return m.add(op, [x.name], x.shape, **attrs)


# ---------------------------------------------------------------- pooling
def max_pool(m: Maker, x: Value) -> Value:
    return _pool(m, x, "MaxPool")


def avg_pool(m: Maker, x: Value) -> Value:
    return _pool(m, x, "AveragePool", count_include_pad=m.pick([0, 1]))


def _pool(m: Maker, x: Value, op: str, **attrs: int) -> Value:
    taps = window(m, x.plane, (2, 3, 1), dilated=False)
    plane = (t.size(size) for t, size in zip(taps, x.plane, strict=True))
    return m.add(op, [x.name], (*x.shape[:2], *plane), **attributes(taps, "kernel_shape"), **attrs)


def mean(m: Maker, x: Value) -> Value:
    if m.chance(50):
        shape = (*x.shape[:2], *(1 for _ in x.plane))
        return m.add(m.pick(["GlobalAveragePool", "GlobalMaxPool"]), [x.name], shape)
    axes = m.pick([[2, 3], [-1], [1], [2, 3]]) if len(x.shape) == 4 else [2]
    keep = m.pick([1, 0])
    op = m.pick(["ReduceMean", "ReduceMean", "ReduceMax"])
    at = {a % len(x.shape) for a in axes}
    shape = tuple(1 if a in at else s for a, s in enumerate(x.shape) if a not in at or keep)
    return m.add(op, [x.name], shape, axes=axes, keepdims=keep)
