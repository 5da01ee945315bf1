"""U-Net from code: `python models/unet.py -o unet.onnx`.

The network of Ronneberger et al., 2015, with padded convolutions, BatchNorm and transposed
convolutions, as its common PyTorch form has it: 31.0 million parameters, 13.7 billion MACs at
128x128. What is on the way down is joined with what comes up again.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._blocks import BlockBuilder
from models._build import Tensor
from models._filters import transposed_filters
from models._zoo import ImageModel

WIDTHS = (64, 128, 256, 512, 1024)


def network(b: BlockBuilder, classes: int) -> tuple[Tensor]:
    """Emit all layers; returns `logits`, a map of each class."""
    x = _double(b, b.input, "inc", WIDTHS[0])
    passed = []
    for level, channels in enumerate(WIDTHS[1:], start=1):
        passed.append(x)
        x = b.max_pool(x, f"down{level}.pool", kernel=2, stride=2)
        x = _double(b, x, f"down{level}", channels)
    for level, channels in enumerate(reversed(WIDTHS[:-1]), start=1):
        w = transposed_filters(b.rng(f"up{level}.up"), (x.data.shape[1], channels, 2, 2))
        x = b.up_conv(x, f"up{level}.up", w)
        x = _double(b, b.concat([passed.pop(), x], f"up{level}.concat"), f"up{level}", channels)
    return (b.conv_head(x, "outc", b.filters(x, "outc", classes, 1), output="logits"),)


def _double(b: BlockBuilder, x: Tensor, name: str, channels: int) -> Tensor:
    x = b.conv_bn(x, f"{name}.conv1", channels, 3)
    return b.conv_bn(x, f"{name}.conv2", channels, 3)


MODEL = ImageModel("unet", network, size=128, classes=2, step=16, images=8)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
