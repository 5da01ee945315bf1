"""DenseNet-121 from code: `python models/densenet121.py -o densenet121.onnx`.

The network of Huang et al., 2017, as torchvision has it: 7.98 million parameters, 2.83 billion MACs
at 224x224: each layer reads what all layers of its block before it have written.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU
from models._blocks import BlockBuilder
from models._build import Tensor
from models._zoo import ImageModel

GROWTH = 32
BLOCKS = (6, 12, 24, 16)
WIDENING = 4
"""Channels between the two convolutions of a layer, as multiples of the growth."""


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.conv_bn(b.input, "conv0", 2 * GROWTH, 7, stride=2)
    x = b.max_pool(x, "pool0", kernel=3, stride=2, pad=1)
    for block, layers in enumerate(BLOCKS, start=1):
        for layer in range(1, layers + 1):
            x = _layer(b, x, f"block{block}.{layer}")
        if block < len(BLOCKS):
            x = _transition(b, x, f"transition{block}")
    x = b.bn_act(x, "norm5", "relu5", RELU, pooled=True)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


def _layer(b: BlockBuilder, x: Tensor, name: str) -> Tensor:
    """BatchNorm and relu before each convolution; the result is appended to the inputs."""
    h = b.bn_act(x, f"{name}.norm1", f"{name}.relu1", RELU)
    h = b.conv(h, f"{name}.conv1", b.filters(h, f"{name}.conv1", WIDENING * GROWTH, 1))
    h = b.bn_act(h, f"{name}.norm2", f"{name}.relu2", RELU)
    h = b.level_conv(h, f"{name}.conv2", b.filters(h, f"{name}.conv2", GROWTH, 3), pad=1)
    return b.concat([x, h], f"{name}.concat")


def _transition(b: BlockBuilder, x: Tensor, name: str) -> Tensor:
    """Half of the channels at half of the size."""
    h = b.bn_act(x, f"{name}.norm", f"{name}.relu", RELU)
    w = b.filters(h, f"{name}.conv", x.data.shape[1] // 2, 1)
    return b.average_pool(b.level_conv(h, f"{name}.conv", w), f"{name}.pool", kernel=2)


MODEL = ImageModel("densenet121", network, images=8)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
