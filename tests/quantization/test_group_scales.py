"""Weights in front of group normalizations: groups reach equally far, the function is the same."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tvm
from small_models import call
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.quantization.group_scales import factors_of_groups, normed_layers, with_factors
from vta_byoc.quantization.tensor_pairs import tensor_pairs
from vta_byoc.quantize import quantize
from vta_byoc.reports.quantization.report import quantization_report
from vta_byoc.validation.against_runtime import bound_for, compare
from vta_byoc.validation.runtimes import float_runtime

SIM = VTAConfig.preset("sim")
CHANNELS = 8


def network(groups: int, spread: float, *, read_twice: bool = False) -> tvm.IRModule:
    """Convolution, bias, normalization, convolution; groups reach apart by powers of `spread`."""
    rng = np.random.default_rng(1)
    scale = np.repeat(spread ** -np.arange(groups), CHANNELS // groups)
    kernel = rng.normal(size=(CHANNELS, 3, 3, 3)) * scale.reshape(-1, 1, 1, 1)
    bias = rng.normal(size=CHANNELS) * scale
    ones, zeros = np.ones(CHANNELS, "float32"), np.zeros(CHANNELS, "float32")
    last = rng.normal(size=(CHANNELS, CHANNELS, 1, 1)).astype("float32")
    data = relax.Var("data", relax.TensorType((1, 3, 9, 9), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            x = builder.emit(relax.op.nn.conv2d(data, relax.const(kernel.astype("float32"))))
            x = builder.emit(
                relax.op.add(x, relax.const(bias.reshape(1, -1, 1, 1).astype("float32")))
            )
            constants = relax.const(ones), relax.const(zeros)
            y = builder.emit(relax.op.nn.group_norm(x, *constants, groups, 1, [2, 3], 1e-5))
            y = builder.emit(relax.op.nn.conv2d(y, relax.const(last)))
            result = builder.emit_output(relax.op.add(y, x) if read_twice else y)
        builder.emit_func_output(result)
    return builder.get()


def with_equal_groups(
    mod: tvm.IRModule, given: list[list[np.ndarray]], *, per_channel: bool
) -> tvm.IRModule:
    return with_factors(mod, factors_of_groups(mod, given, per_channel=per_channel))


def samples(count: int = 4) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(5)
    return [[rng.normal(size=(1, 3, 9, 9)).astype("float32")] for _ in range(count)]


def kernel(mod: tvm.IRModule) -> np.ndarray:
    return np.asarray(normed_layers(mod["main"])[0].layer.weight)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_groups_reach_as_far_as_the_largest(groups: int) -> None:
    """In calibration; what the network computes is the same to a thousandth."""
    mod = network(groups, 3.0)
    equal = with_equal_groups(mod, samples(), per_channel=True)
    for (sample,) in samples(2):
        (before,), (after,) = call(mod, sample), call(equal, sample)
        assert np.abs(after - before).max() <= 1e-3 * np.abs(before).max()
    part = kernel(equal).reshape(groups, -1)
    first = kernel(mod).reshape(groups, -1)
    factors = np.abs(part).max(axis=1) / np.abs(first).max(axis=1)
    assert factors.min() == pytest.approx(1.0)
    assert factors.max() > (1.9 if groups > 1 else 0.99)


def test_it_is_worth_decibels(monkeypatch: pytest.MonkeyPatch) -> None:
    mod, given = network(8, 1.8), samples()
    (want,) = call(mod, given[0][0])

    def decibels() -> float:
        quantized = quantize(mod, calibration=given, config=SIM, scales="mul", per_channel=True)
        (got,) = call(quantized, given[0][0])
        return float(10 * np.log10((want**2).sum() / ((got - want) ** 2).sum()))

    alike = decibels()
    module = importlib.import_module("vta_byoc.quantize")  # as an attribute it is the function
    monkeypatch.setattr(module, "normed_layers", lambda main: [])
    assert alike > 30 and alike > decibels() + 6


def test_without_scales_of_channels_no_weight_exceeds_the_largest() -> None:
    mod = network(8, 3.0)
    equal = with_equal_groups(mod, samples(), per_channel=False)
    assert np.abs(kernel(equal)).max() == pytest.approx(np.abs(kernel(mod)).max())
    assert not np.array_equal(kernel(equal), kernel(mod))


def test_where_epsilon_counts_nothing_changes() -> None:
    """The least groups have variances like epsilon: they would be normalized otherwise."""
    mod = network(8, 30.0)
    equal = with_equal_groups(mod, samples(), per_channel=True)
    assert np.array_equal(kernel(equal)[4:], kernel(mod)[4:])
    for (sample,) in samples(2):
        (before,), (after,) = call(mod, sample), call(equal, sample)
        assert np.abs(after - before).max() <= 1e-3 * np.abs(before).max()


def test_a_layer_that_another_reads_stays() -> None:
    assert not normed_layers(network(8, 3.0, read_twice=True)["main"])


def test_samples_may_come_once() -> None:
    """They are kept for the second reading; the module is the same."""
    mod = network(2, 3.0)
    once = quantize(mod, calibration=iter(samples()), config=SIM, scales="mul")
    tvm.ir.assert_structural_equal(
        once, quantize(mod, calibration=samples(), config=SIM, scales="mul")
    )


def test_reports_compare_what_was_quantized() -> None:
    """Tensors and weights of the layer are compared times its factors."""
    mod, given = network(8, 1.8), samples()
    options = {"config": SIM, "scales": "mul", "per_channel": True}
    qmod = quantize(mod, calibration=given, **options)
    found = quantization_report(mod, qmod, given)
    layer = next(op for op in found.operators if op.weights is not None)
    assert layer.measures.sqnr > 35 and layer.measures.own_sqnr > 35
    assert layer.weights is not None and layer.weights.sqnr > 35
    pairs = tensor_pairs(mod, qmod)
    compared = compare(mod, qmod, given, float_runtime(mod, pairs), bound_for(mod, None, None))
    assert min(tensor.sqnr for tensor in compared.tensors) > 30
