"""Networks of three spatial axes run whole: video classifiers in small, as R3D and X3D are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from operators_llvm import OPERATORS
from region_runs import equal_parts
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import static_shape
from vta_byoc.quantize import quantize
from vta_byoc.reports.placement.summary import macs_share

Write = Callable[["Layers", relax.Expr], relax.Expr]


class Layers:
    """Emits layers with drawn weights."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.rng, self.emit = np.random.default_rng(0), builder.emit

    def conv(self, x: relax.Expr, filters: int, size: Any, groups: int = 1, **attrs: Any) -> Any:
        shape = (filters, static_shape(x)[1] // groups, *size)
        weight = self.rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        op = relax.op.nn.conv3d(x, relax.const(weight.astype("float32")), groups=groups, **attrs)
        bias = self.rng.normal(size=(1, filters, 1, 1, 1)).astype("float32") * 0.1
        return self.emit(relax.op.add(self.emit(op), relax.const(bias)))

    def head(self, x: relax.Expr, classes: int = 10) -> relax.Expr:
        mean = self.emit(relax.op.mean(x, [2, 3, 4]))
        weight = self.rng.normal(size=(static_shape(mean)[1], classes)).astype("float32")
        return self.emit(relax.op.matmul(mean, relax.const(weight)))


def r3d(layers: Layers, x: relax.Expr) -> relax.Expr:
    """Residual blocks: one keeps its size, one halves all three axes."""
    emit = layers.emit
    x = emit(relax.op.nn.relu(layers.conv(x, 16, (3, 5, 5), strides=(1, 2, 2), padding=(1, 2, 2))))
    y = emit(relax.op.nn.relu(layers.conv(x, 16, (3, 3, 3), padding=1)))
    x = emit(relax.op.nn.relu(emit(relax.op.add(layers.conv(y, 16, (3, 3, 3), padding=1), x))))
    y = emit(relax.op.nn.relu(layers.conv(x, 24, (3, 3, 3), padding=1, strides=2)))
    skip = layers.conv(x, 24, (1, 1, 1), strides=2)
    y = emit(relax.op.add(layers.conv(y, 24, (3, 3, 3), padding=1), skip))
    return layers.head(emit(relax.op.nn.relu(y)))


def factored(layers: Layers, x: relax.Expr) -> relax.Expr:
    """Planes and depths apart, as R(2+1)D; pooling of all axes; two branches joined, as in I3D."""
    emit = layers.emit
    x = emit(relax.op.nn.relu(layers.conv(x, 16, (1, 3, 3), padding=(0, 1, 1))))
    x = emit(relax.op.nn.relu(layers.conv(x, 16, (3, 1, 1), padding=(1, 0, 0))))
    x = emit(relax.op.nn.max_pool3d(x, (2, 2, 2), strides=(2, 2, 2)))
    one = layers.conv(x, 16, (1, 1, 1))
    two = layers.conv(x, 16, (2, 3, 3), padding=(1, 1, 1, 0, 1, 1))
    pooled = layers.conv(emit(relax.op.nn.max_pool3d(x, 3, padding=1)), 16, (1, 1, 1))
    x = emit(relax.op.nn.relu(emit(relax.op.concat([one, two, pooled], axis=1))))
    x = emit(relax.op.nn.avg_pool3d(x, 3, padding=1, count_include_pad=True))
    x = emit(relax.op.nn.avg_pool3d(x, (2, 2, 2), strides=(2, 2, 2)))
    return layers.head(x)


def by_channel(layers: Layers, x: relax.Expr) -> relax.Expr:
    """A convolution of each channel and a gate, as X3D, with ReLU behind it."""
    emit = layers.emit
    x = emit(relax.op.nn.relu(layers.conv(x, 16, (1, 3, 3), padding=(0, 1, 1), strides=(1, 2, 2))))
    y = layers.conv(x, 16, (3, 3, 3), groups=16, padding=1)
    mean = emit(relax.op.mean(y, [2, 3, 4], keepdims=True))
    y = emit(relax.op.multiply(y, emit(relax.op.sigmoid(layers.conv(mean, 16, (1, 1, 1))))))
    y = emit(relax.op.nn.relu(y))
    return layers.head(emit(relax.op.add(layers.conv(y, 16, (1, 1, 1)), x)))


def module(write: Write, shape: tuple[int, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(write(Layers(builder), x))
        builder.emit_func_output(result)
    return normalize(builder.get())


@pytest.mark.parametrize("write", [r3d, factored, by_channel])
@pytest.mark.parametrize("preset", ["sim", "pynq"])
def test_a_network_of_three_axes(write: Write, preset: str) -> None:
    config, shape = VTAConfig.preset(preset), (1, 3, 4, 8, 8)
    if write is by_channel and not config.capabilities.mul:
        pytest.skip(f"preset {preset} has no MUL, which a gate needs")
    rng = np.random.default_rng(1)
    samples = [(rng.normal(size=shape).astype("float32"),) for _ in range(3)]
    scales = "mul" if config.capabilities.mul else "pow2"
    with OPERATORS.calibrating():
        qmod = quantize(module(write, shape), calibration=samples, config=config, scales=scales)
    found = equal_parts(qmod, config, samples[:1])
    assert len(found.programs) == 1
    assert macs_share(found.placement).percent == 100
