"""What tilings of an attention's kernels cost."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from vta_byoc.cost.dma import tile_copies
from vta_byoc.cost.search import Array, ResourceUsage, Space, Staged, ceil_div, sizes
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.attention import (
    HALF,
    RATE,
    TOTAL,
    rate_steps,
    result_steps,
    score_steps,
    share_steps,
)
from vta_byoc.ir.programs import Instructions
from vta_byoc.strategies.attention.turning import turning_demand
from vta_byoc.strategies.te.in_place import LANES
from vta_byoc.strategies.te.registers import Allocated, allocated
from vta_byoc.workload.alu import is_shift
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.memory import ACC, INP, WGT

ROOM_STEPS = 3
SPREAD_BITS = 6
"""A mask of run time is raised by so much where it is spread over the queries of a block."""
TOO_MANY = 1 << 30
"""Elements that no SRAM has: of a tile that is none."""
Tile = Mapping[str, np.ndarray]


def rate_program(work: AttentionWorkload) -> Allocated:
    """From the sum of a query's shares to its rate, in registers."""
    return allocated(rate_steps(work.attention), (TOTAL,), (RATE,))


def share_space(work: AttentionWorkload, config: VTAConfig) -> Space:
    """All tilings of the scores and shares."""
    usage = functools.partial(_shares, work, config)
    axes = {**_queries(work), "n": sizes(work.key_blocks)}
    return Space("the scores of an attention", axes, ("tiles",), usage)


def mix_space(work: AttentionWorkload, config: VTAConfig) -> Space:
    """All tilings of the product with the values."""
    usage = functools.partial(_mixed, work, config)
    near = [1] if work.causal else [g for g in sizes(work.groups) if not work.groups % g]
    axes = {**_queries(work), "g": near}
    return Space("the values of an attention", axes, ("tiles",), usage)


def merge_space(work: AttentionWorkload, config: VTAConfig) -> Space:
    """All tilings of turning the result."""
    usage = functools.partial(_merged, work, config)
    return Space("the result of an attention", _queries(work), ("tiles",), usage)


def _queries(work: AttentionWorkload) -> dict[str, list[int]]:
    return {"t": sizes(work.query_blocks)}


def steps_cost(program: Instructions, config: VTAConfig) -> tuple[float, int]:
    """(cycles a vector, instructions) of a program."""
    cycles, count = 0.0, 0
    for each in program:
        if isinstance(each.right, str):
            cycles, count = cycles + config.timing.alu_tensor_cycles, count + 1
            continue
        number = 1
        if is_shift(each.op):
            number = -(-abs(each.right) // config.capabilities.max_shift)
        cycles, count = cycles + number * config.timing.alu_imm_cycles, count + number
    return cycles, count


def unseen_parts(work: AttentionWorkload) -> int:
    """Immediates in which HALF times the keys that a tile does not see is taken off."""
    parts = 1
    while HALF * work.block * work.key_blocks > parts * IMMEDIATE_HIGH:
        parts *= 2
    return parts if work.causal else 0


def _seen(work: AttentionWorkload, chunk: Array) -> tuple[Array, Array]:
    """Scores, in vectors, of a group in chunks of such sizes; tiles of shares."""
    sizes, places = np.unique(chunk, return_inverse=True)
    tiles = [work.seen_together(int(size)) for size in sizes]
    scores = [sum(n * min(work.keys, seen * work.block) for n, seen in each) for each in tiles]
    shares = [sum(n * seen for n, seen in each) for each in tiles]
    found = np.array([scores, shares], float)[:, places]
    return found[0].reshape(np.shape(chunk)), found[1].reshape(np.shape(chunk))


def _masked(work: AttentionWorkload, chunk: Array) -> Array:
    """Keys of which a tile has a constant mask."""
    if not work.causal:
        return np.full_like(chunk, work.keys * (work.masks > 0))
    return np.array([work.masked_keys(int(each)) for each in np.ravel(chunk)]).reshape(
        np.shape(chunk)
    )


def _shares(work: AttentionWorkload, config: VTAConfig, tile: Tile, _variant: str) -> ResourceUsage:
    time, k, numbers = config.timing, work.block, work.attention
    groups, blocks, rows = work.groups, work.query_blocks, work.key_blocks * work.block
    depth, chunk = work.depth // k, tile["t"]
    tiles = groups * ceil_div(blocks, chunk)
    vectors, turned = (groups * each for each in _seen(work, chunk))
    turned, masked = turned * k, _masked(work, chunk)
    masks = groups * blocks * masked
    pieces = tiles * ceil_div(work.key_blocks, tile["n"])
    score, share = (steps_cost(p(numbers), config) for p in (score_steps, share_steps))
    tensor = time.alu_tensor_cycles
    each = score[0] + share[0] + tensor
    count = score[1] + share[1] + 3 + (work.masks > 0) + ROOM_STEPS
    staged = [
        Staged(INP, depth * work.keys, groups, groups * depth * work.keys * _inp(config), groups),
        Staged(
            WGT,
            depth * chunk,
            tiles,
            float(groups * depth * blocks * config.wgt_elem_bytes),
            groups * tile_copies([depth, blocks], [depth, chunk]),
        ),
        Staged(ACC, chunk * rows, tiles),
        Staged(ACC, chunk * LANES, tiles),
        Staged(INP, k, 1, k * _inp(config), 1),
        Staged(WGT, chunk * work.key_blocks, tiles, turned * _inp(config), tiles),
        Staged(ACC, chunk * tile["n"] * k, pieces),
    ]
    if work.masks:
        nbytes = masks * config.acc_elem_bytes
        staged.append(Staged(ACC, chunk * masked, tiles, nbytes, tiles))
    spread = int(bool(work.hiding))
    if work.hiding:
        raised = -(-(work.hiding[2] - SPREAD_BITS) // config.capabilities.max_shift)
        each, count = each + raised * time.alu_imm_cycles, count + raised
        staged += _hidden(work, config, chunk, tiles)
    kernels = np.minimum(tiles, MOST_SLOTS) * (count + depth + spread)
    return ResourceUsage(
        staged=tuple(staged),
        tiles=tiles,
        gemm=vectors * (1 + depth + spread) + 2 * turned + groups * blocks * (rows - work.keys + 2),
        gemm_starts=tiles * (4 + spread) + 2 * pieces,
        alu=vectors * each + masks * tensor + groups * blocks * (ROOM_STEPS + 8),
        alu_starts=tiles * count,
        uops=kernels * depth,
        kernels=kernels,
        stored=2 * turned * config.out_elem_bytes,
        stores=tiles + pieces,
    )


def _hidden(
    work: AttentionWorkload, config: VTAConfig, chunk: Array, tiles: Array
) -> tuple[Staged, ...]:
    """What a mask of run time stages: it, and the tile that spreads it over queries."""
    own = work.hiding[1]
    size = work.keys * (chunk if own else np.ones_like(chunk))
    spots = np.full_like(tiles, work.groups * work.query_blocks) if own else tiles
    return (
        Staged(INP, size, tiles, spots * work.keys * _inp(config), tiles),
        Staged(WGT, 1, 1, float(config.wgt_elem_bytes), 1),
    )


def _inp(config: VTAConfig) -> float:
    return float(config.inp_elem_bytes)


def _merged(work: AttentionWorkload, config: VTAConfig, tile: Tile, _variant: str) -> ResourceUsage:
    each = work.width // work.block
    tiles = work.groups * ceil_div(work.query_blocks, tile["t"])
    total = work.groups * work.query_blocks * each
    return turning_demand(total, tile["t"] * each, tiles, each, config)


def _mixed(work: AttentionWorkload, config: VTAConfig, tile: Tile, _variant: str) -> ResourceUsage:
    chunk, near = tile["t"], tile["g"]
    groups, blocks, keys = work.groups, work.query_blocks, work.key_blocks
    tiles = groups * ceil_div(blocks, chunk)
    shared = tiles / near  # tiles whose rates are computed together
    spots_at_once = np.where((near > 1) & (chunk < blocks), TOO_MANY, near * chunk)
    program, values = rate_program(work), keys * work.width
    seen = groups * float(sum(n * count for n, count in work.seen_together(1)))
    lifted = keys * work.width * (2 if work.causal else 1)
    together, runs = (1, groups * blocks) if work.causal else (chunk, tiles)
    rate = steps_cost(rate_steps(work.attention), config)
    result = steps_cost(result_steps(work.attention), config)
    unseen = unseen_parts(work)
    vectors, spots = float(groups * blocks * work.width), groups * blocks
    spot = rate[0] + program.copies * (config.timing.alu_tensor_cycles + 1)
    spot += unseen * config.timing.alu_imm_cycles
    totals = runs if work.causal else shared
    close = near * together < config.capabilities.dst_distance
    kernels = np.minimum(tiles, MOST_SLOTS) * (rate[1] + 2 * program.copies + result[1] + 4)
    return ResourceUsage(
        staged=(
            Staged(INP, 1, 1, _inp(config), 1),
            Staged(WGT, 1, 1, float(config.wgt_elem_bytes), 1),
            Staged(INP, values, groups, groups * values * _inp(config), groups),
            Staged(WGT, spots_at_once * keys, shared, seen * config.wgt_elem_bytes, shared),
            Staged(ACC, work.width, groups),
            Staged(ACC, together * work.width, runs),
            Staged(ACC, spots_at_once * program.count, shared),
        ),
        tiles=tiles,
        gemm=vectors + seen * (work.width + 1) + groups * (work.width + lifted),
        gemm_starts=shared * (1 + program.copies) + 2.0 * (runs + groups)
        + totals * (1 + close * (keys - 1)),
        alu=vectors * result[0] + spots * spot,
        alu_starts=shared * (rate[1] + program.copies) + runs * (result[1] + unseen) + groups,
        uops=kernels * (1 + keys / 4),
        kernels=kernels,
        stored=vectors * config.out_elem_bytes,
        stores=runs,
    )
