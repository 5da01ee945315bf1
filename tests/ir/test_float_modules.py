"""Who forgets to quantize is told so; who has float operators on purpose is not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet, island_net
from tvm import relax

import vta_byoc as vta
from vta_byoc.pipeline import build, partition_for_vta


def function(body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def layers(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    weight = relax.const(np.ones((4, 4, 3, 3), np.float32))
    first = builder.emit(relax.op.nn.conv2d(x, weight))
    second = builder.emit(relax.op.nn.conv2d(first, weight))
    return relax.op.matmul(second, relax.const(np.ones((2, 3), np.float32)))


def qdq(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A model that came quantized, as it is imported: it computes floats."""
    scale, zero = relax.const(0.1, "float32"), relax.const(0, "int8")
    small = builder.emit(relax.op.quantize(x, scale, zero, axis=0))
    real = builder.emit(relax.op.dequantize(small, scale, zero, axis=0))
    return relax.op.nn.conv2d(real, relax.const(np.ones((4, 4, 3, 3), np.float32)))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (layers, "2 convolutions and 1 matrix product"),
        (qdq, "1 convolution"),
        (lambda _, x: relax.op.nn.relu(x), "1 operator"),
    ],
)
def test_a_float_module_is_told_of(
    body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr], what: str
) -> None:
    message = (
        f"nothing runs on VTA: {what} of the module compute float32 and stay on the CPU; VTA "
        "computes int8; quantize first (vta_byoc.quantize)"
    )
    with pytest.warns(vta.VTAWarning, match=f"^{re.escape(message)}$"):
        partition_for_vta(function(body))


def test_build_and_the_pipeline_tell_too() -> None:
    mod = function(lambda _, x: relax.op.nn.relu(x))
    with pytest.warns(vta.VTAWarning, match="^nothing runs on VTA: 1 operator"):
        build(mod)
    with pytest.warns(vta.VTAWarning, match="^nothing runs on VTA: 1 operator"):
        relax.get_pipeline("vta")(mod)


def added() -> tvm.IRModule:
    """Integers without any layer."""
    net = IntegerNet(a=(1, 16, 4, 4))
    return net.module(net.residual(net.params[0], net.params[0]))


def kept_float() -> tvm.IRModule:
    """Quantized, with everything left float on purpose."""
    mod = function(lambda _, x: relax.op.nn.gelu(x))
    return vta.quantize(mod, calibration=[np.ones((1, 4, 6, 6), np.float32)], keep_float=["*"])


def islands() -> tvm.IRModule:
    net = island_net()
    return net.module(net.result)


@pytest.mark.parametrize("made", [added, kept_float, islands])
def test_modules_with_integers_or_out_of_quantize_are_not(
    made: Callable[[], tvm.IRModule],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partition_for_vta(made())
