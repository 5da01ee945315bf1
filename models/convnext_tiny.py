"""ConvNeXt tiny from code: `python models/convnext_tiny.py -o convnext_tiny.onnx`.

The network of Liu et al., 2022, as torchvision has it: 28.6 million parameters, 4.46 billion
MACs at 224x224: 7x7 depthwise convolutions, layer normalization of channels, GELU.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._blocks import BlockBuilder
from models._build import Tensor, oriented_filters
from models._filters import depthwise_filters
from models._smooth import GELU
from models._zoo import ImageModel

STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))
"""Channels and number of blocks."""
LAST = (0, 2, 3, 1)
FIRST = (0, 3, 1, 2)


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`."""
    filters = oriented_filters(b.rng("stem"), STAGES[0][0], 4)
    x = _norm(b, b.wide_conv(b.input, "stem", filters, stride=4), "stem.norm")
    for stage, (channels, blocks) in enumerate(STAGES):
        if stage:
            x = _norm(b, x, f"down{stage}.norm")
            filters = b.filters(x, f"down{stage}", channels, 2)
            x = b.wide_conv(x, f"down{stage}", filters, stride=2)
        for i in range(blocks):
            x = _block(b, x, f"block{stage}.{i}")
    x = _norm(b, b.global_average_pool(x, "avgpool"), "norm")
    return (b.dense(b.flatten(x, "flatten"), "fc", features=classes, output="logits"),)


def _norm(b: BlockBuilder, x: Tensor, name: str) -> Tensor:
    """Layer normalization over the channels of an image."""
    y = b.layer_norm(b.permute(x, f"{name}.last", LAST), name)
    return b.permute(y, f"{name}.first", FIRST)


def _block(b: BlockBuilder, x: Tensor, name: str) -> Tensor:
    """A filter for each channel, two layers over the channels, and a shortcut."""
    channels = x.data.shape[1]
    filters = depthwise_filters(b.rng(f"{name}.dw"), x.data, 7)
    h = b.wide_conv(x, f"{name}.dw", filters, pad=3, groups=channels)
    h = b.layer_norm(b.permute(h, f"{name}.last", LAST), f"{name}.norm")
    h = b.activate(b.linear(h, f"{name}.fc1", 4 * channels), f"{name}.gelu", GELU)
    h = b.permute(b.linear(h, f"{name}.fc2", channels), f"{name}.first", FIRST)
    return b.add(b.scaled(h, f"{name}.layer_scale"), x, f"{name}.add")


MODEL = ImageModel("convnext_tiny", network, step=32, images=8)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
