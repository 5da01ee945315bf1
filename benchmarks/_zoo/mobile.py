"""Image classifiers for small devices."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .blocks import Head, InvertedResidual, SqueezeExcite, conv_norm

CLASSES = 20


def eighths(value: float) -> int:
    """The nearest multiple of 8, at least 8, not more than 10 % below the value."""
    near = max(8, int(value + 4) // 8 * 8)
    return near + 8 if near < 0.9 * value else near


# ---------------------------------------------------------------- MobileNetV3
MOBILENET_V3_SMALL = (
    # kernel, expanded, outputs, gate, hard swish, stride
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
)


def mobilenet_v3(width: float = 0.5) -> nn.Module:
    """MobileNetV3-Small (Howard et al., 2019)."""
    channels = eighths(16 * width)
    layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.Hardswish)]
    for kernel, expanded, outputs, gated, hard_swish, stride in MOBILENET_V3_SMALL:
        wide, out = eighths(expanded * width), eighths(outputs * width)
        gate = SqueezeExcite(wide, eighths(wide / 4), gate=nn.Hardsigmoid) if gated else None
        act = nn.Hardswish if hard_swish else nn.ReLU
        layers.append(InvertedResidual(channels, wide, out, kernel, stride, act, gate))
        channels = out
    last = 6 * channels
    layers += [
        conv_norm(channels, last, act=nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(last, eighths(1024 * width)),
        nn.Hardswish(),
        nn.Linear(eighths(1024 * width), CLASSES),
    ]
    return nn.Sequential(*layers)


# ---------------------------------------------------------------- EfficientNet
EFFICIENTNET_B0 = (
    # expansion, kernel, stride, outputs, repeats
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet(width: float = 0.35, depth: float = 0.3) -> nn.Module:
    """EfficientNet-B0 (Tan and Le, 2019): MBConv with SiLU and gates of a quarter of the inputs."""
    channels = eighths(32 * width)
    layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.SiLU)]
    for expansion, kernel, stride, outputs, repeats in EFFICIENTNET_B0:
        out = eighths(outputs * width)
        for i in range(max(1, round(repeats * depth))):
            wide = expansion * channels
            gate = SqueezeExcite(wide, max(1, channels // 4), nn.SiLU)
            step = stride if i == 0 else 1
            layers.append(InvertedResidual(channels, wide, out, kernel, step, nn.SiLU, gate))
            channels = out
    last = 4 * channels
    return nn.Sequential(*layers, conv_norm(channels, last, act=nn.SiLU), Head(last, CLASSES))


# ---------------------------------------------------------------- ShuffleNetV2
def shuffled(x: Any, groups: int = 2) -> Any:
    """The channels of the groups in turn."""
    batch, channels, height, width = x.size()
    x = x.view(batch, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(batch, channels, height, width)


class ShuffleUnit(nn.Module):
    """Half of the channels pass by; with a stride both branches see all of them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.stride = stride
        seen, self.shortcut = half, nn.Identity()
        if stride > 1:
            depthwise = conv_norm(inputs, inputs, 3, stride, inputs, act=None)
            seen, self.shortcut = inputs, nn.Sequential(depthwise, conv_norm(inputs, half))
        self.branch = nn.Sequential(
            conv_norm(seen, half),
            conv_norm(half, half, 3, stride, half, act=None),
            conv_norm(half, half),
        )

    def forward(self, x: Any) -> Any:
        if self.stride == 1:
            kept, x = x.chunk(2, dim=1)
            return shuffled(torch.cat((kept, self.branch(x)), dim=1))
        return shuffled(torch.cat((self.shortcut(x), self.branch(x)), dim=1))


def shufflenet_v2(repeats: tuple[int, ...] = (2, 2, 2)) -> nn.Module:
    """ShuffleNetV2 x0.5 (Ma et al., 2018)."""
    channels = 24
    layers: list[nn.Module] = [conv_norm(3, channels, 3, 2), nn.MaxPool2d(3, 2, 1)]
    for outputs, count in zip((48, 96, 192), repeats, strict=True):
        layers.append(ShuffleUnit(channels, outputs, 2))
        layers += [ShuffleUnit(outputs, outputs, 1) for _ in range(count - 1)]
        channels = outputs
    return nn.Sequential(*layers, conv_norm(channels, 256), Head(256, CLASSES))
