"""Image classifiers of convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .blocks import Bottleneck, Head, conv_norm
from .mobile import CLASSES


# ---------------------------------------------------------------- RegNet, ResNeXt
def regnet_y() -> nn.Module:
    """RegNetY (Radosavovic et al., 2020): bottlenecks of one width, groups and gates."""
    channels, layers = 16, [conv_norm(3, 16, 3, 2)]
    for width, depth in zip((24, 56, 104, 216), (1, 1, 2, 1), strict=True):
        for i in range(depth):
            stride, squeezed = (2 if i == 0 else 1), max(8, channels // 4)
            layers.append(Bottleneck(channels, width, width, stride, width // 8, 1, squeezed))
            channels = width
    return nn.Sequential(*layers, Head(channels, CLASSES))


def resnext() -> nn.Module:
    """ResNeXt (8x4d; Xie et al., 2017): bottlenecks whose 3x3 convolutions have 8 groups."""
    channels: int = 16
    layers: list[nn.Module] = [conv_norm(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for stage, width in enumerate((32, 64, 128, 256)):
        layers.append(Bottleneck(channels, width, 2 * width, 2 if stage else 1, groups=8))
        channels = 2 * width
    return nn.Sequential(*layers, Head(channels, CLASSES))


# ---------------------------------------------------------------- DenseNet
class DenseLayer(nn.Module):
    """Batch normalization before each convolution; the result is appended to the inputs."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


def densenet(growth: int = 16, depths: tuple[int, ...] = (2, 2, 2, 2)) -> nn.Module:
    """DenseNet-BC (Huang et al., 2017) with average pooling between its blocks."""
    channels = 2 * growth
    layers: list[nn.Module] = [conv_norm(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for block, depth in enumerate(depths):
        for _ in range(depth):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if block < len(depths) - 1:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            channels //= 2
    return nn.Sequential(*layers, Head(channels, CLASSES))


# ---------------------------------------------------------------- GoogLeNet
INCEPTIONS = (
    # 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, pool; a pooling before the block
    (64, 96, 128, 16, 32, 32, False),
    (128, 128, 192, 32, 96, 64, False),
    (192, 96, 208, 16, 48, 64, True),
    (384, 192, 384, 48, 128, 128, True),
)


class Inception(nn.Module):
    """Four branches whose results are joined."""

    def __init__(self, inputs: int, one: int, r3: int, three: int, r5: int, five: int, p: int):
        super().__init__()
        self.one = conv_norm(inputs, one)
        self.three = nn.Sequential(conv_norm(inputs, r3), conv_norm(r3, three, 3))
        self.five = nn.Sequential(conv_norm(inputs, r5), conv_norm(r5, five, 3))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), conv_norm(inputs, p))

    def forward(self, x: Any) -> Any:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


def googlenet(divisor: int = 4) -> nn.Module:
    """GoogLeNet (Szegedy et al., 2014) with batch normalization and ceil_mode, as torchvision."""
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    a, b = 64 // divisor, 192 // divisor
    layers: list[nn.Module] = [conv_norm(3, a, 7, 2), pool, conv_norm(a, a), conv_norm(a, b, 3)]
    channels = b
    layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
    for *sizes, pooled in INCEPTIONS:
        one, r3, three, r5, five, p = (size // divisor for size in sizes)
        layers += [nn.MaxPool2d(2, 2, ceil_mode=True)] if pooled else []
        layers.append(Inception(channels, one, r3, three, r5, five, p))
        channels = one + three + five + p
    return nn.Sequential(*layers, Head(channels, CLASSES))


# ---------------------------------------------------------------- ConvNeXt
class LayerNorm2d(nn.LayerNorm):
    """Layer normalization over the channels of an image."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A 7x7 depthwise convolution and a scaled MLP over the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.layer_scale = nn.Parameter(torch.full((width, 1, 1), 0.5))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.fc2(F.gelu(self.fc1(y))).permute(0, 3, 1, 2)
        return x + self.layer_scale * y


def convnext(widths: tuple[int, ...] = (24, 48, 96, 192)) -> nn.Module:
    """ConvNeXt-T (Liu et al., 2022)."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0], eps=1e-6)]
    for stage, (width, depth) in enumerate(zip(widths, (1, 1, 1, 1), strict=True)):
        if stage:
            layers.append(LayerNorm2d(widths[stage - 1], eps=1e-6))
            layers.append(nn.Conv2d(widths[stage - 1], width, 2, 2))
        layers += [ConvNextBlock(width) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), LayerNorm2d(widths[-1], eps=1e-6), nn.Flatten(1)]
    return nn.Sequential(*layers, *head, nn.Linear(widths[-1], CLASSES))
