"""Layers of random networks with operators right behind them that could share their tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from random_operators import MOST_ELEMENTS, Value

if TYPE_CHECKING:
    from random_graphs import Maker

WINDOW = 2
"""Rows and columns of a pool whose windows neither overlap nor leave gaps."""


def followed(m: Maker, x: Value) -> Value:
    """A layer, and one to three operators that read nothing but its result and other tensors."""
    last = _layer(m, x)
    for _ in range(m.pick([1, 2, 3, 1, 2])):
        known = [f for f, fits in FOLLOWERS if fits(last)]
        last = m.pick(known)(m, last)
    return last


def leaky(m: Maker, x: Value) -> Value:
    return m.add("LeakyRelu", [x.name], x.shape, alpha=m.pick([0.125, 0.1, 0.3]))


def residual(m: Maker, x: Value) -> Value:
    """``x`` with an earlier tensor of its shape, or with a layer on one of its plane."""
    earlier = [v for v in m.values if v.shape == x.shape]
    if earlier and m.chance(70):
        other = m.pick(earlier)
    else:
        near = [v for v in m.values if (v.shape[0], *v.plane) == (x.shape[0], *x.plane)]
        other = _layer(m, m.pick(near) if near else x, x.channels)
    names = [other.name, x.name] if m.chance(40) else [x.name, other.name]
    joined = m.add(m.pick(["Add", "Add", "Add", "Sub", "Max", "Min"]), names, x.shape)
    return m.add("Relu", [joined.name], x.shape) if m.chance(30) else joined


def max_pool(m: Maker, x: Value) -> Value:
    return _pool(m, x, "MaxPool")


def avg_pool(m: Maker, x: Value) -> Value:
    return _pool(m, x, "AveragePool")


def _pool(m: Maker, x: Value, op: str) -> Value:
    """Windows side by side; on an odd plane a rest is left."""
    shape = (*x.shape[:2], *(size // WINDOW for size in x.plane))
    window = [WINDOW] * len(x.plane)
    return m.add(op, [x.name], shape, kernel_shape=window, strides=window)


def _pools(x: Value) -> bool:
    return min(x.plane) >= WINDOW


def _always(x: Value) -> bool:
    return True


FOLLOWERS: tuple[tuple[Callable[[Maker, Value], Value], Callable[[Value], bool]], ...] = (
    (leaky, _always),
    (residual, _always),
    (residual, _always),
    (max_pool, _pools),
    (max_pool, _pools),
    (avg_pool, _pools),
    (avg_pool, _pools),
)
"""With what each takes."""


def _layer(m: Maker, x: Value, channels: int = 0) -> Value:
    """A plain, depthwise or transposed convolution that keeps rows and columns."""
    most = MOST_ELEMENTS * x.channels // x.elements
    form = m.pick(["plain"] * 4 + ["transposed", "depthwise", "depthwise"])
    if form == "depthwise" and channels in (0, x.channels):
        channels, groups = x.channels, x.channels
    else:
        groups = 1
        channels = channels or m.pick([c for c in (16, 8, x.channels, 32) if c <= most] or [1])
    kernel = m.pick([3, 1])
    attrs = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4}
    shape = (x.shape[0], channels, *x.plane)
    if form == "transposed":
        weight = m.weight((x.channels, channels, kernel, kernel), x.channels * kernel**2)
        return m.add("ConvTranspose", [x.name, weight], shape, **attrs)
    per_group = x.channels // groups
    weight = m.weight((channels, per_group, kernel, kernel), per_group * kernel**2)
    inputs = [x.name, weight, *([m.net.normal(channels, scale=0.2)] if m.chance(70) else [])]
    layer = m.add("Conv", inputs, shape, group=groups, **attrs)
    return m.add("Relu", [layer.name], shape) if m.chance(30) else layer
