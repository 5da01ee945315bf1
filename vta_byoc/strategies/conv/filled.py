"""Blocks of weights that are not all zero: what the GEMM core multiplies of a convolution.

Groups of channels that fill no whole blocks, and filters in the order of a shuffle, leave many
pairs of an output and an input block without a weight.  Products with them add nothing.  The GEMM
nest of a step is then one for each rectangle of the blocks that are left.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from tvm.ir import Expr

from vta_byoc.base.rewrites import is_on
from vta_byoc.cost.search import Array, integer
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.conv.grouping import fewest_joined
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import Conv2dWorkload

ZERO_BLOCKS = "zero_blocks"
Rectangle: TypeAlias = tuple[int, int, int, int]
"""[first, end) of output blocks, [first, end) of input blocks."""


def filled_of(work: Conv2dWorkload, grouping: Grouping, config: VTAConfig) -> tuple[Rectangle, ...]:
    """Where the weights of each block-diagonal group are; nothing where no block is known as zero.

    They are what the workload says, or what groups leave that are put together because fewer of
    them fill no whole blocks.
    """
    if not is_on(ZERO_BLOCKS) or min(work.kernel) < 1:
        return ()
    found = work.filled
    if not found and grouping.joined > 1 and grouping.joined == fewest_joined(work, config):
        each = work.out_channels // work.groups, work.in_channels // work.groups
        found = _of_groups(grouping.joined, each, (grouping.co, grouping.ci), config.block)
    return () if area_of(found) == grouping.co * grouping.ci else found


def filled_by(weight: np.ndarray, config: VTAConfig) -> tuple[Rectangle, ...]:
    """Where the weights (O, I, KH, KW) are that are not zero; nothing where no block is zero."""
    k = config.block
    there = weight.any(axis=(2, 3))
    whole = np.zeros([blocks(size, k) * k for size in there.shape], bool)
    whole[: there.shape[0], : there.shape[1]] = there
    co, ci = (size // k for size in whole.shape)
    filled = np.asarray(whole.reshape(co, k, ci, k).any(axis=(1, 3)))
    return () if filled.all() else rectangles(filled)


@functools.lru_cache(maxsize=1024)
def _of_groups(
    joined: int, each: tuple[int, int], size: tuple[int, int], block: int
) -> tuple[Rectangle, ...]:
    """Of ``joined`` groups with ``each`` outputs and inputs in ``size`` blocks of both."""
    there = np.zeros(size, bool)
    for group in range(joined):
        rows, cols = (slice(group * own // block, -(-(group + 1) * own // block)) for own in each)
        there[rows, cols] = True
    return rectangles(there)


def rectangles(there: np.ndarray) -> tuple[Rectangle, ...]:
    """The places of ``there`` in rectangles: neighbouring rows that are alike, run by run."""
    found: list[Rectangle] = []
    rows = enumerate(map(tuple, there.tolist()))
    for row, same in itertools.groupby(rows, key=lambda pair: pair[1]):
        numbers = [number for number, _ in same]
        ends = np.flatnonzero(np.diff([0, *row, 0])).tolist()
        runs = zip(ends[::2], ends[1::2], strict=True)
        found += [(numbers[0], numbers[-1] + 1, *run) for run in runs]
    return tuple(found)


def area_of(filled: Sequence[Rectangle]) -> int:
    """Pairs of blocks."""
    return sum((end - first) * (end_in - first_in) for first, end, first_in, end_in in filled)


@dataclass(frozen=True)
class Pieces:
    """What tiles make of rectangles, or of all pairs of blocks.

    Attributes:
        pairs: of blocks that are multiplied.
        count: pieces of all tiles.
        different: pieces that no other is like.
        rows: output blocks of a piece, on average.
        cols: input blocks of a piece, on average.
    """

    pairs: int
    count: Array
    different: Array
    rows: Array
    cols: Array


def pieces_of(filled: Sequence[Rectangle], rows: Array, cols: Array) -> Pieces:
    """The rectangles in tiles of ``rows`` output blocks and ``cols`` input blocks."""
    count: Array = integer(0)
    height: Array = integer(0)
    width: Array = integer(0)
    for first, end, first_in, end_in in filled:
        down = (end - 1) // np.asarray(rows) - first // np.asarray(rows) + 1
        across = (end_in - 1) // np.asarray(cols) - first_in // np.asarray(cols) + 1
        count = count + down * across
        height = height + (end - first) * across
        width = width + (end_in - first_in) * down
    return Pieces(area_of(filled), count, count, height / count, width / count)


def conditions_of(filled: Sequence[Rectangle], output: Expr, block: Expr) -> list[list[Expr]]:
    """The conditions of each rectangle on the numbers of an output and an input block."""
    return [
        [output >= first, output < end, block >= first_in, block < end_in]
        for first, end, first_in, end_in in filled
    ]
