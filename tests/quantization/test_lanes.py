"""Which second operands of products are weights as they are stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from quantized_runs import operators
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.quantize import quantize

Emit = Callable[[relax.Expr], relax.Expr]
ORDER, IMAGES, HEADS = [0, 2, 1], (1, 2, 16, 16), (1, 16, 2, 16)


def of_tokens(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A layer of 16 tokens with 32 channels."""
    return emit(relax.op.matmul(x, relax.const(np.eye(32, dtype="float32"))))


def of_pixels(emit: Emit, x: relax.Expr) -> relax.Expr:
    """A convolution of 4 x 4 pixels with 32 channels."""
    image = emit(relax.op.permute_dims(emit(relax.op.reshape(x, (1, 4, 4, 32))), [0, 3, 1, 2]))
    weight = np.eye(32, dtype="float32").reshape(32, 32, 1, 1)
    return emit(relax.op.nn.relu(emit(relax.op.nn.conv2d(image, relax.const(weight)))))


def by_heads(emit: Emit, x: relax.Expr, order: list[int]) -> relax.Expr:
    return emit(relax.op.permute_dims(emit(relax.op.reshape(of_tokens(emit, x), HEADS)), order))


SECONDS: dict[str, tuple[Callable[[Emit, relax.Expr], relax.Expr], bool]] = {
    "keys of tokens": (lambda emit, x: by_heads(emit, x, [0, 2, 3, 1]), True),
    "keys, moved before they are parted": (
        lambda emit, x: emit(
            relax.op.reshape(emit(relax.op.permute_dims(of_tokens(emit, x), ORDER)), IMAGES)
        ),
        True,
    ),
    "values of tokens": (lambda emit, x: by_heads(emit, x, [0, 2, 1, 3]), False),
    "keys of pixels": (lambda emit, x: emit(relax.op.reshape(of_pixels(emit, x), IMAGES)), True),
    "values of pixels": (
        lambda emit, x: emit(
            relax.op.permute_dims(emit(relax.op.reshape(of_pixels(emit, x), IMAGES)), [0, 1, 3, 2])
        ),
        False,
    ),
}


@pytest.mark.parametrize("kind", SECONDS)
def test_what_is_summed_lies_in_lanes(kind: str) -> None:
    """Such a tensor is not exchanged twice, any other one is."""
    make, is_stored = SECONDS[kind]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            second = make(builder.emit, x)
            first = by_heads(builder.emit, x, [0, 2, 1, 3])
            result = builder.emit_output(relax.op.matmul(first, second))
        builder.emit_func_output(result)
    mod = builder.get()
    before = operators(mod).count("permute_dims")
    sample = np.random.default_rng(0).standard_normal((1, 16, 32)).astype("float32")
    qmod = quantize(mod, calibration=[[sample]], config=VTAConfig.preset("sim"), scales="mul")
    exchanges = operators(qmod).count("permute_dims") - before
    assert exchanges == (0 if is_stored else 2)
