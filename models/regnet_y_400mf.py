"""RegNetY 400MF from code: `python models/regnet_y_400mf.py -o regnet_y_400mf.onnx`.

The network of Radosavovic et al., 2020, as torchvision has it: 4.34 million parameters, 402 million
MACs at 224x224: 3x3 convolutions of groups of eight channels, with gates.
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

STAGES = ((48, 1), (104, 3), (208, 6), (440, 6))
"""Channels and number of blocks; the first of them has stride 2."""
GROUP = 8
"""Channels of a group."""


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    x = b.conv_bn(b.input, "stem", 32, 3, stride=2)
    for stage, (channels, blocks) in enumerate(STAGES, start=1):
        for i in range(blocks):
            last = stage == len(STAGES) and i == blocks - 1
            step = 2 if i == 0 else 1
            x = _block(b, x, f"block{stage}.{i}", channels, stride=step, pooled=last)
    x = b.flatten(b.global_average_pool(x, "avgpool"), "flatten")
    return (b.dense(x, "fc", features=classes, output="logits"),)


def _block(
    b: BlockBuilder, x: Tensor, name: str, channels: int, *, stride: int, pooled: bool
) -> Tensor:
    """1x1, 3x3 in groups, a gate, 1x1, and a shortcut."""
    inputs = x.data.shape[1]
    identity = x
    if stride > 1 or inputs != channels:
        identity = b.conv_bn(x, f"{name}.proj", channels, stride=stride, activation=None)
    h = b.conv_bn(x, f"{name}.a", channels)
    h = b.conv_bn(h, f"{name}.b", channels, 3, stride=stride, groups=channels // GROUP)
    h = b.squeeze_excite(h, f"{name}.se", round(inputs / 4))
    h = b.conv(h, f"{name}.c", b.filters(h, f"{name}.c", channels, 1))
    return b.bn_add_act(
        h, identity, f"{name}.c.bn", f"{name}.add", f"{name}.relu", RELU, pooled=pooled
    )


MODEL = ImageModel("regnet_y_400mf", network)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
