"""Attention as float modules, quantized, compiled and compared with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from operators_llvm import OPERATORS, results
from region_runs import Found, equal_parts
from tvm import relax

from vta_byoc import quantize
from vta_byoc.hw.config import VTAConfig


@dataclass(frozen=True)
class Late:
    """A mask that is an input of the model.

    Attributes:
        param: the input.
        hide: (builder, scores) to scores of which it hides some.
    """

    param: relax.Var
    hide: Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def attention(
    tokens: int,
    heads: int,
    width: int,
    keys: int | None = None,
    seed: int = 0,
    *,
    mask: np.ndarray | None = None,
    hidden: np.ndarray | None = None,
    axis: int = -1,
    late: Late | None = None,
) -> tvm.IRModule:
    """Attention on (1, tokens, heads * width); with `keys`, to another input of so many tokens.

    `mask` is added to the scores; scores are replaced where `hidden`; softmax is over `axis`;
    `late` has a mask of run time.
    """
    rng, channels = np.random.default_rng(seed), heads * width
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, tokens, channels), "float32"))
    other = relax.Var("y", relax.TensorType((1, keys or tokens, channels), "float32"))

    def dense(value: relax.Expr, outputs: int = channels) -> relax.Expr:
        weight = rng.standard_normal((channels, outputs)).astype("float32") / np.sqrt(channels)
        bias = 0.1 * rng.standard_normal(outputs).astype("float32")
        product = builder.emit(relax.op.matmul(value, relax.const(weight)))
        return builder.emit(relax.op.add(product, relax.const(bias)))

    def split(value: relax.Expr, axes: Sequence[int]) -> relax.Expr:
        rows = int(value.ty.shape[1])
        apart = builder.emit(relax.op.reshape(value, (1, rows, heads, width)))
        return builder.emit(relax.op.permute_dims(apart, list(axes)))

    params = [x, other] if keys else [x]
    if late is not None:
        params.append(late.param)
    with builder.function("main", params):
        with builder.dataflow():
            source = other if keys else x
            query, key, value = dense(x), dense(source), dense(source)
            scores = relax.op.matmul(split(query, (0, 2, 1, 3)), split(key, (0, 2, 3, 1)))
            scaled = relax.op.multiply(builder.emit(scores), relax.const(np.float32(width**-0.5)))
            scaled = builder.emit(scaled)
            if mask is not None:
                scaled = builder.emit(relax.op.add(scaled, relax.const(mask.astype("float32"))))
            if hidden is not None:
                least = relax.const(np.float32(-np.inf))
                scaled = builder.emit(relax.op.where(relax.const(hidden), least, scaled))
            if late is not None:
                scaled = late.hide(builder, scaled)
            shares = builder.emit(relax.op.nn.softmax(scaled, axis))
            mixed = builder.emit(relax.op.matmul(shares, split(value, (0, 2, 1, 3))))
            merged = builder.emit(relax.op.permute_dims(mixed, [0, 2, 1, 3]))
            joined = builder.emit(relax.op.reshape(merged, (1, tokens, channels)))
            result = builder.emit_output(relax.op.add(x, dense(joined)))
        builder.emit_func_output(result)
    return builder.get()


def samples(mod: tvm.IRModule, count: int = 2) -> list[list[np.ndarray]]:
    """Noise for the inputs of a module; "mask" is 1 or 0, and "far" is what hides scores."""
    rng = np.random.default_rng(1)

    def drawn(param: relax.Var) -> np.ndarray:
        shape, dtype = [int(d) for d in param.ty.shape], str(param.ty.dtype)
        if dtype == "float32" and param.name not in ("far", "mask"):
            return rng.standard_normal(shape).astype("float32")
        kept = rng.random(shape) < 0.6
        kept[..., 0] = True
        return (
            np.where(kept, 0, -3e4).astype("float32") if param.name == "far" else kept.astype(dtype)
        )

    return [[drawn(param) for param in mod["main"].params] for _ in range(count)]


def quantized(mod: tvm.IRModule, config: VTAConfig, scales: str = "pow2") -> tvm.IRModule:
    """`mod` in integers, calibrated with its samples."""
    names = [str(param.name) for param in mod["main"].params]
    calibration = [dict(zip(names, each, strict=True)) for each in samples(mod)]
    with OPERATORS.calibrating():
        return quantize(mod, calibration=calibration, config=config, scales=scales)


def checked(mod: tvm.IRModule, config: VTAConfig, scales: str = "pow2") -> Found:
    """`mod` compiled, every tensor that it stores compared with the reference."""
    return checked_integers(mod, quantized(mod, config, scales), config)


def checked_integers(mod: tvm.IRModule, integers: tvm.IRModule, config: VTAConfig) -> Found:
    """`checked` of what `mod` was quantized to."""
    return equal_parts(integers, config, samples(mod))


def computed(mod: tvm.IRModule, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The result of `mod`."""
    (found,) = results(mod["main"], OPERATORS.values(mod, inputs))
    return found


def devices(compiled: Found, kind: str) -> list[str]:
    """Where the operators of one kind run."""
    return [op.device for op in compiled.placement if op.op == kind]
