"""Networks that answer with images: segmentation, super-resolution, reconstruction."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .blocks import Bottleneck, conv_norm

CLASSES = 8


# ---------------------------------------------------------------- DeepLab, FCN
def dilated_backbone() -> nn.Sequential:
    """ResNet bottlenecks; the last two stages are dilated by 2 and 4 and keep a stride of 8."""
    stages = ((32, 1, 1), (64, 2, 1), (96, 1, 2), (128, 1, 4))
    channels = 32
    layers: list[nn.Module] = [conv_norm(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for width, stride, dilation in stages:
        layers.append(Bottleneck(channels, width // 2, width, stride, dilation=max(1, dilation)))
        channels = width
    return nn.Sequential(*layers)


class PooledBranch(nn.Module):
    """The average of the image, spread over it again."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_norm(inputs, outputs))

    def forward(self, x: Any) -> Any:
        size = x.shape[-2:]
        return F.interpolate(self.layers(x), size=size, mode="bilinear", align_corners=False)


class Aspp(nn.Module):
    """Convolutions of several dilations beside each other."""

    def __init__(self, inputs: int, outputs: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        branches = [conv_norm(inputs, outputs)]
        branches += [conv_norm(inputs, outputs, 3, dilation=rate) for rate in rates]
        self.branches = nn.ModuleList([*branches, PooledBranch(inputs, outputs)])
        self.project = conv_norm(len(self.branches) * outputs, outputs)

    def forward(self, x: Any) -> Any:
        return self.project(torch.cat([branch(x) for branch in self.branches], dim=1))


class Segmenter(nn.Module):
    """A backbone, a head, and bilinear upsampling to the size of the image."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, x: Any) -> Any:
        y = self.head(self.backbone(x))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


def deeplab_v3() -> nn.Module:
    """DeepLabV3 (Chen et al., 2017)."""
    head = [Aspp(128, 48, (6, 12, 18)), conv_norm(48, 48, 3), nn.Conv2d(48, CLASSES, 1)]
    return Segmenter(dilated_backbone(), nn.Sequential(*head))


def fcn() -> nn.Module:
    """FCN (Long et al., 2015) on a dilated ResNet, as in torchvision."""
    head = nn.Sequential(conv_norm(128, 32, 3), nn.Dropout(0.1), nn.Conv2d(32, CLASSES, 1))
    return Segmenter(dilated_backbone(), head)


# ---------------------------------------------------------------- U-Net
def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3))


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, joined with what was on the way down."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.first = double_conv(3, widths[0])
        pairs = list(itertools.pairwise(widths))
        self.downs = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), double_conv(a, b)) for a, b in pairs
        )
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.convs = nn.ModuleList(double_conv(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        passed = [x]
        for down in self.downs:
            passed.append(down(passed[-1]))
        x = passed.pop()
        for up, conv in zip(self.ups, self.convs, strict=True):
            x = conv(torch.cat([passed.pop(), up(x)], dim=1))
        return self.last(x)


def unet() -> nn.Module:
    """U-Net (Ronneberger et al., 2015), padded."""
    return UNet((16, 32, 64, 128))


# ---------------------------------------------------------------- super-resolution
class SuperResolution(nn.Module):
    """Features at low resolution, residual blocks, and a pixel shuffle (EDSR's form)."""

    def __init__(self, width: int, depth: int, factor: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 5, padding=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
            )
            for _ in range(depth)
        )
        self.last = nn.Conv2d(width, factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        for block in self.blocks:
            y = y + 0.5 * block(y)
        return self.shuffle(self.last(y))


def super_resolution() -> nn.Module:
    """A pixel shuffle at the end (ESPCN, Shi et al., 2016) of residual blocks (EDSR, 2017)."""
    return SuperResolution(width=32, depth=3, factor=3)


# ---------------------------------------------------------------- autoencoder
def autoencoder() -> nn.Module:
    """Strided convolutions, a code of 64 values, transposed convolutions."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ELU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.Linear(64, 64 * 4 * 4),
        nn.ReLU(),
        nn.Unflatten(1, (64, 4, 4)),
        nn.ConvTranspose2d(64, 32, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
        nn.Tanh(),
    )
