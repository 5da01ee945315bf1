"""Tiles that PrimFuncs declare: no slot is larger than what the nests write."""

from __future__ import annotations

import pytest
from test_strategy_attention import work_of

from vta_byoc.codegen.linear import VarTable
from vta_byoc.codegen.sram import tile_shapes
from vta_byoc.codegen.walk import lower
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.attention.attention import ATTENTION
from vta_byoc.strategies.base import KernelFunction, LayerSchedule
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.workload.workloads import PoolWorkload

SIM = VTAConfig.preset("sim")


def check_declared(made: KernelFunction) -> None:
    """No tile of its PrimFunc is longer than what the nests write."""
    declared = {str(each.name): list(each.shape) for each in made.func.body.block.alloc_buffers}
    written = tile_shapes(lower(made.func), VarTable())
    assert declared == {str(buffer.name): shape for buffer, shape in written.items()}


def test_a_max_pool_declares_what_it_writes() -> None:
    work = PoolWorkload("max", 1, 32, 8, 8, (3, 3), (1, 1), low=-128)
    tile = {"n": 1, "c": 2, "h": 3, "w": 3, "kh": 3, "kw": 3}
    kernel = Kernel(Choice(tile, "rows first", (1, 1, 1)))
    check_declared(*POOL.functions(LayerSchedule(work, kernels=(kernel,)), SIM))


@pytest.mark.parametrize(
    "masks, hiding", [(0, (1, 0, 12)), (1, (2, 0, 12)), (0, (2, 1, 12)), (2, (1, 1, 12))]
)
def test_an_attention_declares_what_it_writes(masks: int, hiding: tuple[int, ...]) -> None:
    """A row of a mask that all queries have in common is staged once."""
    work = work_of(SIM, 2, 48, 48, 2, 2, masks=masks, hiding=hiding)
    tiles = ({"t": 3, "n": 3}, {"t": 3, "g": 1}, {"t": 3})
    kernels = tuple(Kernel(Choice(tile, "tiles", (1, 1, 1))) for tile in tiles)
    for made in ATTENTION.functions(LayerSchedule(work, kernels=kernels), SIM):
        check_declared(made)
