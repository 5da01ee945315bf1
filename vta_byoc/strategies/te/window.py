"""Sliding windows written nest by nest: their geometry and the staging of their input."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from vta_byoc.cost.dma import Run, copies_of, copy_count, tile_copies
from vta_byoc.cost.search import Array, Choice, Staged, ceil_div, sizes
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.tile_grid import Grid, Operands, staged_operand
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests
from vta_byoc.workload.memory import ACC, INP
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.receptive import products_inside
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Conv2dWorkload, Epilogue

AXES = ("n", "c", "h", "w")
SPACE = ("c", "h", "w")
BEFORE, KEEP = STEPS = ("before", "keep")
"""The nests of steps before the store: what is kept, and its copy."""
CHUNKS = 4
"""Most sizes tried for the taps of a reduction step."""


def divisors(total: int) -> list[int]:
    """Divisors of ``total``, ascending."""
    return [size for size in range(1, total + 1) if total % size == 0]


@dataclass(frozen=True)
class Window:
    """Windows along one axis: output o reads o * step + tap * dilation - before of ``size``."""

    out: int
    size: int
    taps: int
    step: int
    dilation: int
    before: int

    def extent(self, outs: Array, taps: Array) -> Array:
        """Positions that ``outs`` outputs see by ``taps`` taps: their receptive extent."""
        return (outs - 1) * self.step + (taps - 1) * self.dilation + 1

    def lowest(self, first_tap: int = 0) -> int:
        """The least position of a tap."""
        return first_tap * self.dilation - self.before

    def highest(self, last_tap: int | None = None) -> int:
        """The greatest position of a tap (the last by default)."""
        last = self.taps - 1 if last_tap is None else last_tap
        return (self.out - 1) * self.step + last * self.dilation - self.before

    @property
    def pads(self) -> tuple[bool, bool]:
        """Whether windows reach before and behind the input."""
        return self.lowest() < 0, self.highest() >= self.size

    @property
    def empty(self) -> bool:
        """Whether some window holds padding alone."""
        every = range(self.out)
        return any(
            not any(0 <= o * self.step + self.lowest(t) < self.size for t in range(self.taps))
            for o in every
        )

    @property
    def share(self) -> float:
        """Share of the taps of all outputs that lie inside the input."""
        sizes = self.out, self.size, self.taps, self.step, self.dilation, self.before
        return products_inside(*sizes) / (self.out * self.taps)

    def chunks(self) -> list[int]:
        """Numbers of taps in a step of the reduction: divisors, the last is all."""
        every = divisors(self.taps)
        if len(every) <= CHUNKS:
            return every
        return sorted({every[round(i * (len(every) - 1) / (CHUNKS - 1))] for i in range(CHUNKS)})

    def traffic(self, outs: int, taps: int) -> tuple[int, int, int]:
        """(positions read, padding, loads with padding) over all tiles and reduction steps."""
        read = pads = padded = 0
        for first_tap in range(0, self.taps, taps):
            for first in range(0, self.out, outs):
                count = min(outs, self.out - first)
                low = first * self.step + self.lowest(first_tap)
                high = low + int(self.extent(count, taps))
                inside = max(0, min(high, self.size) - max(low, 0))
                read, pads = read + inside, pads + high - low - inside
                padded += inside < high - low
        return read, pads, padded


def windows_of(work: Conv2dWorkload) -> tuple[Window, Window]:
    """Rows and columns of ``work``."""
    top, left, _, _ = work.padding
    rows = (work.out_height, work.height, work.kernel[0], work.strides[0], work.dilation[0], top)
    cols = (work.out_width, work.width, work.kernel[1], work.strides[1], work.dilation[1], left)
    return Window(*rows), Window(*cols)


def seen(
    data: te.Tensor,
    windows: tuple[Window, Window],
    taps: tuple[tirx.IterVar, tirx.IterVar],
    index: Sequence[tirx.Var],
    outside: int,
) -> tirx.Expr:
    """What the output at ``index`` (n, c, h, w, b, k) sees of packed ``data`` by a tap, int32."""
    n, c, h, w, b, k = index
    y, x = (
        out * window.step + tap * window.dilation - window.before
        for window, out, tap in zip(windows, (h, w), taps, strict=True)
    )
    rows, cols = windows
    inside = tirx.all(y >= 0, y < rows.size, x >= 0, x < cols.size)
    value = data[n, c, y, x, b, k].astype("int32")
    return tirx.if_then_else(inside, value, tirx.const(outside, "int32"))


@dataclass(frozen=True)
class Sliding:
    """A layer of windows that keeps channels apart: images, channel blocks, rows, columns.

    Images count as channel blocks where nothing depends on the channel (``per_channel`` False).
    """

    images: int
    planes: int
    rows: Window
    cols: Window

    @classmethod
    def of(cls, work: Conv2dWorkload, config: VTAConfig, per_channel: bool) -> Sliding:
        """The windows of a convolution that keeps channels apart."""
        images, planes = blocks(work.batch, config.batch), blocks(work.in_channels, config.block)
        if not per_channel:
            images, planes = 1, images * planes
        return cls(images, planes, *windows_of(work))

    @property
    def sizes(self) -> dict[str, int]:
        """The result's extents by axis."""
        return {"n": self.images, "c": self.planes, "h": self.rows.out, "w": self.cols.out}

    @property
    def axes(self) -> dict[str, Sequence[int]]:
        """Tile sizes: one image, channel blocks, rows, columns, taps of a reduction step."""
        return {
            "n": [1],
            "c": sizes(self.planes),
            "h": sizes(self.rows.out),
            "w": sizes(self.cols.out),
            "kh": self.rows.chunks(),
            "kw": self.cols.chunks(),
        }

    @property
    def vectors(self) -> float:
        """Vectors of the result."""
        return float(self.images * self.planes * self.rows.out * self.cols.out)

    def steps(self, tile: Mapping[str, Array]) -> Array:
        """Reduction steps of a tile."""
        return ceil_div(self.rows.taps, tile["kh"]) * ceil_div(self.cols.taps, tile["kw"])

    def tiles(self, tile: Mapping[str, Array]) -> Array:
        """Tiles of the result."""
        counts = [ceil_div(size, tile[axis]) for axis, size in self.sizes.items()]
        return counts[0] * counts[1] * counts[2] * counts[3]

    def staged(self, tile: Mapping[str, np.ndarray], config: VTAConfig) -> Staged:
        """The input's tiles."""
        (row_read, row_pads, row_padded), row_loads = _traffic(self.rows, tile["h"], tile["kh"])
        (col_read, col_pads, col_padded), col_loads = _traffic(self.cols, tile["w"], tile["kw"])
        fills = self.images * ceil_div(self.planes, tile["c"]) * row_loads * col_loads
        height = self.rows.extent(tile["h"], tile["kh"])
        width = self.cols.extent(tile["w"], tile["kw"])
        planes = float(self.images * self.planes)
        count: Array = 0
        rows = _lengths(self.rows, tile["h"], tile["kh"], row_padded / row_loads)
        cols = _lengths(self.cols, tile["w"], tile["kw"], col_padded / col_loads)
        for (number, length, pads), (times, length_w, pads_w) in itertools.product(rows, cols):
            runs = (
                Run(length_w, 1, 1, pads_w),
                Run(length, self.cols.size, width, pads),
                Run(tile["c"], self.rows.size * self.cols.size, width * height),
            )
            count = count + number * times * copy_count(runs)
        count = self.images * ceil_div(self.planes, tile["c"]) * count
        zeros = planes * (row_read * col_pads + row_pads * (col_read + col_pads) / 2)
        nbytes = planes * row_read * col_read * config.inp_elem_bytes
        return Staged(INP, tile["c"] * height * width, fills, nbytes, count, zeros)

    def operands(
        self, epilogue: Epilogue, tile: Mapping[str, np.ndarray], config: VTAConfig
    ) -> list[Staged]:
        """The tensor operands of the epilogue."""
        return [staged_operand(kind, self.sizes, tile, SPACE, config) for kind in epilogue.tensors]

    def stores(self, tile: Mapping[str, Array]) -> Array:
        """DMA instructions that store the result."""
        return tile_copies(list(self.sizes.values()), [tile[a] for a in AXES], store=True)


def _lengths(
    window: Window, outs: Array, taps: Array, padded: Array
) -> list[tuple[Array, Array, bool]]:
    """Loads along an axis as (number, length, with padding), ``padded`` the share of those."""
    steps = ceil_div(window.taps, taps)
    whole, rest = window.out // outs * steps, window.out % outs
    length = window.extent(outs, taps)
    found = [(whole * (1 - padded), length, False), (whole * padded, length, True)]
    last = window.extent(np.maximum(rest, 1), taps)
    return [*found, (np.where(rest > 0, steps, 0), last, window.pads[1])]


def _traffic(
    window: Window, outs: np.ndarray, taps: np.ndarray
) -> tuple[tuple[Array, Array, Array], Array]:
    """:meth:`Window.traffic` of all pairs, and the loads along the axis."""
    shape = np.broadcast_shapes(outs.shape, taps.shape)
    pairs = zip(*(np.broadcast_to(a, shape).reshape(-1) for a in (outs, taps)), strict=True)
    counts = np.array([window.traffic(int(o), int(t)) for o, t in pairs], float)
    read, pads, padded = (counts[:, k].reshape(shape) for k in range(3))
    loads = ceil_div(window.out, outs) * ceil_div(window.taps, taps)
    return (read, pads, padded), loads


class SlidingInput:
    """The input of windows in SRAM, tile by tile and reduction step by reduction step."""

    def __init__(self, nests: Nests, sliding: Sliding, grid: Grid, taps: tuple[int, int]):
        self._nests, self._grid, self._taps = nests, grid, taps
        self._windows = (sliding.rows, sliding.cols)
        shape = (sliding.images, sliding.planes, sliding.rows.size, sliding.cols.size)
        self._param = nests.param("data", shape)
        extents = [
            int(window.extent(grid.tile[axis], count))
            for axis, window, count in zip("hw", self._windows, taps, strict=True)
        ]
        self._extents = (grid.tile["c"], *extents)
        self.tile = nests.sram(INP, "tile", self._extents)
        self.step: tuple[Expr, Expr] = (0, 0)

    def __getitem__(self, index: tuple[Expr, ...]) -> Load:
        return self.tile[index]

    def position(self, axis: int, local: Expr) -> Expr:
        """Position in the input of row (axis 0) or column ``local`` of the tile."""
        window, name = self._windows[axis], "hw"[axis]
        first = self._grid.outer[name] * (self._grid.tile[name] * window.step)
        return (
            first + self.step[axis] * (self._taps[axis] * window.dilation) + (local - window.before)
        )

    def load(self) -> None:
        """Stage the tile; padding is zero."""
        grid = self._grid

        def move(c: Expr, y: Expr, x: Expr) -> tuple[Load, Load]:
            place = (grid.at("n", 0), grid.at("c", c), self.position(0, y), self.position(1, x))
            return self.tile[c, y, x], self._param[place]

        def where(c: Expr, y: Expr, x: Expr) -> list[Expr]:
            return grid.inside({"c": c}) + self._needed(0, y) + self._needed(1, x)

        def inside(_c: Expr, y: Expr, x: Expr) -> list[Expr]:
            return self._inside(0, y) + self._inside(1, x)

        self._nests.load("load_data", self._extents, move, where, inside)

    def _needed(self, axis: int, local: Expr) -> list[Expr]:
        """Rows (columns) behind those of a smaller last tile are not loaded."""
        window, name = self._windows[axis], "hw"[axis]
        if not self._grid.uneven(name):
            return []
        left = (window.out - 1) - self._grid.at(name, 0)
        last = (self._taps[axis] - 1) * window.dilation
        return [local <= left * window.step + last]

    def _inside(self, axis: int, local: Expr) -> list[Expr]:
        before, behind = self._windows[axis].pads
        position = self.position(axis, local)
        conditions = [position >= 0] if before else []
        return conditions + ([position < self._windows[axis].size] if behind else [])


class SlidingNests:
    """The tiles of a layer of windows: images inside of columns, rows and channel blocks.

    A subclass declares its weights, then calls :meth:`declare_rest`: parameters have the order of
    their declarations.
    """

    def __init__(
        self,
        epilogue: Epilogue,
        sliding: Sliding,
        choice: Choice,
        taps: tuple[int, int],
        config: VTAConfig,
    ):
        self.sliding, self.choice, self._epilogue = sliding, choice, epilogue
        self.grid = Grid(sliding.sizes, choice.tile)
        self.extents = tuple(self.grid.tile[axis] for axis in SPACE)
        self.nests = Nests(config)
        self.input = SlidingInput(self.nests, sliding, self.grid, taps)

    def declare_rest(self) -> None:
        """The tensor operands of the epilogue and the result."""
        self.operands = Operands(self.nests, self._epilogue.tensors, self.grid, SPACE)
        keeps = copies_of(self._epilogue.steps)
        self._copy = self.nests.sram(ACC, "kept", self.extents) if keeps else None
        self.out = self.nests.param("out", tuple(self.sliding.sizes.values()))

    def tiled(self, tile: Callable[[], None], channels: Callable[[], None] | None = None) -> None:
        """``tile`` for each tile, with ``channels`` before those of the same channel blocks."""
        nests, grid = self.nests, self.grid
        with nests.loop("co", grid.count("c")) as grid.outer["c"]:
            if channels is not None:
                channels()
            self.operands.load(CHANNEL)
            with (
                nests.loop("ho", grid.count("h")) as grid.outer["h"],
                nests.loop("wo", grid.count("w")) as grid.outer["w"],
            ):
                self.operands.load(MAP, FULL)
                with nests.loop("no", grid.count("n")) as grid.outer["n"]:
                    tile()

    def finished(self) -> tirx.PrimFunc:
        """The PrimFunc of all nests."""
        return self.nests.func(self.choice.slots_attr())

    def where(self, *index: Expr) -> list[Expr]:
        """Conditions that keep an index (..., c, h, w) inside a smaller last tile."""
        return self.grid.inside(dict(zip(SPACE, index[-len(SPACE) :], strict=True)))

    def store(self, sums: Callable[..., Load]) -> None:
        """The nests of the epilogue, which end in the result; ``sums`` at an index (c, h, w).

        A value that is added again is copied, once the steps before are done in place.
        """
        steps, copy = self._epilogue.steps, self._copy
        start = next((i for i, step in enumerate(steps) if step.op == "keep"), 0)
        before, rest = steps[:start], steps[start + 1 if copy is not None else 0 :]
        first = sum(step.is_tensor for step in before)

        def at(index: Sequence[Expr]) -> dict[str, Expr]:
            return dict(zip(SPACE, index, strict=True))

        def done(*i: Expr) -> tuple[Load, Expr]:
            return sums(*i), self.operands.applied(sums(*i), before, at(i))

        def result(*i: Expr) -> tuple[Load, Expr]:
            kept = None if copy is None else copy[i]
            after = self.operands.applied(sums(*i), rest, at(i), first, kept)
            return self.out[self.grid.positions(0, *i)], after

        if before:
            self.nests.alu(BEFORE, self.extents, done, self.where)
        if copy is not None:
            self.nests.alu(KEEP, self.extents, lambda *i: (copy[i], sums(*i)), self.where)
        self.nests.store("out", self.extents, result, self.where)


def per_channel(kinds: Sequence[str]) -> bool:
    """Whether operands of ``kinds`` depend on the channel."""
    return bool({CHANNEL, FULL} & set(kinds))
