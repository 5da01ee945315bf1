"""Random single layers of the integer dialect: a layer is data, and a function writes it.

Constants of the steps are chosen so that no value leaves int32, whatever the int8 input: the
dialect's promise, worked out here with intervals of exact integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from integer_models import IntegerNet
from tvm import relax

from vta_byoc.ir.bindings import SEPARATOR, static_shape

INT32_HIGH = 2**31 - 1
MOST_MACS = 3_000_000
MOST_LOOPS = 4_000
"""Of the numpy reference: channels times kernel."""
Pair = tuple[int, int]
StepList = tuple[tuple[str, np.ndarray], ...]


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        kind: one of KINDS.
        shape: of the int8 operand.
        weight: as the operator takes it.
        attrs: of the operator (strides, padding, ...).
        steps: (operation, constant of shape () or (channels,)), in order.
        dtype: of the result, int8 or int32.
    """

    kind: str
    shape: tuple[int, ...]
    weight: np.ndarray
    attrs: Mapping[str, Any] = field(default_factory=dict)
    steps: StepList = ()
    dtype: str = "int8"

    def __str__(self) -> str:
        steps = ", ".join(f"{op} {_brief(value)}" for op, value in self.steps)
        size = "x".join(map(str, self.shape))
        weight = "x".join(map(str, self.weight.shape))
        return f"{self.kind} {size} * {weight} {dict(self.attrs)} [{steps}] {self.dtype}"


def _brief(value: np.ndarray) -> str:
    return str(int(value)) if value.ndim == 0 else f"{value.min()}..{value.max()} by channel"


# ---------------------------------------------------------------- writing
def write(net: IntegerNet, x: relax.Expr, layer: Layer, name: str) -> relax.Var:
    """Write ``layer`` on ``x`` into ``net``; its result is called ``name``."""
    if layer.attrs.get("flatten"):
        flat = (layer.shape[0], math.prod(layer.shape[1:]))
        x = net.emit(relax.op.reshape(x, flat), f"{name}_flat")
    calls = [(_anchor, "acc"), *((_step_call(s, layer.kind), s[0]) for s in layer.steps)]
    if layer.dtype == "int8":
        calls.append((lambda v: relax.op.astype(v, "int8"), "int8"))
    value: relax.Expr = net.emit(_anchor(x, layer), part(name, "acc", last=len(calls) == 1))
    for number, (call, what) in enumerate(calls[1:], 2):
        value = net.emit(call(value), part(name, what, last=number == len(calls)))
    return value


def part(name: str, what: str, *, last: bool) -> str:
    """Name of a part of a group; the last one has the operator's."""
    return name if last else f"{name}{SEPARATOR}{what}"


def _anchor(x: relax.Expr, layer: Layer) -> relax.Expr:
    weight, attrs = relax.const(layer.weight), dict(layer.attrs)
    if layer.kind == "dense":
        return relax.op.matmul(x, weight, out_dtype="int32")
    function: Callable[..., relax.Expr] = {
        "conv1d": relax.op.nn.conv1d,
        "conv2d_transpose": relax.op.nn.conv2d_transpose,
    }.get(layer.kind, relax.op.nn.conv2d)
    return function(x, weight, out_dtype="int32", **attrs)


def _step_call(step: tuple[str, np.ndarray], kind: str) -> Callable[[relax.Expr], relax.Expr]:
    op, value = step
    function: Callable[..., relax.Expr] = getattr(relax.op, STEPS[op])

    def call(data: relax.Expr) -> relax.Expr:
        constant = value
        if value.ndim and kind != "dense":
            constant = value.reshape(1, -1, *(1,) * (data.ty.ndim - 2))
        return function(data, relax.const(constant.astype("int32")))

    return call


STEPS = {
    "add": "add",
    "mul": "multiply",
    "shr": "right_shift",
    "shl": "left_shift",
    "max": "maximum",
    "min": "minimum",
}


def network(layers: Sequence[Layer]) -> tuple[IntegerNet, list[relax.Var]]:
    """Independent layers: layer i reads ``x<i>`` and is called ``layer<i>``."""
    net = IntegerNet(**{f"x{i}": layer.shape for i, layer in enumerate(layers)})
    pairs = zip(net.params, layers, strict=True)
    return net, [write(net, x, layer, f"layer{i}") for i, (x, layer) in enumerate(pairs)]


# ---------------------------------------------------------------- steps
class StepMaker:
    """Random steps on accumulators whose channels lie in ``low``..``high``."""

    def __init__(self, rng: np.random.Generator, low: np.ndarray, high: np.ndarray) -> None:
        self.rng = rng
        self.low, self.high = low.astype(np.int64), high.astype(np.int64)
        self.steps: list[tuple[str, np.ndarray]] = []

    @property
    def peak(self) -> int:
        """The largest magnitude."""
        return int(max(self.high.max(), -self.low.min(), 1))

    def values(self, low: int, high: int) -> np.ndarray:
        """One number, or one per channel."""
        by_channel = self.rng.random() < 0.5
        return np.asarray(
            self.rng.integers(low, high + 1, len(self.low) if by_channel else None), np.int64
        )

    def put(self, op: str, value: np.ndarray) -> None:
        """Append a step; it must not overflow."""
        ends = [EXACT[op](side, value) for side in (self.low, self.high)]
        low, high = np.minimum(*ends), np.maximum(*ends)
        assert low.min() >= -(2**31) and high.max() <= INT32_HIGH, op
        self.low, self.high = low, high
        self.steps.append((op, value))

    def add(self) -> None:
        room = min(INT32_HIGH - int(self.high.max()), 2**31 + int(self.low.min()))
        sizes = [100, 3000, self.peak // 8, 2**31]
        size = min(room, int(self.rng.choice(sizes, p=[0.4, 0.35, 0.2, 0.05])))
        self.put("add", self.values(-size, size))

    def mul(self) -> None:
        if self.peak > 2**15:
            bound = int(self.rng.choice([2**15 - 1, 2**12]))
            self.put("max", np.asarray(-bound))
            self.put("min", np.asarray(bound))
        size = min(2**15, INT32_HIGH // self.peak)
        self.put("mul", self.values(-size if self.rng.random() < 0.2 else 1, size))

    def shr(self) -> None:
        wanted = max(0, self.peak.bit_length() - int(self.rng.integers(4, 12)))
        low, high = max(0, wanted - 3), min(31, wanted + 2)
        self.put("shr", self.values(0, 31) if self.rng.random() < 0.1 else self.values(low, high))

    def shl(self) -> None:
        self.put("shl", self.values(0, min(31, (INT32_HIGH // self.peak).bit_length() - 1)))

    def max(self) -> None:
        self.put("max", self.values(-self.peak, self.peak // 4))

    def min(self) -> None:
        self.put("min", self.values(-self.peak // 4, self.peak))

    def saturate(self) -> None:
        """To int8, or to a part of it; mostly most values are inside."""
        if self.peak >= 2**14 and self.rng.random() < 0.9:
            wanted = self.peak.bit_length() - int(self.rng.integers(9, 13))
            self.put("shr", self.values(wanted - 1, wanted))
        low = 0 if self.rng.random() < 0.4 else -128
        high = int(self.rng.integers(6, 128)) if self.rng.random() < 0.3 else 127
        if self.rng.random() < 0.1:
            self.put("max", self.rng.integers(-128, 0, len(self.low)))
            self.put("min", self.rng.integers(1, 128, len(self.low)))
        else:
            self.put("max", np.asarray(low))
            self.put("min", np.asarray(high))


EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda v, x: v + x,
    "mul": lambda v, x: v * x,
    "shr": lambda v, x: v >> x,
    "shl": lambda v, x: v << x,
    "max": np.maximum,
    "min": np.minimum,
}
ORDERS = (
    ("add", "shr"),
    ("add", "shr", "max"),
    ("shr",),
    ("add", "mul", "add", "shr"),
    ("mul", "shr"),
    ("add", "shl", "shr"),
    ("add",),
    ("max", "add", "shr", "add", "min", "shl"),
)


def random_steps(
    rng: np.random.Generator, low: np.ndarray, high: np.ndarray
) -> tuple[StepList, str]:
    """Steps on accumulators within ``low``..``high`` (one per channel), and the result's dtype."""
    maker = StepMaker(rng, low, high)
    order = list(ORDERS[int(rng.integers(len(ORDERS)))])
    if rng.random() < 0.25:
        rng.shuffle(order)
    for op in order if rng.random() < 0.95 else ():
        getattr(maker, op)()
    dtype = "int32" if rng.random() < 0.15 else "int8"
    if dtype == "int8":
        maker.saturate()
    return tuple(maker.steps), dtype


def weight_bounds(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interval of each output channel for any int8 data; ``weight`` (outputs, products)."""
    wide = weight.astype(np.int64)
    positive, negative = np.maximum(wide, 0).sum(axis=1), np.minimum(wide, 0).sum(axis=1)
    return 127 * negative - 128 * positive, 127 * positive - 128 * negative


def random_weight(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """int8 weights, sometimes as large as they can be."""
    if rng.random() < 0.08:
        return np.full(shape, rng.choice([-128, 127]), np.int8)
    if rng.random() < 0.1:
        return rng.choice(np.array([-128, 127], np.int8), shape)
    return rng.integers(-128, 128, shape, dtype=np.int8)


# ---------------------------------------------------------------- shapes
def channels(rng: np.random.Generator) -> int:
    """Mostly any number, some of few, whole blocks or hundreds."""
    kind = rng.random()
    if kind < 0.15:
        return int(rng.integers(1, 5))
    if kind < 0.3:
        return 16 * int(rng.integers(1, 5))
    return int(rng.integers(100, 400)) if kind < 0.38 else int(rng.integers(1, 71))


def batch(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 1, 1, 2, 3, 4, 5]))


def kernel(rng: np.random.Generator) -> Pair:
    size = int(rng.choice([1, 3, int(rng.integers(1, 12))]))
    return size, size if rng.random() < 0.7 else int(rng.integers(1, 8))


def pair(rng: np.random.Generator, most: int, plain: float) -> Pair:
    """Two numbers from 1 to ``most``, equal with the probability ``plain``."""
    first = int(rng.integers(1, most + 1))
    return first, first if rng.random() < plain else int(rng.integers(1, most + 1))


def pads(rng: np.random.Generator, size: Pair) -> tuple[int, int, int, int]:
    """Top, left, bottom, right: none, half the kernel, any, or more than 15."""
    kind = rng.random()
    if kind < 0.25:
        return 0, 0, 0, 0
    if kind < 0.55:
        return size[0] // 2, size[1] // 2, size[0] // 2, size[1] // 2
    top, left, bottom, right = (int(p) for p in rng.integers(0, 24 if kind > 0.93 else 5, 4))
    return top, left, bottom, right


def plane(rng: np.random.Generator, least: Sequence[int], room: int = 13) -> Pair:
    """Rows and columns of at least ``least`` and less than ``room`` more; sometimes long rows."""
    height, width = (max(1, n) + int(rng.integers(0, room)) for n in least)
    return (height, width + int(rng.integers(60, 900))) if rng.random() < 0.04 else (height, width)


def _convolution(
    rng: np.random.Generator, kind: str, ci: int, co: int, groups: int, room: int = 13
) -> Layer:
    taps = kernel(rng)
    strides = pair(rng, 4, 0.75)
    dilation = (1, 1) if rng.random() < 0.75 else pair(rng, 3, 0.5)
    padding = pads(rng, taps)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    least = [r - padding[i] - padding[i + 2] for i, r in enumerate(reach)]
    weight = random_weight(rng, (co, ci // groups, *taps))
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }
    steps, dtype = random_steps(rng, *weight_bounds(weight.reshape(co, -1)))
    return Layer(kind, (batch(rng), ci, *plane(rng, least, room)), weight, attrs, steps, dtype)


def conv2d(rng: np.random.Generator) -> Layer:
    return _convolution(rng, "conv2d", channels(rng), channels(rng), 1)


def grouped(rng: np.random.Generator) -> Layer:
    groups = int(rng.integers(2, 9))
    sizes = (16, 32) if rng.random() < 0.3 else range(1, 21)
    ci, co = (groups * int(rng.choice(sizes)) for _ in range(2))
    return _convolution(rng, "grouped", ci, co, groups)


def depthwise(rng: np.random.Generator) -> Layer:
    groups, multiplier = int(rng.integers(2, 71)), int(rng.choice([1, 1, 1, 2]))
    room = 13 if rng.random() < 0.6 else 3
    return _convolution(rng, "depthwise", groups, groups * multiplier, groups, room)


def conv1d(rng: np.random.Generator) -> Layer:
    whole = _convolution(rng, "conv1d", channels(rng), channels(rng), 1)
    attrs = {
        "strides": whole.attrs["strides"][1],
        "padding": (whole.attrs["padding"][1], whole.attrs["padding"][3]),
        "dilation": whole.attrs["dilation"][1],
        "groups": 1,
    }
    weight = np.ascontiguousarray(whole.weight[:, :, 0])
    shape = (*whole.shape[:2], whole.shape[3])
    steps, dtype = random_steps(rng, *weight_bounds(weight.reshape(len(weight), -1)))
    return Layer("conv1d", shape, weight, attrs, steps, dtype)


def conv2d_transpose(rng: np.random.Generator) -> Layer:
    groups = 1 if rng.random() < 0.7 else int(rng.integers(2, 5))
    ci, per_group = groups * int(rng.integers(1, 40)), int(rng.integers(1, 40))
    taps, strides = pair(rng, 5, 0.7), pair(rng, 4, 0.7)
    dilation = (1, 1) if rng.random() < 0.8 else pair(rng, 3, 0.5)
    height, width = plane(rng, (1, 1))
    reach = [
        (size - 1) * s + (k - 1) * d + 1
        for size, s, k, d in zip((height, width), strides, taps, dilation, strict=True)
    ]
    crop = [int(rng.integers(0, min(4, (r + 1) // 2))) for r in (*reach, *reach)]
    attrs = {
        "strides": strides,
        "padding": tuple(crop),
        "output_padding": tuple(int(rng.integers(0, s)) for s in strides),
        "dilation": dilation,
        "groups": groups,
    }
    weight = random_weight(rng, (ci, per_group, *taps))
    products = np.moveaxis(weight.reshape(groups, -1, per_group, *taps), 2, 1)
    bounds = weight_bounds(products.reshape(groups * per_group, -1))
    steps, dtype = random_steps(rng, *bounds)
    shape = (batch(rng), ci, height, width)
    return Layer("conv2d_transpose", shape, weight, attrs, steps, dtype)


def dense(rng: np.random.Generator) -> Layer:
    inputs, outputs = channels(rng), channels(rng)
    rows = int(rng.choice([1, 1, 2, 4, 8, int(rng.integers(1, 65))]))
    form = rng.random()
    shape: tuple[int, ...] = (rows, inputs)
    attrs: dict[str, Any] = {}
    if form < 0.25:
        shape = (int(rng.integers(1, 4)), rows, inputs)
    elif form < 0.5:
        size = pair(rng, 4, 0.5)
        shape, attrs = (min(rows, 8), min(inputs, 40), *size), {"flatten": True}
        inputs = math.prod(shape[1:])
    weight = random_weight(rng, (inputs, outputs))
    steps, dtype = random_steps(rng, *weight_bounds(weight.T))
    return Layer("dense", shape, weight, attrs, steps, dtype)


KINDS: dict[str, Callable[[np.random.Generator], Layer]] = {
    "conv2d": conv2d,
    "conv1d": conv1d,
    "grouped": grouped,
    "depthwise": depthwise,
    "conv2d_transpose": conv2d_transpose,
    "dense": dense,
}


def random_layer(kind: str, seed: int) -> Layer:
    """Layer ``seed`` of ``kind``, small enough for a direct reference."""
    rng = np.random.default_rng((list(KINDS).index(kind), seed))
    layer = KINDS[kind](rng)
    while not _is_small(layer):
        layer = KINDS[kind](rng)
    return layer


def _is_small(layer: Layer) -> bool:
    _, (out,) = network([layer])
    pixels = math.prod(static_shape(out)) / max(1, layer.weight.shape[0])
    if layer.kind == "dense":
        return layer.weight.size * math.prod(layer.shape) / layer.weight.shape[0] < MOST_MACS
    loops = layer.weight.size // layer.weight.shape[1]
    return pixels * layer.weight.size < MOST_MACS and loops < MOST_LOOPS
