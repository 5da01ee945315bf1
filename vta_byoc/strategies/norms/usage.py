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
from vta_byoc.ir.norms import SQUARES, SUM
from vta_byoc.strategies.norms.registers import program_of
from vta_byoc.strategies.te.registers import Allocated
from vta_byoc.workload.alu import is_shift
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.norms import element_steps
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import GroupNormWorkload, NormWorkload

DIGIT_BITS = 8
"""Bits of a digit: what a STORE keeps of an accumulator."""
LANE_BITS = {SUM: 7, SQUARES: 14}
"""An int8 value, and its square, are at most 2 to this."""
WEIGHTS = 5
"""The identity and what adds up lanes, each for whole blocks and the last, and what widens."""


@dataclass(frozen=True)
class Axes:
    """The axes of the data as a normalization sees them, in the order of the packed tensor.

    Attributes:
        sizes: of each, in vectors: images n, sums s, blocks of channels c, positions p.
        kept: those along which there are sums: n and p of tokens, n and s of groups.
        given: those along which the operands of channels have values.
    """

    sizes: Mapping[str, int]
    kept: tuple[str, ...]
    given: tuple[str, ...]

    @property
    def summed(self) -> tuple[str, ...]:
        """Those over which the sums are."""
        return tuple(axis for axis in self.sizes if axis not in self.kept)

    @property
    def vectors(self) -> int:
        """How many vectors a sum reads."""
        return math.prod(self.sizes[axis] for axis in self.summed)


def axes_of(work: NormWorkload, config: VTAConfig) -> Axes:
    """Sums of every position; or of every group, whose blocks lie behind each other."""
    n, c, h, w, _, _ = packed_shape(work.out_shape, config)
    if not isinstance(work, GroupNormWorkload):
        return Axes({"n": n, "c": c, "p": h * w}, ("n", "p"), ("c",))
    together = work.blocks_of_sum(config.block)
    sizes = {"n": n, "s": c // together, "c": together, "p": h * w}
    return Axes(sizes, ("n", "s"), ("s", "c"))


def by_lanes(work: NormWorkload) -> tuple[str, ...]:
    """The sums whose lanes the first kernel adds up: of groups both."""
    is_group = isinstance(work, GroupNormWorkload) and work.centred
    return (SUM, SQUARES) if is_group else (SQUARES,)


def digits_of(work: NormWorkload, config: VTAConfig) -> dict[str, int]:
    """Signed digits of the largest sum of a lane, for each of :func:`by_lanes`."""
    vectors = axes_of(work, config).vectors
    found = {}
    for kind in by_lanes(work):
        most, count = vectors << LANE_BITS[kind], 1
        while most > ((1 << DIGIT_BITS * count) - 1) // 255 * 127:
            count += 1
        found[kind] = count
    return found


def digit_count(work: NormWorkload, config: VTAConfig) -> int:
    """All digits of a sum."""
    return sum(digits_of(work, config).values())


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
    return {axis: sizes(size) for axis, size in axes_of(work, config).sizes.items()}


def has_tail(work: NormWorkload, config: VTAConfig) -> bool:
    """Whether the last block of a sum has lanes that do not belong to it."""
    if not isinstance(work, GroupNormWorkload):
        return work.summed % config.block != 0
    return work.groups == 1 and work.channels % config.block != 0


def _legal(
    work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> Mask:
    """Whether equal destinations of the sums over channels are far enough apart."""
    if not work.centred or SUM in by_lanes(work):
        return np.True_
    apart = tile["n"] * tile["p"] >= config.capabilities.dst_distance
    return apart | (tile["c"] == 1)


class _Counts:
    """What both kernels have of a tiling."""

    def __init__(
        self, work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray]
    ) -> None:
        axes = axes_of(work, config)
        own, self.kept, self.given = axes.sizes, axes.kept, axes.given
        self.config, self.own, self.tile = config, own, tile
        self.tiles = math.prod(ceil_div(own[a], tile[a]) for a in axes.kept)
        self.chunks = math.prod(ceil_div(own[a], tile[a]) for a in axes.summed)
        self.positions = float(math.prod(own[a] for a in axes.kept))
        self.vectors = self.positions * axes.vectors
        self.spots = math.prod(tile[a] for a in axes.kept)
        self.size = math.prod(tile[a] for a in own)
        self.extents = list(own.values())
        self.cut = [tile[a] for a in own]

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
        whole, vectors = self.chunks == 1, math.prod(self.own[a] for a in self.given)
        if self.given == ("c",):
            loads: Array = vectors * np.where(whole, 1, self.tiles)
            once: Array = np.where(whole, 1, self.tiles * self.chunks)
        else:
            loads = vectors * ceil_div(self.own["n"], self.tile["n"])
            loads = loads * np.where(whole, 1, ceil_div(self.own["p"], self.tile["p"]))
            once = self.tiles * self.chunks
        nbytes = loads * float(count * self.config.acc_elem_bytes)
        size = math.prod(self.tile[a] for a in self.given)
        return [Staged(ACC, size * count, once, nbytes, count * once)]

    def position_copies(self, *, store: bool) -> Array:
        """Transfers of a vector for each position."""
        own, tile = [self.own[a] for a in self.kept], [self.tile[a] for a in self.kept]
        return tile_copies(own, tile, store=store)


def _squares(
    work: NormWorkload, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> ResourceUsage:
    counts, time = _Counts(work, config, tile), config.timing
    digits, kinds = digit_count(work, config), len(by_lanes(work))
    steps = counts.tiles * counts.chunks
    adds = kinds * sum(
        by_size(tile[axis], lambda size: float(len(halves(size))))
        for axis in axes_of(work, config).summed
    )
    tail = has_tail(work, config)
    imm, tensor = time.alu_imm_cycles, time.alu_tensor_cycles
    raised = digits - kinds
    kernels = np.minimum(steps, MOST_SLOTS) * (2 + 4 * kinds + adds + digits + kinds * tail)
    return ResourceUsage(
        staged=(
            counts.data(1),
            counts.weights(),
            Staged(ACC, counts.size, steps),
            Staged(ACC, counts.spots * kinds, counts.tiles),
        ),
        tiles=counts.tiles,
        gemm=kinds * (2 * counts.vectors + counts.positions),
        gemm_starts=kinds * (steps * (2 + tail) + counts.tiles),
        alu=(1 + kinds) * tensor * counts.vectors + counts.positions * raised * 2 * imm,
        alu_starts=steps * (1 + kinds + adds) + counts.tiles * 2 * raised,
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
    digits, kinds = digit_count(work, config), by_lanes(work)
    read = work.centred and SUM not in kinds
    steps, whole = counts.tiles * counts.chunks, counts.chunks == 1
    token, copies = _token_cost(program, config), program.copies
    element = _element_cost(work, config)
    each = token.count + copies + element.count + 2 * digits + 4
    kernels = np.minimum(steps, MOST_SLOTS) * each
    raises = (digits - len(kinds)) * time.alu_imm_cycles
    return ResourceUsage(
        staged=(
            counts.data(np.where(whole | (not read), 1, 2)),
            counts.digits(digits),
            counts.weights(),
            Staged(ACC, counts.size, steps),
            Staged(ACC, counts.spots * program.count, counts.tiles),
            *counts.operands(len(work.tensors)),
        ),
        tiles=counts.tiles,
        gemm=(2 + read) * counts.vectors + counts.positions * (digits + 2 + copies),
        gemm_starts=steps * 3 + counts.tiles * (digits + 2 + copies),
        alu=counts.vectors * element.cycles + counts.positions * (token.cycles + raises),
        alu_starts=steps * element.count + counts.tiles * (token.count + copies + digits),
        uops=kernels * (1 + math.log2(1 + axes_of(work, config).vectors)),
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
