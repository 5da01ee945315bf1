"""uint8 weights whose differences from their zero point exceed int8: two digits, the same sums.

Scales are powers of two, so that the imported module, in floats, is exact too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from small_models import call
from tvm import relax

from vta_byoc.base.int8_digits import magnitude
from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.partitioning.placement import VTA
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import quantize
from vta_byoc.validation.bit_exact import compare_layers

RNG = np.random.default_rng(5)
CHANNELS = 16


def weight(shape: tuple[int, ...], zero: Any, axis: int = 0) -> relax.Expr:
    """dequantize(uint8 constant): all 256 values, a zero point for all or for each channel."""
    values = RNG.integers(0, 256, shape).astype("uint8")
    values.reshape(-1)[:2] = 0, 255
    steps = np.full(np.shape(zero), 2.0**-8, "float32")
    parameters = relax.const(steps), relax.const(np.asarray(zero, "uint8"))
    return relax.op.dequantize(relax.const(values), *parameters, axis=axis)


def per_channel(count: int) -> np.ndarray:
    """Zero points from one end to the other."""
    return np.linspace(0, 255, count).astype("uint8")


def layers(x: relax.Expr, emit: Any) -> list[relax.Expr]:
    """A layer of each kind."""
    nn = relax.op.nn
    border = nn.conv2d(x, emit(weight((24, CHANNELS, 3, 3), 100)), padding=1)
    strided = nn.conv2d(
        x, emit(weight((8, CHANNELS, 3, 3), per_channel(8))), padding=[1, 0, 2, 1], strides=2
    )
    depthwise = nn.conv2d(x, emit(weight((CHANNELS, 1, 3, 3), 3)), padding=1, groups=CHANNELS)
    grouped = nn.conv2d(x, emit(weight((CHANNELS, 4, 3, 3), 200)), padding=1, groups=4)
    up = nn.conv2d_transpose(x, emit(weight((CHANNELS, 8, 2, 2), 0)), strides=2)
    rows = emit(relax.op.reshape(x, (4, 4, 36)))
    product = relax.op.matmul(rows, emit(weight((36, 10), per_channel(10), 1)))
    return [emit(value) for value in (border, strided, depthwise, grouped, up, product)]


def module() -> tvm.IRModule:
    """Layers of uint8 data with a zero point; every other result is quantized."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, CHANNELS, 6, 6), "uint8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            scale, zero = relax.const(np.float32(2.0**-6)), relax.const(np.uint8(77))
            made = layers(builder.emit(relax.op.dequantize(x, scale, zero)), builder.emit)
            step, point = relax.const(np.float32(0.7)), relax.const(np.int8(9))
            for i in range(0, len(made), 2):
                made[i] = builder.emit(relax.op.quantize(made[i], step, point))
            out = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(out)
    return normalize(builder.get())


def test_the_sums_are_those_of_the_model() -> None:
    mod = module()
    x = RNG.integers(0, 256, (1, CHANNELS, 6, 6)).astype("uint8")
    integer = quantize(mod)
    for got, want in zip(call(integer, x), call(mod, x), strict=True):
        if got.dtype == "int8":
            apart = np.abs(got.astype(int) - want)
            assert apart.max() <= 1 and (apart == 0).mean() > 0.99
        else:
            np.testing.assert_array_equal(got, want)
    compiled = compile_module(integer, VTAConfig.preset("sim"))
    rows = [row for row in compiled.placement if row.macs]
    assert len(rows) == 6 and {row.device for row in rows} == {VTA}
    assert all("weights of two digits, two passes" in row.note for row in rows), rows
    checks = compare_layers(integer, compiled, [x])
    assert checks and all(check.equal for check in checks)


def test_magnitudes_cover_what_digits_add_up_to() -> None:
    np.testing.assert_array_equal(magnitude(np.array([-128, 127], "int8")), [128, 127])
    np.testing.assert_array_equal(magnitude(np.array([130, -3, 255], "int16")), [382, 3, 257])
