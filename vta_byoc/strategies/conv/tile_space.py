"""The tile space of a convolution and what each tiling asks of the machine."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from vta_byoc.base.int8_digits import join_cycles
from vta_byoc.cost.dma import CopyAxis, alu_cost, copies_of, transfers
from vta_byoc.cost.search import (
    Array,
    Mask,
    ResourceUsage,
    Space,
    Staged,
    by_size,
    sizes,
)
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import PAD_LIMIT
from vta_byoc.strategies.conv.borders import with_borders_demand
from vta_byoc.strategies.conv.filled import area_of, filled_of
from vta_byoc.strategies.conv.gemm_usage import DESTINATIONS, Tile
from vta_byoc.strategies.conv.halo import Positions, padded_tiles, positions
from vta_byoc.strategies.conv.pooled import PooledTiles
from vta_byoc.strategies.conv.schedule import (
    INPUT_STATIONARY,
    WEIGHT_STATIONARY,
    ConvVariant,
    has_taps,
)
from vta_byoc.strategies.conv.taps import NONE, all_products
from vta_byoc.strategies.conv.weight_usage import WeightUsage
from vta_byoc.strategies.conv.window import Window
from vta_byoc.strategies.fused.consumer import FusedConsumer, pooled_by
from vta_byoc.strategies.fused.implied import without_implied_clamps
from vta_byoc.strategies.fused.planes import planes_of, whole
from vta_byoc.strategies.fused.usage import TileSize, fused_usage
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.strategies.te.window import divisors
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.packing import PLANES, blocks
from vta_byoc.workload.workloads import CHANNEL, MAP, Conv2dWorkload, Epilogue

OTHER_UOPS = 4
"""About as many micro-ops has a kernel that is not of GEMM."""
ZERO_PIECES = 1.5
"""Instructions, about, that write the zeros beyond what the padding of one can."""
OPERAND_SHARE = 8
"""Operands by channel are staged once where they take less than this part of ACC."""


def operands_at_groups(epilogue: Epilogue, grouping: Grouping, config: VTAConfig) -> bool:
    """Whether operands by channel are small enough to stay while a tile walks the channels."""
    count = epilogue.tensors.count(CHANNEL)
    return MOST_SLOTS * count * grouping.co * OPERAND_SHARE <= config.acc_depth


def bias_at_groups(grouping: Grouping, config: VTAConfig) -> bool:
    """The same of the weights of a bias, which take WGT."""
    return MOST_SLOTS * grouping.co * OPERAND_SHARE <= config.wgt_depth


def gemm_work(work: Conv2dWorkload, grouping: Grouping, config: VTAConfig) -> int:
    """Micro-ops of GEMM and reset, at least, whatever the tile."""
    vectors = blocks(work.batch, config.batch) * grouping.count * grouping.co * work.digits
    area = work.out_height * work.out_width
    products = all_products(work) if has_taps(work) else 0
    filled = filled_of(work, grouping, config)
    pairs = area_of(filled) / grouping.co if filled else grouping.ci
    return int(vectors * (pairs * products + (1 + work.bias) * area))


def conv_space(
    work: Conv2dWorkload,
    grouping: Grouping,
    config: VTAConfig,
    out_strides: tuple[int, int] | None = None,
    fused: Sequence[FusedConsumer] = (),
    calls: int = 1,
) -> Space:
    """All tilings.

    Args:
        work: the workload.
        grouping: how its groups are put in blocks.
        config: the machine.
        out_strides: elements between rows and columns of a result that is part of a larger tensor.
        fused: the consumers fused into it.
        calls: calls in a row that have their weights in common.
    """
    kernel = f"{work.kernel[0]}x{work.kernel[1]}"
    work = without_implied_clamps(work, fused)
    pool = PooledTiles.of(work, fused)
    height, width = (work.out_height, work.out_width) if pool is None else pool.size
    axes = {
        "n": sizes(blocks(work.batch, config.batch)),
        "g": sizes(grouping.count),
        "co": sizes(grouping.co),
        "oh": sizes(height),
        "ow": sizes(width),
        "ci": sizes(grouping.ci),
        "kh": divisors(max(1, work.kernel[0])),
        "kw": divisors(max(1, work.kernel[1])),
    }
    if not has_taps(work):
        axes |= {"ci": [1], "kh": [1], "kw": [1]}
    gathers = (False, True) if work.kernel[1] == 1 and work.strides[1] > 1 else (False,)
    variants = [
        ConvVariant(order, resident, gather).text
        for gather in gathers
        for order in (WEIGHT_STATIONARY, INPUT_STATIONARY)
        for resident in (True, False)
    ]
    usage = functools.partial(_usage, work, grouping, config, out_strides, fused, pool, {})
    rows, cols = pooled_by(fused)

    def legal(tile: Tile, _variant: str) -> Mask:
        """Tiles are cut between windows of pools."""
        low = (tile["oh"] % rows == 0) | (tile["oh"] == height)
        return low & ((tile["ow"] % cols == 0) | (tile["ow"] == width))

    return Space(f"a {kernel} convolution", axes, variants, usage, legal, calls)


def _usage(
    work: Conv2dWorkload,
    grouping: Grouping,
    config: VTAConfig,
    out_strides: tuple[int, int] | None,
    fused: Sequence[FusedConsumer],
    pool: PooledTiles | None,
    known: dict[Hashable, _ConvUsage],
    tile: Mapping[str, np.ndarray],
    variant: str,
) -> ResourceUsage:
    kind, window = ConvVariant.parse(variant), planes_of(work, fused)
    key = kind.gather, *((name, size.shape, size.tobytes()) for name, size in tile.items())
    if key not in known:
        known[key] = _ConvUsage(work, grouping, config, kind, tile, pool, window)
    counts = known[key].of(kind)
    extents = [tile[name] for name in DESTINATIONS]
    size = TileSize(extents, tile["g"] * tile["co"], tile["oh"] * tile["ow"])
    epilogue = None if work.digit_shift else work.epilogue
    in_place = window is not None and whole(window, tile["oh"], tile["ow"])
    return fused_usage(counts.usage(out_strides), fused, size, config, epilogue, in_place)


class _ConvUsage(WeightUsage):
    """Counts of one variant, for all tiles at once."""

    @property
    def at_groups(self) -> bool:
        """Whether operands by channel stay while a tile walks the channels."""
        return operands_at_groups(self.work.epilogue, self.grouping, self.config)

    def usage(self, out_strides: tuple[int, int] | None) -> ResourceUsage:
        tile, config = self.tile, self.config
        pixels = self.digits * tile["n"] * tile["g"] * tile["co"] * tile["oh"] * tile["ow"]
        steps_of_alu = self.work.epilogue.steps
        copies = copies_of(self.work.epilogue.steps)
        result = Staged(ACC, pixels + copies * pixels // self.digits, self.tiles)
        operands = [self.operand(kind) for kind in self.work.epilogue.tensors]
        products = self.once("products", self.products)
        shapes = self.once("shapes", lambda: self.shapes(NONE))
        alu, ops = alu_cost(steps_of_alu, config)
        # of an accumulator's slot: the reset, the steps with immediates, those with each tensor
        others = 1 + bool(ops) + len(operands)
        if self.digits > 1:
            cycles, count = join_cycles(config)
            alu, ops, others = alu + cycles, ops + count, others + 1
        planes = 1 if self.work.epilogue.dtype == "int8" else PLANES
        alu, ops = alu + (planes - 1) * config.timing.alu_imm_cycles, ops + planes - 1
        loads = (self.inp(), self.wgt()) if self.taps else ()
        bias = self.bias() if self.work.bias else ()
        others += len(bias) > 0
        demand = ResourceUsage(
            staged=(*loads, *bias, result, *operands),
            tiles=self.tiles,
            gemm=self.vectors * (self.digits + copies + self.work.bias) + products.micro_ops,
            gemm_starts=products.instructions + self.tiles * (1 + self.work.bias),
            alu=self.results * alu,
            alu_starts=self.tiles * ops,
            kernels=np.minimum(self.tiles, MOST_SLOTS * shapes) * others,
            uops=np.minimum(self.tiles, MOST_SLOTS * shapes) * others * OTHER_UOPS,
            step_kernels=products.kernels,
            step_uops=products.uops,
            stored=planes * self.results * config.out_elem_bytes,
            stores=planes * self.tiles * self.once("stores", lambda: self.store_dmas(out_strides)),
            waits=1 - 1 / planes,
        )
        if self.work.borders:
            demand = self.with_borders(demand)
        return demand if self.pool is None else self.with_maxima(demand, self.pool)

    def with_borders(self, demand: ResourceUsage) -> ResourceUsage:
        """`demand` and what is added beside borders."""
        tile, repeats = self.tile, self.n_g * self.n_co * self.n_n
        sizes = {"channels": tile["g"] * tile["co"], "oh": tile["oh"], "ow": tile["ow"]}
        once = (self.variant.order == WEIGHT_STATIONARY) | (self.n_co == 1)
        fills = np.where(once, self.n_g * self.n_co, self.tiles)
        return with_borders_demand(demand, self.work, self.config, sizes, fills, repeats)

    def with_maxima(self, demand: ResourceUsage, pool: PooledTiles) -> ResourceUsage:
        """``demand`` and what the maxima of windows that overlap take."""
        cost = pool.maxima(self.out_tile, float(self.planes), self.config)
        nests = cost.alu_nests + cost.reset_nests
        kernels = np.minimum(self.tiles, MOST_SLOTS * self.shapes(NONE)) * nests
        return dataclasses.replace(
            demand,
            staged=(*demand.staged, Staged(ACC, cost.beside, self.tiles)),
            gemm=demand.gemm + cost.resets,
            gemm_starts=demand.gemm_starts + self.tiles * cost.reset_nests,
            alu=demand.alu + cost.alu,
            alu_starts=demand.alu_starts + self.tiles * cost.alu_nests,
            kernels=demand.kernels + kernels,
            uops=demand.uops + kernels * OTHER_UOPS,
        )

    # ---------------------------------------------------------------- loads
    def inp(self) -> Staged:
        one = self.once(f"inp {self.keeps_inp}", self.inp_of_any_order)
        if self.keeps_inp:
            return one
        row = self.steps * (self.positions if self.variant.order == WEIGHT_STATIONARY else 1)
        return dataclasses.replace(one, period=row, turns=self.n_co, ends=self.last_step())

    def inp_of_any_order(self) -> Staged:
        """What is staged of the input, as far as the order of the loops has no part in it."""
        tile, work = self.tile, self.work
        ci = self.ci if self.keeps_inp else tile["ci"]
        kh, kw = work.kernel if self.keeps_inp else (tile["kh"], tile["kw"])
        size = tile["n"] * tile["g"] * ci * self.rows.extent(tile["oh"], kh)
        size = size * self.cols.extent(tile["ow"], kw)
        fills = self.n_g * self.positions if self.keeps_inp else self.tiles * self.steps
        rows = self.traffic(self.rows, tile["oh"], kh)
        cols = self.traffic(self.cols, tile["ow"], kw)
        planes = float(self.images * self.groups * self.ci) * (1 if self.keeps_inp else self.n_co)
        nbytes = planes * rows.read * cols.read * self.config.inp_elem_bytes
        width = self.cols.extent(tile["ow"], kw)
        above = np.maximum(rows.before * cols.total - self.config.timing.dma_latency * self.n_w, 0)
        below = (rows.total - rows.before - rows.read) * cols.total
        zeros = planes * (rows.read * (cols.total - cols.read) + above + below)
        dmas = self.inp_dmas(fills, (tile["g"], ci, self.rows.extent(tile["oh"], kh), width))
        return Staged(INP, size, fills, nbytes, dmas, zeros)

    def traffic(self, window: Window, outs: Array, taps: Array) -> Positions:
        """Positions of an axis over all its tiles."""
        outs, taps = np.asarray(outs), np.asarray(taps)
        shape = np.broadcast_shapes(outs.shape, taps.shape)
        pairs = zip(*(np.broadcast_to(a, shape).reshape(-1) for a in (outs, taps)), strict=True)
        counts = np.array([positions(window, int(o), int(t)) for o, t in pairs], float)
        return Positions(*(counts[:, k].reshape(shape) for k in range(3)))

    def inp_dmas(self, fills: Array, size: tuple[Array, Array, Array, Array]) -> Array:
        """``size``: groups, channel blocks, rows and columns of a tile."""
        tile, work = self.tile, self.work
        g, ci, height, width = size
        plane = work.height * work.width
        rows = self.once("padded rows", lambda: self.pad_shares(self.rows, self.n_h, tile["oh"]))
        cols = self.once("padded columns", lambda: self.pad_shares(self.cols, self.n_w, tile["ow"]))
        # all pairs at once, in two axes of their own
        rank = np.ndim(tile["oh"])
        pad_rows = np.reshape([pad for pad, _ in rows], (-1, 1, *[1] * rank))
        pad_cols = np.reshape([pad for pad, _ in cols], (-1, *[1] * rank))
        wide = pad_cols > PAD_LIMIT
        axes = (
            CopyAxis(width, self.cols.skip, pad_cols > 0, wide),
            CopyAxis(height, work.width * self.rows.skip, pad_rows > 0),
            CopyAxis(ci, plane),
            CopyAxis(g, self.ci * plane),
            CopyAxis(tile["n"], self.groups * self.ci * plane),
        )
        pieces = transfers(axes) * (1 + ZERO_PIECES * wide)
        if np.any(pad_rows > PAD_LIMIT):
            blocks_of_zeros = ZERO_PIECES * g * ci * tile["n"]
            pieces = pieces + np.where(pad_rows > PAD_LIMIT, blocks_of_zeros, 0)
        shape = np.broadcast_shapes(pieces.shape, (len(rows), len(cols), *[1] * rank))
        pieces = np.broadcast_to(pieces, shape)
        count: Array = 0
        for of_rows, (_, row_share) in zip(pieces, rows, strict=True):
            for each, (_, col_share) in zip(of_rows, cols, strict=True):
                count = count + row_share * col_share * each
        # zeros fill what a narrower last tile lacks of a row, as far as padding reaches
        out, total = self.out_tile["ow"], self.out_size[1]
        stage = self.cols.stage * (self.pool.windows[1].step if self.pool else 1)
        lacking = (out - total % out) * stage
        torn = (lacking > PAD_LIMIT) * _partial(total, out) / self.n_w
        single = np.maximum(count, tile["n"] * g * ci * height)
        return fills * ((1 - torn) * count + torn * single)

    @staticmethod
    def pad_shares(window: Window, tiles: Array, outs: Array) -> list[tuple[int, Array]]:
        """(padding, share of the tiles along an axis), padding as of the widest tile."""
        if not any(window.bounds):
            return [(0, 1.0)]
        tiles = np.asarray(tiles, float)
        last = (window.staged - 1) * window.skip - window.before
        most = max(window.before, last - window.size + 1)
        padded = by_size(np.asarray(outs), lambda size: padded_tiles(window, size)) / tiles
        return [(most, padded), (0, 1 - padded)]

    def bias(self) -> tuple[Staged, Staged]:
        """The constant vector, which stays, and the weights of the bias."""
        config, tile = self.config, self.tile
        weight_stationary = self.variant.order == WEIGHT_STATIONARY
        whole = not weight_stationary and bias_at_groups(self.grouping, config)
        co = self.co if whole else tile["co"]
        fills = self.n_g * (1 if whole else self.n_co if weight_stationary else self.tiles)
        repeats = 1 if whole or weight_stationary else self.positions
        nbytes = float(self.groups * self.co) * repeats * config.wgt_elem_bytes
        again: tuple[Array, Array] = (self.n_co, repeats) if not whole else (fills, 1)
        if weight_stationary:
            again = fills, 1
        dmas = fills * transfers([CopyAxis(co, 1), CopyAxis(tile["g"], self.co)])
        return (
            Staged(INP, 1, 1, float(config.inp_elem_bytes), 1),
            Staged(WGT, tile["g"] * co, fills, nbytes, dmas, 0, *again),
        )

    def operand(self, kind: str) -> Staged:
        """A tensor operand of the epilogue: staged at the loop where it changes."""
        tile, work = self.tile, self.work
        weight_stationary = self.variant.order == WEIGHT_STATIONARY
        area, places = tile["oh"] * tile["ow"], self.n_h * self.n_w
        rows = CopyAxis(tile["oh"], work.out_width)
        again: tuple[Array, Array] = (1, 1)
        if kind == CHANNEL:
            whole = not weight_stationary and self.at_groups
            co = self.co if whole else tile["co"]
            fills = self.n_g * (1 if whole else self.n_co if weight_stationary else self.tiles)
            size, repeats = tile["g"] * co, 1 if whole or weight_stationary else self.positions
            total = self.groups * self.co
            axes = [CopyAxis(co, 1), CopyAxis(tile["g"], self.co)]
            if not whole and not weight_stationary:
                again = self.n_co, self.positions
        elif kind == MAP:
            fills = self.tiles if weight_stationary else self.n_g * self.positions
            size, total = area, self.area
            repeats = self.n_g * self.n_n * (self.n_co if weight_stationary else 1)
            axes = [CopyAxis(tile["ow"], 1), rows]
            again = places, repeats
        else:
            fills, size, repeats = self.tiles, tile["g"] * tile["co"] * area, self.n_n
            total = self.groups * self.co * self.area
            axes = [CopyAxis(tile["ow"], 1), rows, CopyAxis(tile["co"], self.area)]
            axes.append(CopyAxis(tile["g"], self.co * self.area))
            again = places * (1 if weight_stationary else self.n_co), self.n_n
        nbytes = float(total) * repeats * self.config.acc_elem_bytes
        return Staged(ACC, size, fills, nbytes, fills * transfers(axes), 0, *again)

    # ---------------------------------------------------------------- store
    def store_dmas(self, out_strides: tuple[int, int] | None) -> Array:
        """STORE instructions of a tile, on average.

        A partial tile is not dense in SRAM: the rows of a narrower one are stored one by one, the
        planes of a lower one too.
        """
        tile, (height, width) = self.out_tile, self.out_size
        row, col = out_strides or (width, 1)
        plane = row * height
        axes = (
            CopyAxis(tile["ow"], col),
            CopyAxis(tile["oh"], row),
            CopyAxis(tile["co"], plane),
            CopyAxis(tile["g"], self.co * plane),
            CopyAxis(tile["n"], self.groups * self.co * plane),
        )
        whole, planes = transfers(axes), tile["n"] * tile["g"] * tile["co"]
        low = _partial(height, tile["oh"]) / self.n_h
        narrow = _partial(width, tile["ow"]) / self.n_w
        high = (1 - low) * whole + low * np.maximum(whole, planes)
        return (1 - narrow) * high + narrow * np.maximum(whole, planes * tile["oh"])


def _partial(total: int, size: Array) -> Array:
    """1 where the last tile of an axis is partial."""
    return np.asarray(total % size != 0, float)
