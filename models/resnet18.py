"""ResNet-18 v1 from code: `python models/resnet18.py -o resnet18.onnx`.

The standard network (He et al., 2015; 11.7 million parameters, 1.8 billion MACs at 224x224) with
torchvision's names. It is not trained, but no noise either: its filters and BatchNorm parameters
are chosen so that layers use their int8 range, and different images get different logits (see
`models._build`). That is made for, and tested at, 224x224; smaller images are for quick tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models import _build, _command
from models._build import (
    ModelBuilder,
    Tensor,
    build_images,
    oriented_filters,
    random_filters,
)
from models._exact import F32

NAME = "resnet18"
CHANNELS = (64, 128, 256, 512)
BLOCKS = 2


def build(*, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """ResNet-18: float32 input `data` (1, 3, size, size), output `logits` (1, classes)."""
    b = builder(size=size, seed=seed)
    return b.build(network(b, classes=classes))


def cached(*, size: int = 224, classes: int = 1000, seed: int = 0) -> Path:
    """The ONNX file of the same model, built on demand into `build/models`."""
    return _command.cached(NAME, build, size=size, classes=classes, seed=seed)


def calibration_inputs(n: int = 8, *, size: int = 224) -> F32:
    """Images to calibrate quantization with, float32 (n, 3, size, size)."""
    return _build.calibration_inputs(size, n)


def sample_inputs(n: int, seed: int, *, size: int = 224) -> F32:
    """Other images, float32 (n, 3, size, size)."""
    return _build.sample_inputs(n, seed, size)


def builder(*, size: int, seed: int) -> ModelBuilder:
    """ResNet-18 with weights drawn from `seed`, for images of `size` x `size` pixels."""
    return ModelBuilder(NAME, seed=seed, input_name="data", images=build_images(size))


def network(b: ModelBuilder, *, classes: int) -> Tensor:
    """Emit all layers; returns `logits`."""
    filters = oriented_filters(b.rng("conv1"), CHANNELS[0], 7)
    x = b.bn_relu(b.conv(b.input, "conv1", filters, stride=2, pad=3), "bn1", "relu")
    x = b.max_pool(x, "maxpool", kernel=3, stride=2, pad=1)
    for stage, channels in enumerate(CHANNELS, start=1):
        for block in range(BLOCKS):
            last = stage == len(CHANNELS) and block == BLOCKS - 1
            x = _basic_block(b, x, f"layer{stage}.{block}", channels, last=last)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return b.dense(x, "fc", features=classes, output="logits")


def _basic_block(b: ModelBuilder, x: Tensor, name: str, channels: int, *, last: bool) -> Tensor:
    """Two 3x3 convolutions and a shortcut; the first block of a new width halves the image."""
    widens = x.data.shape[1] != channels
    h = _conv(b, x, f"{name}.conv1", channels, kernel=3, stride=2 if widens else 1)
    h = b.bn_relu(h, f"{name}.bn1", f"{name}.relu1")
    h = _conv(b, h, f"{name}.conv2", channels, kernel=3)
    if widens:
        x = _conv(b, x, f"{name}.downsample.conv", channels, kernel=1, stride=2)
        x = b.bn(x, f"{name}.downsample.bn", share=0.5)
    return b.bn_add_relu(h, x, f"{name}.bn2", f"{name}.add", f"{name}.relu2", pooled=last)


def _conv(
    b: ModelBuilder, x: Tensor, name: str, channels: int, *, kernel: int, stride: int = 1
) -> Tensor:
    w = random_filters(b.rng(name), (channels, x.data.shape[1], kernel, kernel))
    return b.conv(x, name, w, stride=stride, pad=kernel // 2)


if __name__ == "__main__":
    sys.exit(_command.main(NAME, build))
