"""YOLOv3-tiny from code: `python models/yolov3_tiny.py -o yolov3_tiny.onnx`.

Darknet's yolov3-tiny.cfg (Redmon and Farhadi, 2018) up to the two maps of boxes: 8.86 million
parameters with the statistics of BatchNorm, 2.78 billion MACs at 416x416. The layers have their
numbers in that file. Decoding and selecting boxes are not part of the network.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: sys.path holds models/, not its parent
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from models._activations import LEAKY_RELU
from models._build import Tensor, oriented_filters
from models._layers import LayerBuilder
from models._zoo import ImageModel

BACKBONE = (16, 32, 64, 128, 256, 512)
"""Channels of layers 0, 2, ... 10; a pooling follows each, the last one with stride 1."""
ROUTE = 8
"""The layer that is read again."""
ANCHORS = 3
BOX = 5
"""Numbers of a box besides its classes: place, size and whether there is something."""


def network(b: LayerBuilder, classes: int) -> tuple[Tensor, Tensor]:
    """Emit all layers; returns `yolo16` and `yolo23`, the coarse and the fine map of boxes."""
    boxes = ANCHORS * (BOX + classes)
    x = route = b.input
    for layer, channels in zip(range(0, 12, 2), BACKBONE, strict=True):
        x = _conv(b, x, layer, channels, 3)
        route = x if layer == ROUTE else route
        x = _pool(b, x, layer + 1, stride=1 if channels == BACKBONE[-1] else 2)
    x = _conv(b, x, 12, 1024, 3)
    neck = _conv(b, x, 13, 256, 1)
    coarse = _head(b, _conv(b, neck, 14, 512, 3), 15, boxes, "yolo16")
    x = b.upsample(_conv(b, neck, 18, 128, 1), "upsample19")
    x = _conv(b, b.concat([x, route], "route20"), 21, 256, 3)
    return coarse, _head(b, x, 22, boxes, "yolo23")


def _conv(b: LayerBuilder, x: Tensor, layer: int, channels: int, kernel: int) -> Tensor:
    """Convolution, BatchNorm and leaky relu."""
    name = f"conv{layer}"
    if x is b.input:
        w = oriented_filters(b.rng(name), channels, kernel)
    else:
        w = b.filters(x, name, channels, kernel)
    y = b.conv(x, name, w, pad=kernel // 2)
    return b.bn_act(y, f"bn{layer}", f"leaky{layer}", LEAKY_RELU)


def _pool(b: LayerBuilder, x: Tensor, layer: int, *, stride: int) -> Tensor:
    """Maximum over 2x2; with stride 1 the size stays, and what lies beyond the image is ignored."""
    pad = 0 if stride == 2 else (0, 0, 1, 1)
    return b.max_pool(x, f"pool{layer}", kernel=2, stride=stride, pad=pad)


def _head(b: LayerBuilder, x: Tensor, layer: int, boxes: int, output: str) -> Tensor:
    name = f"conv{layer}"
    return b.conv_head(x, name, b.filters(x, name, boxes, 1), output=output)


MODEL = ImageModel("yolov3_tiny", network, size=416, classes=80, step=32)
build, cached = MODEL.build, MODEL.cached
calibration_inputs, sample_inputs = MODEL.calibration_inputs, MODEL.sample_inputs


if __name__ == "__main__":
    sys.exit(MODEL.main())
