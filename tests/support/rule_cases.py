"""Modules before and behind the rules that bring them into known forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from quantized_runs import operators
from small_models import call
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize


def written(shapes: Sequence[tuple[int, ...]], build: Callable[..., relax.Expr]) -> tvm.IRModule:
    """`main` of float32 inputs; `build` gets an `emit` and the inputs."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            out = builder.emit_output(build(builder.emit, *inputs))
        builder.emit_func_output(out)
    return builder.get()


def becomes(
    shapes: Sequence[tuple[int, ...]], build: Callable[..., relax.Expr], tolerance: float = 0.0
) -> list[str]:
    """The operators of the normalized module, which computes the same."""
    before = written(shapes, build)
    after = normalize(before)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
    for got, want in zip(call(after, *arrays), call(before, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return operators(after)


def weight(*shape: int, seed: int = 1) -> relax.Expr:
    return relax.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))
