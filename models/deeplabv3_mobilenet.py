"""DeepLabV3 on MobileNet v3 from code: `python models/deeplabv3_mobilenet.py -o FILE.onnx`.

The network of Chen et al., 2017, on MobileNetV3-Large, as torchvision has it without its auxiliary
head: 11.0 million parameters, 2.0 billion MACs at 224x224: dilated convolutions beside each other,
a pooled branch that is spread over the map again, and bilinear upsampling by 16.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU
from models._blocks import BlockBuilder
from models._build import Tensor
from models._mobile import V3Block, v3_block
from models._smooth import HARD_SWISH
from models._zoo import ImageModel

BLOCKS = (
    V3Block(3, 16, 16, False, RELU, 1),
    V3Block(3, 64, 24, False, RELU, 2),
    V3Block(3, 72, 24, False, RELU, 1),
    V3Block(5, 72, 40, True, RELU, 2),
    V3Block(5, 120, 40, True, RELU, 1),
    V3Block(5, 120, 40, True, RELU, 1),
    V3Block(3, 240, 80, False, HARD_SWISH, 2),
    V3Block(3, 200, 80, False, HARD_SWISH, 1),
    V3Block(3, 184, 80, False, HARD_SWISH, 1),
    V3Block(3, 184, 80, False, HARD_SWISH, 1),
    V3Block(3, 480, 112, True, HARD_SWISH, 1),
    V3Block(3, 672, 112, True, HARD_SWISH, 1),
    V3Block(5, 672, 160, True, HARD_SWISH, 2, dilation=2),
    V3Block(5, 960, 160, True, HARD_SWISH, 1, dilation=2),
    V3Block(5, 960, 160, True, HARD_SWISH, 1, dilation=2),
)
RATES = (12, 24, 36)
"""Dilations of the convolutions beside each other."""
WIDTH = 256


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `out`, a map of each class in the image's size."""
    x = b.conv_bn(b.input, "conv1", 16, 3, stride=2, activation=HARD_SWISH)
    for i, block in enumerate(BLOCKS, start=1):
        x = v3_block(b, x, f"block{i}", block)
    x = b.conv_bn(x, "conv2", 6 * x.data.shape[1], activation=HARD_SWISH)
    x = _aspp(b, x)
    x = b.conv_bn(x, "head", WIDTH, 3)
    x = b.conv_head(x, "classes", b.filters(x, "classes", classes, 1), output="classes.y")
    height, width = b.input.data.shape[2:]
    return (b.bilinear(x, "out", (height, width)),)


def _aspp(b: BlockBuilder, x: Tensor) -> Tensor:
    """Convolutions of several dilations beside each other, and the average of the map."""
    branches = [b.conv_bn(x, "aspp.0", WIDTH)]
    for i, rate in enumerate(RATES, start=1):
        branches.append(b.conv_bn(x, f"aspp.{i}", WIDTH, 3, dilation=rate))
    height, width = x.data.shape[2:]
    pooled = b.conv_bn(b.global_average_pool(x, "aspp.pool"), "aspp.4", WIDTH)
    branches.append(b.bilinear(pooled, "aspp.spread", (height, width)))
    return b.conv_bn(b.concat(branches, "aspp.concat"), "aspp.project", WIDTH)


MODEL = ImageModel("deeplabv3_mobilenet", network, classes=21, step=16, images=8)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
