"""Building blocks that several networks share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution without bias, batch normalization and an activation, padded to keep the size."""
    padding = (kernel - 1) // 2 * dilation
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False)
    layers = [conv, nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


class SqueezeExcite(nn.Module):
    """Channels weighted by a gate that is computed from their averages."""

    def __init__(
        self,
        channels: int,
        squeezed: int,
        act: type[nn.Module] = nn.ReLU,
        gate: type[nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.act = act()
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = gate()

    def forward(self, x: Any) -> Any:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, an optional gate, and a linear projection."""

    def __init__(
        self,
        inputs: int,
        expanded: int,
        outputs: int,
        kernel: int,
        stride: int,
        act: type[nn.Module],
        squeeze: nn.Module | None = None,
    ) -> None:
        super().__init__()
        layers = [] if expanded == inputs else [conv_norm(inputs, expanded, act=act)]
        layers.append(conv_norm(expanded, expanded, kernel, stride, expanded, act=act))
        layers += [] if squeeze is None else [squeeze]
        layers.append(conv_norm(expanded, outputs, act=None))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.layers(x) if self.residual else self.layers(x)


class Bottleneck(nn.Module):
    """1x1, 3x3 (of groups, dilated) and 1x1 convolutions beside a shortcut; an optional gate."""

    def __init__(
        self,
        inputs: int,
        width: int,
        outputs: int,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
        squeezed: int = 0,
    ) -> None:
        super().__init__()
        gate = [SqueezeExcite(width, squeezed)] if squeezed else []
        self.layers = nn.Sequential(
            conv_norm(inputs, width),
            conv_norm(width, width, 3, stride, groups, dilation),
            *gate,
            conv_norm(width, outputs, act=None),
        )
        same = stride == 1 and inputs == outputs
        shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride, act=None)
        self.shortcut = shortcut

    def forward(self, x: Any) -> Any:
        return F.relu(self.layers(x) + self.shortcut(x))


class Head(nn.Module):
    """Global average and a classifier."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Any) -> Any:
        return self.fc(torch.flatten(self.pool(x), 1))


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Any) -> Any:
        return self.fc2(F.gelu(self.fc1(x)))


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence (batch, tokens, width) over itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Any, bias: Any = None) -> Any:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


class EncoderLayer(nn.Module):
    """A transformer layer that normalizes first."""

    def __init__(self, width: int, heads: int, ratio: int = 4) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = Mlp(width, ratio * width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))
