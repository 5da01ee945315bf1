"""Grouped convolutions as convolutions of channel blocks.

GEMM mixes all channels of a block, so groups smaller than a block are joined: ``join`` groups make
a set whose weights are block diagonal, and sets do not mix.  One set of all groups is the dense
convolution with zeros in the weights.
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
    """The ways to join groups whose sets are whole blocks of the packed tensors."""
    k, groups = config.block, work.groups
    each = (work.in_channels // groups, work.out_channels // groups)
    whole = blocks(work.in_channels, k), blocks(work.out_channels, k)
    least = math.lcm(*(k // math.gcd(k, channels) for channels in each))
    found = [Grouping(groups, 1, *whole)]
    for join in (least * times for times in MULTIPLES):
        sets = blocks(groups, join)
        ci, co = (join * channels // k for channels in each)
        if sets > 1 and (sets * ci, sets * co) == whole:
            found.append(Grouping(join, sets, ci, co))
    return found


def pack_grouped(
    weight: np.ndarray, groups: int, grouping: Grouping, config: VTAConfig
) -> np.ndarray:
    """(O, I/groups, KH, KW) int8 to (sets * co, ci, KH, KW, k, k), block diagonal in each set."""
    k = config.block
    out_each, in_each, kh, kw = weight.shape[0] // groups, *weight.shape[1:]
    sets, ci, co = grouping.sets, grouping.ci, grouping.co
    full = np.zeros((sets, co * k, ci * k, kh, kw), np.int8)
    for group in range(groups):
        at, place = divmod(group, grouping.join)
        rows = slice(place * out_each, (place + 1) * out_each)
        columns = slice(place * in_each, (place + 1) * in_each)
        full[at, rows, columns] = weight[group * out_each : (group + 1) * out_each]
    split = full.reshape(sets, co, k, ci, k, kh, kw).transpose(0, 1, 3, 5, 6, 2, 4)
    return np.ascontiguousarray(split).reshape(sets * co, ci, kh, kw, k, k)
