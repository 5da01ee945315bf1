"""What tilings of both kernels of a normalization cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vta_byoc.cost.dma import halves, tile_copies
from vta_byoc.cost.search import Array, Mask, ResourceUsage, Space, Staged, by_size, ceil_div, sizes
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.norms.registers import program_of
from vta_byoc.strategies.te.registers import Allocated
from vta_byoc.workload.alu import is_shift
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.norms import element_steps
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import NormWorkload

DIGIT_BITS = 8
"""Bits of a digit: what a STORE keeps of an accumulator."""
SQUARE_BITS = 14
"""The square of an int8 value is at most 2 to this."""
WEIGHTS = 5
"""The identity and a tile of ones, each for whole blocks and the last, and what widens."""


def digits_of(work: NormWorkload, config: VTAConfig) -> int:
    """Signed digits of the largest sum of squares of a lane."""
    blocks = packed_shape(work.out_shape, config)[1]
    most, count = blocks << SQUARE_BITS, 1
    while most > ((1 << DIGIT_BITS * count) - 1) // 255 * 127:
        count += 1
    return count


def sizes_of(work: NormWorkload, config: VTAConfig) -> dict[str, int]:
    """Images, channel blocks and positions."""
    n, c, h, w, _, _ = packed_shape(work.out_shape, config)
    return {"n": n, "c": c, "p": h * w}


def square_space(work: NormWorkload, config: VTAConfig) -> Space:
    """All tilings of the first kernel."""
    usage = functools.partial(_squares, work, config)
    return Space("the squares of a norm", _axes(work, config), ("tiles",), usage)


def apply_space(work: NormWorkload, config: VTAConfig) -> Space:
    """All tilings of the second kernel."""
    usage = functools.partial(_applied, work, config)
    legal = functools.partial(_legal, work, config)
    return Space("a norm", _axes(work, config), ("tiles",), usage, legal)


def _axes(work: NormWorkload, config: VTAConfig) -> dict[str, list[int]]:
    return {axis: sizes(size) for axis, size in sizes_of(work, config).items()}


def _legal(
    work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> Mask:
    """Whether equal destinations of the sums over channels are far enough apart."""
    if not work.centred:
        return np.True_
    apart = tile["n"] * tile["p"] >= config.capabilities.dst_distance
    return apart | (tile["c"] == 1)


class _Counts:
    """What both kernels have of a tiling."""

    def __init__(
        self, work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray]
    ) -> None:
        own = sizes_of(work, config)
        self.config, self.own, self.tile = config, own, tile
        self.tiles = ceil_div(own["n"], tile["n"]) * ceil_div(own["p"], tile["p"])
        self.chunks = ceil_div(own["c"], tile["c"])
        self.positions = float(own["n"] * own["p"])
        self.vectors = self.positions * own["c"]
        self.spots = tile["n"] * tile["p"]
        self.size = self.spots * tile["c"]
        self.extents = [own["n"], own["c"], own["p"]]
        self.cut = [tile["n"], tile["c"], tile["p"]]

    def data(self, times: Array) -> Staged:
        """The tile of the data, loaded so many times."""
        nbytes = self.vectors * self.config.inp_elem_bytes * times
        copies = tile_copies(self.extents, self.cut) * times
        return Staged(INP, self.size, self.tiles * self.chunks * times, nbytes, copies)

    def weights(self) -> Staged:
        """The weights."""
        return Staged(WGT, WEIGHTS, 1, float(WEIGHTS * self.config.wgt_elem_bytes), 1)

    def digits(self, count: int) -> Staged:
        """So many digits of every position."""
        nbytes = self.positions * count * self.config.inp_elem_bytes
        dmas = count * self.position_copies(store=False)
        return Staged(INP, self.spots * count, self.tiles, nbytes, dmas)

    def operands(self, count: int) -> list[Staged]:
        """So many tensors of one vector a block: loaded once where no tile has a part of them."""
        if not count:
            return []
        whole = self.chunks == 1
        fills = np.where(whole, 1, self.tiles * self.chunks)
        loads = self.own["c"] * np.where(whole, 1, self.tiles)
        nbytes = loads * float(count * self.config.acc_elem_bytes)
        return [Staged(ACC, self.tile["c"] * count, fills, nbytes, count * fills)]

    def position_copies(self, *, store: bool) -> Array:
        """Transfers of a vector for each position."""
        return tile_copies(
            [self.own["n"], self.own["p"]], [self.tile["n"], self.tile["p"]], store=store
        )


def _squares(
    work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> ResourceUsage:
    counts, time = _Counts(work, config, tile), config.timing
    digits = digits_of(work, config)
    steps = counts.tiles * counts.chunks
    adds = by_size(tile["c"], lambda c: float(len(halves(c))))
    tail = work.summed % config.block != 0
    imm, tensor = time.alu_imm_cycles, time.alu_tensor_cycles
    kernels = np.minimum(steps, MOST_SLOTS) * (6 + adds + digits + tail)
    return ResourceUsage(
        staged=(
            counts.data(1),
            counts.weights(),
            Staged(ACC, counts.size, steps),
            Staged(ACC, counts.spots, counts.tiles),
        ),
        tiles=counts.tiles,
        gemm=2 * counts.vectors + counts.positions,
        gemm_starts=steps * (2 + tail) + counts.tiles,
        alu=2 * tensor * counts.vectors + counts.positions * (digits - 1) * 2 * imm,
        alu_starts=steps * (2 + adds) + counts.tiles * 2 * (digits - 1),
        uops=kernels,
        kernels=kernels,
        stored=counts.positions * digits * config.out_elem_bytes,
        stores=counts.position_copies(store=True) * digits,
        waits=1.0,
    )


def _applied(
    work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> ResourceUsage:
    counts, program, time = _Counts(work, config, tile), program_of(work), config.timing
    digits = digits_of(work, config)
    steps, whole = counts.tiles * counts.chunks, counts.chunks == 1
    token, copies = _token_cost(program, config), program.copies
    element = _element_cost(work, config)
    each = token.count + copies + element.count + 2 * digits + 4
    kernels = np.minimum(steps, MOST_SLOTS) * each
    raises = (digits - 1) * time.alu_imm_cycles
    return ResourceUsage(
        staged=(
            counts.data(np.where(whole | (not work.centred), 1, 2)),
            counts.digits(digits),
            counts.weights(),
            Staged(ACC, counts.size, steps),
            Staged(ACC, counts.spots * program.count, counts.tiles),
            *counts.operands(len(work.tensors)),
        ),
        tiles=counts.tiles,
        gemm=(2 + work.centred) * counts.vectors + counts.positions * (digits + 2 + copies),
        gemm_starts=steps * 3 + counts.tiles * (digits + 2 + copies),
        alu=counts.vectors * element.cycles + counts.positions * (token.cycles + raises),
        alu_starts=steps * element.count + counts.tiles * (token.count + copies + digits),
        uops=kernels * (1 + math.log2(1 + counts.own["c"])),
        kernels=kernels,
        stored=counts.vectors * config.out_elem_bytes,
        stores=tile_copies(counts.extents, counts.cut, store=True),
    )


@dataclass(frozen=True)
class _Cost:
    """Cycles a vector, and instructions."""

    cycles: float
    count: int


def _token_cost(program: Allocated, config: VTAConfig) -> _Cost:
    """Of the program in registers: what takes another register is added to a cleared one."""
    moves = [(m.op, None if m.is_register else m.right) for m in program.moves]
    found = _cost(moves, config)
    return _Cost(found.cycles + program.copies * config.timing.alu_tensor_cycles, found.count)


def _element_cost(work: NormWorkload, config: VTAConfig) -> _Cost:
    """Of an element, which the GEMM core raises."""
    numbers = work.numbers
    rights = [
        (each.op, each.right if isinstance(each.right, int) else numbers.get(each.right))
        for each in element_steps(work)[work.centred :]
    ]
    return _cost(rights, config)


def _cost(steps: list[tuple[str, int | None]], config: VTAConfig) -> _Cost:
    """Of steps (operation, immediate); None: the operand is a vector."""
    cycles, count = 0.0, 0
    for op, value in steps:
        if value is None:
            cycles, count = cycles + config.timing.alu_tensor_cycles, count + 1
            continue
        number = -(-abs(value) // config.capabilities.max_shift) if is_shift(op) else 1
        cycles, count = cycles + number * config.timing.alu_imm_cycles, count + number
    return _Cost(cycles, count)
