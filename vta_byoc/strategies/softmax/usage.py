"""What tilings of a softmax cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np

from vta_byoc.cost.dma import tile_copies
from vta_byoc.cost.search import ResourceUsage, Space, Staged, ceil_div, sizes
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import RATE, TOTAL
from vta_byoc.ir.programs import Instruction, Instructions
from vta_byoc.strategies.attention.usage import steps_cost
from vta_byoc.strategies.te.in_place import LANES
from vta_byoc.strategies.te.registers import Allocated, allocated
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.softmax import SoftmaxWorkload

MOST_WIDENED = 6
"""What widens the scores raises them by so many bits at most: its weights are int8."""
JOINS = 4
"""Instructions that begin a maximum or a sum, go on, end it and join its lanes."""


def axes_of(work: SoftmaxWorkload, config: VTAConfig) -> dict[str, int]:
    """The axes of the scores in vectors: sums outside of the axis, the axis, sums inside."""
    n, c, *plane, _, _ = packed_shape(work.out_shape, config)
    before, behind = plane[: work.axis - 2], plane[work.axis - 1 :]
    return {"o": n * c * math.prod(before), "s": work.places, "i": math.prod(behind)}


def widened(work: SoftmaxWorkload) -> int:
    """By how many bits the weight that widens the scores raises them."""
    return min(MOST_WIDENED, max(0, -work.softmax.attention.shift))


def raised(work: SoftmaxWorkload) -> Instructions:
    """What the ALU raises, or lowers, the scores by behind that."""
    bits = widened(work)
    return tuple(
        Instruction(each.name, each.op, each.left, int(each.right) - bits)
        for each in work.softmax.raised
        if each.right != bits
    )


def rate_program(work: SoftmaxWorkload) -> Allocated:
    """From a sum of shares to its rate, in registers."""
    return allocated(work.softmax.rate, (TOTAL,), (RATE,))


def softmax_space(work: SoftmaxWorkload, config: VTAConfig) -> Space:
    """All tilings: a tile has all scores of its sums."""
    own = axes_of(work, config)
    axes = {axis: sizes(own[axis]) for axis in ("o", "i")}
    return Space("a softmax", axes, ("tiles",), functools.partial(_usage, work, config))


def _usage(
    work: SoftmaxWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> ResourceUsage:
    own, time, program = axes_of(work, config), config.timing, rate_program(work)
    spots = float(own["o"] * own["i"])
    tiles = ceil_div(own["o"], tile["o"]) * ceil_div(own["i"], tile["i"])
    spot, vectors = tile["o"] * tile["i"], spots * work.keys
    extents, cut = list(own.values()), [tile["o"], np.array(own["s"]), tile["i"]]
    keys = [tile["o"], np.array(work.keys), tile["i"]]
    softmax, tensor = work.softmax, time.alu_tensor_cycles
    each = steps_cost((*raised(work), *softmax.share, *softmax.result), config)
    once = steps_cost((*softmax.room, *softmax.rate), config)
    joins = 2.0 * LANES * tensor
    loads = tile_copies([own["o"], work.keys, own["i"]], keys, strides=_strides(own))
    count = each[1] + once[1] + 2 * JOINS + 2 * program.copies + 4
    kernels = np.minimum(tiles, MOST_SLOTS) * count
    return ResourceUsage(
        staged=(
            Staged(INP, spot * work.keys, tiles, vectors * config.inp_elem_bytes, loads),
            Staged(WGT, 1, 1, float(config.wgt_elem_bytes), 1),
            Staged(ACC, spot * own["s"], tiles),
            Staged(ACC, spot * 2 * LANES, tiles),
            Staged(ACC, spot * program.count, tiles),
        ),
        tiles=tiles,
        gemm=spots * own["s"] + vectors + spots * (2 * LANES + program.copies),
        gemm_starts=tiles * (4 + program.copies),
        alu=vectors * (each[0] + 2 * tensor)
        + spots * (once[0] + joins + program.copies * tensor),
        alu_starts=tiles * (each[1] + once[1] + 2 * JOINS + program.copies),
        uops=kernels * (1 + math.log2(1 + work.keys)),
        kernels=kernels,
        stored=spots * own["s"] * config.out_elem_bytes,
        stores=tile_copies(extents, cut, store=True),
    )


def _strides(own: Mapping[str, int]) -> list[int]:
    return [own["s"] * own["i"], own["i"], 1]
