"""Every ALU operator of a network and every split from ONNX to programs, bit for bit.

One model holds all of them behind one convolution; each machine runs it against the dialect in
numpy. On a machine without MUL what multiplies stays on the CPU, with the reason.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm
from dialect_numpy import run
from layer_runs import machines, run_module
from small_models import Net, call

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model
from vta_byoc.quantize import default_calibration, quantize

SHAPE, CHANNELS = (1, 16, 6, 5), 40
PARTS = (16, 5, 19)
"""Channels of the split: a whole block, and others."""


def operators(net: Net, x: str, y: str) -> dict[str, str]:
    """Name -> tensor of each operator on ``x`` (signed) and ``y`` (of another scale)."""
    channel = net.normal(1, CHANNELS, 1, 1)
    total = net.node("Add", x, y, name="total")
    made = {
        "add": net.node("Add", x, y, name="add"),
        "subtract": net.node("Sub", x, y, name="subtract"),
        "multiply": net.node("Mul", x, y, name="multiply"),
        "minimum": net.node("Min", x, y, name="minimum"),
        "maximum": net.node("Max", x, y, name="maximum"),
        "relu": net.node("Relu", x, name="relu"),
        "relu6": net.node("Clip", x, net.const(0), net.const(6), name="relu6"),
        "saturation": net.node("Clip", x, net.const(-0.5), net.const(0.75), name="saturation"),
        "leaky": net.node("LeakyRelu", x, alpha=0.125, name="leaky"),
        "leaky_odd": net.node("LeakyRelu", x, alpha=0.1, name="leaky_odd"),
        "shift": net.node("Mul", x, net.const(0.25), name="shift"),
        "by_channel": net.node("Mul", x, channel, name="by_channel"),
        "offset": net.node("Add", x, channel, name="offset"),
        "total": net.node("Clip", total, net.const(-1), net.const(1.5), name="chain"),
    }
    cut = net.node("Split", x, net.const(PARTS, "int64"), name="split", outputs=3, axis=1)
    rows = net.node("Split", y, net.const((2, 4), "int64"), name="rows", outputs=2, axis=2)
    made["split"], made["split_rows"] = cut[1], rows[1]
    made["split_first"] = net.conv(cut[0], PARTS[0], 8, name="split_first")
    return made


MULTIPLIES = {"multiply", "by_channel"}
"""What no machine without MUL can do."""
FOLLOWED = {"split_rows": "rows"}
"""Name of an output -> its operator, where it is another."""


@dataclass(frozen=True)
class Case:
    qmod: tvm.IRModule
    names: list[str]
    x: np.ndarray
    wanted: list[np.ndarray]
    floats: list[np.ndarray]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    net = Net(data=SHAPE)
    x = net.conv("data", SHAPE[1], CHANNELS, 1, name="x")
    y = net.conv(x, CHANNELS, CHANNELS, 1, name="y")
    made = operators(net, x, y)
    path = net.save(Path(tmp_path_factory.mktemp("alu")) / "alu.onnx", *made.values())
    mod = load_model(path)
    samples = default_calibration(mod, 4)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    floats = session.run(None, samples[0])
    for got, want in zip(call(mod, *samples[0].values()), floats, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    qmod = quantize(mod, calibration=samples)
    data = samples[0]["data"]
    return Case(qmod, list(made), data, run(qmod, data)["result"], floats)


def check(case: Case, config: VTAConfig) -> dict[str, str]:
    """Bit-exact on the machine; how each operator was placed."""
    done = run_module(case.qmod, config, [case.x], planned=False)
    for name, got, want in zip(case.names, done.outputs, case.wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)
    return {p.name: f"{p.device}: {p.reason}" for p in done.placement.values()}


def test_integers_are_close_to_the_model(case: Case) -> None:
    for name, got, want in zip(case.names, case.wanted, case.floats, strict=True):
        assert np.abs(got - want).max() <= 0.05 * max(np.abs(want).max(), 4), name


@pytest.mark.parametrize("name", machines())
def test_every_operator_runs_on_vta(case: Case, name: str) -> None:
    placed = check(case, machines()[name])
    assert [n for n in case.names if not placed[FOLLOWED.get(n, n)].startswith("vta: ")] == []


@pytest.mark.parametrize("name", ["1x16", "4x8"])
def test_without_mul(case: Case, name: str) -> None:
    config = machines()[name]
    plain = dataclasses.replace(config.capabilities, mul=False)
    placed = check(case, dataclasses.replace(config, capabilities=plain))
    left = {n for n in case.names if placed[FOLLOWED.get(n, n)].startswith("cpu: ")}
    assert left == MULTIPLIES
    assert all("(CAPABILITIES.mul is false)" in placed[n] for n in left)


def test_a_chain_is_one_pass(case: Case) -> None:
    """An addition, the alignment of both sides, its rescale and a clamp: one layer, one result."""
    done = run_module(case.qmod, machines()["1x16"], [case.x], planned=False)
    (program,) = done.programs.values()
    names = {symbol.name for symbol in program.symbols}
    assert "total" in names and "chain" not in names
