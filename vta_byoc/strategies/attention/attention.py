"""attention: scores, softmax and mixed values of groups of tokens.

Three kernels: the shares of every query, turned; the product with the values, divided by the sums
of the shares; the result turned. See `nests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.attention import HALF
from vta_byoc.strategies.attention.definition import attention_definition
from vta_byoc.strategies.attention.mix import mix_nests
from vta_byoc.strategies.attention.shares import share_nests
from vta_byoc.strategies.attention.turning import turned_nests
from vta_byoc.strategies.attention.usage import SPREAD_BITS, merge_space, mix_space, share_space
from vta_byoc.strategies.base import (
    KernelFunction,
    LayerSchedule,
    LayerWork,
    ScratchTensor,
    Strategy,
)
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.memory import DRAM_ACC, DRAM_INP, DRAM_WGT

MASK = "mask"


class AttentionStrategy(Strategy[AttentionWorkload]):
    """Three kernels, and between them scratch tensors of shares and of results."""

    name = "attention"
    workload = AttentionWorkload

    def kernel_spaces(
        self, layer: LayerWork[AttentionWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """Of each kernel all tilings."""
        makers = (share_space, mix_space, merge_space)
        return tuple(KernelSpace.of_tiles(make(layer.work, config)) for make in makers)

    def definition(
        self, schedule: LayerSchedule[AttentionWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """The result of queries, keys, values and the constants."""
        return attention_definition(schedule.work, config)

    def scopes(self, work: AttentionWorkload) -> tuple[str, ...]:
        """Queries are weights, all else inputs; a constant mask goes into accumulators."""
        mask = (DRAM_ACC,) if work.masks else ()
        operand, spread = ((DRAM_INP,), (DRAM_WGT,)) if work.hiding else ((), ())
        operands = (DRAM_WGT, DRAM_INP, DRAM_INP, *operand)
        return (*operands, DRAM_INP, DRAM_WGT, *spread, *mask)

    def tensors(self, _work: AttentionWorkload) -> tuple[str, ...]:
        """None."""
        return ()

    def weights(
        self,
        schedule: LayerSchedule[AttentionWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The identity and a vector of ones; a tile of ones; the mask with queries in lanes.

        The tile has half of `HALF` where queries do not see all keys.

        Behind the ones, where there is a mask of run time, a tile that spreads a vector of it over
        the queries of a block: each its own lane, or all the first.
        """
        work, k = schedule.work, config.block
        units = np.concatenate([np.eye(k, dtype=np.int8), np.ones((1, k), np.int8)])
        ones = np.full((1, 1, 1, 1, k, k), HALF // 2 if work.causal else 1, np.int8)
        found = [units.reshape(1, k + 1, 1, 1, 1, k), ones]
        if work.hiding:
            own = np.eye(k) if work.hiding[1] else np.eye(1, k).repeat(k, 0)
            found.append((own * (1 << SPREAD_BITS)).astype(np.int8).reshape(1, 1, 1, 1, k, k))
        if work.masks:
            found.append(packed_mask(given[MASK], k, "edge" if work.causal else "constant"))
        return found

    def scratch(
        self, schedule: LayerSchedule[AttentionWorkload], config: VTAConfig
    ) -> tuple[ScratchTensor, ...]:
        """The shares, and turned; the result with queries in lanes."""
        work, k = schedule.work, config.block
        shares = (work.groups, work.query_blocks, work.key_blocks * k, 1, k)
        result = (work.groups, work.query_blocks, work.width, 1, k)
        return tuple(ScratchTensor(shape, scope=DRAM_WGT) for shape in (shares, shares, result))

    def functions(
        self, schedule: LayerSchedule[AttentionWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        """Shares, turned; the product with the values; the result."""
        work = schedule.work
        first, second, third = (kernel.choice for kernel in schedule.kernels)
        query, key, value, *hidden = range(len(work.in_shapes))
        units = len(work.in_shapes)
        ones, further = units + 1, units + 2
        if work.hiding:
            hidden, further = [*hidden, further], further + 1
        masks = (further,) if work.masks else ()
        shares = further + len(masks)
        turned, mixed = shares + 1, shares + 2
        tiles = work.query_blocks, work.width // work.block
        merged = turned_nests(work.groups, tiles, work.block + 1, config, third)
        return [
            KernelFunction(
                share_nests(work, config, first),
                (query, key, units, *hidden, *masks, shares, shares, turned),
            ),
            KernelFunction(mix_nests(work, config, second), (value, units, ones, turned, mixed)),
            KernelFunction(merged, (units, mixed, -1)),
        ]


def packed_mask(
    mask: np.ndarray, block: int, fill: Literal["constant", "edge"] = "constant"
) -> np.ndarray:
    """A mask [masks, queries, keys] with queries in lanes of ``block``, int32.

    What fills the last block sees all keys, or with `fill` "edge" those of the last query.
    """
    masks, queries, keys = mask.shape
    count = -(-queries // block)
    places = ((0, 0), (0, count * block - queries), (0, 0))
    full = np.pad(mask.astype(np.int32), places, fill)
    split = full.reshape(masks, count, block, keys)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 2)[..., None, :])


ATTENTION = AttentionStrategy()
