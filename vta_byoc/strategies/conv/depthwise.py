"""depthwise: a convolution of single channels on the vector ALU.

Block-diagonal weights on the GEMM core need a cycle a tap, but also block x block bytes of weights
a tap; where a plane has only a few vectors, loading them is what takes the time.  Here weights are
one vector a tap and channel block, and all taps of a tile are worked on at once:

    product[tap] = x at the tap;  product[tap] *= weight[tap];  sum of the taps, in halves

Input and weights are widened by the GEMM core with an identity weight.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from tvm import te, tirx
from tvm.tirx import Var

from vta_byoc.cost.dma import alu_cost, halves, kernel_size
from vta_byoc.cost.search import Choice, Demand, Space, Staged, best, ceil_div
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.elementwise.elementwise import diagonals
from vta_byoc.strategies.fused.consumer import Tail, refuse_pools
from vta_byoc.strategies.fused.schedule import Roles, with_tails
from vta_byoc.strategies.fused.usage import TileSize, tail_demand
from vta_byoc.strategies.te.base import (
    Part,
    Shared,
    Strategy,
    apply_steps,
    epilogue_constants,
    epilogue_operands,
    stored,
)
from vta_byoc.strategies.te.kernel import Kernel, Kernels, KernelSpace
from vta_byoc.strategies.te.tile_grid import Grid, Operands, staged_operand
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests
from vta_byoc.strategies.te.window import SPACE, Sliding, SlidingInput, Window, windows_of
from vta_byoc.workload.memory import ACC, DRAM_ACC, DRAM_INP, DRAM_WGT, INP, WGT
from vta_byoc.workload.packing import blocks, packed_shape
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Conv2dWorkload


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


# ---------------------------------------------------------------- definition
def compute(
    work: Conv2dWorkload, config: VTAConfig, _kernels: Kernels | None = None
) -> tirx.PrimFunc:
    """The convolution of packed tensors: data, weight (C/k, taps, b, k) int8, identity weight
    (unused here), operands of the epilogue."""
    check(work, config)
    data = te.placeholder(packed_shape(work.in_shapes[0], config), "int8", name="data")
    b, k = config.batch, config.block
    shape = (blocks(work.in_channels, k), work.kernel[0] * work.kernel[1], b, k)
    weight = te.placeholder(shape, "int8", name="weight")
    identity = te.placeholder((1, 1, 1, 1, k, k), "int8", name="identity")
    operands = epilogue_operands(work.epilogue.tensors, work.out_shape, config)
    acc = _definition(work, data, weight, config)
    value, _ = apply_steps(acc, work.epilogue.steps, operands, "step")
    return te.create_prim_func(
        [data, weight, identity, *operands, stored(value, work.epilogue)]
    )


def _definition(
    work: Conv2dWorkload, data: te.Tensor, weight: te.Tensor, config: VTAConfig
) -> te.Tensor:
    rows, cols = windows_of(work)
    kh, kw = te.reduce_axis((0, rows.taps), "kh"), te.reduce_axis((0, cols.taps), "kw")

    def position(window: Window, out: Var, tap: tirx.IterVar) -> tirx.Expr:
        return out * window.step + tap * window.dilation - window.before

    def mac(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> tirx.Expr:
        y, x = position(rows, h, kh), position(cols, w, kw)
        inside = tirx.all(y >= 0, y < rows.size, x >= 0, x < cols.size)
        value = tirx.if_then_else(inside, data[n, c, y, x, b, k], tirx.const(0, "int8"))
        factor = weight[c, kh * cols.taps + kw, b, k].astype("int32")
        return te.sum(value.astype("int32") * factor, axis=[kh, kw])

    return te.compute(packed_shape(work.out_shape, config), mac, name="acc")


# ---------------------------------------------------------------- tiles
@functools.lru_cache(maxsize=4096)
def choose(
    work: Conv2dWorkload, config: VTAConfig, tails: tuple[Tail, ...] = ()
) -> Choice:
    """The best tile by estimate; VTAError where none fits or the machine cannot multiply."""
    return best(tile_space(work, config, tails), config)


def tile_space(
    work: Conv2dWorkload, config: VTAConfig, tails: tuple[Tail, ...] = ()
) -> Space:
    """All tilings; VTAError where the machine cannot multiply."""
    refuse_pools(tails, "depthwise")
    check(work, config)
    sliding = Sliding.of(work, config, per_channel=True)
    axes = {**sliding.axes, "kh": [sliding.rows.taps], "kw": [sliding.cols.taps]}

    def demand(tile: Mapping[str, np.ndarray], variant: str) -> Demand:
        extents = [tile[axis] for axis in SPACE]
        size = TileSize(extents, tile["c"], tile["h"] * tile["w"])
        return tail_demand(_demand(work, sliding, config, tile, variant), tails, size, config)

    return Space("a depthwise convolution", axes, ("taps",), demand)


def chosen(
    work: Conv2dWorkload, config: VTAConfig, tails: tuple[Tail, ...] = (), _calls: int = 1
) -> Kernels:
    """The only kernel, by estimate."""
    return (Kernel(choose(work, config, tails)),)


def spaces(
    work: Conv2dWorkload, config: VTAConfig, tails: tuple[Tail, ...] = (), _calls: int = 1
) -> tuple[KernelSpace, ...]:
    """What the kernel could be."""
    return (KernelSpace(((None, tile_space(work, config, tails)),)),)


def _demand(
    work: Conv2dWorkload,
    sliding: Sliding,
    config: VTAConfig,
    tile: Mapping[str, np.ndarray],
    _variant: str,
) -> Demand:
    taps = sliding.rows.taps * sliding.cols.taps
    tiles, groups = sliding.tiles(tile), ceil_div(sliding.planes, tile["c"])
    pixels, vectors = tile["c"] * tile["h"] * tile["w"], sliding.vectors
    factors = float(sliding.planes * taps)
    operands = [
        staged_operand(kind, sliding.sizes, tile, SPACE, config) for kind in work.epilogue.tensors
    ]
    staged = (
        sliding.staged(tile, config),
        Staged(INP, tile["c"] * taps, groups, factors * config.inp_elem_bytes, groups),
        Staged(ACC, tile["c"] * taps, groups),
        Staged(ACC, pixels * taps, tiles),
        Staged(WGT, 1, 1, float(config.wgt_elem_bytes), 1),
        *operands,
    )
    cycles, count = alu_cost(work.epilogue.steps, config)
    tensor, halvings = config.timing.alu_tensor_cycles, len(halves(taps))
    kernel = kernel_size([tile["c"], tile["h"], tile["w"], *work.kernel])
    return Demand(
        staged=staged,
        tiles=tiles,
        gemm=2 * (vectors * taps + factors),
        gemm_starts=2 * (tiles + groups),
        alu=vectors * (cycles + (2 * taps - 1) * tensor),
        alu_starts=tiles * (1 + halvings + count),
        uops=np.minimum(tiles, MOST_SLOTS) * (kernel + tile["c"]),
        kernels=np.minimum(tiles, MOST_SLOTS) * (2 + halvings + len(operands))
        + np.minimum(groups, MOST_SLOTS),
        stored=vectors * config.out_elem_bytes,
        stores=sliding.stores(tile),
    )


# ---------------------------------------------------------------- nests
def scheduled(work: Conv2dWorkload, config: VTAConfig, choice: Choice) -> tirx.PrimFunc:
    """The nests for tiles of ``choice``."""
    return _Depthwise(work, config, choice).func()


class _Depthwise:
    def __init__(self, work: Conv2dWorkload, config: VTAConfig, choice: Choice):
        self.work, self.choice = work, choice
        self.sliding = sliding = Sliding.of(work, config, per_channel=True)
        self.grid = Grid(sliding.sizes, choice.tile)
        self.taps = work.kernel[0] * work.kernel[1]
        self.extents = tuple(self.grid.tile[axis] for axis in SPACE)
        self.nests = nests = Nests(config)
        self.input = SlidingInput(nests, sliding, self.grid, work.kernel)
        self.factors = nests.param("weight", (sliding.planes, self.taps))
        self.identity = nests.weights("identity", 1)
        self.operands = Operands(nests, work.epilogue.tensors, self.grid, SPACE)
        self.out = nests.param("out", tuple(sliding.sizes.values()))
        channels = (self.grid.tile["c"], self.taps)
        self.narrow = nests.sram(INP, "narrow", channels)
        self.weight = nests.sram(ACC, "wide", channels)
        self.unit = nests.sram(WGT, "unit", (1,))
        self.product = nests.sram(ACC, "product", (self.taps, *self.extents))

    def func(self) -> tirx.PrimFunc:
        nests, grid = self.nests, self.grid
        nests.load("load_identity", (1,), lambda i: (self.unit[i], self.identity[i]))
        with nests.loop("co", grid.count("c")) as grid.outer["c"]:
            self._load_weight()
            self.operands.load(CHANNEL)
            with (
                nests.loop("ho", grid.count("h")) as grid.outer["h"],
                nests.loop("wo", grid.count("w")) as grid.outer["w"],
            ):
                self.operands.load(MAP, FULL)
                with nests.loop("no", grid.count("n")) as grid.outer["n"]:
                    self._tile()
        return nests.func(self.choice.slots_attr())

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

    def _where(self, *index: Expr) -> list[Expr]:
        return self.grid.inside(dict(zip(SPACE, index[-3:], strict=True)))

    def _tile(self) -> None:
        nests, product = self.nests, self.product
        self.input.load()
        every = (self.taps, *self.extents)
        nests.reset("clear", every, lambda *i: product[i], self._where)
        nests.gemm("gather", (*self.work.kernel, *self.extents), self._gathered, self._where)
        nests.alu(
            "multiply",
            every,
            lambda t, c, h, w: (product[t, c, h, w], product[t, c, h, w] * self.weight[c, t]),
            self._where,
        )
        for count, distance in halves(self.taps):
            nests.alu(
                f"add{count}",
                (count, *self.extents),
                lambda t, *i, d=distance: (
                    product[(t, *i)],
                    product[(t, *i)] + product[(t + d, *i)],
                ),
                self._where,
            )
        nests.store("out", self.extents, self._result, self._where)

    def _gathered(self, i: Expr, j: Expr, c: Expr, h: Expr, w: Expr) -> tuple[Load, Load, Load]:
        rows, cols = self.sliding.rows, self.sliding.cols
        y, x = h * rows.step + i * rows.dilation, w * cols.step + j * cols.dilation
        return self.product[i * cols.taps + j, c, h, w], self.input[c, y, x], self.unit[0]

    def _result(self, *i: Expr) -> tuple[Load, Expr]:
        index = dict(zip(SPACE, i, strict=True))
        value = self.operands.applied(self.product[(0, *i)], self.work.epilogue.steps, index)
        return self.out[self.grid.places(0, *i)], value


# ---------------------------------------------------------------- strategy
def parts(
    work: Conv2dWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> list[Part]:
    """One PrimFunc."""
    (kernel,) = kernels or chosen(work, config)
    func = scheduled(work, config, kernel.choice)
    return [Part(func, (*range(len(func.params) - 1), -1))]


def scopes(work: Conv2dWorkload) -> tuple[str, ...]:
    """Data, weight, identity, operands of the epilogue."""
    return (DRAM_INP, DRAM_INP, DRAM_WGT, *(DRAM_ACC for _ in work.epilogue.tensors))


def constants(
    work: Conv2dWorkload,
    given: Mapping[str, np.ndarray],
    config: VTAConfig,
    _kernels: Kernels | None = None,
) -> list[np.ndarray]:
    """Packed "weight" (C, 1, KH, KW) int8, the identity and operands "operand0", ..."""
    return [
        pack_channels(given["weight"], config),
        diagonals((1,), config),
        *epilogue_constants(work.epilogue.tensors, given, config),
    ]


def pack_channels(weight: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(C, 1, KH, KW) to (C/k, taps, b, k), equal batch lanes, zeros in lanes that do not exist."""
    channels, k = weight.shape[0], config.block
    full = np.zeros((blocks(channels, k) * k, weight[0].size), weight.dtype)
    full[:channels] = weight.reshape(channels, -1)
    split = full.reshape(-1, k, full.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(np.repeat(split[:, :, None, :], config.batch, axis=2))


def estimate(
    work: Conv2dWorkload, config: VTAConfig, kernels: Kernels | None = None
) -> float:
    """Cycles of the chosen tile; VTAError where none fits or the machine cannot multiply."""
    return (kernels or chosen(work, config))[0].choice.cycles


def shared(
    work: Conv2dWorkload,
    tails: tuple[Tail, ...],
    config: VTAConfig,
    kernels: Kernels | None = None,
) -> Shared:
    """With consumers in its tiles."""
    choice = (kernels or chosen(work, config, tails))[0].choice

    def parts() -> list[Part]:
        func = with_tails(scheduled(work, config, choice), tails, Roles((1,), (2, 3)), config)
        return [Part(func, (*range(len(func.params) - 1), -1))]

    return Shared(choice.cycles, parts)


DEPTHWISE = Strategy(
    "depthwise",
    Conv2dWorkload,
    compute,
    parts,
    scopes,
    constants,
    estimate,
    chosen,
    spaces,
    shared=shared,
)
