"""Descriptions of data movements as boxes of vectors, for the strategy :mod:`.move`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.copy_region import CopyRegion, Source
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import MoveWorkload, Shape

Channel = tuple[int, int] | None
"""An operand and its channel, or None for zeros."""


@dataclass(frozen=True)
class ShownAxis:
    """Rows (columns) of a result: ``out`` of them.

    From position ``before`` on, ``count`` rows of ``size`` are shown, from ``first`` by ``step``,
    each ``repeat`` times; all else is zero.  ``before`` and ``out`` are multiples of ``repeat``.
    """

    out: int
    size: int
    count: int
    first: int = 0
    step: int = 1
    repeat: int = 1
    before: int = 0


def whole(size: int) -> ShownAxis:
    """All rows as they are."""
    return ShownAxis(size, size, size)


def gathered(
    in_shapes: Sequence[Shape],
    channels: Sequence[Channel],
    rows: ShownAxis,
    cols: ShownAxis,
    config: VTAConfig,
) -> MoveWorkload:
    """A result with these ``channels``, rows and columns of operands of equal height and width."""
    out: Shape = (in_shapes[0][0], len(channels), rows.out, cols.out)
    boxes = [
        _box(in_shapes, len(channels), first, count, runs, (rows, cols), config)
        for first, count, runs in _runs(channels, config.block)
    ]
    return MoveWorkload(tuple(in_shapes), out, tuple(boxes))


Lanes = tuple[int, int, tuple[int, ...]]
"""An operand, its channel block, and the source lane of each lane (-1: none; empty: all)."""


def _runs(channels: Sequence[Channel], block: int) -> list[tuple[int, int, tuple[Lanes, ...]]]:
    """Runs of channel blocks made alike: (first, count, sources of the first).

    The sources of the next block are the blocks behind those of the one before it.
    """
    found: list[tuple[int, int, tuple[Lanes, ...]]] = []
    for number in range(blocks(len(channels), block)):
        made = _made(channels[number * block : (number + 1) * block], block)
        if found:
            first, count, sources = found[-1]
            if made == tuple((o, at + count, lanes) for o, at, lanes in sources):
                found[-1] = first, count + 1, sources
                continue
        found.append((number, 1, made))
    return found


def _made(channels: Sequence[Channel], block: int) -> tuple[Lanes, ...]:
    """What a block of channels is made of."""
    lanes: dict[tuple[int, int], list[int]] = {}
    for to, channel in enumerate(channels):
        if channel is not None:
            operand, number = channel
            found = lanes.setdefault((operand, number // block), [-1] * block)
            found[to] = number % block
    straight = list(range(block))
    return tuple(
        (operand, at, () if moved == straight else tuple(moved))
        for (operand, at), moved in lanes.items()
    )


def _box(
    in_shapes: Sequence[Shape],
    channels: int,
    first: int,
    count: int,
    made: Sequence[Lanes],
    space: tuple[ShownAxis, ShownAxis],
    config: VTAConfig,
) -> CopyRegion:
    """Axes: images, channel blocks, rows, their repeats, columns, their repeats."""
    rows, cols = space
    images = blocks(in_shapes[0][0], config.batch)
    row, col = _split(rows), _split(cols)
    plane = rows.out * cols.out
    size = (images, count, *row, *col)
    steps = (
        blocks(channels, config.block) * plane,
        plane,
        rows.repeat * cols.out,
        cols.out,
        cols.repeat,
        1,
    )
    sources = []
    for operand, at, lanes in made:
        planes = blocks(in_shapes[operand][1], config.block)
        area = rows.size * cols.size
        start = at * area + rows.first * cols.size + cols.first
        moved = (planes * area, area, rows.step * cols.size, 0, cols.step, 0)
        (row_low, row_high), (col_low, col_high) = _range(rows), _range(cols)
        low = (0, 0, row_low, 0, col_low, 0)
        high = (images, count, row_high, row[1], col_high, col[1])
        sources.append(Source(operand, start, moved, low, high, lanes))
    return CopyRegion(size, first * plane, steps, tuple(sources))


def _split(axis: ShownAxis) -> tuple[int, int]:
    """Positions and repeats of an axis (padding is repeated too)."""
    return axis.out // axis.repeat, axis.repeat


def _range(axis: ShownAxis) -> tuple[int, int]:
    """Positions that come from the source."""
    low = axis.before // axis.repeat
    return low, low + axis.count


# ---------------------------------------------------------------- operators
def concat(in_shapes: Sequence[Shape], config: VTAConfig) -> MoveWorkload:
    """Operands one after the other along channels, whatever their numbers."""
    channels = [(i, c) for i, shape in enumerate(in_shapes) for c in range(shape[1])]
    return gathered(in_shapes, channels, *_plane(in_shapes[0]), config)


def channels_of(shape: Shape, order: Sequence[int], config: VTAConfig) -> MoveWorkload:
    """Channels in any ``order`` (a slice, a shuffle)."""
    return gathered([shape], [(0, c) for c in order], *_plane(shape), config)


def upsample(shape: Shape, factors: tuple[int, int], config: VTAConfig) -> MoveWorkload:
    """Nearest neighbours: each pixel ``factors`` times."""
    rows, cols = (
        ShownAxis(size * f, size, size, repeat=f)
        for size, f in zip(shape[2:], factors, strict=True)
    )
    return gathered([shape], _all(shape), rows, cols, config)


def pad(shape: Shape, pads: tuple[int, int, int, int], config: VTAConfig) -> MoveWorkload:
    """Zeros around the plane: ``pads`` top, left, bottom, right."""
    top, left, bottom, right = pads
    rows = ShownAxis(shape[2] + top + bottom, shape[2], shape[2], before=top)
    cols = ShownAxis(shape[3] + left + right, shape[3], shape[3], before=left)
    return gathered([shape], _all(shape), rows, cols, config)


def strided_slice(
    shape: Shape,
    begin: tuple[int, int, int],
    end: tuple[int, int, int],
    steps: tuple[int, int, int],
    config: VTAConfig,
) -> MoveWorkload:
    """Channels, rows and columns from ``begin`` to before ``end``."""
    (c0, h0, w0), (c1, h1, w1), (cs, hs, ws) = begin, end, steps
    rows, cols = (
        ShownAxis(n, size, n, first, step)
        for size, first, last, step in ((shape[2], h0, h1, hs), (shape[3], w0, w1, ws))
        for n in [len(range(first, last, step))]
    )
    return gathered([shape], [(0, c) for c in range(c0, c1, cs)], rows, cols, config)


def _plane(shape: Shape) -> tuple[ShownAxis, ShownAxis]:
    return whole(shape[2]), whole(shape[3])


def _all(shape: Shape) -> list[Channel]:
    return [(0, c) for c in range(shape[1])]
