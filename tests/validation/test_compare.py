"""The first layer that diverges is found by name, against each runtime that is installed."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from cli_runs import cli, refused
from small_models import Net

from models.quantized_ops import OP_CASES, SCHEMES, qdq
from vta_byoc.cli import commands
from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.load import load_model
from vta_byoc.quantization.calibration.samples import default_calibration as noise
from vta_byoc.quantization.float_layers import float_layers, with_constants
from vta_byoc.quantization.tensor_pairs import tensor_pairs
from vta_byoc.quantize import quantize
from vta_byoc.validation.against_runtime import Bound, Comparison, bound_for, compare
from vta_byoc.validation.runtimes import float_runtime, onnxruntime_runtime, runtime

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tflite"
LITERT = importlib.util.find_spec("ai_edge_litert") is not None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three convolutions, one with batch normalization, and a residual sum."""
    net = Net(data=(1, 8, 6, 6))
    a = net.node("Relu", net.conv("data", 8, 8, name="first"), name="first_relu")
    b = net.node("Relu", net.batch_norm(net.conv(a, 8, 8, name="second"), 8, name="norm"), name="r")
    c = net.conv(b, 8, 8, name="/third/Conv")
    return net.save(tmp_path_factory.mktemp("m") / "net.onnx", net.node("Add", c, a, name="join"))


@pytest.fixture(scope="module")
def mod(model: Path) -> tvm.IRModule:
    return load_model(model)


def damaged(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """`mod` with other weights for two channels of one layer."""
    (layer,) = [each for each in float_layers(mod["main"]) if str(each.var.name).startswith(name)]
    weight = layer.weight.copy()
    weight[0] = 0
    weight[1] *= -1
    return with_constants(mod, {layer.var: weight})


def against_float(mod: tvm.IRModule, quantized: tvm.IRModule, bound: Bound) -> Comparison:
    samples = noise(mod, 2, seed=5)
    qmod = quantize(quantized, calibration=noise(mod, 3, seed=1))
    other = float_runtime(mod, tensor_pairs(mod, qmod))
    return compare(mod, qmod, samples, other, bound)


# ---------------------------------------------------------------- float
def test_equal_models_do_not_diverge(mod: tvm.IRModule) -> None:
    result = against_float(mod, mod, bound_for(mod))
    assert result.first is None and result.neighbours == ([], []) and not result.skipped
    assert [tensor.name for tensor in result.tensors] == [
        *("data", "first", "second", "third_Conv", "join")
    ]
    assert all(10 < tensor.sqnr < 60 for tensor in result.tensors)
    assert result.tensors[2].operators == ("second", "r")


@pytest.mark.parametrize("layer", ["second", "third"])
def test_a_damaged_layer_is_found(mod: tvm.IRModule, layer: str) -> None:
    result = against_float(mod, damaged(mod, layer), bound_for(mod))
    assert result.first is not None and result.first.name.startswith(layer)
    before, after = result.neighbours
    assert [t.sqnr > 20 for t in before] == [True] and after
    assert result.first.name in after[0].inputs
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert data["first_divergence"]["name"] == result.first.name and data["bound"] == "10 dB"


def test_lsb_judges_int8_values(mod: tvm.IRModule) -> None:
    exact = against_float(mod, mod, Bound(lsb=0))
    assert exact.first is not None and exact.first.name == "first"  # the input is only rounded
    assert exact.tensors[0].lsb == 0 and exact.tensors[0].equal == 1.0
    assert dataclasses.replace(exact, bound=Bound(lsb=12)).first is None
    bad = against_float(mod, damaged(mod, "third"), Bound(lsb=12))
    assert bad.first is not None and bad.first.name == "third_Conv" and (bad.first.lsb or 0) > 12


def test_a_silent_tensor_that_is_not(mod: tvm.IRModule) -> None:
    qmod = quantize(mod, calibration=noise(mod, 2, seed=1))
    zeros = {
        str(p.source.var.name): np.zeros((1, 8, 6, 6), "float32") for p in tensor_pairs(mod, qmod)
    }
    result = compare(mod, qmod, noise(mod, 1, seed=2), lambda _: zeros, Bound(10))
    assert result.first is result.tensors[0] and result.first.sqnr == -math.inf
    assert result.to_json()["first_divergence"]["sqnr"] == "no signal"


# ---------------------------------------------------------------- ONNX Runtime
def test_onnxruntime_has_the_tensors_of_all_nodes(model: Path, mod: tvm.IRModule) -> None:
    qmod, samples = quantize(mod, calibration=noise(mod, 3, seed=1)), noise(mod, 2, seed=5)
    pairs = tensor_pairs(mod, qmod)
    theirs = compare(mod, qmod, samples, runtime("onnxruntime", str(model), mod, pairs), Bound(10))
    own = compare(mod, qmod, samples, float_runtime(mod, pairs), Bound(10))
    assert theirs.first is None and not theirs.skipped
    for one, other in zip(theirs.tensors, own.tensors, strict=True):
        assert one.sqnr == pytest.approx(other.sqnr, abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES[:3], ids=lambda scheme: scheme.name)
def test_a_qdq_model_equals_onnxruntime(scheme: object, tmp_path: Path) -> None:
    (case,) = [case for case in OP_CASES if case.name == "conv 3x3"]
    built = qdq(case, scheme)  # type: ignore[arg-type]
    path = tmp_path / "qdq.onnx"
    onnx.save(built.model, str(path))
    mod = load_model(path)
    qmod = quantize(mod)
    assert str(bound_for(mod)) == "30 dB"
    bound, other = Bound(lsb=1), onnxruntime_runtime(str(path), mod)
    result = compare(mod, qmod, [dict(built.feed)], other, bound)
    assert result.first is None and len(result.tensors) == 1 and not result.skipped
    assert result.tensors[0].equal is not None and result.tensors[0].equal > 0.99


def test_other_shapes_and_missing_tensors_are_skipped(mod: tvm.IRModule) -> None:
    qmod = quantize(mod, calibration=noise(mod, 2, seed=1))
    samples, pairs = noise(mod, 1, seed=2), tensor_pairs(mod, qmod)
    whole = float_runtime(mod, pairs)

    def less(arrays: object) -> dict[str, np.ndarray]:
        found = dict(whole(arrays))  # type: ignore[arg-type]
        del found["first_relu"]
        found["r"] = found["r"].astype("float64")
        found["data"] = found["data"].transpose(0, 2, 3, 1)
        return found

    result = compare(mod, qmod, samples, less, Bound(10))
    assert [tensor.name for tensor in result.tensors] == ["third_Conv", "join"]
    assert result.skipped == {
        "data": "its shape is (1, 8, 6, 6) here and (1, 6, 6, 8) there",
        "first": "the other runtime does not have it",
        "second": "it is float32 here and float64 there",
    }
    with pytest.raises(VTAError, match="none of 5 tensors can be compared: the other runtime"):
        compare(mod, qmod, samples, lambda _: {}, Bound(10))


@pytest.mark.skipif(not LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", ["net", "net_uint8_io", "net_float"])
def test_tflite_equals_the_interpreter(name: str) -> None:
    path = FIXTURES / f"{name}.tflite"
    mod = load_model(path)
    calibration = noise(mod, 2, seed=0) if name == "net_float" else None
    qmod = quantize(mod, calibration=calibration)
    pairs = tensor_pairs(mod, qmod)
    result = compare(
        mod, qmod, noise(mod, 2, 1), runtime("tflite", str(path), mod, pairs), bound_for(mod)
    )
    assert result.first is None and len(result.tensors) >= 8 and not result.skipped


# ---------------------------------------------------------------- bad input
def test_bad_bounds(mod: tvm.IRModule) -> None:
    with pytest.raises(VTAError, match="a bound of 20 dB and one of 1 LSB.*leave one out"):
        bound_for(mod, 20, 1)
    for sqnr in (math.inf, math.nan, 300):
        with pytest.raises(VTAError, match="give a smaller number, for example 20"):
            bound_for(mod, sqnr)
    with pytest.raises(VTAError, match="a bound of -1 LSB; differences are 0 or more"):
        bound_for(mod, None, -1)


def test_missing_runtimes(mod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(
        VTAError, match="ai-edge-litert is not installed.*pip install ai-edge-litert"
    ):
        runtime("tflite", "net.tflite", mod, [])
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(VTAError, match="onnxruntime is not installed.*or compare with float"):
        runtime("onnxruntime", "net.onnx", mod, [])


@pytest.mark.parametrize("name, file", [("tflite", "net.onnx"), ("onnxruntime", "net.tflite")])
def test_a_runtime_for_another_format(mod: tvm.IRModule, name: str, file: str) -> None:
    with pytest.raises(VTAError, match=f'--against {name} with "{file}"; {name} runs'):
        runtime(name, file, mod, [])


# ---------------------------------------------------------------- the command
def test_command(model: Path) -> None:
    result = cli("compare", model, "--against", "onnxruntime")
    assert result.exit_code == 0, result.output
    assert "no tensor diverges from onnxruntime by more than 10 dB" in result.stdout
    assert "5 tensors, 4 samples" in result.stdout


def test_command_finds_the_layer(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quantize_model = commands.quantize
    monkeypatch.setattr(
        commands, "quantize", lambda mod, *rest: quantize_model(damaged(mod, "third"), *rest)
    )
    result = cli("compare", model)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("third_Conv is the first operator that diverges from float")
    roles = [
        line.split()[0:3] for line in lines if line.startswith(("it reads", "diverges", "reads it"))
    ]
    assert [role[:2] for role in roles] == [
        ["it", "reads"],
        ["diverges", "third_Conv"],
        ["reads", "it"],
    ]
    data = json.loads(cli("compare", model, "--json").stdout)
    assert data["against"] == "float" and data["first_divergence"]["name"] == "third_Conv"


def test_command_refuses(model: Path) -> None:
    message = refused("compare", model, "--against", "onnxruntime", "--equalize")
    assert message.startswith("--equalize with --against onnxruntime;")
    assert "leave one out" in refused("compare", model, "--bound", "10", "--lsb", "1")
    assert "tflite runs .tflite files" in refused("compare", model, "--against", "tflite")
