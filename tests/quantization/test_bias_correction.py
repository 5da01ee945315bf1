"""Bias correction: the means of quantized layers return to those of the float ones."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator
from typing import Any

import dialect_numpy
import numpy as np
import pytest
import tvm
from operators_llvm import OPERATORS
from small_models import Graph

from vta_byoc.hw.errors import VTAError, VTAWarning
from vta_byoc.ir.bindings import source_name, straight_bindings
from vta_byoc.ir.records import text_of
from vta_byoc.quantization.bias_correction import Place, correct_biases
from vta_byoc.quantization.float_layers import float_layers
from vta_byoc.quantize import QUANTIZATION, quantize

SHAPE = (1, 8, 10, 10)


def samples(n: int = 6, seed: int = 3, shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    """Positive values: then rounded weights shift the means."""
    rng = np.random.default_rng(seed)
    return [rng.random(shape, dtype="float32") + np.float32(0.5) for _ in range(n)]


def outputs(mod: tvm.IRModule, data: list[np.ndarray]) -> np.ndarray:
    """The result of `main` on each sample, stacked."""
    return np.array([dialect_numpy.run(mod, x)["result"] for x in data])


@pytest.fixture
def by_operators() -> Iterator[None]:
    """What is measured is computed by operators that are built once."""
    with OPERATORS.calibrating():
        yield


def biased_conv(g: Graph, x: Any, co: int, name: str, bias: bool = True, **options: Any) -> Any:
    """Weights that int8 rounds to the same side: most are 0.4 steps from an integer."""
    groups = options.get("groups", 1)
    weight = g.rng.integers(-8, 8, (co, int(x.ty.shape[1]) // groups, 3, 3)) / 64 + 0.4 / 64
    weight[:, 0, 0, 0] = 1.9
    y = g.op("nn.conv2d", x, g.const(weight), name=f"{name}__conv", padding=1, **options)
    if not bias:
        return y
    return g.op("add", y, g.normal(1, co, 1, 1, scale=0.2), name=name)


def bad_case() -> tvm.IRModule:
    g = Graph(SHAPE)
    x = g.op("clip", biased_conv(g, g.params[0], 8, "first"), 0, 6, name="act")
    x = biased_conv(g, x, 8, "middle", groups=8)
    x = g.op("mean", biased_conv(g, x, 6, "last", bias=False), [2, 3], name="pool")
    return g.module(g.dense(x, 5, name="fc"))


def quantizer(data: list[np.ndarray]) -> Any:
    return functools.partial(quantize, calibration=data)


def mean_error(want: np.ndarray, got: np.ndarray) -> float:
    """The largest of the last axis' channels, as a part of the values' size."""
    error = (got - want).mean(axis=tuple(range(want.ndim - 1)))
    return float(np.abs(error).max() / np.abs(want).mean())


@functools.cache
def corrected() -> tvm.IRModule:
    """The bad case after correction; building its modules takes seconds."""
    return correct_biases(bad_case(), quantizer(samples()), samples())


@pytest.mark.usefixtures("by_operators")
def test_errors_fall() -> None:
    mod, run, other = bad_case(), quantizer(samples()), samples(seed=4)
    want, before, after = (outputs(m, other) for m in (mod, run(mod), run(corrected())))
    assert mean_error(want, before) > 0.02
    assert mean_error(want, after) < mean_error(want, before) / 4
    assert np.abs(after - want).mean() < np.abs(before - want).mean() / 2


@pytest.mark.usefixtures("by_operators")
def test_errors_fall_where_results_have_zero_points() -> None:
    """A relu whose integers begin at -128: their mean is that of the floats behind it."""
    g = Graph((1, 4, 6, 6))
    x = g.op("nn.relu", biased_conv(g, g.params[0], 4, "first"), name="act")
    weight = g.const(g.rng.integers(-8, 8, (3, 4, 1, 1)) / 64 + 0.4 / 64)
    mod, data = g.module(g.op("nn.conv2d", x, weight, name="last")), samples(shape=(1, 4, 6, 6))
    run = functools.partial(quantizer(data), scales="mul", zero_points="cheap")
    assert json.loads(text_of(run(mod).get_attr(QUANTIZATION)))["tensors"]["first"]["zero"] == -128
    result = correct_biases(mod, run, data, rounds=1)
    want, before, after = (outputs(m, data) for m in (mod, run(mod), run(result)))
    assert mean_error(want, after) < mean_error(want, before) / 2


@pytest.mark.usefixtures("by_operators")
@pytest.mark.parametrize("scales", ["pow2", "mul"])
def test_errors_fall_where_functions_stand_between_layers(scales: str) -> None:
    """A hard swish passes a layer's error on by its slope, and the next layer has its own."""
    shape = (1, 8, 6, 6)
    g = Graph(shape)
    x = g.params[0]
    for number in range(4):
        x = g.op("nn.conv2d", x, small_weights(g, 8), name=f"conv{number}")
        inside = g.op("clip", g.op("add", x, g.const(3.0)), 0, 6)
        x = g.op("divide", g.op("multiply", x, inside), g.const(6.0), name=f"swish{number}")
    last = g.op("nn.conv2d", x, small_weights(g, 6), name="last")
    mod, data = g.module(last), samples(shape=shape)
    run = functools.partial(quantizer(data), scales=scales)
    modules = (mod, run(mod), run(correct_biases(mod, run, data)))
    want, before, after = (np.moveaxis(outputs(m, data), 2, -1) for m in modules)
    assert mean_error(want, before) > 0.05
    assert mean_error(want, after) < mean_error(want, before) / 5


def small_weights(g: Graph, channels: int) -> Any:
    """Weights of 8 inputs of which most are 0.4 steps from an integer."""
    weight = g.rng.integers(-8, 8, (channels, 8, 1, 1)) / 64 + 0.4 / 64
    weight[:, 0, 0, 0] = 0.9
    return g.const(weight)


@pytest.mark.usefixtures("by_operators")
def test_errors_of_operators_without_bias_are_left_to_the_layer_behind() -> None:
    """The sum of x and x / 2 rounds a half up for every other value, and has no bias."""
    g = Graph((1, 4, 4, 4))
    small = g.op("nn.conv2d", g.params[0], g.const(np.eye(4).reshape(4, 4, 1, 1) / 2), name="half")
    total = g.op("add", g.params[0], small, name="join")
    weight = g.const(np.full((3, 4, 1, 1), 0.5))
    mod = g.module(g.op("nn.conv2d", total, weight, name="last"))
    data = [g.rng.integers(0, 100, (1, 4, 4, 4)).astype("float32") for _ in range(8)]
    data[0].flat[0] = 100
    run = quantizer(data)
    result = correct_biases(mod, run, data, rounds=1)
    want, before, after = (outputs(m, data) for m in (mod, run(mod), run(result)))
    assert abs((before - want).mean()) > 0.2
    assert abs((after - want).mean()) < abs((before - want).mean()) / 4


def test_only_biases_change() -> None:
    mod, result = bad_case(), corrected()
    for old, new in zip(float_layers(mod["main"]), float_layers(result["main"]), strict=True):
        np.testing.assert_array_equal(old.weight, new.weight)
        assert source_name(old.var) == source_name(new.var)
    sums = [b.var.name for b in straight_bindings(result["main"])]
    # "last" has no bias and got one; the others' constants were replaced.
    assert [name for name in sums if "corrected" in name] == ["last__conv__corrected"]
    assert len(sums) == len(straight_bindings(mod["main"])) + 1


def test_nothing_to_correct() -> None:
    """Weights and inputs that int8 represents exactly: the module itself comes back, unwarned."""
    g = Graph((1, 4, 4, 4))
    weight = g.const(g.rng.integers(-127, 128, (4, 4, 1, 1)) / 128)
    mod = g.module(g.op("nn.conv2d", g.params[0], weight, name="conv"))
    data = [g.rng.integers(-127, 128, (1, 4, 4, 4)).astype("float32") for _ in range(3)]
    data[0].flat[0] = 127
    with warnings.catch_warnings():
        warnings.simplefilter("error", VTAWarning)
        assert correct_biases(mod, quantizer(data), data) is mod


def test_biases_that_bring_nothing_nearer_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrections of the wrong sign: the module itself comes back, and who asked is told."""
    g = Graph((1, 8, 4, 4))
    mod = g.module(g.op("nn.conv2d", g.params[0], small_weights(g, 4), name="conv"))
    data = samples(3, shape=(1, 8, 4, 4))
    shift = Place.shift
    monkeypatch.setattr(Place, "shift", lambda *given: -shift(*given))
    with pytest.warns(VTAWarning) as caught:
        assert correct_biases(mod, quantizer(data), data) is mod
    assert [str(each.message) for each in caught] == [
        "bias correction leaves all biases as they are: moved, they bring the means of 1 layer no "
        "nearer to those of the float model; leave it out, or give more samples"
    ]


def test_layers_of_every_kind() -> None:
    g = Graph((1, 4, 8, 8))
    bump = 0.4 / 64
    weight = g.rng.integers(-8, 8, (4, 3, 2, 2)) / 64 + bump
    weight[:, :, 0, 0] = 1.9
    x = g.op(
        "nn.conv2d_transpose", g.params[0], g.const(weight), strides=(2, 2), groups=2, name="up"
    )
    x = g.op("reshape", x, (1, 6, 256), name="rows")
    line = g.rng.integers(-8, 8, (4, 6, 3)) / 64 + bump
    line[:, :, 0] = 1.9
    x = g.op("nn.conv1d", x, g.const(line), padding=1, name="line")
    x = g.op("reshape", x, (4, 256), name="flat")
    table = g.rng.integers(-8, 8, (256, 3)) / 64 + bump
    table[0] = 1.9
    mod = g.module(g.op("matmul", x, g.const(table), name="fc"))
    data = samples(shape=(1, 4, 8, 8))
    run = quantizer(data)
    result = correct_biases(mod, run, data, rounds=1)
    added = [b.var.name for b in straight_bindings(result["main"]) if "corrected" in b.var.name]
    assert added == ["up__corrected", "line__corrected", "fc__corrected"]
    want, before, after = (outputs(m, data) for m in (mod, run(mod), run(result)))
    assert mean_error(want, before) > 0.01
    assert mean_error(want, after) < mean_error(want, before) / 4


def test_it_is_deterministic_and_reports_progress() -> None:
    g = Graph((1, 16))
    table = g.const(g.rng.integers(-8, 8, (16, 4)) / 64 + 0.4 / 64)
    mod, data = g.module(g.op("matmul", g.params[0], table, name="fc")), samples(2, shape=(1, 16))
    steps: list[Any] = []
    texts = set()
    for _ in range(2):
        result = correct_biases(mod, quantizer(data), data, lambda *step: steps.append(step))
        texts.add(result.script(show_meta=True))
    assert len(texts) == 1 and mod.script(show_meta=True) not in texts
    assert steps == [(done, 8) for done in range(1, 9)] * 2


def test_samples_that_can_be_read_once() -> None:
    mod = bad_case()
    with pytest.raises(VTAError) as caught:
        correct_biases(mod, quantizer(samples()), (x for x in samples()))
    assert str(caught.value) == (
        "bias correction reads the samples 4 times and got a generator, which can be read once; "
        "give a list"
    )


def test_no_samples() -> None:
    with pytest.raises(VTAError, match="^calibration has 0 samples; "):
        correct_biases(bad_case(), quantizer(samples()), [])
