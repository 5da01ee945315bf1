"""Products of two activations: what runs on the machine equals the integer dialect, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from attention_cases import attention, checked, devices
from tvm import relax

from vta_byoc.hw.config import VTAConfig

MACHINES = ("pynq", "sim", "chisel", "1x32")


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


@pytest.mark.parametrize(
    ("machine", "scales"), zip(MACHINES, ("pow2", "mul", "mul", "pow2"), strict=True)
)
def test_heads_are_views(machine: str, scales: str) -> None:
    """One region; without MUL two: up to the scores, and from their softmax to the result."""
    config = VTAConfig.preset(machine)
    compiled = checked(attention(32, 2, config.block), config, scales)
    assert devices(compiled, "relax.matmul") == ["vta"] * products(config)
    assert len(compiled.programs) == (1 if config.capabilities.mul else 2)


def products(config: VTAConfig) -> int:
    """Records of the products of an attention: with MUL its two are one."""
    return 5 if config.capabilities.mul else 6


@pytest.mark.parametrize("seed", range(4))
def test_drawn_attention(seed: int) -> None:
    """Lengths that fill no blocks, heads that do not, keys of another input."""
    rng = np.random.default_rng(seed)
    config = VTAConfig.preset(MACHINES[seed % len(MACHINES)])
    tokens, keys = (int(n) for n in rng.integers(3, 36, 2))
    width = int(rng.choice([5, 8, config.block, config.block + 4]))
    mod = attention(tokens, int(rng.integers(1, 4)), width, keys if seed % 2 else None, seed)
    compiled = checked(mod, config, "mul" if seed % 3 else "pow2")
    assert devices(compiled, "relax.matmul") == ["vta"] * products(config)


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
