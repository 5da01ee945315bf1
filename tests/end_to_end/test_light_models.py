"""The models that the ONNX package ships, as they come: old opsets, weights made by operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from small_models import ops

from vta_byoc.hw.config import VTAConfig
from vta_byoc.importers.load import load_model, output_names
from vta_byoc.pipeline import compile_module
from vta_byoc.quantize import default_calibration, quantize
from vta_byoc.reports.placement.summary import macs_share, shortfalls
from vta_byoc.runtime.execute import profile
from vta_byoc.validation.bit_exact import compare_outputs, compare_stored, reference_runner
from vta_byoc.workload.memory import ACC

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
ISLANDS = {"nn.softmax"}
LRN = {"multiply", "nn.avg_pool3d", "power", "divide"}
MODELS = {
    "bvlc_alexnet": ISLANDS | LRN,
    "densenet121": set(),
    "inception_v1": ISLANDS | LRN,
    "inception_v2": ISLANDS,
    "resnet50": ISLANDS,
    "shufflenet": ISLANDS,
    "squeezenet": ISLANDS,
    "zfnet512": ISLANDS | LRN,
}
"""Model -> operators that stay float. Without vgg19: its 144 million weights take 15 s to load."""
LAYERS = {"nn.conv2d", "matmul", "add", "nn.relu", "multiply"}
MOVES = {"nn.max_pool2d", "concat", "reshape", "permute_dims", "mean", "nn.avg_pool2d"}
NORMALIZATION = {"expand_dims", "squeeze"}


def light(name: str) -> tvm.IRModule:
    return load_model(LIGHT / f"light_{name}.onnx")


@pytest.mark.parametrize("name", MODELS)
def test_a_light_model_loads_as_layers_and_moves(name):
    """Nothing is left of weights that are computed, normalizations and n-ary sums."""
    allowed = LAYERS | MOVES | MODELS[name] | (NORMALIZATION if "power" in MODELS[name] else set())
    assert {op for _, op in ops(light(name))} <= allowed


@pytest.fixture(scope="module")
def floats() -> tvm.IRModule:
    return light("squeezenet")


@pytest.fixture(scope="module")
def noise(floats: tvm.IRModule) -> list[dict[str, Any]]:
    return default_calibration(floats, 1)


@pytest.fixture(scope="module")
def squeezenet(floats: tvm.IRModule, noise: list[dict[str, Any]]) -> tvm.IRModule:
    """Quantized; the other models quantize, too, in 10 to 60 s each (benchmarks/networks.py)."""
    return quantize(floats, calibration=noise)


def test_a_light_model_quantizes(squeezenet: tvm.IRModule) -> None:
    types = {b.var.name: b.var.ty for b in squeezenet["main"].body.blocks[0].bindings}
    floats = {op for var, op in ops(squeezenet) if str(types[var].dtype) == "float32"}
    assert floats <= {"dequantize", "nn.softmax", "reshape"}


def test_a_light_model_runs_on_vta(squeezenet: tvm.IRModule, noise: list[dict[str, Any]]) -> None:
    """All of its work in one region; every tensor that is stored equals the reference, and of 46
    those that are not stored are on chip."""
    compiled = compile_module(squeezenet, VTAConfig.preset("pynq"))
    reference = reference_runner(squeezenet, compiled.programs)(noise[0])
    done = profile(compiled.exe, noise[0], arenas=True)
    checks = compare_outputs(output_names(squeezenet), done.outputs, reference)
    checks += compare_stored(done, compiled.programs, reference)
    assert [str(check) for check in checks if not check.equal] == []
    on_chip = [item for item in compiled.sharing if item.scope == ACC]
    assert on_chip and len(compiled.programs) == 1
    assert len(checks) - 1 + len(on_chip) == 46
    assert shortfalls(compiled.placement, 100) == []
    assert macs_share(compiled.placement).total == 349_151_936
    (result,) = done.outputs
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result.sum(), 1, atol=1e-3)
