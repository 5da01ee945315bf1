"""The operators of random networks that move data; see `random_operators`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from random_operators import MOST_ELEMENTS, Value, conv

if TYPE_CHECKING:
    from random_graphs import Maker


def concat(m: Maker, x: Value) -> Value:
    """Two or three tensors, maybe the same one twice; mostly along the channels."""
    axis = m.pick([1, 1, 1, 1, 1, 1, len(x.shape) - 1, 0])
    others = [v for v in m.values if _differ_at_most(v, x, axis)]
    parts = [x, *(m.pick(others) for _ in range(m.pick([1, 2])))]
    if sum(p.elements for p in parts) > MOST_ELEMENTS:
        parts = parts[:1]
    if m.chance(30):
        parts.reverse()
    shape = list(x.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    return m.add("Concat", [p.name for p in parts], tuple(shape), axis=axis)


def _differ_at_most(a: Value, b: Value, axis: int) -> bool:
    if len(a.shape) != len(b.shape):
        return False
    return all(i == axis or p == q for i, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)))


def slice_(m: Maker, x: Value) -> Value:
    """Ranges of channels, rows and columns, some with a step."""
    axes = [a for a in range(len(x.shape)) if m.chance(60 if a else 5)] or [1]
    first = [m.pick(range(max(x.shape[a] // 2, 1))) for a in axes]
    last = [x.shape[a] - m.pick(range(max(x.shape[a] // 3, 1))) for a in axes]
    steps = [m.pick([1, 1, 2]) for _ in axes]
    shape = list(x.shape)
    for axis, begin, end, step in zip(axes, first, last, steps, strict=True):
        shape[axis] = len(range(begin, end, step))
    arguments = [m.net.const(v, "int64") for v in (first, last, axes, steps)]
    return m.add("Slice", [x.name, *arguments], tuple(shape))


def split(m: Maker, x: Value) -> Value:
    """The halves of the channels, joined by an operator or the other way around."""
    half = x.channels // 2
    sizes = m.net.const([half, half], "int64")
    shape = (x.shape[0], half, *x.plane)
    first, second = m.add_many("Split", [x.name, sizes], [shape, shape], axis=1)
    if m.chance(50):
        return m.add("Concat", [second.name, first.name], x.shape, axis=1)
    return m.add(m.pick(["Add", "Max"]), [first.name, second.name], shape)


def pad(m: Maker, x: Value) -> Value:
    before, after = ([m.pick([0, 1, 2]) for _ in x.plane] for _ in range(2))
    more = m.pick([1, 3]) if m.chance(10) else 0
    widths = m.net.const([0, 0, *before, 0, more, *after], "int64")
    plane = (s + b + a for s, b, a in zip(x.plane, before, after, strict=True))
    value = [m.net.const(0.5)] if m.chance(15) else []
    return m.add("Pad", [x.name, widths, *value], (x.shape[0], x.channels + more, *plane))


def upsample(m: Maker, x: Value) -> Value:
    """Nearest by whole factors, in two of the ways that exporters write."""
    factors = m.pick([(2, 2), (1, 2), (3, 1), (2, 3)])
    plane = [s * f for s, f in zip(x.plane, factors, strict=True)]
    scales = m.net.const([1.0, 1.0, *map(float, factors)])
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    attrs = {"mode": "nearest", **(modes if m.chance(50) else {})}
    return m.add("Resize", [x.name, "", scales], (*x.shape[:2], *plane), **attrs)


def shuffle(m: Maker, x: Value) -> Value:
    """Channel shuffle: reshape, transpose, reshape; mostly of what a convolution makes."""
    if m.chance(60):
        made = conv(m, x)
        x = made if groups(made) else x
    count = m.pick(groups(x))
    n, c, *plane = x.shape
    seen = m.reshape(x, (n, count, c // count, *plane))
    swapped = (n, c // count, count, *plane)
    moved = m.add("Transpose", [seen.name], swapped, perm=[0, 2, 1, 3, 4])
    return m.reshape(moved, x.shape)


def groups(x: Value) -> list[int]:
    return [g for g in (2, 4, 3) if x.channels % g == 0]


def flatten(m: Maker, x: Value) -> Value:
    shape = (x.shape[0], x.elements // x.shape[0])
    return m.add("Flatten", [x.name], shape) if m.chance(60) else m.reshape(x, shape)


def as_row(m: Maker, x: Value) -> Value:
    """(N, C, H, W) as (N, C, H * W), and back as one row."""
    n, c, *plane = x.shape
    return m.reshape(x, (n, c, math.prod(plane)) if len(plane) == 2 else (n, c, 1, *plane))


def as_image(m: Maker, x: Value) -> Value:
    """(N, K) as (N, K, 1, 1) or as a plane of 2 x 2."""
    n, k = x.shape
    return m.reshape(x, (n, k // 4, 2, 2) if k % 4 == 0 and m.chance(60) else (n, k, 1, 1))


def transpose(m: Maker, x: Value) -> Value:
    """Rows and columns swapped, or the channels last."""
    perm = m.pick([[0, 1, 3, 2], [0, 2, 3, 1]])
    return m.add("Transpose", [x.name], tuple(x.shape[a] for a in perm), perm=perm)


def nothing(m: Maker, x: Value) -> Value:
    """What exporters leave in a graph."""
    return m.add(m.pick(["Identity", "Dropout"]), [x.name], x.shape)


def spread(m: Maker, x: Value) -> Value:
    """Channels to space or the other way around, in blocks of 2 x 2."""
    n, c, h, w = x.shape
    if c % 4 == 0 and m.chance(60):
        mode = m.pick(["DCR", "CRD"])
        return m.add("DepthToSpace", [x.name], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=mode)
    return m.add("SpaceToDepth", [x.name], (n, 4 * c, h // 2, w // 2), blocksize=2)
