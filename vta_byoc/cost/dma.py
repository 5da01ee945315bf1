"""What ALU steps, micro-op kernels and transfers cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.cost.search import Array, Mask, integer
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import PAD_LIMIT
from vta_byoc.workload.alu import is_shift
from vta_byoc.workload.dma import are_rows, is_row, runs_on
from vta_byoc.workload.workloads import Conv2dWorkload, Step


def alu_cost(steps: Sequence[Step], config: VTAConfig) -> tuple[float, int]:
    """(cycles a vector, instructions a tile) of ``steps``."""
    cycles, count = 0, 0
    for step in steps:
        if isinstance(step.operand, str):
            cycles, count = cycles + config.timing.alu_tensor_cycles, count + 1
            continue
        number = _shifts(step, config) if is_shift(step.op) else 1
        cycles, count = cycles + number * config.timing.alu_imm_cycles, count + number
    return float(cycles), count


def copies_of(steps: Sequence[Step]) -> int:
    """How many copies of its values a row of ``steps`` keeps on chip."""
    return sum(step.op == "keep" for step in steps)


def _shifts(step: Step, config: VTAConfig) -> int:
    """Instructions of a shift by an immediate."""
    return -(-abs(int(step.operand)) // config.capabilities.max_shift)


def cost_alike(steps: Sequence[Step], config: VTAConfig) -> tuple[Step, ...]:
    """Steps that cost what ``steps`` cost, the same for all that differ in immediates only.

    A multiplication keeps its sign, a shift its direction and the number of its instructions.
    """
    return tuple(
        step
        if isinstance(step.operand, str)
        else dataclasses.replace(step, operand=_alike(step, config))
        for step in steps
    )


def _alike(step: Step, config: VTAConfig) -> int:
    value = int(step.operand)
    sign = -1 if value < 0 else 1
    if not is_shift(step.op):
        return sign if step.op == "mul" else 0
    return sign * _shifts(step, config) * config.capabilities.max_shift


def with_alike_epilogue(work: Conv2dWorkload, config: VTAConfig) -> Conv2dWorkload:
    """``work`` with immediates behind it that cost the same, by which no tile differs."""
    steps = cost_alike(work.epilogue.steps, config)
    return dataclasses.replace(work, epilogue=dataclasses.replace(work.epilogue, steps=steps))


def kernel_size(loops: Sequence[Array]) -> Array:
    """Micro-ops of a kernel where the two largest of ``loops`` become hardware loops."""
    total: Array = np.float64(1)
    for loop in loops:
        total = total * loop
    first, second = two_largest(loops)
    return total / (first * second)


def two_largest(loops: Sequence[Array]) -> tuple[Array, Array]:
    """The two largest of ``loops``, elementwise; 1 where there are fewer."""
    first: Array = integer(1)
    second: Array = integer(1)
    for loop in loops:
        second = np.maximum(second, np.minimum(first, loop))
        first = np.maximum(first, loop)
    return first, second


def halves(count: int) -> list[tuple[int, int]]:
    """(additions, distance) that sum up ``count`` accumulators in place, halving them."""
    found = []
    while count > 1:
        found.append((count // 2, count - count // 2))
        count -= count // 2
    return found


@dataclass(frozen=True)
class Run:
    """One loop of a copy: ``size`` elements, that far apart in DRAM and in SRAM.

    ``wide``: its padding exceeds what an instruction can write, so that a row stands alone.
    """

    size: Array
    dram: Array
    sram: Array
    padded: Mask = False
    wide: Mask = False


OPEN, ROW, ROWS, APART = map(np.int8, range(4))
"""What the loops so far are: none, columns, rows and columns, several instructions."""


def copy_count(runs: Sequence[Run], store: bool = False) -> Array:
    """DMA instructions of a copy, ``runs`` from the innermost; as code generation plans it.

    A row of elements that are dense on both sides, rows that are dense in SRAM (loads may fill
    short gaps with zeros); further loops are instructions of their own (``workload/dma.py``).
    """
    count: Array = np.float64(1)
    row: Array = integer(1)
    level: np.ndarray = np.asarray(OPEN)
    past: tuple[Array, Array] = (integer(-1), integer(-1))
    closed: Mask = np.False_
    room = 0 if store else PAD_LIMIT
    for run in runs:
        there = (np.asarray(run.size) > 1) | run.padded
        if not there.any():
            continue
        follows = runs_on(run.dram, run.sram, *past) & ~(closed | np.asarray(run.padded))
        rows = (level < ROWS) & are_rows(run.dram, run.sram - row, room)
        opened = np.where(rows, ROWS, APART)
        opened = np.where((level == OPEN) & is_row(run.dram, run.sram), ROW, opened)
        level = np.where(there & ~follows, opened, level)
        if np.any(run.wide):
            level = np.where(there & run.wide, np.maximum(level, ROWS), level)
        row = np.where(there & (level == ROW), row * run.size, row)
        count = np.where(there & (level == APART), count * run.size, count)
        ends = run.dram * run.size, run.sram * run.size
        past = np.where(there, ends[0], past[0]), np.where(there, ends[1], past[1])
        closed = np.where(there, run.padded, closed)
    return count


@dataclass(frozen=True)
class CopyAxis:
    """One loop of a copy to a tile that is dense in SRAM: ``size`` elements ``stride`` apart.

    ``padded`` and ``wide`` are those of :class:`Run`.
    """

    size: Array
    stride: Array
    padded: Mask = False
    wide: Mask = False


def transfers(axes: Sequence[CopyAxis]) -> Array:
    """DMA instructions of a copy to a dense tile, ``axes`` from the innermost."""
    runs: list[Run] = []
    pitch: Array = 1
    for axis in axes:
        runs.append(Run(axis.size, axis.stride, pitch, axis.padded, axis.wide))
        pitch = pitch * axis.size
    return copy_count(runs)


def tile_copies(
    sizes: Sequence[int],
    tiles: Sequence[Array],
    store: bool = False,
    strides: Sequence[int] | None = None,
) -> Array:
    """DMA instructions that copy a tensor tile by tile (outermost axis first).

    ``strides`` are those in DRAM, row-major by default.  Tiles are dense in SRAM, but for smaller
    last ones, which keep the place of a whole one.
    """
    strides = strides or [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    pitches: list[Array] = [1]
    for tile in list(tiles)[:0:-1]:
        pitches.insert(0, pitches[0] * tile)
    rank = max(np.ndim(tile) for tile in tiles)
    number: Array = 1
    runs = []
    for place, (size, tile, stride, pitch) in enumerate(
        zip(sizes, tiles, strides, pitches, strict=True)
    ):
        extent, times, rest = tile, size // tile, size % tile
        if np.any(rest):  # whole tiles and last ones side by side, each axis of tiles in its own
            shape = tuple(2 if k == place else 1 for k in range(len(sizes)))
            extent = _beside(tile, rest, shape, rank)
            times = _beside(times, rest > 0, shape, rank)
        number = number * times
        runs.append(Run(extent, stride, pitch))
    total = np.asarray(number * copy_count(runs[::-1], store))
    return total.sum(axis=tuple(range(len(sizes)))) if total.ndim > rank else total


def _beside(first: Array, second: Array, shape: tuple[int, ...], rank: int) -> np.ndarray:
    """Two arrays along one axis, of ``shape``'s two, in front of ``rank`` axes of their own."""
    pair = np.stack(np.broadcast_arrays(first, second))
    own = pair.shape[1:]
    return pair.reshape((*shape, *(1 for _ in range(rank - len(own))), *own))
