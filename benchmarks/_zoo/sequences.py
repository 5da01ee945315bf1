"""Sound, series, points and video: convolutions of one and three axes, recurrent layers."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 12


def conv1d(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
    """Convolution along one axis, batch normalization and relu."""
    padding = (kernel - 1) // 2
    conv = nn.Conv1d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm1d(outputs), nn.ReLU())


# ---------------------------------------------------------------- keyword spotting
class TcResidual(nn.Module):
    """Two convolutions of nine steps beside a strided shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            conv1d(inputs, outputs, 9, 2),
            nn.Conv1d(outputs, outputs, 9, padding=4, bias=False),
            nn.BatchNorm1d(outputs),
        )
        self.shortcut = conv1d(inputs, outputs, 1, 2)

    def forward(self, x: Any) -> Any:
        return F.relu(self.layers(x) + self.shortcut(x))


def keyword_spotting() -> nn.Module:
    """TC-ResNet8 (Choi et al., 2019): 40 MFCC features as channels along time."""
    widths = (16, 24, 32, 48)
    blocks = [TcResidual(a, b) for a, b in itertools.pairwise(widths)]
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(1), nn.Dropout(0.5), nn.Linear(48, CLASSES)]
    return nn.Sequential(conv1d(40, 16, 3), *blocks, *head)


def ds_cnn() -> nn.Module:
    """DS-CNN (Zhang et al., 2017) on raw sound: depthwise separable convolutions of one axis."""
    layers: list[nn.Module] = [conv1d(1, 32, 15, 4), nn.MaxPool1d(2)]
    for _ in range(3):
        layers += [conv1d(32, 32, 3, groups=32), conv1d(32, 32, 1)]
    return nn.Sequential(*layers, nn.AvgPool1d(16), nn.Flatten(1), nn.Linear(32 * 8, CLASSES))


# ---------------------------------------------------------------- temporal convolutions
class Causal(nn.Module):
    """Dilated convolutions that see the past only: padded on the left."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.before = 2 * dilation
        self.conv1 = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.conv1(F.pad(x, (self.before, 0))))
        y = F.relu(self.conv2(F.pad(y, (self.before, 0))))
        return F.relu(y + self.shortcut(x))


class Tcn(nn.Module):
    """The last step of the series is predicted from."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Causal(8, 24, 1), Causal(24, 24, 2), Causal(24, 24, 4))
        self.head = nn.Linear(24, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(x)[:, :, -1])


def tcn() -> nn.Module:
    """TCN (Bai et al., 2018)."""
    return Tcn()


# ---------------------------------------------------------------- recurrent
class Recurrent(nn.Module):
    """Recurrent layers along time and a classifier of the last step."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.recurrent, self.head = layer, nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        y, _ = self.recurrent(x)
        return self.head(y[:, -1])


def lstm() -> nn.Module:
    """A convolution's worth of features through an LSTM of one layer."""
    return Recurrent(nn.LSTM(16, 48, batch_first=True), 48)


def gru() -> nn.Module:
    """Two layers of GRU in both directions."""
    return Recurrent(nn.GRU(16, 24, 2, batch_first=True, bidirectional=True), 48)


# ---------------------------------------------------------------- points, video, two inputs
class PointNet(nn.Module):
    """One perceptron for all points, their maximum, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Sequential(conv1d(3, 32, 1), conv1d(32, 64, 1), conv1d(64, 128, 1))
        self.head = nn.Sequential(
            nn.Linear(128, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, CLASSES)
        )

    def forward(self, x: Any) -> Any:
        return self.head(self.points(x).amax(dim=2))


def pointnet() -> nn.Module:
    """PointNet (Qi et al., 2017) without its transforms."""
    return PointNet()


def conv3d(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU()
    )


def c3d() -> nn.Module:
    """C3D (Tran et al., 2015): convolutions and poolings over time and image."""
    return nn.Sequential(
        conv3d(3, 8),
        nn.MaxPool3d((1, 2, 2)),
        conv3d(8, 16),
        nn.MaxPool3d(2),
        conv3d(16, 32),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(1),
        nn.Linear(32, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


class Film(nn.Module):
    """Residual blocks of an image, each scaled and shifted by channel by a second input."""

    def __init__(self, width: int, depth: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 2, 1)
        self.generators = nn.ModuleList(nn.Linear(condition, 2 * width) for _ in range(depth))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, affine=False) for _ in range(depth))
        self.spatial = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Any, condition: Any) -> Any:
        x = F.relu(self.first(x))
        layers = zip(self.generators, self.convs, self.spatial, self.norms, strict=True)
        for generator, conv, spatial, norm in layers:
            gamma, beta = generator(condition).chunk(2, dim=1)
            x = F.relu(conv(x))
            y = norm(spatial(x))
            y = (1 + gamma[:, :, None, None]) * y + beta[:, :, None, None]
            x = x + F.relu(y)
        return self.head(torch.amax(x, dim=(2, 3)))


def film() -> nn.Module:
    """FiLM (Perez et al., 2018): the second input stands for the question."""
    return Film(width=32, depth=2, condition=16)
