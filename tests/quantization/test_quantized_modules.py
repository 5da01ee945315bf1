"""What quantization writes, operator by operator with its constants: `tests/golden/quantized`."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from quantized_graphs import BUILDS, graph
from room_values import changeable
from small_models import Graph
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import is_constant, op_name, straight_bindings
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.linear import Operand, linear
from vta_byoc.quantization.requantize import requantizer
from vta_byoc.quantization.scales import (
    Scale,
    quantized,
    scale_exponent,
    slope_factor,
)
from vta_byoc.quantize import QUANTIZATION, quantize

FORMS: dict[str, dict[str, Any]] = {
    "multiply": {},
    "pow2": {"scales": "pow2", "per_channel": False},
    "digits": {"rescale": "digits"},
    "shifts": {"rescale": "shifts"},
    "approximate": {"rescale": "approximate"},
}


def operand(value: Any) -> str:
    """A name; of a constant its type, and its numbers where they are few."""
    if is_constant(value):
        data = value.value.numpy()
        if data.size <= 4:
            return f"{data.dtype}{data.reshape(-1).tolist()}"
        weights = np.arange(1, data.size + 1).reshape(data.shape)
        total = np.float64(data) if data.dtype.kind == "f" else data.astype(np.int64)
        sums = f"{total.sum():.6g} ({(total * weights).sum():.6g})"
        return f"{data.dtype}{list(data.shape)} sum {sums}"
    return str(getattr(value, "name", value)).replace("\n", " ")


def lines(mod: tvm.IRModule) -> Iterator[str]:
    for binding in straight_bindings(mod["main"]):
        call = binding.value
        args = [operand(a) for a in getattr(call, "args", [call])]
        attrs = str(getattr(call, "attrs", "") or "").replace("\n", " ")
        yield f"{binding.var.name} = {op_name(call)}({', '.join(args)}) {attrs}".rstrip()
    yield json.dumps(json.loads(text_of(mod.get_attr(QUANTIZATION))), sort_keys=True)


@pytest.mark.parametrize("form", FORMS)
def test_models_that_come_quantized(form: str, golden: Callable[[str, str], None]) -> None:
    texts = []
    kinds = BUILDS if form in ("multiply", "pow2") else ("conv", "transposed", "dense")
    for kind in kinds:
        for seed in (1, 2):
            mod, _ = graph(kind, seed)
            texts += [f"== {kind} {seed}", *lines(quantize(mod, **FORMS[form]))]
    golden(f"quantized/{form}.txt", "\n".join(texts) + "\n")


class ExactGraph(Graph):
    """Weights of few bits, so that float32 sums are the same in any order, on any processor."""

    def normal(self, *shape: int, scale: float = 1.0) -> relax.Expr:
        return self.const(np.float32(np.rint(self.rng.normal(0, 2, shape)) / 8))


def network() -> tuple[tvm.IRModule, list[np.ndarray]]:
    """Float operators of each group once, on values that are no powers of two."""
    g = ExactGraph((1, 6, 10, 12))
    x = g.conv(g.params[0], 8, padding=(1, 0, 2, 1), strides=(2, 1), name="first")
    x = g.op("nn.relu", x, name="relu")
    y = g.conv(x, 8, 3, padding=1, groups=8, name="depthwise")
    y = g.op("clip", y, 0.0, 6.0, name="relu6")
    z = g.op("add", x, y, name="join")
    z = g.op("nn.max_pool2d", z, pool_size=(3, 2), strides=(2, 2), padding=(1, 0, 1, 0), name="max")
    z = g.op("nn.leakyrelu", z, alpha=0.125, name="leaky")
    z = g.op("nn.avg_pool2d", z, pool_size=(2, 2), strides=(1, 3), name="average")
    z = g.op("mean", z, axis=[2, 3], name="mean")
    out = g.dense(z, 5, name="last")
    data = [np.random.default_rng(k).normal(0, 5, (1, 6, 10, 12)) for k in range(3)]
    return g.module(out), [np.float32(np.rint(d) / 4) for d in data]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("scales", ["pow2", "mul"])
def test_a_float_network(
    scales: str, per_channel: bool, golden: Callable[[str, str], None]
) -> None:
    mod, samples = network()
    result = quantize(
        mod, calibration=samples, scales=scales, per_channel=per_channel, config=VTAConfig()
    )
    name = "channels" if per_channel else "tensors"
    golden(f"quantized/{scales}-{name}.txt", "\n".join(lines(result)) + "\n")


# ---------------------------------------------------------------- numbers
def numbers(value: Any) -> Any:
    """A result of whole numbers as plain lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return {f.name: numbers(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [numbers(v) for v in value] if isinstance(value, (tuple, list)) else value


def chosen() -> Iterator[str]:
    """Factors and shifts for ratios from 2**-24 to 2**2, with zero points, limits and rests."""
    for ratio in (2.0**-24, 3e-6, 2.0**-9, 0.004, 0.013, 0.25, 0.7, 1.0, 3.3):
        for reach in (100, 20_000, 1 << 20, 1 << 30):
            for zero, low, rest in ((0, -128, 0.0), (-128, -128, 0.0), (5, 0, 0.3)):
                made = requantizer(np.array(ratio), np.array(reach), zero, low, 127, rest)
                yield f"{ratio:g} {reach} {zero} {low} {rest}: {numbers(made)}"
    apart = np.array([0.003, 0.0031, 0.9]), np.array([1 << 12, 1 << 20, 300])
    for zero in (0, 7):
        yield f"channels {zero}: {numbers(requantizer(*apart, zero))}"
        close = requantizer(np.array([0.25, 0.25, 0.125]), np.array([1000, 20, 1 << 18]), zero)
        yield f"powers {zero}: {numbers(close)}"
    for pair in ((1.0, 1.0), (0.5, 0.25), (0.7, 1.3), (1e-4, 90.0)):
        terms = [Operand(np.array(r), zero) for r, zero in zip(pair, (0, -7), strict=True)]
        for constant, zero in ((0.0, 0), (0.4, 3), (1e9, -128)):
            made = linear(terms, constant, zero)
            yield f"{pair} {constant:g} {zero}: {numbers(made)}"
    for amax in (0.0, 1e-30, 0.99, 127 / 128, 1.0, 127.0, 127.1, 1e30):
        yield f"exponent {amax:g}: {scale_exponent(amax, 'x')}"
    yield f"slopes {[slope_factor(s) for s in (0.0, 0.1, 0.25, 1.0, 7.999, 8.0, -0.5)]}"
    steps = np.array([-9.0, -1.5, -0.5, 0.5, 1.5, 2.5, 63.4, 63.6, 900.0])
    yield f"quantized {quantized(steps, Scale(0.5, 3)).tolist()}"


def test_chosen_numbers(golden: Callable[[str, str], None]) -> None:
    golden("quantized/numbers.txt", "\n".join(chosen()) + "\n")


def test_which_values_may_change() -> None:
    """Calibration and the rewriting collect what they find; everything else is a value."""
    found = {name for name in changeable("vta_byoc.quantization") if not name.startswith("_")}
    assert found == {"Affine", "FusedOperators", "Record", "Value"}
    room = vars(importlib.import_module("vta_byoc.quantize"))
    own = [value for value in room.values() if dataclasses.is_dataclass(value)]
    assert own and all(value.__dataclass_params__.frozen for value in own)
