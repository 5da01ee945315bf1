"""Average and max pooling from ONNX to programs: every divisor, every border, with and without MUL.

Each machine runs one model with all the poolings as outputs, bit for bit against the dialect in
numpy.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from dialect_numpy import run
from layer_runs import machines, run_module
from small_models import Net

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model
from vta_byoc.partitioning.pooling import MOST_FACTOR
from vta_byoc.quantize import quantize
from vta_byoc.strategies.pooling.sum import INT8_HIGH, digits_of

SHAPE = (2, 20, 8, 7)
CHANNELS = 24
Attributes = dict[str, Any]
AVERAGES: dict[str, Attributes] = {
    "halves": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "counted": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    "same": {"kernel_shape": [4, 3], "auto_pad": "SAME_LOWER", "count_include_pad": 1},
    "left_out": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 0},
    "uneven": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 2, 0]},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "ceil_pads": {"kernel_shape": [2, 3], "strides": [3, 1], "pads": [1] * 4, "ceil_mode": 1},
    "ceil_counted": {
        "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1,
        "count_include_pad": 1,
    },
    "column": {"kernel_shape": [5, 1], "strides": [1, 2]},
    "plane": {"kernel_shape": [8, 7]},
}
BY_POSITION = ("left_out", "uneven", "ceil", "ceil_pads", "ceil_counted")
"""Their divisor is not the same everywhere."""
MAXIMA: dict[str, Attributes] = {
    "all_sides": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "corner": {"kernel_shape": [2, 3], "pads": [0, 2, 1, 0]},
    "ceil": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 0], "ceil_mode": 1},
    "same": {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    "dilated": {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]},
}


@dataclass(frozen=True)
class Case:
    """A quantized model with the results of one input: int8 model and float model."""

    qmod: tvm.IRModule
    x: np.ndarray
    wanted: list[np.ndarray]
    floats: list[np.ndarray]


def case(path: Path, samples: list[np.ndarray]) -> Case:
    """The model of ``path`` calibrated with ``samples``, run on the first."""
    qmod = quantize(load_model(path), calibration=samples)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    floats = session.run(None, {session.get_inputs()[0].name: samples[0]})
    wanted = run(qmod, samples[0])["result"]
    return Case(qmod, samples[0], wanted if isinstance(wanted, list) else [wanted], floats)


def noise() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(SHAPE, np.float32) for _ in range(2)]


@pytest.fixture(scope="module")
def averages(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A convolution and every average of it."""
    net = Net(data=SHAPE)
    x = net.conv("data", SHAPE[1], CHANNELS, 1, name="conv")
    outputs = [net.node("AveragePool", x, name=name, **a) for name, a in AVERAGES.items()]
    return case(net.save(tmp_path_factory.mktemp("avg") / "avg.onnx", *outputs), noise())


@pytest.fixture(scope="module")
def maxima(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A convolution with negative results only, and every maximum of it."""
    net = Net(data=SHAPE)
    weight = net.const(np.abs(net.rng.standard_normal((CHANNELS, SHAPE[1], 1, 1))) + 0.1)
    x = net.node("Conv", "data", weight, name="conv")
    outputs = [net.node("MaxPool", x, name=name, **a) for name, a in MAXIMA.items()]
    path = net.save(tmp_path_factory.mktemp("max") / "max.onnx", *outputs)
    return case(path, [-np.abs(x) - 0.5 for x in noise()])


def check(given: Case, config: VTAConfig, simulated: VTAConfig | None = None) -> dict[str, str]:
    """Bit-exact on the machine; the reason of each operator's placement."""
    done = run_module(given.qmod, config, [given.x], planned=False, simulated=simulated)
    for got, want in zip(done.outputs, given.wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return {name: f"{p.device}: {p.reason}" for name, p in done.placement.items()}


def without_mul(config: VTAConfig) -> VTAConfig:
    return dataclasses.replace(
        config, capabilities=dataclasses.replace(config.capabilities, mul=False)
    )


# ---------------------------------------------------------------- averages
def test_integer_averages_are_the_model_s(averages: Case) -> None:
    """Two int8 roundings, of the convolution and of the average."""
    for name, got, want in zip(AVERAGES, averages.wanted, averages.floats, strict=True):
        assert got.shape == want.shape, name
        assert np.abs(got - want).max() <= 0.05 * np.abs(want).max(), name


@pytest.mark.parametrize("name", machines())
def test_every_average_runs_on_vta(averages: Case, name: str) -> None:
    placed = check(averages, machines()[name])
    entries = {n: "vta.mean" if n == "plane" else "vta.avg_pool2d" for n in AVERAGES}
    assert {n: placed[n].split("; ")[0] for n in AVERAGES} == {
        n: f"vta: pattern {entry}" for n, entry in entries.items()
    }


@pytest.mark.parametrize("name", machines())
def test_without_mul_the_gemm_core_divides(averages: Case, name: str) -> None:
    """Where the divisor is not the same everywhere, box by box."""
    placed = check(averages, without_mul(machines()[name]), machines()[name])
    entries = {n: "vta.mean" if n == "plane" else "vta.avg_pool2d" for n in AVERAGES}
    assert {n: placed[n].split("; ")[0] for n in AVERAGES} == {
        n: f"vta: pattern {entry}" for n, entry in entries.items()
    }


def test_half_is_rounded_up(tmp_path: Path) -> None:
    """As the dialect says: -0.5 becomes 0, 0.5 becomes 1."""
    net = Net(data=(1, 16, 2, 32))
    y = net.node("AveragePool", "data", kernel_shape=[2, 2], strides=[2, 2], name="pool")
    full = np.full((1, 16, 2, 32), 127, np.float32)
    sums = np.random.default_rng(0).integers(-127, 128, full.shape).astype("float32")
    given = case(net.save(tmp_path / "half.onnx", y), [sums, full])
    means = sums.reshape(1, 16, 2, 16, 2).mean(axis=(2, 4))[:, :, None]
    halves = means % 1 == 0.5
    assert (halves & (means < 0)).any() and (halves & (means > 0)).any()
    np.testing.assert_array_equal(given.wanted[0], np.floor(means + 0.5))
    assert check(given, machines()["1x16"])["pool"].startswith("vta: ")


def test_digits_make_every_factor() -> None:
    for factor in range(1, MOST_FACTOR + 1):
        assert values_of([factor]) == [factor]
        digits = digits_of([factor])
        assert digits is not None and len(digits) == 1 + (factor > INT8_HIGH)


def test_digits_of_several_factors_have_one_shift() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        factors = rng.integers(1, rng.choice([100, 2000, MOST_FACTOR]), 9).tolist()
        found = values_of(factors)
        assert found is None or found == factors
        assert found is not None or max(factors) > 127 * 256 + 127
    assert digits_of([32700, 200]) is None


def values_of(factors: list[int]) -> list[int] | None:
    """What the digits of ``factors`` make."""
    digits = digits_of(factors)
    if digits is None:
        return None
    values = [0] * len(factors)
    for digit in digits:
        assert all(-INT8_HIGH - 1 <= value <= INT8_HIGH for value in digit.values)
        values = [
            (value << digit.shift) + own for value, own in zip(values, digit.values, strict=True)
        ]
    return values


# ---------------------------------------------------------------- maxima
def test_integer_maxima_are_the_model_s(maxima: Case) -> None:
    for name, got, want in zip(MAXIMA, maxima.wanted, maxima.floats, strict=True):
        assert got.shape == want.shape, name
        assert want.max() < 0 and got.max() < 0, f"{name}: the padding is not read"
        assert np.abs(got - want).max() <= 0.05 * np.abs(want).max(), name


@pytest.mark.parametrize("name", machines())
def test_the_border_of_negative_data(maxima: Case, name: str) -> None:
    placed = check(maxima, machines()[name])
    assert all(placed[n].startswith("vta: pattern vta.max_pool2d") for n in MAXIMA)
