"""Grouped convolutions as convolutions of channel blocks.

GEMM mixes all channels of a block, so groups smaller than a block are put together as
block-diagonal groups: the weights between two of them are zero.  One of all groups is the dense
convolution.
"""

from __future__ import annotations

import math

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import Conv2dWorkload

MULTIPLES = (1, 2, 4)


def groupings(work: Conv2dWorkload, config: VTAConfig) -> list[Grouping]:
    """The block-diagonal groups that are whole blocks of the packed tensors."""
    k, groups = config.block, work.groups
    each = (work.in_channels // groups, work.out_channels // groups)
    whole = blocks(work.in_channels, k), blocks(work.out_channels, k)
    fewest = math.lcm(*(k // math.gcd(k, channels) for channels in each))
    found = [Grouping(groups, 1, *whole)]
    for joined in (fewest * times for times in MULTIPLES):
        count = blocks(groups, joined)
        ci, co = (joined * channels // k for channels in each)
        if count > 1 and (count * ci, count * co) == whole:
            found.append(Grouping(joined, count, ci, co))
    return found


def fewest_joined(work: Conv2dWorkload, config: VTAConfig) -> int:
    """The fewest groups that a block-diagonal group can have."""
    return min(grouping.joined for grouping in groupings(work, config))


def pack_grouped(
    weight: np.ndarray, groups: int, grouping: Grouping, config: VTAConfig
) -> np.ndarray:
    """(O, I/groups, KH, KW) int8 to (count * co, ci, KH, KW, k, k), block-diagonal."""
    k = config.block
    out_each, in_each, kh, kw = weight.shape[0] // groups, *weight.shape[1:]
    count, ci, co = grouping.count, grouping.ci, grouping.co
    full = np.zeros((count, co * k, ci * k, kh, kw), np.int8)
    for group in range(groups):
        at, position = divmod(group, grouping.joined)
        rows = slice(position * out_each, (position + 1) * out_each)
        columns = slice(position * in_each, (position + 1) * in_each)
        full[at, rows, columns] = weight[group * out_each : (group + 1) * out_each]
    split = full.reshape(count, co, k, ci, k, kh, kw).transpose(0, 1, 3, 5, 6, 2, 4)
    return np.ascontiguousarray(split).reshape(count * co, ci, kh, kw, k, k)
