"""depthwise: a convolution of single channels on the vector ALU.

Block-diagonal weights on the GEMM core need a cycle a tap, but also block x block bytes of weights
a tap; where a plane has only a few vectors, loading them is what takes the time.  Here weights are
one vector a tap and channel block, and all taps of a tile are worked on at once:

    product[tap] = x at the tap;  product[tap] *= weight[tap];  sum of the taps, in halves

Input and weights are widened by the GEMM core with an identity weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from tvm import te, tirx
from tvm.tirx import Var

from vta_byoc.cost.dma import alu_cost, copies_of, halves, kernel_size
from vta_byoc.cost.search import Choice, ResourceUsage, Space, Staged, ceil_div
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.base import (
    LayerSchedule,
    LayerWork,
)
from vta_byoc.strategies.conv.borders import with_borders_demand
from vta_byoc.strategies.conv.convolution import Convolution
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.fused.implied import without_implied_clamps
from vta_byoc.strategies.fused.tile import Roles
from vta_byoc.strategies.fused.usage import TileSize, fused_usage
from vta_byoc.strategies.te.definition import packed_operands
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.strategies.te.tir_builder import Expr, Load
from vta_byoc.strategies.te.window import SPACE, STEPS, Sliding, SlidingNests, seen, windows_of
from vta_byoc.workload.memory import ACC, DRAM_INP, DRAM_WGT, INP, WGT
from vta_byoc.workload.packing import blocks, diagonal_weights, packed_shape
from vta_byoc.workload.workloads import Conv2dWorkload


class Depthwise(Convolution):
    """A convolution of single channels on the vector ALU."""

    name = "depthwise"
    fuses = True
    roles = Roles((1,), (2, 3))

    def kernel_spaces(
        self, layer: LayerWork[Conv2dWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """One kernel; VTAError where the machine cannot multiply."""
        return (
            KernelSpace.of_tiles(
                tile_space(without_implied_clamps(layer.work, layer.fused), config, layer.fused)
            ),
        )

    def sums(
        self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig
    ) -> tuple[list[te.Tensor], te.Tensor]:
        """Of packed data and weight (C/k, taps, b, k) int8; the identity weight is unused here."""
        work, b, k = schedule.work, config.batch, config.block
        (data,) = packed_operands(work, config)
        shape = (blocks(work.in_channels, k), math.prod(work.kernel), b, k)
        weight = te.placeholder(shape, "int8", name="weight")
        identity = te.placeholder((1, 1, 1, 1, k, k), "int8", name="identity")
        return [data, weight, identity], _accumulators(work, data, weight, config)

    def factor_scopes(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """A vector a tap, which is loaded like data, and the identity."""
        return (DRAM_INP, DRAM_WGT)

    def factors(
        self,
        schedule: LayerSchedule[Conv2dWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """The packed "weight" (C, 1, KH, KW) int8 and the identity."""
        return [pack_channels(given["weight"], config), diagonal_weights((1,), config)]

    def tiled(self, schedule: LayerSchedule[Conv2dWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """Data, weight, identity, operands, result."""
        return _Nests(schedule.work, config, schedule.kernels[0].choice).func()

    def steps(self, work: Conv2dWorkload) -> tuple[str, ...]:
        """What is kept, where steps make it, and its copy."""
        return STEPS


def check(work: Conv2dWorkload, config: VTAConfig) -> None:
    """VTAError where ``work`` mixes channels, is not int8 or the machine cannot multiply."""
    if not work.groups == work.in_channels == work.out_channels:
        raise VTAError(
            f"a convolution of {work.in_channels} to {work.out_channels} channels in "
            f"{work.groups} groups; the vector ALU multiplies channel by channel (groups equal to "
            "both); use conv2d"
        )
    if not config.capabilities.mul:
        raise VTAError(
            "a depthwise convolution on the vector ALU multiplies; this machine has no MUL "
            "(CAPABILITIES.mul is false); use block-diagonal weights (conv2d)"
        )
    if work.epilogue.dtype != "int8":
        raise VTAError(
            f"a depthwise convolution on the vector ALU to {work.epilogue.dtype}; it stores int8; "
            "use block-diagonal weights (conv2d)"
        )


def _accumulators(
    work: Conv2dWorkload, data: te.Tensor, weight: te.Tensor, config: VTAConfig
) -> te.Tensor:
    rows, cols = windows_of(work)
    kh, kw = te.reduce_axis((0, rows.taps), "kh"), te.reduce_axis((0, cols.taps), "kw")

    def mac(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> tirx.Expr:
        value = seen(data, (rows, cols), (kh, kw), (n, c, h, w, b, k), 0)
        factor = weight[c, kh * cols.taps + kw, b, k].astype("int32")
        return te.sum(value * factor, axis=[kh, kw])

    return te.compute(packed_shape(work.out_shape, config), mac, name="acc")


# ---------------------------------------------------------------- tiles
def tile_space(
    work: Conv2dWorkload, config: VTAConfig, fused: tuple[FusedConsumer, ...] = ()
) -> Space:
    """All tilings; VTAError where the machine cannot multiply."""
    check(work, config)
    sliding = Sliding.of(work, config, per_channel=True)
    axes = {**sliding.axes, "kh": [sliding.rows.taps], "kw": [sliding.cols.taps]}

    def usage(tile: Mapping[str, np.ndarray], variant: str) -> ResourceUsage:
        extents = [tile[axis] for axis in SPACE]
        size = TileSize(extents, tile["c"], tile["h"] * tile["w"])
        return fused_usage(_usage(work, sliding, config, tile, variant), fused, size, config)

    return Space("a depthwise convolution", axes, ("taps",), usage)


def _usage(
    work: Conv2dWorkload,
    sliding: Sliding,
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    _variant: str,
) -> ResourceUsage:
    taps = sliding.rows.taps * sliding.cols.taps
    tiles, groups = sliding.tiles(tile), ceil_div(sliding.planes, tile["c"])
    pixels, vectors = tile["c"] * tile["h"] * tile["w"], sliding.vectors
    factors = float(sliding.planes * taps)
    operands = sliding.operands(work.epilogue, tile, config)
    staged = (
        sliding.staged(tile, config),
        Staged(INP, tile["c"] * taps, groups, factors * config.inp_elem_bytes, groups),
        Staged(ACC, tile["c"] * taps, groups),
        Staged(ACC, pixels * (taps + copies_of(work.epilogue.steps)), tiles),
        Staged(WGT, 1, 1, float(config.wgt_elem_bytes), 1),
        *operands,
    )
    cycles, count = alu_cost(work.epilogue.steps, config)
    tensor, halvings = config.timing.alu_tensor_cycles, len(halves(taps))
    kernel = kernel_size([tile["c"], tile["h"], tile["w"], *work.kernel])
    demand = ResourceUsage(
        staged=staged,
        tiles=tiles,
        gemm=2 * (vectors * taps + factors) + vectors * copies_of(work.epilogue.steps),
        gemm_starts=2 * (tiles + groups),
        alu=vectors * (cycles + (2 * taps - 1) * tensor),
        alu_starts=tiles * (1 + halvings + count),
        uops=np.minimum(tiles, MOST_SLOTS) * (kernel + tile["c"]),
        kernels=np.minimum(tiles, MOST_SLOTS) * (2 + halvings + len(operands))
        + np.minimum(groups, MOST_SLOTS),
        stored=vectors * config.out_elem_bytes,
        stores=sliding.stores(tile),
    )
    if not work.borders:
        return demand
    sizes = {"channels": tile["c"], "oh": tile["h"], "ow": tile["w"]}
    repeats = sliding.images * groups
    return with_borders_demand(demand, work, config, sizes, groups, repeats)


# ---------------------------------------------------------------- nests
class _Nests(SlidingNests):
    def __init__(self, work: Conv2dWorkload, config: VTAConfig, choice: Choice):
        sliding = Sliding.of(work, config, per_channel=True)
        super().__init__(work.epilogue, sliding, choice, work.kernel, config)
        self.kernel, self.taps, nests = work.kernel, math.prod(work.kernel), self.nests
        self.factors = nests.param("weight", (sliding.planes, self.taps))
        self.identity = nests.weights("identity", 1)
        self.declare_rest()
        channels = (self.grid.tile["c"], self.taps)
        self.narrow = nests.sram(INP, "narrow", channels)
        self.weight = nests.sram(ACC, "wide", channels)
        self.unit = nests.sram(WGT, "unit", (1,))
        self.product = nests.sram(ACC, "product", (self.taps, *self.extents))

    def func(self) -> tirx.PrimFunc:
        self.nests.load("load_identity", (1,), lambda i: (self.unit[i], self.identity[i]))
        self.tiled(self._tile, self._load_weight)
        return self.finished()

    def _load_weight(self) -> None:
        grid, extents = self.grid, (self.grid.tile["c"], self.taps)

        def where(c: Expr, _t: Expr) -> list[Expr]:
            return grid.inside({"c": c})

        def move(c: Expr, t: Expr) -> tuple[Load, Load]:
            return self.narrow[c, t], self.factors[grid.at("c", c), t]

        def widen(c: Expr, t: Expr) -> tuple[Load, Load, Load]:
            return self.weight[c, t], self.narrow[c, t], self.unit[0]

        self.nests.load("load_weight", extents, move, where)
        self.nests.reset("clear_weight", extents, lambda c, t: self.weight[c, t], where)
        self.nests.gemm("widen_weight", extents, widen, where)

    def _tile(self) -> None:
        nests, product = self.nests, self.product
        self.input.load()
        every = (self.taps, *self.extents)
        nests.reset("clear", every, lambda *i: product[i], self.where)
        nests.gemm("gather", (*self.kernel, *self.extents), self._gathered, self.where)
        nests.alu(
            "multiply",
            every,
            lambda t, c, h, w: (product[t, c, h, w], product[t, c, h, w] * self.weight[c, t]),
            self.where,
        )
        for count, distance in halves(self.taps):
            nests.alu(
                f"add{count}",
                (count, *self.extents),
                lambda t, *i, d=distance: (
                    product[(t, *i)],
                    product[(t, *i)] + product[(t + d, *i)],
                ),
                self.where,
            )
        self.store(lambda *i: product[(0, *i)])

    def _gathered(self, i: Expr, j: Expr, c: Expr, h: Expr, w: Expr) -> tuple[Load, Load, Load]:
        rows, cols = self.sliding.rows, self.sliding.cols
        y, x = h * rows.step + i * rows.dilation, w * cols.step + j * cols.dilation
        return self.product[i * cols.taps + j, c, h, w], self.input[c, y, x], self.unit[0]


def pack_channels(weight: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(C, 1, KH, KW) to (C/k, taps, b, k), equal batch lanes, zeros in lanes that do not exist."""
    channels, k = weight.shape[0], config.block
    full = np.zeros((blocks(channels, k) * k, weight[0].size), weight.dtype)
    full[:channels] = weight.reshape(channels, -1)
    split = full.reshape(-1, k, full.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(np.repeat(split[:, :, None, :], config.batch, axis=2))


DEPTHWISE = Depthwise()
