"""Clamps behind a concat go in front of it where the layers that are joined can end in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from small_models import call
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, straight_bindings

SHAPE = (1, 4, 6, 6)
Clamp = Callable[[relax.Expr], relax.Expr]
CLAMPS: dict[str, Clamp] = {
    "relax.nn.relu": relax.op.nn.relu,
    "relax.clip": lambda x: relax.op.clip(x, 0, 6),
    "relax.maximum": lambda x: relax.op.maximum(x, relax.const(np.float32(0.5))),
}


def module(clamp: Clamp, second: str = "pool", reader: str = "") -> tvm.IRModule:
    """A convolution and another tensor, joined; ``reader``: which of them another reads, too."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    builder = relax.BlockBuilder()
    weight = relax.const(rng.standard_normal((6, 4, 1, 1)).astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = builder.emit(relax.op.nn.conv2d(x, weight), "conv")
            other = x
            if second == "pool":
                pooled = relax.op.nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=False)
                other = builder.emit(pooled, "pool")
            joined = builder.emit(relax.op.concat([conv, other], axis=1), "joined")
            results = [clamp(joined)]
            read = {"conv": conv, "joined": joined}.get(reader)
            results += [] if read is None else [relax.op.negative(read)]
            emitted = [builder.emit(result) for result in results]
            out = builder.emit_output(relax.Tuple(emitted) if len(emitted) > 1 else emitted[0])
        builder.emit_func_output(out)
    return builder.get()


def operators(mod: tvm.IRModule) -> list[str]:
    names = (op_name(binding.value) for binding in straight_bindings(mod["main"]))
    return [name for name in names if name.startswith("relax.")]


@pytest.mark.parametrize("name", CLAMPS)
def test_layers_end_in_the_clamp(name: str) -> None:
    before = module(CLAMPS[name])
    after = normalize(before)
    assert sorted(operators(after)[:-1]) == sorted(
        ["relax.nn.conv2d", "relax.nn.avg_pool2d", name, name]
    )
    assert operators(after)[-1] == "relax.concat"
    x = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    for got, want in zip(call(after, x), call(before, x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("given", [("input", ""), ("pool", "conv"), ("pool", "joined")])
def test_what_cannot_end_in_it_or_is_read_twice_stays(given: tuple[str, str]) -> None:
    before = module(CLAMPS["relax.nn.relu"], *given)
    assert operators(normalize(before)).count("relax.nn.relu") == 1
