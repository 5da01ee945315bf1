"""ShuffleNet v2 from code: `python models/shufflenet_v2.py -o shufflenet_v2.onnx`.

The network of Ma et al., 2018, width 1.0, as torchvision has it: 2.28 million parameters, 145
million MACs at 224x224: half of the channels pass by, and all are shuffled behind each unit.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._blocks import BlockBuilder
from models._build import Tensor
from models._zoo import ImageModel

STAGES = ((116, 4), (232, 8), (464, 4))
"""Channels and number of units; the first of them has stride 2."""
FEATURES = 1024


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.conv_bn(b.input, "conv1", 24, 3, stride=2)
    x = b.max_pool(x, "maxpool", kernel=3, stride=2, pad=1)
    for stage, (channels, units) in enumerate(STAGES, start=2):
        for i in range(units):
            x = _unit(b, x, f"stage{stage}.{i}", channels, stride=2 if i == 0 else 1)
    x = b.conv_bn(x, "conv5", FEATURES, pooled=True)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


def _unit(b: BlockBuilder, x: Tensor, name: str, channels: int, *, stride: int) -> Tensor:
    """Half of the channels pass by; with a stride both branches see all of them."""
    half = channels // 2
    if stride == 1:
        shortcut, x = b.halves(x, f"{name}.split")
    else:
        inputs = x.data.shape[1]
        shortcut = b.conv_bn(
            x, f"{name}.left.dw", inputs, 3, stride=2, groups=inputs, activation=None
        )
        shortcut = b.conv_bn(shortcut, f"{name}.left.pw", half)
    h = b.conv_bn(x, f"{name}.pw1", half)
    h = b.conv_bn(h, f"{name}.dw", half, 3, stride=stride, groups=half, activation=None)
    h = b.conv_bn(h, f"{name}.pw2", half)
    return b.channel_shuffle(b.concat([shortcut, h], f"{name}.concat"), f"{name}.shuffle")


MODEL = ImageModel("shufflenet_v2", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
