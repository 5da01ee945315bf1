"""Gates per channel and per position: two computed operands of different shapes, in one region."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from layer_runs import Run, run_module
from network_runs import assert_equal, results
from small_models import Net

import vta_byoc as vta
from vta_byoc.hw.config import VTAConfig

SIM = VTAConfig.preset("sim")
NAMES = {"Mul": "multiply", "Sub": "subtract"}
C, SIZE = 24, 7


def hard_sigmoid(net: Net, x: str) -> str:
    """`clip(x / 6 + 0.5, 0, 1)`, as exporters write it."""
    half = net.node("Add", net.node("Mul", x, net.const(1 / 6)), net.const(0.5))
    return str(net.node("Clip", half, net.const(0.0), net.const(1.0)))


def squeeze_and_excitation(dense: bool, mean: str, batch: int = 1) -> onnx.ModelProto:
    """A convolution, gated per channel by its own mean, and a convolution behind."""
    net = Net(3, x=(batch, 8, SIZE, SIZE))
    x = net.conv("x", 8, C, 3, pads=[1, 1, 1, 1])
    x = net.node("Relu", x)
    pooled = net.node("GlobalAveragePool", x) if mean == "pool" else ""
    if mean == "reduce":
        pooled = net.node("ReduceMean", x, axes=[2, 3], keepdims=int(not dense))
    if dense:
        flat = net.node("Flatten", pooled) if mean == "pool" else pooled
        hidden = net.node("Relu", net.dense(flat, C, 6))
        gate = hard_sigmoid(net, net.dense(hidden, 6, C))
        gate = net.node("Reshape", gate, net.const([batch, C, 1, 1], "int64"))
    else:
        hidden = net.node("Relu", net.conv(pooled, C, 6, 1))
        gate = hard_sigmoid(net, net.conv(hidden, 6, C, 1))
    gated = net.node("Mul", x, gate) if dense else net.node("Mul", gate, x)
    return net.model(net.conv(gated, C, 16, 1))


def run(model: onnx.ModelProto, folder: Path, config: VTAConfig) -> Run:
    """The quantized model on the machine, equal to the integer reference."""
    file = folder / "net.onnx"
    onnx.save(model, str(file))
    rng = np.random.default_rng(0)
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    data = [rng.standard_normal(shape, dtype="float32")]
    dialect = vta.quantize(vta.load_model(file), calibration=[data], scales="mul", config=config)
    found = run_module(dialect, config, data, planned=False)
    assert_equal(found.outputs, results(dialect, data))
    return found


CASES = (
    ("sim", True, "pool", 1),
    ("sim", False, "reduce", 2),
    ("2x16", True, "reduce", 2),
    ("1x32", False, "pool", 1),
)


@pytest.mark.parametrize(("machine", "dense", "mean", "batch"), CASES)
def test_gate_of_squeeze_and_excitation_is_in_one_region(
    machine: str, dense: bool, mean: str, batch: int, tmp_path: Path
) -> None:
    model = squeeze_and_excitation(dense, mean, batch)
    found = run(model, tmp_path, VTAConfig.preset(machine))
    assert {name for name, p in found.placement.items() if p.device != "vta"} == {"x"}
    assert len(found.programs) == 1


MIXED = ((1, C, 1, 1), (1, 1, SIZE, SIZE), (1, 1, 1, 1), (1, C, SIZE, 1), (1, 1, 1, SIZE))


@pytest.mark.parametrize("shape", MIXED, ids=str)
def test_maps_rows_and_single_numbers_meet_a_tensor(shape: tuple[int, ...], tmp_path: Path) -> None:
    """The smaller operand is what reductions leave of another branch."""
    net = Net(5, x=(1, 8, SIZE, SIZE))
    x, other = net.conv("x", 8, C), net.conv("x", 8, C)
    one = [axis for axis in (1, 2, 3) if shape[axis] == 1]
    op = "Mul" if shape[1] == 1 else "Sub"
    small = net.node("ReduceMax", other, axes=one, keepdims=1)
    found = run(net.model(net.conv(net.node(op, x, small), C, 8, 1)), tmp_path, SIM)
    (joined,) = (p for p in found.placement.values() if p.op == f"relax.{NAMES[op]}")
    assert joined.device == "vta", joined.reason
