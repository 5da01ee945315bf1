"""Inputs with structure: what networks are calibrated with and compared on.

Each function returns a maker: generator, count -> one tensor whose first axis has `count` entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Maker = Callable[[Any, int], Any]


def images(channels: int, size: int, frames: int = 0) -> Maker:
    """Float32 (count, channels, [frames,] size, size), each of mean 0 and deviation 1.

    A slope of brightness, disks with sharp edges, stripes and a little noise; with frames the
    disks move.
    """

    def make(generator: Any, count: int) -> Any:
        drawn = [_picture(generator, channels, size, max(frames, 1)) for _ in range(count)]
        pictures = torch.stack(drawn if frames else [picture[:, 0] for picture in drawn])
        flat = pictures.flatten(1)
        around = pictures - flat.mean(1).view(-1, *[1] * (pictures.ndim - 1))
        return around / flat.std(1).view(-1, *[1] * (pictures.ndim - 1))

    return make


def _picture(generator: Any, channels: int, size: int, steps: int) -> Any:
    """(channels, steps, size, size)."""
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    draw = lambda *shape: torch.rand(shape, generator=generator)  # noqa: E731
    slope = (draw(channels, 2) - 0.5) @ torch.stack((x, y)).flatten(1)
    still = slope.view(channels, size, size)
    turn, pitch = math.pi * draw(1), 4 + 12 * draw(1)
    stripes = torch.sin(pitch * (x * torch.cos(turn) + y * torch.sin(turn)))
    still = still + 0.4 * (draw(channels, 1, 1) - 0.5) * stripes
    still = still + 0.1 * torch.randn(channels, size, size, generator=generator)
    places, speeds = 2 * draw(4, 2) - 1, 0.3 * (draw(4, 2) - 0.5)
    radii, colours = 0.15 + 0.4 * draw(4), 2.4 * draw(4, channels, 1, 1) - 1.2
    frames = []
    for step in range(steps):
        frame = still
        for place, speed, radius, colour in zip(places, speeds, radii, colours, strict=True):
            centre = place + step * speed
            inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2
            frame = torch.where(inside, colour.expand_as(frame), frame)
        frames.append(frame)
    return torch.stack(frames, 1)


def series(channels: int, length: int, *, last: bool = False) -> Maker:
    """Float32 (count, channels, length), or with `last` (count, length, channels): sums of waves
    that swell and fade, and a little noise."""

    def make(generator: Any, count: int) -> Any:
        draw = lambda *shape: torch.rand(shape, generator=generator)  # noqa: E731
        time = torch.linspace(0, 1, length)
        pitch, phase = 2 + 30 * draw(count, channels, 3, 1), 2 * math.pi * draw(count, 1, 3, 1)
        waves = torch.sin(pitch * time + phase) * draw(count, channels, 3, 1)
        swell = torch.exp(-8 * (time - draw(count, channels, 1)) ** 2)
        noise = torch.randn(count, channels, length, generator=generator)
        values = 1.5 * waves.sum(2) * swell + 0.1 * noise
        return values.transpose(1, 2).contiguous() if last else values

    return make


def points(number: int) -> Maker:
    """Float32 (count, 3, number): points on ellipsoids."""

    def make(generator: Any, count: int) -> Any:
        directions = F.normalize(torch.randn(count, 3, number, generator=generator), dim=1)
        return directions * (0.3 + torch.rand(count, 3, 1, generator=generator))

    return make


def vectors(size: int) -> Maker:
    """Float32 (count, size), standard normal: codes and conditions."""
    return lambda generator, count: torch.randn(count, size, generator=generator)


def tokens(length: int, vocabulary: int) -> Maker:
    """Int64 (count, length): few ids are frequent, and some repeat their neighbour's."""

    def make(generator: Any, count: int) -> Any:
        ids = torch.arange(1, vocabulary + 1, dtype=torch.float64)
        drawn = torch.multinomial((1 / ids).expand(count, -1), length, True, generator=generator)
        repeats = torch.rand(count, length, generator=generator) < 0.15
        return torch.where(repeats, drawn.roll(1, 1), drawn)

    return make


def segments(length: int) -> Maker:
    """Int64 (count, length): zeros, then ones from a drawn place on."""

    def make(generator: Any, count: int) -> Any:
        start = torch.randint(length // 4, length, (count, 1), generator=generator)
        return (torch.arange(length) >= start).to(torch.int64)

    return make


def masks(length: int) -> Maker:
    """Int64 (count, length): ones, then zeros for what is padding."""
    later = segments(length)
    return lambda generator, count: 1 - later(generator, count)
