"""YOLOv8 nano from code: `python models/yolov8n.py -o yolov8n.onnx`.

Ultralytics' network of 2023 up to the three maps of boxes: 3.16 million parameters, 1.09 billion
MACs at 320x320 (4.37 billion at 640x640): SiLU, blocks that join all of their parts, poolings in a
row. Decoding and selecting boxes are not part of the network.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._blocks import BlockBuilder
from models._build import Tensor
from models._smooth import SILU
from models._zoo import ImageModel

STAGES = ((32, 1), (64, 2), (128, 2), (256, 1))
"""Channels and depth of the backbone's stages; each halves the size."""
BINS = 16
"""Of the distribution of each of a box's four distances."""


def network(b: BlockBuilder, classes: int) -> tuple[Tensor, ...]:
    """Emit all layers; returns `map8`, `map16` and `map32`, named by their strides."""
    x = _conv(b, b.input, "conv0", 16, 3, stride=2)
    levels = []
    for stage, (channels, depth) in enumerate(STAGES, start=1):
        x = _conv(b, x, f"conv{stage}", channels, 3, stride=2)
        x = _c2f(b, x, f"c2f{stage}", channels, depth, shortcut=True)
        levels.append(x)
    p5 = _sppf(b, x, "sppf")
    up = b.concat([b.upsample(p5, "up4"), levels[2]], "concat4")
    p4 = _c2f(b, up, "neck4", 128, 1)
    up = b.concat([b.upsample(p4, "up3"), levels[1]], "concat3")
    p3 = _c2f(b, up, "neck3", 64, 1)
    down = b.concat([_conv(b, p3, "down4", 64, 3, stride=2), p4], "merge4")
    p4 = _c2f(b, down, "pan4", 128, 1)
    down = b.concat([_conv(b, p4, "down5", 128, 3, stride=2), p5], "merge5")
    p5 = _c2f(b, down, "pan5", 256, 1)
    maps = zip((8, 16, 32), (p3, p4, p5), strict=True)
    return tuple(_detect(b, x, f"map{stride}", classes) for stride, x in maps)


def _conv(
    b: BlockBuilder, x: Tensor, name: str, channels: int, kernel: int = 1, *, stride: int = 1
) -> Tensor:
    return b.conv_bn(x, name, channels, kernel, stride=stride, activation=SILU)


def _c2f(
    b: BlockBuilder, x: Tensor, name: str, channels: int, depth: int, *, shortcut: bool = False
) -> Tensor:
    """Split in two; each further block appends its result; all are joined."""
    x = _conv(b, x, f"{name}.cv1", channels)
    parts = list(b.halves(x, f"{name}.split"))
    for i in range(depth):
        h = _conv(b, parts[-1], f"{name}.{i}.cv1", channels // 2, 3)
        h = _conv(b, h, f"{name}.{i}.cv2", channels // 2, 3)
        parts.append(b.add(parts[-1], h, f"{name}.{i}.add") if shortcut else h)
    return _conv(b, b.concat(parts, f"{name}.concat"), f"{name}.cv2", channels)


def _sppf(b: BlockBuilder, x: Tensor, name: str) -> Tensor:
    """Three max poolings in a row, all joined."""
    channels = x.data.shape[1]
    parts = [_conv(b, x, f"{name}.cv1", channels // 2)]
    for i in range(3):
        parts.append(b.max_pool(parts[-1], f"{name}.pool{i}", kernel=5, stride=1, pad=2))
    return _conv(b, b.concat(parts, f"{name}.concat"), f"{name}.cv2", channels)


def _detect(b: BlockBuilder, x: Tensor, name: str, classes: int) -> Tensor:
    """Distances to the sides of boxes, and classes, side by side."""
    parts = []
    for part, width, outputs in (("box", 64, 4 * BINS), ("cls", max(64, classes), classes)):
        h = _conv(b, x, f"{name}.{part}.0", width, 3)
        h = _conv(b, h, f"{name}.{part}.1", width, 3)
        inner = f"{name}.{part}.2"
        parts.append(b.conv_head(h, inner, b.filters(h, inner, outputs, 1), output=f"{inner}.y"))
    return b.concat(parts, name)


MODEL = ImageModel("yolov8n", network, size=320, classes=80, step=32, images=8)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
