"""MobileNet v3 small from code: `python models/mobilenet_v3_small.py -o mobilenet_v3_small.onnx`.

The network of Howard et al., 2019, as torchvision has it: 2.54 million parameters, 56 million MACs
at 224x224: inverted residuals, hard swish, and gates of hard sigmoids.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import RELU
from models._blocks import BlockBuilder
from models._build import Tensor
from models._mobile import V3Block, eighths, v3_block
from models._smooth import HARD_SWISH
from models._zoo import ImageModel

BLOCKS = (
    V3Block(3, 16, 16, True, RELU, 2),
    V3Block(3, 72, 24, False, RELU, 2),
    V3Block(3, 88, 24, False, RELU, 1),
    V3Block(5, 96, 40, True, HARD_SWISH, 2),
    V3Block(5, 240, 40, True, HARD_SWISH, 1),
    V3Block(5, 240, 40, True, HARD_SWISH, 1),
    V3Block(5, 120, 48, True, HARD_SWISH, 1),
    V3Block(5, 144, 48, True, HARD_SWISH, 1),
    V3Block(5, 288, 96, True, HARD_SWISH, 2),
    V3Block(5, 576, 96, True, HARD_SWISH, 1),
    V3Block(5, 576, 96, True, HARD_SWISH, 1),
)
HIDDEN = 1024


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.conv_bn(b.input, "conv1", eighths(16), 3, stride=2, activation=HARD_SWISH)
    for i, block in enumerate(BLOCKS, start=1):
        x = v3_block(b, x, f"block{i}", block)
    last = 6 * x.data.shape[1]
    x = b.conv_bn(x, "conv2", last, activation=HARD_SWISH, pooled=True)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    x = b.dense_act(x, "fc1", "fc1.act", HARD_SWISH, features=HIDDEN)
    return (b.dense(x, "fc2", features=classes, output="logits"),)


MODEL = ImageModel("mobilenet_v3_small", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
