"""move: copies of boxes of vectors between packed tensors; nothing is computed.

Concatenation, slices, padding, nearest upsampling and permutations of channels are lists of boxes
(:mod:`.regions` writes them).  A box is gathered by the GEMM core: an identity weight copies a
vector, a 0/1 weight element moves its lanes, and what no source covers stays zero.  Loads run
beside the computation, so a copy takes as long as the port needs for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from vta_byoc.cost.dma import Run, copy_count, kernel_size, tile_copies
from vta_byoc.cost.search import (
    Array,
    Choice,
    ResourceUsage,
    Space,
    Staged,
    ceil_div,
    integer,
    sizes,
)
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.base import KernelFunction, LayerSchedule, LayerWork, Strategy
from vta_byoc.strategies.te.kernel import KernelSpace
from vta_byoc.strategies.te.tile_grid import Grid
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests, NestTensor, sequence
from vta_byoc.workload.copy_region import CopyRegion, Ints, Source, merged
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.packing import packed_shape
from vta_byoc.workload.workloads import MoveWorkload, Shape

Index = TypeVar("Index")
CANDIDATES = 30_000
"""Tilings of a copy, at the most about; it bounds the time of the search."""
EXPOSED_ZEROS = 0.5
"""The part of a copy's padding, about, that the DMA latency of its loads does not hide."""


class Move(Strategy[MoveWorkload]):
    """A kernel for each box."""

    name = "move"
    workload = MoveWorkload

    def kernel_spaces(
        self, layer: LayerWork[MoveWorkload], config: VTAConfig
    ) -> tuple[KernelSpace, ...]:
        """A space for each box."""
        found = (tile_space(merged(box), config) for box in layer.work.boxes)
        return tuple(KernelSpace.of_tiles(space) for space in found)

    def definition(self, schedule: LayerSchedule[MoveWorkload], config: VTAConfig) -> tirx.PrimFunc:
        """The result of packed operands and the movements of lanes (count, 1, 1, 1, k, k)."""
        return _definition(schedule.work, config)

    def weights(
        self,
        schedule: LayerSchedule[MoveWorkload],
        given: Mapping[str, np.ndarray],
        config: VTAConfig,
    ) -> list[np.ndarray]:
        """Weights of 0 and 1 that move lanes: (count, 1, 1, 1, k, k) int8."""
        work, k = schedule.work, config.block
        weights = np.zeros((len(work.lanes), 1, 1, 1, k, k), np.int8)
        for number, lanes in enumerate(work.lanes):
            if lanes and len(lanes) != k:
                raise VTAError(
                    f"a movement of {len(lanes)} lanes; vectors of machine {config.name} have {k}; "
                    "write the boxes for this machine"
                )
            for to, lane in enumerate(lanes or range(k)):
                if lane >= 0:
                    weights[number, 0, 0, 0, to, lane] = 1
        return [weights]

    def in_place_offsets(self, work: MoveWorkload, config: VTAConfig) -> list[int | None]:
        """A copy that leaves all vectors where they are is none: a reshape of the plane."""
        if len(work.boxes) != 1 or len(work.in_shapes) != 1:
            return []
        sizes = {math.prod(packed_shape(s, config)) for s in (*work.in_shapes, work.out_shape)}
        if len(sizes) > 1:  # a part of the operand, which stays whole
            return []
        box = merged(work.boxes[0])
        same = [s for s in box.sources if s == Source(0, 0, (1,), (0,), box.size)]
        is_view = bool(same) and same == list(box.sources)
        return [0] if is_view and box.start == 0 and box.steps == (1,) else []

    def functions(
        self, schedule: LayerSchedule[MoveWorkload], config: VTAConfig
    ) -> list[KernelFunction]:
        """A PrimFunc for each box."""
        work, found = schedule.work, []
        for box, kernel in zip(work.boxes, schedule.kernels, strict=True):
            nests = _BoxNests(work, merged(box), config, kernel.choice)
            found.append(KernelFunction(nests.func(), (*nests.data, len(work.in_shapes), -1)))
        return found


# ---------------------------------------------------------------- definition
def _definition(work: MoveWorkload, config: VTAConfig) -> tirx.PrimFunc:
    b, k = config.batch, config.block
    shapes = [packed_shape(shape, config) for shape in work.in_shapes]
    data = [tirx.decl_buffer(s, "int8", f"data{i}") for i, s in enumerate(shapes)]
    lanes = tirx.decl_buffer((len(work.lanes), 1, 1, 1, k, k), "int8", "lanes")
    out_shape = packed_shape(work.out_shape, config)
    out = tirx.decl_buffer(out_shape, "int8", "out")
    stmts = []
    for box in (merged(box) for box in work.boxes):
        index = [tirx.Var(f"i{d}", "int32") for d in range(len(box.size))]
        bi, o = tirx.Var("b", "int32"), tirx.Var("o", "int32")
        loops = [*zip(index, box.size, strict=True), (bi, b), (o, k)]
        target = (*_position(_affine(index, box.steps, box.start), out_shape), bi, o)
        stmts.append(_nest(loops, tirx.BufferStore(out, tirx.const(0, "int8"), list(target))))
        for source in box.sources:
            moved = [i - low for i, low in zip(index, source.low, strict=True)]
            shape, r = shapes[source.operand], tirx.Var("r", "int32")
            place = _position(_affine(moved, source.steps, source.start), shape)
            factor = lanes[work.lanes.index(source.lanes), 0, 0, 0, o, r]
            value = out[target] + data[source.operand][(*place, bi, r)] * factor
            conditions = [
                check
                for i, low, high in zip(index, source.low, source.high, strict=True)
                for check in (i >= low, i < high)
            ]
            add = tirx.IfThenElse(
                tirx.all(*conditions), tirx.BufferStore(out, value, list(target)), None
            )
            stmts.append(_nest([*loops, (r, k)], add))
    root = SBlockRealize([], True, SBlock([], [], [], "root", sequence(stmts)))
    func = tirx.PrimFunc([*data, lanes, out], root)
    return func.with_attrs({"global_symbol": "main", "tirx.noalias": True})


def _affine(index: Sequence[Expr], steps: Sequence[int], start: int) -> tirx.Expr:
    total: tirx.Expr = tirx.const(start, "int32")
    for i, step in zip(index, steps, strict=True):
        total = total + i * step
    return total


def _position(vector: tirx.Expr, shape: Sequence[int]) -> list[tirx.Expr]:
    """Indices (n, c, h, w) of a vector's number."""
    _, c, h, w = shape[:4]
    return [
        tirx.floordiv(vector, c * h * w),
        tirx.floormod(tirx.floordiv(vector, h * w), c),
        tirx.floormod(tirx.floordiv(vector, w), h),
        tirx.floormod(vector, w),
    ]


def _nest(loops: Sequence[tuple[tirx.Var, int]], body: tirx.Stmt) -> tirx.Stmt:
    for var, extent in reversed(loops):
        body = tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body)
    return body


# ---------------------------------------------------------------- tiles
def tile_space(box: CopyRegion, config: VTAConfig) -> Space:
    """All tilings of a :func:`merged` box."""
    most = max(2, int(CANDIDATES ** (1 / len(box.size))))
    axes = {name: sizes(size, most) for name, size in zip(names(box), box.size, strict=True)}
    usage = functools.partial(_usage, box, config)
    return Space("a copy", axes, ("tiles",), usage)


def names(box: CopyRegion) -> list[str]:
    """Names of the axes of a box."""
    return [f"d{d}" for d in range(len(box.size))]


def _usage(
    box: CopyRegion, config: VTAConfig, tile: Mapping[str, np.ndarray], _variant: str
) -> ResourceUsage:
    cut = [tile[name] for name in names(box)]
    tiles: Array = 1
    pixels: Array = 1
    for size, part in zip(box.size, cut, strict=True):
        tiles, pixels = tiles * ceil_div(size, part), pixels * part
    total = float(math.prod(box.size))
    count = len(set(s.lanes for s in box.sources))
    kernel = kernel_size(cut)
    bare = not box.sources
    return ResourceUsage(
        staged=(
            *(_staged(box, source, cut, tiles, config) for source in box.sources),
            Staged(ACC, pixels, tiles),
            *([Staged(WGT, count, 1, float(count * config.wgt_elem_bytes), 1)] * bool(count)),
        ),
        tiles=tiles,
        gemm=total * (1 + len(box.sources)),
        gemm_starts=tiles * (1 + len(box.sources)),
        alu=total * bare * config.timing.alu_imm_cycles,
        alu_starts=tiles * bare,
        uops=np.minimum(tiles, MOST_SLOTS) * kernel * (1 + len(box.sources)),
        kernels=np.minimum(tiles, MOST_SLOTS) * (1 + len(box.sources)) - 1,
        stored=total * config.out_elem_bytes,
        stores=tile_copies(box.size, cut, store=True, strides=box.steps),
    )


def _extents(source: Source) -> Ints:
    return tuple(high - low for low, high in zip(source.low, source.high, strict=True))


def _staged(
    box: CopyRegion, source: Source, cut: Sequence[Array], tiles: Array, config: VTAConfig
) -> Staged:
    size: Array = 1
    nbytes: Array = float(config.inp_elem_bytes)
    repeats: Array = 1
    moving = [d for d, step in enumerate(source.steps) if step]
    extents = _extents(source)
    for d, part in enumerate(cut):
        if d in moving:
            size, nbytes = size * part, nbytes * extents[d]
        else:
            repeats = repeats * ceil_div(extents[d], part)
    if extents == box.size:
        dmas = repeats * tile_copies(
            [extents[d] for d in moving] or [1],
            [cut[d] for d in moving] or [integer(1)],
            strides=[source.steps[d] for d in moving] or [1],
        )
        return Staged(INP, size, tiles, nbytes * repeats, dmas)
    runs: list[Run] = []
    pitch: Array = integer(1)
    for d in moving[::-1]:
        runs.append(Run(cut[d], source.steps[d], pitch, extents[d] != box.size[d]))
        pitch = pitch * cut[d]
    zeros = float(math.prod(box.size[d] for d in moving) - math.prod(extents[d] for d in moving))
    zeros = EXPOSED_ZEROS * zeros
    return Staged(INP, size, tiles, nbytes * repeats, tiles * copy_count(runs), zeros)


# ---------------------------------------------------------------- nests
class _BoxNests:
    def __init__(self, work: MoveWorkload, box: CopyRegion, config: VTAConfig, choice: Choice):
        self.box, self.choice = box, choice
        self.grid = Grid(dict(zip(names(box), box.size, strict=True)), choice.tile)
        self.extents = self.grid.shape
        self.nests = nests = Nests(config)
        self.data = {
            operand: nests.param(f"data{operand}", (_vectors(work.in_shapes[operand], config),))
            for operand in dict.fromkeys(source.operand for source in box.sources)
        }
        self.param = nests.weights("lanes", len(work.lanes))
        self.out = nests.param("out", (_vectors(work.out_shape, config),))
        self.lanes = [work.lanes.index(x) for x in dict.fromkeys(s.lanes for s in box.sources)]
        self.of_lanes = {work.lanes[n]: place for place, n in enumerate(self.lanes)}
        self.weights = nests.sram(WGT, "weights", (max(len(self.lanes), 1),))
        self.acc = nests.sram(ACC, "acc", self.extents)
        self.tiles = [
            nests.sram(INP, f"tile{i}", self._moving(source, self.extents))
            for i, source in enumerate(box.sources)
        ]

    def func(self) -> tirx.PrimFunc:
        for place, number in enumerate(self.lanes):
            self.nests.load(
                f"load_lanes{place}",
                (1,),
                lambda i, p=place, n=number: (self.weights[p + i], self.param[n + i]),
            )
        self._loops(list(self.grid.sizes))
        return self.nests.func(self.choice.slots_attr())

    def _loops(self, axes: Sequence[str]) -> None:
        if not axes:
            self._tile()
            return
        with self.nests.loop(f"{axes[0]}o", self.grid.count(axes[0])) as var:
            self.grid.outer[axes[0]] = var
            self._loops(axes[1:])

    @staticmethod
    def _moving(source: Source, index: Sequence[Index]) -> tuple[Index | int, ...]:
        """``index`` in the tile of ``source``, which holds what it repeats once."""
        moving = tuple(i for i, step in zip(index, source.steps, strict=True) if step)
        return moving or (1 if all(isinstance(i, int) for i in index) else 0,)

    def _tile(self) -> None:
        nests, grid = self.nests, self.grid
        for number, source in enumerate(self.box.sources):
            self._load(number, source, self.tiles[number])
        nests.reset("clear", self.extents, lambda *i: self.acc[i], grid.where)
        for number, source in enumerate(self.box.sources):
            self._gather(number, source, self.tiles[number])

        def stored(*i: Expr) -> tuple[Load, Expr]:
            at = _affine(grid.positions(*i), self.box.steps, self.box.start)
            return self.out[at], self.acc[i]

        nests.store("out", self.extents, stored, grid.where)

    def _gather(self, number: int, source: Source, tile: NestTensor) -> None:
        place = self.of_lanes[source.lanes]
        self.nests.gemm(
            f"copy{number}",
            self.extents,
            lambda *i: (self.acc[i], tile[self._moving(source, i)], self.weights[place]),
            self.grid.where,
        )

    def _load(self, number: int, source: Source, tile: NestTensor) -> None:
        """The tile of ``source``; zero where it does not reach."""
        moving = [d for d, step in enumerate(source.steps) if step]
        axes, data = [names(self.box)[d] for d in moving], self.data[source.operand]
        steps = [source.steps[d] for d in moving]

        def moved(*i: Expr) -> tuple[Load, Load]:
            at = [
                self.grid.at(axis, v) - source.low[d]
                for axis, d, v in zip(axes, moving, i, strict=False)
            ]
            return tile[i], data[_affine(at, steps, source.start)]

        def where(*i: Expr) -> list[Expr]:
            return self.grid.inside(dict(zip(axes, i, strict=False)))

        def inside(*i: Expr) -> list[Expr]:
            found = []
            for axis, d, v in zip(axes, moving, i, strict=False):
                position = self.grid.at(axis, v)
                found += [position >= source.low[d]] if source.low[d] else []
                found += [position < source.high[d]] if source.high[d] < self.box.size[d] else []
            return found

        extents = [self.extents[d] for d in moving] or [1]
        self.nests.load(f"load{number}", extents, moved, where, inside)


def _vectors(shape: Shape, config: VTAConfig) -> int:
    return math.prod(packed_shape(shape, config)[:4])


MOVE = Move()
