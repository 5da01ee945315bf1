"""MobileNet v2 from code: `python models/mobilenet_v2.py -o mobilenet_v2.onnx`.

The network of Sandler et al., 2018, width 1.0: inverted residuals with linear bottlenecks and
relu6, as torchvision has it: 3.50 million parameters, 300 million MACs at 224x224.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU6
from models._build import Tensor, oriented_filters
from models._layers import LayerBuilder
from models._zoo import ImageModel

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, number of blocks, stride of the first (t, c, n, s in the paper)."""
FEATURES = 1280


def network(b: LayerBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    filters = oriented_filters(b.rng("conv1"), 32, 3)
    x = b.conv(b.input, "conv1", filters, stride=2, pad=1)
    x = b.bn_act(x, "conv1.bn", "conv1.relu6", RELU6)
    for stage, (expansion, channels, blocks, stride) in enumerate(STAGES, start=1):
        for block in range(blocks):
            step = stride if block == 0 else 1
            x = _inverted_residual(b, x, f"block{stage}.{block}", expansion, channels, step)
    x = _pointwise(b, x, "conv2", FEATURES, pooled=True)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


def _inverted_residual(
    b: LayerBuilder, x: Tensor, name: str, expansion: int, channels: int, stride: int
) -> Tensor:
    """1x1 to more channels, 3x3 within each, 1x1 to few without relu6; a shortcut if it fits."""
    inputs = x.data.shape[1]
    h = x if expansion == 1 else _pointwise(b, x, f"{name}.expand", expansion * inputs)
    h = b.depthwise(h, f"{name}.dw", kernel=3, stride=stride)
    h = b.bn_act(h, f"{name}.dw.bn", f"{name}.dw.relu6", RELU6)
    h = b.conv(h, f"{name}.project", b.filters(h, f"{name}.project", channels, 1))
    if stride > 1 or inputs != channels:
        return b.bn(h, f"{name}.project.bn")
    return b.bn_add(h, x, f"{name}.project.bn", f"{name}.add")


def _pointwise(
    b: LayerBuilder, x: Tensor, name: str, channels: int, *, pooled: bool = False
) -> Tensor:
    y = b.conv(x, name, b.filters(x, name, channels, 1))
    return b.bn_act(y, f"{name}.bn", f"{name}.relu6", RELU6, pooled=pooled)


MODEL = ImageModel("mobilenet_v2", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
