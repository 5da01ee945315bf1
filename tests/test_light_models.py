"""The models that the ONNX package ships, as they come: old opsets, weights made by operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from test_quantize_layers import fast, ops

from vta_byoc.frontend import load_model
from vta_byoc.quantize import default_calibration, quantize

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


def test_a_light_model_quantizes():
    """The other models do, too, in 10 to 60 s each."""
    mod = light("squeezenet")
    inputs = default_calibration(mod, 1)
    qmod = quantize(mod, calibration=inputs)
    types = {b.var.name: b.var.ty for b in qmod["main"].body.blocks[0].bindings}
    floats = {op for var, op in ops(qmod) if str(types[var].dtype) == "float32"}
    assert floats <= {"dequantize", "nn.softmax", "reshape"}
    (result,) = fast(qmod, *inputs[0].values())
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result.sum(), 1, atol=1e-3)
