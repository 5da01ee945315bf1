"""transpose: rows and columns of matrices exchanged: the identity times their tiles."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.cost.search import ResourceUsage, Space, ceil_div, sizes
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.attention.turning import turned_nests, turning_demand
from vta_byoc.strategies.base import KernelFunction, LayerSchedule, LayerWork, Strategy
from vta_byoc.strategies.te.definition import packed_operands
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.workload.memory import DRAM_INP, DRAM_WGT
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.products import TransposeWorkload


class Transpose(Strategy[TransposeWorkload]):
    """Each tile of BLOCK tokens and BLOCK channels is a weight; the identity turns it."""

    name = "transpose"
    workload = TransposeWorkload

    def kernel_spaces(
        self, layer: LayerWork[TransposeWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel, with any number of tiles at once."""
        groups, (rows, columns) = matrices(layer.work, config)
        usage = functools.partial(_usage, groups, (rows, columns), config)
        axes = {"g": sizes(groups), "t": sizes(rows), "s": sizes(columns)}
        return (KernelSpace.of_tiles(Space("a transposition", axes, ("tiles",), usage)),)

    def definition(
        self, schedule: LayerSchedule[TransposeWorkload], config: VTAConfig
    ) -> tirx.PrimFunc:
        """The product of the packed tensor and the identity (1, BLOCK, 1, 1, 1, BLOCK)."""
        work, k = schedule.work, config.block
        _, (rows, columns) = matrices(work, config)
        (weight,) = packed_operands(work, config)
        units = te.placeholder((1, k, 1, 1, 1, k), "int8", name="units")
        rk = te.reduce_axis((0, k), "rk")

        def turned(n: Var, o: Var, h: Var, w: Var, bi: Var, bo: Var) -> Expr:
            channels, token = o // columns * rows + w // k, o % columns * k + bo
            one = units[0, w % k, 0, 0, bi, rk].astype("int32")
            return te.sum(one * weight[n, channels, h, token, bi, rk].astype("int32"), axis=rk)

        result = te.compute(packed_shape(work.out_shape, config), turned, name="turned")
        narrow = te.compute(result.shape, lambda *i: result(*i).astype("int8"), name="out")
        return te.create_prim_func([weight, units, narrow])

    def scopes(self, _work: TransposeWorkload) -> tuple[str, ...]:
        """The tensor as weights, the identity as inputs."""
        return (DRAM_WGT, DRAM_INP)

    def weights(
        self,
        _schedule: LayerSchedule[TransposeWorkload],
        _given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The identity of a block."""
        k = config.block
        return [np.eye(k, dtype=np.int8).reshape(1, k, 1, 1, 1, k)]

    def functions(
        self, schedule: LayerSchedule[TransposeWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        """One PrimFunc: the identity, the tensor, the result."""
        (kernel,) = schedule.kernels
        groups, tiles = matrices(schedule.work, config)
        func = turned_nests(groups, tiles, config.block, config, kernel.choice)
        return [KernelFunction(func, (1, 0, -1))]


def matrices(work: TransposeWorkload, config: VTAConfig) -> tuple[int, tuple[int, int]]:
    """How many matrices are turned, and the tiles of each: of channels, of tokens."""
    rows, columns = (size // config.block for size in (work.in_channels, work.out_channels))
    return work.groups, (rows // work.groups, columns // work.groups)


def _usage(
    groups: int,
    tiles: tuple[int, int],
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    _variant: str,
) -> ResourceUsage:
    rows, columns = tiles
    count = ceil_div(groups, tile["g"]) * ceil_div(rows, tile["t"]) * ceil_div(columns, tile["s"])
    size = tile["g"] * tile["t"] * tile["s"]
    runs = np.where(tile["s"] == columns, 1, tile["g"])
    return turning_demand(groups * rows * columns, size, count, runs, config)


TRANSPOSE = Transpose()
