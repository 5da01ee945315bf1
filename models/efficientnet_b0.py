"""EfficientNet B0 from code: `python models/efficientnet_b0.py -o efficientnet_b0.onnx`.

The network of Tan and Le, 2019, as torchvision has it: 5.29 million parameters, 386 million MACs at
224x224: inverted residuals with SiLU, and gates of a quarter of each block's inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._blocks import BlockBuilder
from models._build import Tensor
from models._mobile import Gate, inverted_residual
from models._smooth import SILU
from models._zoo import ImageModel

STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, kernel, stride of the first, channels, number of blocks."""
FEATURES = 1280


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.conv_bn(b.input, "conv1", 32, 3, stride=2, activation=SILU)
    for stage, (expansion, kernel, stride, channels, blocks) in enumerate(STAGES, start=1):
        for i in range(blocks):
            inputs = x.data.shape[1]
            x = inverted_residual(
                b, x, f"block{stage}.{i}", expansion * inputs, channels, kernel, activation=SILU,
                gate=Gate(max(1, inputs // 4), SILU), stride=stride if i == 0 else 1,
            )  # fmt: skip
    x = b.conv_bn(x, "conv2", FEATURES, activation=SILU, pooled=True)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


MODEL = ImageModel("efficientnet_b0", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
