"""SqueezeNet 1.1 from code: `python models/squeezenet.py -o squeezenet.onnx`.

The network of Iandola et al., 2016, in its version 1.1 as torchvision has it: 1.24 million
parameters, 350 million MACs at 224x224, no BatchNorm; a convolution and an average classify.
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

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of the squeezing and of each expanding convolution of fire2 to fire9."""
POOLED = (3, 5)
"""Numbers of the fires before a pooling."""


def network(b: LayerBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    filters = oriented_filters(b.rng("conv1"), 64, 3)
    x = _pool(b, b.conv_act(b.input, "conv1", filters, "relu1", RELU, stride=2), "pool1")
    for fire, (squeeze, expand) in enumerate(FIRES, start=2):
        x = _fire(b, x, f"fire{fire}", squeeze, expand)
        if fire in POOLED:
            x = _pool(b, x, f"pool{fire}")
    w = b.filters(x, "conv10", classes, 1)
    x = b.conv_act(x, "conv10", w, "relu10", RELU, pooled=True)
    return (b.flatten(b.global_average_pool(x, "avgpool"), "flatten", output="logits"),)


def _fire(b: LayerBuilder, x: Tensor, name: str, squeeze: int, expand: int) -> Tensor:
    """1x1 to few channels, then 1x1 and 3x3 side by side."""
    s = _conv(b, x, f"{name}.squeeze", squeeze, 1)
    parts = [_conv(b, s, f"{name}.expand{k}x{k}", expand, k) for k in (1, 3)]
    return b.concat(parts, f"{name}.concat")


def _conv(b: LayerBuilder, x: Tensor, name: str, channels: int, kernel: int) -> Tensor:
    w = b.filters(x, name, channels, kernel)
    return b.conv_act(x, name, w, f"{name}.relu", RELU, pad=kernel // 2)


def _pool(b: LayerBuilder, x: Tensor, name: str) -> Tensor:
    return b.max_pool(x, name, kernel=3, stride=2, ceil=True)


MODEL = ImageModel("squeezenet", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
