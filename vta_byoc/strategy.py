"""The table of strategies, and how a packed PrimFunc names the one that made it."""

from __future__ import annotations

import dataclasses
from typing import Any

from tvm import tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError

from .packing import blocks, pack_activation, pack_operand, pack_weight, unpack_activation
from .strategies.base import DRAM_ACC, DRAM_INP, DRAM_WGT, Part, Strategy
from .strategies.concat import CONCAT
from .strategies.conv2d import CONV2D
from .strategies.conv2d_transpose import CONV2D_TRANSPOSE
from .strategies.depthwise import DEPTHWISE
from .strategies.elementwise import ELEMENTWISE
from .strategies.move import MOVE
from .strategies.pool import POOL
from .workload import from_json, to_json

__all__ = [
    "DRAM_ACC",
    "DRAM_INP",
    "DRAM_WGT",
    "STRATEGIES",
    "Part",
    "Strategy",
    "blocks",
    "pack_activation",
    "pack_operand",
    "pack_weight",
    "parts_of",
    "strategy_of",
    "unpack_activation",
]

STRATEGY_ATTR = "vta.strategy"
WORKLOAD_ATTR = "vta.workload"


def _naming(strategy: Strategy) -> Strategy:
    """``strategy`` with a compute whose PrimFuncs name it and their workload."""

    def compute(work: Any, config: VTAConfig) -> tirx.PrimFunc:
        private = strategy.compute(work, config).without_attr("global_symbol")
        return private.with_attrs({STRATEGY_ATTR: strategy.name, WORKLOAD_ATTR: to_json(work)})

    return dataclasses.replace(strategy, compute=compute)


STRATEGIES: dict[str, Strategy] = {
    strategy.name: _naming(strategy)
    for strategy in (CONV2D, CONV2D_TRANSPOSE, DEPTHWISE, ELEMENTWISE, POOL, CONCAT, MOVE)
}


def strategy_of(func: tirx.PrimFunc) -> tuple[Strategy, Any]:
    """The strategy and workload that made the packed PrimFunc ``func``."""
    if func.attrs is None or STRATEGY_ATTR not in func.attrs:
        raise VTAError(
            f"PrimFunc has no {STRATEGY_ATTR} attribute; strategies known: "
            f"{', '.join(STRATEGIES)}; make it with the compute of one of them"
        )
    strategy = STRATEGIES[str(func.attrs[STRATEGY_ATTR])]
    return strategy, from_json(strategy.workload, str(func.attrs[WORKLOAD_ATTR]))


def parts_of(func: tirx.PrimFunc, config: VTAConfig) -> list[Part]:
    """The scheduled PrimFuncs of a packed PrimFunc, in order."""
    strategy, work = strategy_of(func)
    return strategy.parts(work, config)
