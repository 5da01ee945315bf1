"""VGG-16 from code: `python models/vgg16.py -o vgg16.onnx`.

Configuration D of Simonyan and Zisserman, 2014, without BatchNorm: 138.4 million parameters, 15.5
billion MACs at 224x224. Three quarters of the parameters are in `fc6`, whose weights are whole
numbers of 8 bits times one factor.
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

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions; a pooling follows each."""
HIDDEN = 4096


def network(b: LayerBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.input
    for stage, (channels, depth) in enumerate(STAGES, start=1):
        for layer in range(1, depth + 1):
            x = _conv(b, x, f"{stage}_{layer}", channels)
        x = b.max_pool(x, f"pool{stage}", kernel=2, stride=2)
    x = b.flatten(x, "flatten")
    for layer in (6, 7):
        x = b.dense_act(x, f"fc{layer}", f"relu{layer}", features=HIDDEN)
    return (b.dense(x, "fc8", features=classes, output="logits"),)


def _conv(b: LayerBuilder, x: Tensor, index: str, channels: int) -> Tensor:
    name = f"conv{index}"
    is_first = x is b.input
    w = oriented_filters(b.rng(name), channels, 3) if is_first else b.filters(x, name, channels, 3)
    return b.conv_act(x, name, w, f"relu{index}", RELU, pad=1)


MODEL = ImageModel("vgg16", network, images=8)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
