"""MobileNet v1 from code: `python models/mobilenet_v1.py -o mobilenet_v1.onnx`.

The 1.0 MobileNet-224 of Howard et al., 2017, with BatchNorm and relu after every convolution: 4.23
million parameters, 569 million MACs at 224x224.
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

BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)
"""Channels after the 1x1 convolution, stride of the depthwise one."""


def network(b: LayerBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    filters = oriented_filters(b.rng("conv1"), 32, 3)
    x = b.conv(b.input, "conv1", filters, stride=2, pad=1)
    x = b.bn_act(x, "conv1.bn", "conv1.relu", RELU)
    for block, (channels, stride) in enumerate(BLOCKS, start=1):
        x = _separable(b, x, f"block{block}", channels, stride, pooled=block == len(BLOCKS))
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


def _separable(
    b: LayerBuilder, x: Tensor, name: str, channels: int, stride: int, *, pooled: bool
) -> Tensor:
    """3x3 within each channel, then 1x1 across them."""
    h = b.depthwise(x, f"{name}.dw", kernel=3, stride=stride)
    h = b.bn_act(h, f"{name}.dw.bn", f"{name}.dw.relu", RELU)
    y = b.conv(h, f"{name}.pw", b.filters(h, f"{name}.pw", channels, 1))
    return b.bn_act(y, f"{name}.pw.bn", f"{name}.pw.relu", RELU, pooled=pooled)


MODEL = ImageModel("mobilenet_v1", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
