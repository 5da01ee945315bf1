"""Relax of models that come quantized: float operators between dequantize and quantize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from small_models import Graph
from tvm import relax

from vta_byoc.ir.bindings import static_shape

ZEROS = {"int8": (0, 5, -128, 127, -3), "uint8": (128, 0, 255, 121)}


class QuantizedGraph(Graph):
    """`values` int8 or uint8 parameters; scales, zero points and weights drawn from the seed."""

    def __init__(self, *shapes: tuple[int, ...], seed: int = 0, dtype: str = "") -> None:
        super().__init__(*shapes, seed=seed)
        self.dtype = dtype or str(self.rng.choice(list(ZEROS)))
        types = [relax.TensorType(shape, self.dtype) for shape in shapes]
        self.params = [relax.Var(f"x{i}", type_) for i, type_ in enumerate(types)]
        self.scales = [self.scalars(self.step()) for _ in shapes]
        self.inputs = [
            self.op("dequantize", param, *scale, axis=0)
            for param, scale in zip(self.params, self.scales, strict=True)
        ]

    def scalars(self, step: float) -> tuple[relax.Expr, relax.Expr]:
        zero = int(self.rng.choice(ZEROS[self.dtype]))
        return relax.const(np.float32(step)), relax.const(np.asarray(zero, self.dtype))

    def step(self) -> float:
        return float(2.0 ** self.rng.uniform(-7, -3))

    def quantized(self, value: relax.Var, spread: float, name: str = "out") -> relax.Var:
        """`value`, which is about `spread` large, at a scale that saturates now and then."""
        step, zero = self.scalars(float(spread) * self.rng.uniform(0.01, 0.03))
        return self.op("quantize", value, step, zero, axis=0, out_dtype=self.dtype, name=name)

    def weight(self, *shape: int, axis: int | None = 0) -> relax.Var:
        """int8 weights at one step, or one for each index of `axis`, up to 2**8 apart."""
        ints = self.rng.integers(-127, 128, shape).astype("int8")
        count = 1 if axis is None or self.rng.random() < 0.3 else shape[axis]
        steps = np.float32(2.0 ** self.rng.uniform(-10, -6 if count == 1 else -2, count))
        if count == 1:
            zero, steps = np.int8(0), steps[0]
        else:
            zero = np.zeros(count, "int8")
        self.weight_steps = steps
        consts = (relax.const(ints), relax.const(steps), relax.const(zero))
        return self.op("dequantize", *consts, axis=axis or 0, name="weight")

    def layer(self, value: relax.Var, clamp: bool) -> relax.Var:
        """A bias, whole numbers of accumulator units as in real models, perhaps a relu, and
        quantize."""
        channels = static_shape(value)[1]
        unit = float(self.scales[0][0].value.numpy()) * np.resize(self.weight_steps, channels)
        bias = np.rint(self.rng.normal(0, 0.5, channels) / unit) * unit
        shape = (channels,) if value.ty.ndim == 2 else (1, channels, *[1] * (value.ty.ndim - 2))
        value = self.op("add", value, self.const(bias.reshape(shape)), name="layer")
        if clamp:
            value = self.op("nn.relu", value)
        return self.quantized(value, 1.0)


Build = Callable[[QuantizedGraph], relax.Var]


def conv(g: QuantizedGraph) -> relax.Var:
    rng, x = g.rng, g.inputs[0]
    _, c, _, _ = static_shape(x)
    groups = int(rng.choice([1, 1, c]))
    co = c if groups == c else int(rng.integers(1, 24))
    k, stride = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    pads = tuple(int(p) for p in rng.integers(0, 3, 4))
    dilation = int(rng.integers(1, 3))
    y = g.op(
        "nn.conv2d", x, g.weight(co, c // groups, k, k), strides=stride, padding=pads,
        dilation=dilation, groups=groups, name="layer__conv2d",
    )  # fmt: skip
    return g.layer(y, bool(rng.random() < 0.5))


def transposed(g: QuantizedGraph) -> relax.Var:
    rng, x = g.rng, g.inputs[0]
    c = static_shape(x)[1]
    groups = 2 if c % 2 == 0 and rng.random() < 0.4 else 1
    k, stride = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    y = g.op(
        "nn.conv2d_transpose", x, g.weight(c, int(rng.integers(1, 9)), k, k, axis=1),
        strides=stride, padding=int(rng.integers(0, 2)), groups=groups,
        output_padding=int(rng.integers(0, stride)), name="layer__transpose",
    )  # fmt: skip
    return g.layer(y, False)


def dense(g: QuantizedGraph) -> relax.Var:
    n, c, h, w = static_shape(g.inputs[0])
    flat = g.op("reshape", g.inputs[0], (n, c * h * w))
    y = g.op("matmul", flat, g.weight(c * h * w, 11, axis=1), name="layer__matmul")
    return g.layer(y, bool(g.rng.random() < 0.5))


def binary(g: QuantizedGraph) -> relax.Var:
    op = str(g.rng.choice(["add", "subtract", "multiply", "maximum", "minimum"]))
    return g.quantized(g.op(op, *g.inputs), 2.0, name=op)


def constants(g: QuantizedGraph) -> relax.Var:
    c = static_shape(g.inputs[0])[1]
    y = g.op("multiply", g.inputs[0], g.normal(1, c, 1, 1))
    return g.quantized(g.op("add", y, g.normal(1, c, 1, 1)), 2.0)


def leaky(g: QuantizedGraph) -> relax.Var:
    y = g.op("nn.leakyrelu", g.inputs[0], float(g.rng.choice([0.1, 0.125, 0.3])))
    return g.quantized(y, 2.0)


def clamp(g: QuantizedGraph) -> relax.Var:
    y = g.op("clip", g.inputs[0], float(g.rng.normal() - 1), float(g.rng.normal() + 1))
    return g.quantized(y, 2.0)


def mean(g: QuantizedGraph) -> relax.Var:
    return g.quantized(g.op("mean", g.inputs[0], [2, 3], True), 0.5)


def average(g: QuantizedGraph) -> relax.Var:
    k, s, counts = int(g.rng.integers(2, 4)), int(g.rng.integers(1, 3)), bool(g.rng.integers(2))
    y = g.op(
        "nn.avg_pool2d", g.inputs[0], (k, k), strides=(s, s), padding=(1, 1),
        count_include_pad=counts,
    )  # fmt: skip
    return g.quantized(y, 1.0)


def largest(g: QuantizedGraph) -> relax.Var:
    y = g.op("nn.max_pool2d", g.inputs[0], (3, 3), strides=(2, 2), padding=(1, 1))
    return g.quantized(y, 2.0)


def concat(g: QuantizedGraph) -> relax.Var:
    return g.quantized(g.op("concat", list(g.inputs), axis=1), 2.0)


def padded(g: QuantizedGraph) -> relax.Var:
    y = g.op("nn.pad", g.inputs[0], (0, 0, 0, 0, 1, 2, 0, 1))
    return g.op("quantize", y, *g.scales[0], axis=0, out_dtype=g.dtype, name="out")


def rescaled(g: QuantizedGraph) -> relax.Var:
    return g.quantized(g.inputs[0], 2.0)


BUILDS: dict[str, Build] = {
    "conv": conv,
    "transposed": transposed,
    "dense": dense,
    "binary": binary,
    "constants": constants,
    "leaky": leaky,
    "clamp": clamp,
    "mean": mean,
    "average": average,
    "largest": largest,
    "concat": concat,
    "padded": padded,
    "rescaled": rescaled,
}


def graph(kind: str, seed: int) -> tuple[Any, list[np.ndarray]]:
    """A module of one operator and inputs for it."""
    rng = np.random.default_rng(seed)
    n, c = int(rng.choice([1, 1, 2])), int(rng.choice([3, 16, 18]))
    shape = (n, c, *(int(size) for size in rng.integers(3, 9, 2)))
    g = QuantizedGraph(shape, shape, seed=seed)
    result = BUILDS[kind](g)
    limits = np.iinfo(g.dtype)
    inputs = [rng.integers(limits.min, limits.max + 1, shape).astype(g.dtype) for _ in range(2)]
    return g.module(result), inputs
