"""Products of two activations: what runs on the machine equals the integer dialect, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax

from vta_byoc import quantize
from vta_byoc.hw.config import VTAConfig
from vta_byoc.pipeline import Compiled, compile_module
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner

MACHINES = ("pynq", "sim", "chisel", "1x32")


def attention(
    tokens: int, heads: int, width: int, keys: int | None = None, seed: int = 0
) -> tvm.IRModule:
    """Attention on (1, tokens, heads * width); with `keys`, to another input of so many tokens."""
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

    with builder.function("main", [x, other] if keys else [x]):
        with builder.dataflow():
            source = other if keys else x
            query, key, value = dense(x), dense(source), dense(source)
            scores = relax.op.matmul(split(query, (0, 2, 1, 3)), split(key, (0, 2, 3, 1)))
            scaled = relax.op.multiply(builder.emit(scores), relax.const(np.float32(width**-0.5)))
            shares = builder.emit(relax.op.nn.softmax(builder.emit(scaled), -1))
            mixed = builder.emit(relax.op.matmul(shares, split(value, (0, 2, 1, 3))))
            merged = builder.emit(relax.op.permute_dims(mixed, [0, 2, 1, 3]))
            joined = builder.emit(relax.op.reshape(merged, (1, tokens, channels)))
            result = builder.emit_output(relax.op.add(x, dense(joined)))
        builder.emit_func_output(result)
    return builder.get()


def product(left: Sequence[int], right: Sequence[int]) -> tvm.IRModule:
    """The product of two inputs."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(name, relax.TensorType(tuple(shape), "float32"))
        for name, shape in (("x", left), ("y", right))
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(*params))
        builder.emit_func_output(result)
    return builder.get()


def samples(mod: tvm.IRModule, count: int = 2) -> list[list[np.ndarray]]:
    """Noise for the inputs of a module."""
    rng = np.random.default_rng(1)
    shapes = [[int(d) for d in param.ty.shape] for param in mod["main"].params]
    return [[rng.standard_normal(s).astype("float32") for s in shapes] for _ in range(count)]


def checked(mod: tvm.IRModule, config: VTAConfig, scales: str = "pow2") -> Compiled:
    """`mod` compiled, every tensor that it stores compared with the reference."""
    inputs = samples(mod)
    names = [str(param.name) for param in mod["main"].params]
    calibration = [dict(zip(names, each, strict=True)) for each in inputs]
    quantized = quantize(mod, calibration=calibration, config=config, scales=scales)
    compiled = compile_module(quantized, config)
    reference = reference_runner(quantized, compiled.programs)
    for each in inputs:
        run, wanted = profile(compiled.exe, each, arenas=True), reference(each)
        checks = compare_outputs(["out"], run.outputs, wanted)
        checks += compare_stored(run, compiled.programs, wanted)
        assert [check.name for check in checks if not check.equal] == []
    return compiled


def devices(compiled: Compiled, kind: str) -> list[str]:
    """Where the operators of one kind run."""
    return [op.device for op in compiled.placement if op.op == kind]


@pytest.mark.parametrize(
    ("machine", "scales"), zip(MACHINES, ("pow2", "mul", "mul", "pow2"), strict=True)
)
def test_attention_takes_two_regions(machine: str, scales: str) -> None:
    """From the input to the scores, and from their softmax to the result: heads are views."""
    config = VTAConfig.preset(machine)
    compiled = checked(attention(32, 2, config.block), config, scales)
    assert devices(compiled, "relax.matmul") == ["vta"] * 6
    assert len(compiled.programs) == 2


@pytest.mark.parametrize("seed", range(4))
def test_drawn_attention(seed: int) -> None:
    """Lengths that fill no blocks, heads that do not, keys of another input."""
    rng = np.random.default_rng(seed)
    config = VTAConfig.preset(MACHINES[seed % len(MACHINES)])
    tokens, keys = (int(n) for n in rng.integers(3, 36, 2))
    width = int(rng.choice([5, 8, config.block, config.block + 4]))
    mod = attention(tokens, int(rng.integers(1, 4)), width, keys if seed % 2 else None, seed)
    compiled = checked(mod, config, "mul" if seed % 3 else "pow2")
    assert devices(compiled, "relax.matmul") == ["vta"] * 6


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7, 33), (33, 5)),
        ((3, 20, 16), (3, 16, 40)),
        ((2, 2, 9, 24), (2, 2, 24, 17)),
    ],
)
def test_products_of_inputs(left: Sequence[int], right: Sequence[int]) -> None:
    """Any number of leading axes; the host packs both operands."""
    compiled = checked(product(left, right), VTAConfig.preset("sim"))
    assert devices(compiled, "relax.matmul") == ["vta"]


@pytest.mark.parametrize("machine", ["2x16", "tophub_4x8"])
def test_a_batch_of_rows_is_refused(machine: str) -> None:
    """A weight would serve several images."""
    config = VTAConfig.preset(machine)
    compiled = checked(product((2, 8, 16), (2, 16, 8)), config)
    (found,) = [op for op in compiled.placement if op.op == "relax.matmul"]
    assert found.device == "cpu"
    assert found.reason == (
        f"the machine has BATCH {config.batch}; a product of two activations takes 1: a weight "
        "serves all images of a batch; use a machine with BATCH 1 or leave it to the CPU"
    )


def test_lanes_behind_the_sum_are_zero() -> None:
    """A product of a product whose columns fill no block reads none of what lies behind them."""
    builder = relax.BlockBuilder()
    shapes = {"x": (1, 20, 16), "y": (1, 16, 20), "z": (1, 20, 24)}
    params = [relax.Var(n, relax.TensorType(s, "float32")) for n, s in shapes.items()]
    with builder.function("main", params):
        with builder.dataflow():
            x, y, z = params
            weight = relax.const(np.full((24, 24), 0.2, "float32"))
            right = builder.emit(relax.op.matmul(z, weight))
            right = builder.emit(relax.op.add(right, relax.const(np.ones(24, "float32"))))
            first = builder.emit(relax.op.matmul(x, y))
            result = builder.emit_output(relax.op.matmul(first, right))
        builder.emit_func_output(result)
    compiled = checked(builder.get(), VTAConfig.preset("sim"))
    assert devices(compiled, "relax.matmul") == ["vta"] * 3
