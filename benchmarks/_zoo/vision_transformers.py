"""Image classifiers of attention, and one of linear layers alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .blocks import EncoderLayer, Mlp
from .mobile import CLASSES


# ---------------------------------------------------------------- ViT
class VisionTransformer(nn.Module):
    """Patches and a class token through transformer layers; the class token is classified."""

    def __init__(self, size: int, patch: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.5 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.head(self.norm(self.layers(x + self.positions))[:, 0])


def vit() -> nn.Module:
    """ViT-Ti (Dosovitskiy et al., 2021; Touvron et al., 2021)."""
    return VisionTransformer(size=64, patch=16, width=192, depth=2, heads=3)


# ---------------------------------------------------------------- Swin
def windows(x: Any, side: int) -> Any:
    """(N, H, W, C) to (N * windows, side * side, C)."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // side, side, width // side, side, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, channels)


def joined(x: Any, side: int, shape: tuple[int, int, int, int]) -> Any:
    """What `windows` took apart."""
    batch, height, width, channels = shape
    x = x.view(batch, height // side, width // side, side, side, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)


def relative_index(side: int) -> Any:
    """For each pair of positions of a window the row of the table of biases."""
    axis = torch.arange(side)
    where = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
    offset = (where[:, :, None] - where[:, None, :]).permute(1, 2, 0) + side - 1
    return (offset[..., 0] * (2 * side - 1) + offset[..., 1]).reshape(-1)


def shift_mask(size: int, side: int, shift: int) -> Any:
    """-100 between positions of a shifted window that are no neighbours in the image."""
    image = torch.zeros(1, size, size, 1)
    cuts = (slice(0, -side), slice(-side, -shift), slice(-shift, None))
    for i, rows in enumerate(cuts):
        for j, columns in enumerate(cuts):
            image[:, rows, columns] = 3 * i + j
    part = windows(image, side).squeeze(-1)
    return torch.where(part[:, None, :] == part[:, :, None], 0.0, -100.0)


class SwinBlock(nn.Module):
    """Attention within windows, shifted in every other block."""

    def __init__(self, width: int, heads: int, size: int, side: int, shift: int) -> None:
        super().__init__()
        self.heads, self.side, self.shift = heads, side, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.biases = nn.Parameter(0.5 * torch.randn((2 * side - 1) ** 2, heads))
        self.register_buffer("index", relative_index(side))
        self.mask: Any
        self.register_buffer("mask", shift_mask(size, side, shift) if shift else None)
        self.mlp = Mlp(width, 4 * width)

    def forward(self, x: Any) -> Any:
        shape = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = joined(self.attention(windows(y, self.side)), self.side, shape)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))

    def attention(self, x: Any) -> Any:
        count, area, width = x.shape
        qkv = self.qkv(x).reshape(count, area, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q * (width // self.heads) ** -0.5).matmul(k.transpose(-2, -1))
        bias = self.biases[self.index].view(area, area, self.heads).permute(2, 0, 1)
        scores = scores + bias.contiguous().unsqueeze(0)
        if self.mask is not None:
            places = self.mask.shape[0]
            scores = scores.view(-1, places, self.heads, area, area)
            scores = scores + self.mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, area, area)
        y = scores.softmax(-1).matmul(v).transpose(1, 2).reshape(count, area, width)
        return self.proj(y)


class PatchMerging(nn.Module):
    """Four neighbours become one token of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Any) -> Any:
        corners = [x[:, i::2, j::2, :] for j in range(2) for i in range(2)]
        return self.reduction(self.norm(torch.cat(corners, -1)))


class Swin(nn.Module):
    """Stages of pairs of blocks, patches merged between them."""

    def __init__(self, size: int, side: int, width: int, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.patches, self.norm1 = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        layers: list[nn.Module] = []
        size //= 4
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(PatchMerging(width))
                width, size = 2 * width, size // 2
            for i in range(depth):
                shift = side // 2 if i % 2 and size > side else 0
                layers.append(SwinBlock(width, max(1, width // 16), size, side, shift))
        self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.layers(self.norm1(self.patches(x).permute(0, 2, 3, 1)))
        x = self.norm(x).permute(0, 3, 1, 2)
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def swin() -> nn.Module:
    """Swin (Liu et al., 2021): shifted windows, tables of relative biases, merged patches."""
    return Swin(size=64, side=4, width=32, depths=(2, 2))


# ---------------------------------------------------------------- MLP-Mixer
class MixerLayer(nn.Module):
    """A perceptron over the tokens, then one over the channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_tokens, self.over_channels = Mlp(tokens, 64), Mlp(width, 4 * width)

    def forward(self, x: Any) -> Any:
        x = x + self.over_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norm2(x))


class Mixer(nn.Module):
    """Patches through mixer layers; the average token is classified."""

    def __init__(self, size: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        tokens = (size // patch) ** 2
        self.layers = nn.Sequential(*(MixerLayer(tokens, width) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(dim=1))


def mlp_mixer() -> nn.Module:
    """MLP-Mixer (Tolstikhin et al., 2021)."""
    return Mixer(size=64, patch=8, width=128, depth=2)
