"""What fused consumers ask of the machine besides what their producer does."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.base.rewrites import is_on
from vta_byoc.cost.dma import alu_cost, kernel_size
from vta_byoc.cost.search import Array, Mask, ResourceUsage, Staged
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.fused.chunks import chunk_limit, divisor
from vta_byoc.strategies.fused.consumer import (
    FusedConsumer,
    FusedPlan,
    check_pool,
    computed_order,
    fused_plan,
    operand_kinds,
    overlaps,
    pools_first,
    rises,
)
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Epilogue, PoolWorkload, Step

_DIVISORS = np.vectorize(divisor, otypes=[np.int64])
CONSUMER_UOPS = 2
"""About as many micro-ops has a kernel of a consumer."""


@dataclass(frozen=True)
class TileSize:
    """The size of a tile.

    Attributes:
        extents: of the loops of the nest that stores it: outermost first, without lanes, rows and
            columns last where there are any.
        channels: channel blocks.
        positions: rows times columns.
    """

    extents: Sequence[Array]
    channels: Array
    positions: Array

    @property
    def size(self) -> Array:
        """Elements."""
        return functools.reduce(operator.mul, self.extents, 1)

    def chunk(self, limit: int) -> Array:
        """Elements of a chunk: outer loops are peeled until it is within ``limit``.

        Of the last one as many iterations as divide it and are within the limit stay.
        """
        size = np.asarray(self.size)
        for extent in self.extents:
            inner = size // extent
            part = _DIVISORS(extent, np.maximum(1, limit // inner))
            size = np.where(size > limit, inner * part, size)
        return size


def fused_usage(
    usage: ResourceUsage,
    fused: Sequence[FusedConsumer],
    tile: TileSize,
    config: VTAConfig,
    epilogue: Epilogue | None = None,
    in_place: Mask | bool = False,
) -> ResourceUsage:
    """``usage`` of the producer alone, with ``fused`` between computation and store.

    ``epilogue``: the producer's, where a pool may take its accumulators before it; ``in_place``:
    whether they are then in planes.
    """
    own = () if epilogue is None else epilogue.steps
    waiting: Sequence[Step] = own if rises(own) else ()
    for number in computed_order(fused):
        consumer = fused[number]
        if overlaps(consumer.work):
            continue  # part of the producer's own usage
        if isinstance(consumer.work, PoolWorkload):
            before = waiting if is_on("pool_first") and pools_first(consumer.work) else ()
            usage = _fewer(usage, before, consumer.work, config)
            usage, tile = _with_pool(usage, consumer, consumer.work, tile, config, in_place)
            waiting, in_place = before, False
        else:
            usage, waiting = _with_elementwise(usage, consumer, tile, config), ()
    return usage


def _fewer(
    usage: ResourceUsage, steps: Sequence[Step], work: PoolWorkload, config: VTAConfig
) -> ResourceUsage:
    """With ``steps`` on what a pool leaves instead of all vectors."""
    cycles, _ = alu_cost(steps, config)
    vectors = usage.stored / config.out_elem_bytes
    return dataclasses.replace(usage, alu=usage.alu - vectors * cycles * (1 - _kept(work)))


def _kept(work: PoolWorkload) -> float:
    """The share of vectors that a pool leaves."""
    return math.prod(work.out_shape[2:]) / math.prod(work.in_shapes[0][2:])


def _with_pool(
    usage: ResourceUsage,
    consumer: FusedConsumer,
    work: PoolWorkload,
    tile: TileSize,
    config: VTAConfig,
    in_place: Mask | bool,
) -> tuple[ResourceUsage, TileSize]:
    """With a pool, and the tile that it leaves; ``in_place`` that is a part of its producer's."""
    check_pool(work)
    *outer, rows, cols = tile.extents
    rows, cols = np.maximum(1, rows // work.kernel[0]), np.maximum(1, cols // work.kernel[1])
    small = TileSize((*outer, rows, cols), tile.channels, rows * cols)
    tiles, taps, time = usage.tiles, math.prod(work.kernel), config.timing
    kept = _kept(work)
    vectors = usage.stored / config.out_elem_bytes * kept
    cycles, count = alu_cost(work.epilogue.steps, config)
    # cleared, the first tap added, the others joined
    copied = np.where(in_place, 0, 1)
    kernels = np.minimum(tiles, MOST_SLOTS) * (2 * copied + taps - 1 + bool(count))
    pooled = dataclasses.replace(
        usage,
        staged=(
            *usage.staged,
            Staged(ACC, small.size * copied, tiles),
            *_operands(consumer, small, usage, config),
        ),
        gemm=usage.gemm + vectors * copied,
        gemm_starts=usage.gemm_starts + tiles * copied,
        alu=usage.alu + vectors * ((taps - 1 + copied) * time.alu_tensor_cycles + cycles),
        alu_starts=usage.alu_starts + tiles * (taps - 1 + copied + count),
        kernels=usage.kernels + kernels,
        uops=usage.uops + kernels * kernel_size([*outer, rows, cols]),
        stored=usage.stored * kept,
    )
    return pooled, small


def _with_elementwise(
    usage: ResourceUsage, consumer: FusedConsumer, tile: TileSize, config: VTAConfig
) -> ResourceUsage:
    plan, tiles = fused_plan(consumer, config), usage.tiles
    vectors = usage.stored / config.out_elem_bytes
    chunk = tile.chunk(chunk_limit(config))
    chunks = tiles * (tile.size / chunk)
    dmas, fills = np.maximum(chunks, usage.stores), _fills(tiles, chunks)
    staged = list(usage.staged)
    for _ in plan.loaded:
        nbytes = vectors * config.inp_elem_bytes
        staged.append(Staged(INP, chunk, fills, nbytes, dmas, chunks=chunks / tiles))
    if plan.loaded:
        count = len(plan.weights)
        staged.append(Staged(WGT, count, 1, float(count * config.wgt_elem_bytes), 1))
    if plan.other is not None:
        staged.append(Staged(ACC, chunk, fills))
    staged += _operands(consumer, tile, usage, config)
    cycles, count = _alu(plan, config)
    gemms = len(plan.loaded) + (plan.other is not None)
    kernels = np.minimum(tiles, MOST_SLOTS) * (gemms + 2 + len(operand_kinds(consumer)))
    return dataclasses.replace(
        usage,
        staged=tuple(staged),
        gemm=usage.gemm + vectors * gemms,
        gemm_starts=usage.gemm_starts + chunks * gemms,
        alu=usage.alu + vectors * cycles,
        alu_starts=usage.alu_starts + chunks * count,
        kernels=usage.kernels + kernels,
        uops=usage.uops + kernels * CONSUMER_UOPS,
    )


def _operands(
    consumer: FusedConsumer, tile: TileSize, usage: ResourceUsage, config: VTAConfig
) -> list[Staged]:
    """The tensor operands of all steps: loaded chunk by chunk, at the most all of one for each."""
    chunk = tile.chunk(chunk_limit(config))
    chunks = usage.tiles * (tile.size / chunk)
    sizes = {CHANNEL: tile.channels, MAP: tile.positions, FULL: chunk}
    staged = []
    for kind in operand_kinds(consumer):
        each = np.minimum(sizes[kind], chunk)
        nbytes = chunks * each * config.acc_elem_bytes
        staged.append(Staged(ACC, each, _fills(usage.tiles, chunks), nbytes, chunks))
    return staged


def _fills(tiles: Array, chunks: Array) -> Array:
    """How often a buffer of chunks is filled, counted like one that is filled tile by tile.

    The chunks of a tile follow each other at once; two of a single tile take two slots.
    """
    return np.maximum(tiles, np.minimum(chunks, MOST_SLOTS))


def _alu(plan: FusedPlan, config: VTAConfig) -> tuple[float, int]:
    """ALU cycles a vector, and instructions of a chunk."""
    cycles, count = alu_cost((*plan.before, *plan.other_steps, *plan.after), config)
    tensors = (plan.other is not None) + plan.copied  # the join, and the copy
    return cycles + tensors * config.timing.alu_tensor_cycles, count + tensors
