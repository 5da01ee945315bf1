"""Networks after 2018: the published ones, and what the builder computes is what ONNX says.

Layers' shapes do not depend on the size of the images: small ones are enough to count parameters
and to compare the builder's own forward pass with ONNX Runtime's.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

from models._blocks import BlockBuilder
from models._build import build_images
from models._smooth import GELU, HARD_SIGMOID, HARD_SWISH, SIGMOID, SILU, erf

SMALL = 64
PARAMETERS = {
    "mobilenet_v3_small": 2_542_856,
    "efficientnet_b0": 5_288_548,
    "regnet_y_400mf": 4_344_144,
    "shufflenet_v2": 2_278_604,
    "densenet121": 7_978_856,
    "unet": 31_037_698,
    "yolov8n": 3_157_200 - 16,  # less the constant that decodes boxes
    "deeplabv3_mobilenet": 11_029_328 - 3_851,  # less the auxiliary head
    "convnext_tiny": 28_589_128,
    "kws_ds_cnn": 24_908 - 1_152,  # less the statistics of BatchNorm
    "wav_conv1d": 26_915,
    "super_resolution": 59_657,
}
"""As torchvision, Ultralytics, MLPerf Tiny and PyTorch's tutorials count them."""
COMPARED = ("mobilenet_v3_small", "shufflenet_v2", "yolov8n", "kws_ds_cnn", "wav_conv1d")
"""Built on eight images and run with ONNX Runtime; the others are built to count parameters."""


@dataclasses.dataclass(frozen=True)
class Built:
    """A network built on small inputs: the model, the inputs, and what the builder computed."""

    model: onnx.ModelProto
    inputs: np.ndarray
    outputs: dict[str, np.ndarray]


def build(name: str) -> Built:
    model = importlib.import_module(f"models.{name}").MODEL
    if hasattr(model, "size"):
        size, count = (SMALL, 8) if name in COMPARED else (SMALL // 2, 2)
        images = build_images(size, 8)[:count]
        b = BlockBuilder(name, seed=0, input_name="data", images=images)
        outputs = model.network(b, model.classes)
    else:
        b = dataclasses.replace(model, images=8 if name in COMPARED else 2).builder()
        outputs = model.network(b)
    return Built(b.build(*outputs), b.input.data, {out.name: out.data for out in outputs})


@pytest.mark.parametrize("name", PARAMETERS)
def test_networks_are_the_published_ones(name: str) -> None:
    built = build(name)
    sizes = [
        int(np.prod(w.dims))
        for w in built.model.graph.initializer
        if w.name.endswith((".weight", ".bias"))
    ]
    assert sum(sizes) == PARAMETERS[name]
    if name in COMPARED:
        agrees_with_onnxruntime(built)


def agrees_with_onnxruntime(built: Built) -> None:
    session = ort.InferenceSession(built.model.SerializeToString())
    source = session.get_inputs()[0].name
    for i, x in enumerate(built.inputs[:2]):
        results = session.run([*built.outputs], {source: x[None]})
        for got, (name, wanted) in zip(results, built.outputs.items(), strict=True):
            error = np.abs(got[0] - wanted[i]).max()
            assert error <= 5e-3 * np.abs(wanted[i]).max(), f"{name} differs by {error}"


@pytest.mark.parametrize("activation", (SIGMOID, HARD_SIGMOID, HARD_SWISH, SILU, GELU))
def test_smooth_activations(activation: object) -> None:
    x = np.linspace(-8, 8, 2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    b = BlockBuilder("one", seed=0, input_name="x", images=x)
    y = b.activate(b.input, "y", activation)
    session = ort.InferenceSession(b.build(y).SerializeToString())
    got = np.concatenate([session.run(["y"], {"x": part[None]})[0] for part in x])
    assert np.abs(got - y.data).max() <= 2.0**-14


def test_erf_is_odd_and_ends_at_one() -> None:
    x = np.array([-9.0, -0.5, 0.0, 0.5, 9.0])
    np.testing.assert_allclose(erf(x), [-1, -0.5204998778, 0, 0.5204998778, 1], atol=2e-7)


@pytest.mark.parametrize("size", ((1, 1, 4, 5), (2, 3, 6, 9), (4, 4, 64, 64), (6, 5, 3, 2)))
def test_bilinear(size: tuple[int, int, int, int]) -> None:
    x = np.random.default_rng(0).integers(-100, 100, (2, 3, *size[:2])) / np.float32(32)
    b = BlockBuilder("one", seed=0, input_name="x", images=x.astype(np.float32))
    y = b.bilinear(b.input, "y", size[2:])
    session = ort.InferenceSession(b.build(y).SerializeToString())
    got = np.concatenate([session.run(["y"], {"x": part[None]})[0] for part in b.input.data])
    assert np.abs(got - y.data).max() <= 2.0**-13
