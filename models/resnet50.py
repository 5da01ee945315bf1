"""ResNet-50 v1.5 from code: `python models/resnet50.py -o resnet50.onnx`.

The network of He et al., 2015, with the stride of a stage in its first 3x3 convolution, as
torchvision has it: 25.56 million parameters, 4.1 billion MACs at 224x224; torchvision's names.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU
from models._build import Tensor, oriented_filters
from models._layers import LayerBuilder
from models._zoo import ImageModel

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Channels within a block, and number of blocks."""
EXPANSION = 4


def network(b: LayerBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    filters = oriented_filters(b.rng("conv1"), 64, 7)
    x = b.bn_act(b.conv(b.input, "conv1", filters, stride=2, pad=3), "bn1", "relu", RELU)
    x = b.max_pool(x, "maxpool", kernel=3, stride=2, pad=1)
    for stage, (channels, blocks) in enumerate(STAGES, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            last = stage == len(STAGES) and block == blocks - 1
            x = _bottleneck(b, x, f"layer{stage}.{block}", channels, stride=stride, last=last)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


def _bottleneck(
    b: LayerBuilder, x: Tensor, name: str, channels: int, *, stride: int, last: bool
) -> Tensor:
    """1x1 to few channels, 3x3, 1x1 to four times as many, and a shortcut."""
    h = _conv(b, x, f"{name}.conv1", channels, kernel=1)
    h = b.bn_act(h, f"{name}.bn1", f"{name}.relu1", RELU)
    h = _conv(b, h, f"{name}.conv2", channels, kernel=3, stride=stride)
    h = b.bn_act(h, f"{name}.bn2", f"{name}.relu2", RELU)
    h = _conv(b, h, f"{name}.conv3", EXPANSION * channels, kernel=1)
    if x.data.shape[1] != EXPANSION * channels:
        x = _conv(b, x, f"{name}.downsample.conv", EXPANSION * channels, kernel=1, stride=stride)
        x = b.bn(x, f"{name}.downsample.bn", share=0.5)
    names = (f"{name}.bn3", f"{name}.add", f"{name}.relu3")
    return b.bn_add_act(h, x, *names, RELU, pooled=last)


def _conv(
    b: LayerBuilder, x: Tensor, name: str, channels: int, *, kernel: int, stride: int = 1
) -> Tensor:
    w = b.filters(x, name, channels, kernel)
    return b.conv(x, name, w, stride=stride, pad=kernel // 2)


MODEL = ImageModel("resnet50", network, images=8, spare=1.5)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
