"""Tokens joined with constant ones, and some of the tokens, on VTA."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from attention_cases import checked, devices
from region_runs import Found
from tvm import relax

from vta_byoc.hw.config import VTAConfig

SIM = VTAConfig.preset("sim")


def classifier(
    side: int, channels: int, *, first: int = 1, last: int = 0, taken: int = 1, seed: int = 0
) -> tvm.IRModule:
    """Patches as tokens between constant ones, a layer, and another on `taken` of the tokens.

    The constant ones are small, so that the patches keep their scale.
    """
    rng = np.random.default_rng(seed)
    tokens = side * side + first + last
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, side, side), "float32"))

    def noise(*shape: int, scale: float = 1.0) -> relax.Expr:
        return relax.const((scale * rng.standard_normal(shape)).astype("float32"))

    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.nn.conv2d(x, noise(channels, 3, 1, 1)), "patches")
            value = builder.emit(relax.op.reshape(value, (1, channels, side * side)))
            value = builder.emit(relax.op.permute_dims(value, [0, 2, 1]))
            parts = [noise(1, count, channels, scale=0.1) for count in (first, last)]
            joined = relax.Tuple([part for part in (parts[0], value, parts[1]) if _some(part)])
            value = builder.emit(relax.op.concat(joined, 1), "joined")
            value = builder.emit(relax.op.add(value, noise(1, tokens, channels)), "placed")
            weight = noise(channels, channels, scale=channels**-0.5)
            value = builder.emit(relax.op.matmul(value, weight), "layer")
            value = builder.emit(relax.op.strided_slice(value, [1], [0], [taken]), "some")
            weight = noise(channels, 24, scale=channels**-0.5)
            result = builder.emit_output(relax.op.matmul(value, weight))
        builder.emit_func_output(result)
    return builder.get()


def _some(part: relax.Expr) -> bool:
    return bool(part.ty.shape[1] > 0)


def rules(compiled: Found) -> set[str]:
    return {op.why.rule for op in compiled.placement if op.device == "vta"}


@pytest.mark.parametrize("seed", range(4))
def test_drawn_tokens(seed: int) -> None:
    """One region, bit for bit: any number of constant tokens in front and behind."""
    rng = np.random.default_rng(seed)
    side, channels = int(rng.integers(4, 8)), int(rng.choice([16, 32, 48]))
    first, last = (1, 0) if seed == 0 else (int(n) for n in rng.integers(1, 3, 2))
    taken = 1 if seed < 2 else int(rng.integers(2, side * side))
    mod = classifier(side, channels, first=first, last=last, taken=taken, seed=seed)
    compiled = checked(mod, SIM, "mul" if seed % 2 else "pow2")
    assert len(compiled.programs) == 1
    assert {"pattern vta.token_concat", "pattern vta.token_slice"} <= rules(compiled)
    assert devices(compiled, "relax.concat") == ["vta"]


def test_a_batch_of_lanes_leaves_them_to_the_host() -> None:
    """Tokens are rows there."""
    config = VTAConfig.preset("2x16")
    compiled = checked(classifier(6, 16), config)
    assert not any("token" in rule for rule in rules(compiled))
    (record,) = [op for op in compiled.placement if op.op == "relax.concat"]
    assert "not packed with tokens as columns" in record.reason
