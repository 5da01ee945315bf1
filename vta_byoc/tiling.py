"""Tile choice: a declared space of legal tilings, ranked by one estimate of cycles and bytes.

Every candidate fits SRAM and can be encoded; the smallest tile (one element each way) is always
among them, so a choice always exists.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError

from .codegen.leaf import ACC, INP, WGT
from .workload import AddWorkload, Conv2dWorkload

BYTES_WEIGHT = 0.1
INSN_BYTES = 16


@dataclass(frozen=True)
class ConvTile:
    """Output channels, rows, columns and input channels of a tile, in blocks and pixels.

    ``order``: "weights" keeps a tile's weights while it walks the image, "inputs" keeps an input
    tile while it walks the output channels.  ``*_slots``: 2 where double buffered.
    """

    co: int
    oh: int
    ow: int
    ci: int
    order: str = "weights"
    inp_slots: int = 2
    wgt_slots: int = 2
    acc_slots: int = 2

    def slots(self) -> dict[str, int]:
        """Slots by SRAM scope, as code generation takes them."""
        return {INP: self.inp_slots, WGT: self.wgt_slots, ACC: self.acc_slots}


@dataclass(frozen=True)
class AddTile:
    """Channel blocks, rows and columns of an elementwise tile."""

    c: int
    h: int
    w: int
    acc_slots: int = 2

    def slots(self) -> dict[str, int]:
        return {ACC: self.acc_slots}


def sizes(total: int) -> list[int]:
    """Tile sizes that cover ``total`` in k equal parts (the last may be smaller), ascending."""
    return sorted({-(-total // parts) for parts in range(1, total + 1)})


def _ceil(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    return -(-np.asarray(a) // np.asarray(b))


def loaded(total: int, tile: int, step: int, reach: int, before: int, size: int) -> int:
    """Rows read from DRAM when ``total`` outputs are tiled by ``tile`` (padding excluded)."""
    rows = 0
    for first in range(0, total, tile):
        last = min(first + tile, total) - 1
        low, high = first * step - before, last * step - before + reach
        rows += max(0, min(high, size) - max(low, 0))
    return rows


@functools.lru_cache(maxsize=4096)
def choose_conv_tile(work: Conv2dWorkload, config: VTAConfig) -> ConvTile:
    """The best legal tiling by estimate; deterministic."""
    best: tuple[float, ConvTile] | None = None
    for order, slots in itertools.product(("weights", "inputs"), _slot_choices()):
        found = _best_of(work, config, order, slots)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    if best is None:
        raise VTAError(
            f"no tile of a {work.kernel[0]}x{work.kernel[1]} convolution fits the SRAM of machine "
            f"{config.name} (one output pixel needs {work.reach[0] * work.reach[1]} INP and "
            f"{work.kernel[0] * work.kernel[1]} WGT elements of {config.inp_depth} and "
            f"{config.wgt_depth}); use larger buffers or leave the layer to the CPU"
        )
    return best[1]


def _slot_choices() -> Iterator[tuple[int, int, int]]:
    yield from ((2, 2, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (1, 1, 2), (1, 1, 1))


def _best_of(
    work: Conv2dWorkload, config: VTAConfig, order: str, slots: tuple[int, int, int]
) -> tuple[float, ConvTile] | None:
    space = _ConvSpace(work, config, order, slots)
    cost = np.where(space.legal(), space.cost(), np.inf)
    at = int(np.argmin(cost))
    if not np.isfinite(cost.flat[at]):
        return None
    co, oh, ow, ci = (int(v) for v in space.values(at))
    return float(cost.flat[at]), ConvTile(co, oh, ow, ci, order, *slots)


class _ConvSpace:
    """All tilings of one loop order and slot choice, as broadcast arrays (co, oh, ow, ci)."""

    def __init__(
        self, work: Conv2dWorkload, config: VTAConfig, order: str, slots: tuple[int, int, int]
    ):
        self.work, self.config, self.order, self.slots = work, config, order, slots
        self.blocks_in = -(-work.in_channels // config.block)
        self.blocks_out = -(-work.out_channels // config.block)
        self.images = -(-work.batch // config.batch)
        self.axes = [
            np.array(sizes(n))
            for n in (self.blocks_out, work.out_height, work.out_width, self.blocks_in)
        ]
        self.co, self.oh, self.ow, self.ci = np.ix_(*self.axes)
        step = 1 if work.skips_rows else work.strides[0]
        self.in_h = (self.oh - 1) * step + work.reach[0]
        self.in_w = (self.ow - 1) * work.strides[1] + work.reach[1]
        self.n_co = _ceil(self.blocks_out, self.co)
        self.n_sp = self.images * _ceil(work.out_height, self.oh) * _ceil(work.out_width, self.ow)
        self.n_ci = _ceil(self.blocks_in, self.ci)
        self.taps = work.kernel[0] * work.kernel[1]

    def values(self, flat: int) -> tuple[int, int, int, int]:
        index = np.unravel_index(flat, tuple(len(a) for a in self.axes))
        co, oh, ow, ci = (int(a[i]) for a, i in zip(self.axes, index, strict=True))
        return co, oh, ow, ci

    def _used(self, slots: int, instances: np.ndarray) -> np.ndarray:
        return np.minimum(slots, instances)

    def legal(self) -> np.ndarray:
        """Whether the tiles fit SRAM with their slots."""
        cfg, whole = self.config, self.n_ci == 1
        tiles = self.n_co * self.n_sp
        inp_n = np.where(whole & (self.order == "inputs"), self.n_sp, tiles * self.n_ci)
        wgt_n = np.where(whole & (self.order == "weights"), self.n_co, tiles * self.n_ci)
        bias_n = self.n_co if self.order == "weights" else tiles
        inp = self._used(self.slots[0], inp_n) * self.ci * self.in_h * self.in_w
        wgt = self._used(self.slots[1], wgt_n) * self.co * self.ci * self.taps
        acc = self._used(self.slots[2], tiles) * self.co * self.oh * self.ow
        acc = acc + self._used(self.slots[2], bias_n) * self.co
        return (inp <= cfg.inp_depth) & (wgt <= cfg.wgt_depth) & (acc <= cfg.acc_depth)

    def cost(self) -> np.ndarray:
        """Estimated cycles, plus a little for DRAM traffic where cycles are equal."""
        cfg, time = self.config, self.config.timing
        inp, wgt, dmas = self._traffic()
        vectors = self.images * self.blocks_out * self.work.out_height * self.work.out_width
        tiles = self.n_co * self.n_sp
        bias = np.where(self.order == "weights", self.blocks_out, self.blocks_out * self.n_sp)
        load = inp * cfg.inp_elem_bytes + wgt * cfg.wgt_elem_bytes
        other = vectors * cfg.out_elem_bytes + bias * cfg.acc_elem_bytes
        insns = dmas + tiles * (8 + self.n_ci)
        port = (load + other + insns * INSN_BYTES) / time.port_bytes
        gemm = vectors * self.blocks_in * self.taps
        alu = vectors * (1 + time.alu_tensor_cycles + 3 * time.alu_imm_cycles)
        compute = gemm + alu + tiles * (6 + self.n_ci) * time.compute_start
        loading = load / time.port_bytes + dmas * time.dma_latency
        overlap = np.maximum(np.maximum(compute, loading), port)
        serial = compute + loading + vectors * cfg.out_elem_bytes / time.port_bytes
        blocking = [self.slots[0] == 1, self.slots[1] == 1, self.slots[2] == 1]
        share = sum(blocking) / 3
        first = (self.ci * self.in_h * self.in_w * cfg.inp_elem_bytes) / time.port_bytes
        first = first + self.co * self.ci * self.taps * cfg.wgt_elem_bytes / time.port_bytes
        last = self.co * self.oh * self.ow * cfg.out_elem_bytes / time.port_bytes
        return overlap * (1 - share) + serial * share + first + last + BYTES_WEIGHT * port

    def _traffic(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """INP elements, WGT elements and DMA instructions."""
        work, whole = self.work, self.n_ci == 1
        step = 1 if work.skips_rows else work.strides[0]
        height = work.out_height if work.skips_rows else work.height
        rows = np.array(
            [loaded(work.out_height, int(t), step, work.reach[0], work.padding[0], height)
             for t in self.axes[1]]
        ).reshape(self.oh.shape)
        cols = np.array(
            [loaded(work.out_width, int(t), work.strides[1], work.reach[1], work.padding[1],
                    work.width) for t in self.axes[2]]
        ).reshape(self.ow.shape)
        inputs = np.where(whole & (self.order == "inputs"), 1, self.n_co)
        inp = inputs * self.images * self.blocks_in * rows * cols
        weights = np.where(whole & (self.order == "weights"), 1, self.n_sp)
        wgt = weights * self.blocks_out * self.blocks_in * self.taps
        inp_dmas = inputs * self.n_sp * self.blocks_in
        wgt_dmas = weights * self.n_co * self.n_ci
        out_dmas = self.n_sp * np.where(self.ow == work.out_width, self.n_co, self.blocks_out)
        return inp, wgt, inp_dmas + wgt_dmas + out_dmas


@functools.lru_cache(maxsize=1024)
def choose_add_tile(work: AddWorkload, config: VTAConfig) -> AddTile:
    """The largest tile of which two operands fit twice; whole rows and planes first."""
    channels = -(-work.channels // config.block)
    tiles = channels * work.height * work.width * -(-work.batch // config.batch)
    slots = 1 if 2 * tiles <= config.acc_depth // 2 else 2
    room = config.acc_depth // (2 * slots)
    width = max(s for s in sizes(work.width) if s <= room)
    height = max((s for s in sizes(work.height) if s * width <= room), default=1)
    if width < work.width:
        height = 1
    plane = width * height
    full = plane == work.width * work.height
    block = max((s for s in sizes(channels) if s * plane <= room), default=1) if full else 1
    return AddTile(block, height, width, slots)
