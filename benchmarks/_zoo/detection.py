"""Detectors: boxes and classes from several feature maps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .blocks import InvertedResidual, conv_norm

CLASSES = 8


# ---------------------------------------------------------------- SSDLite
def separable(inputs: int, outputs: int) -> nn.Sequential:
    """A depthwise convolution with relu6, then a pointwise one."""
    return nn.Sequential(
        conv_norm(inputs, inputs, 3, 1, inputs, act=nn.ReLU6), nn.Conv2d(inputs, outputs, 1)
    )


def extra(inputs: int, outputs: int) -> nn.Sequential:
    """Half of the size, depthwise."""
    half = outputs // 2
    return nn.Sequential(
        conv_norm(inputs, half, act=nn.ReLU6),
        conv_norm(half, half, 3, 2, half, act=nn.ReLU6),
        conv_norm(half, outputs, act=nn.ReLU6),
    )


class SsdLite(nn.Module):
    """Inverted residuals, extra layers, and separable heads on four maps."""

    ANCHORS = 6

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Sequential(
            conv_norm(3, 16, 3, 2, act=nn.ReLU6),
            InvertedResidual(16, 16, 16, 3, 1, nn.ReLU6),
            InvertedResidual(16, 96, 24, 3, 2, nn.ReLU6),
            InvertedResidual(24, 144, 48, 3, 2, nn.ReLU6),
            InvertedResidual(48, 192, 48, 3, 1, nn.ReLU6),
        )
        self.late = InvertedResidual(48, 192, 96, 3, 2, nn.ReLU6)
        self.extras = nn.ModuleList([extra(96, 64), extra(64, 64)])
        channels = (48, 96, 64, 64)
        self.classes = nn.ModuleList(separable(c, self.ANCHORS * CLASSES) for c in channels)
        self.boxes = nn.ModuleList(separable(c, self.ANCHORS * 4) for c in channels)

    def forward(self, x: Any) -> Any:
        maps = [self.early(x)]
        for layer in (self.late, *self.extras):
            maps.append(layer(maps[-1]))
        return self.heads(self.boxes, maps, 4), self.heads(self.classes, maps, CLASSES)

    def heads(self, heads: Any, maps: Any, size: int) -> Any:
        rows = []
        for head, feature in zip(heads, maps, strict=True):
            y = head(feature)
            batch, _, height, width = y.shape
            y = y.view(batch, self.ANCHORS, size, height, width).permute(0, 3, 4, 1, 2)
            rows.append(y.reshape(batch, -1, size))
        return torch.cat(rows, dim=1)


def ssdlite() -> nn.Module:
    """SSDLite on MobileNetV2 (Sandler et al., 2018), before its boxes are decoded."""
    return SsdLite()


# ---------------------------------------------------------------- YOLOv8
def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return conv_norm(inputs, outputs, kernel, stride, act=nn.SiLU)


class Residual(nn.Module):
    """Two 3x3 convolutions, added to the input where asked."""

    def __init__(self, width: int, shortcut: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(width, width, 3), conv(width, width, 3)
        self.shortcut = shortcut

    def forward(self, x: Any) -> Any:
        y = self.conv2(self.conv1(x))
        return x + y if self.shortcut else y


class C2f(nn.Module):
    """Split in two; each further block appends its result; all are joined."""

    def __init__(self, inputs: int, outputs: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = conv(inputs, outputs), conv((2 + depth) * half, outputs)
        self.blocks = nn.ModuleList(Residual(half, shortcut) for _ in range(depth))

    def forward(self, x: Any) -> Any:
        parts = list(self.first(x).chunk(2, 1))
        parts.extend(block(parts[-1]) for block in self.blocks)
        return self.last(torch.cat(parts, 1))


class Sppf(nn.Module):
    """Three max poolings in a row, all joined."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = conv(width, width // 2), conv(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Any) -> Any:
        maps = [self.first(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.last(torch.cat(maps, 1))


class Detect(nn.Module):
    """Split heads; boxes are distances from a distribution over 16 values, times the stride."""

    REACH = 16

    def __init__(self, widths: tuple[int, ...], sizes: tuple[int, ...], image: int) -> None:
        super().__init__()
        hidden, reach = 4 * self.REACH // 2, 4 * self.REACH
        self.boxes = nn.ModuleList(
            nn.Sequential(conv(w, hidden, 3), conv(hidden, hidden, 3), nn.Conv2d(hidden, reach, 1))
            for w in widths
        )
        self.classes = nn.ModuleList(
            nn.Sequential(conv(w, 16, 3), conv(16, 16, 3), nn.Conv2d(16, CLASSES, 1))
            for w in widths
        )
        self.expectation = nn.Conv2d(self.REACH, 1, 1, bias=False)
        centres, strides = [], []
        for size in sizes:
            axis = torch.arange(size) + 0.5
            rows, columns = torch.meshgrid(axis, axis, indexing="ij")
            centres.append(torch.stack((columns, rows)).view(2, -1))
            strides.append(torch.full((1, size * size), image / size))
        self.register_buffer("centres", torch.cat(centres, 1)[None])
        self.register_buffer("strides", torch.cat(strides, 1))

    def forward(self, maps: Any) -> Any:
        joined = []
        for x, box, kind in zip(maps, self.boxes, self.classes, strict=True):
            y = torch.cat((box(x), kind(x)), 1)
            joined.append(y.view(y.shape[0], 4 * self.REACH + CLASSES, -1))
        boxes, classes = torch.cat(joined, 2).split((4 * self.REACH, CLASSES), 1)
        batch, _, count = boxes.shape
        spread = boxes.view(batch, 4, self.REACH, count).transpose(2, 1).softmax(1)
        left, right = self.expectation(spread).view(batch, 4, count).chunk(2, 1)
        low, high = self.centres - left, self.centres + right
        box = torch.cat(((low + high) / 2, high - low), 1) * self.strides
        return torch.cat((box, classes.sigmoid()), 1)


class Yolo(nn.Module):
    """Backbone, a pyramid down and up, and heads on three maps."""

    def __init__(self, image: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        a, b, c, d, e = widths
        self.stem = nn.Sequential(conv(3, a, 3, 2), conv(a, b, 3, 2), C2f(b, b, 1))
        self.p3 = nn.Sequential(conv(b, c, 3, 2), C2f(c, c, 1))
        self.p4 = nn.Sequential(conv(c, d, 3, 2), C2f(d, d, 1))
        self.p5 = nn.Sequential(conv(d, e, 3, 2), C2f(e, e, 1), Sppf(e))
        self.up4, self.up3 = C2f(d + e, d, 1, False), C2f(c + d, c, 1, False)
        self.down3, self.down4 = conv(c, c, 3, 2), conv(d, d, 3, 2)
        self.out4, self.out5 = C2f(c + d, d, 1, False), C2f(d + e, e, 1, False)
        self.detect = Detect((c, d, e), tuple(image // s for s in (8, 16, 32)), image)

    def forward(self, x: Any) -> Any:
        x3 = self.p3(self.stem(x))
        x4 = self.p4(x3)
        x5 = self.p5(x4)
        x4 = self.up4(torch.cat((F.interpolate(x5, scale_factor=2, mode="nearest"), x4), 1))
        x3 = self.up3(torch.cat((F.interpolate(x4, scale_factor=2, mode="nearest"), x3), 1))
        x4 = self.out4(torch.cat((self.down3(x3), x4), 1))
        x5 = self.out5(torch.cat((self.down4(x4), x5), 1))
        return self.detect((x3, x4, x5))


def yolov8() -> nn.Module:
    """YOLOv8n's form (C2f, SPPF, split heads, decoded boxes)."""
    return Yolo(image=64, widths=(8, 16, 32, 64, 96))
