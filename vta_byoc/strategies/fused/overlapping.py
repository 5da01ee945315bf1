"""Pools of maxima whose windows overlap or are padded, in the tiles of a convolution.

Such a tile is one of the pool's result; the convolution computes all that its windows see, so that
neighbouring tiles have rows and columns in common (:mod:`vta_byoc.strategies.conv.pooled`).  The
maxima are separable: along the columns in place, for all rows, then along the rows into a tile of
the result.  Taps in padding are left out; each axis needs one tap, its home, that never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_map

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.errors import VTAError
from vta_byoc.strategies.fused.consumer import (
    FusedConsumer,
    check_pool,
    computed_order,
    overlaps,
    pools_first,
    rises,
)
from vta_byoc.strategies.fused.nests import (
    LANES,
    Expr,
    Loop,
    Store,
    all_of,
    conjuncts,
    nest,
    reads,
    substituted,
)
from vta_byoc.strategies.te.phases import Taps
from vta_byoc.strategies.te.window import Window, windows_of
from vta_byoc.workload.memory import ACC
from vta_byoc.workload.workloads import Conv2dWorkload, PoolWorkload

OVERLAPPING_POOLS = "overlapping_pools"


def overlap_of(work: Conv2dWorkload, fused: Sequence[FusedConsumer]) -> PoolWorkload | None:
    """The pool of `fused` whose result the tiles of the convolution `work` are then of.

    Raises:
        VTAError: there is one that cannot be computed so.
    """
    found = [consumer.work for consumer in fused if overlaps(consumer.work)]
    if not found:
        return None
    pool = found[0]
    assert isinstance(pool, PoolWorkload)
    leaves_gaps = any(k < s for k, s in zip(pool.window.extent, pool.strides, strict=True))
    allowed = is_on(OVERLAPPING_POOLS) and is_on("pool_first") and not leaves_gaps
    if not (allowed and pools_first(pool)):
        check_pool(pool)
    what = f"windows of {pool.kernel[0]}x{pool.kernel[1]} every {pool.strides[0]}x{pool.strides[1]}"
    if len(found) > 1 or fused[computed_order(fused)[0]].work is not pool:
        raise VTAError(f"need {what} to be the first that is computed in a tile, have others")
    if work.digit_shift or not rises(work.epilogue.steps):
        raise VTAError(
            f"need an epilogue that never falls where its value rises to compute {what} before it"
        )
    if work.borders:
        raise VTAError(f"need one bias at all positions to compute {what} before it, have borders")
    for axis, window in zip(("rows", "columns"), windows_of(pool.window), strict=True):
        if taps_of(window) is None:
            raise VTAError(
                f"need a tap of {what} that no padding reaches, have {pool.padding} with "
                f"{window.size} {axis}"
            )
    return pool


def taps_of(window: Window) -> Taps | None:
    """The taps of an axis, with a home that is always inside; None where there is none.

    One whose phase no other tap sees comes first: maxima are then computed in place.
    """
    choices = [Taps(window, window.taps, home) for home in range(window.taps)]
    inside = [taps for taps in choices if not taps.home_pads]
    return min(inside, key=lambda taps: (not taps.private, taps.home), default=None)


@dataclass(frozen=True)
class Maxima:
    """The nests that compute the maxima of a tile, in order.

    Attributes:
        nests: the statements.
        tiles: the SRAM tiles that they need besides the accumulators.
        result: the element of the result that the store's loops are at.
        value: the value that is stored, computed of `result`.
    """

    nests: list[tirx.Stmt]
    tiles: list[tirx.Buffer]
    result: TensorLoad
    value: Expr


def overlapping_maxima(
    prefix: str, store: Store, work: PoolWorkload, position: Sequence[int]
) -> Maxima:
    """The maxima of the windows of `work` in the tile that `store` stores.

    Args:
        prefix: what the names of nests begin with.
        store: of the pool's result; its value reads the accumulators at the first and at the last
            tap of a window.
        work: the pool.
        position: the dimensions of the result that are rows and columns.
    """
    return _Writer(prefix, store, work, position).maxima()


class _Writer:
    def __init__(self, prefix: str, store: Store, work: PoolWorkload, position: Sequence[int]):
        self._prefix, self._store = prefix, store
        self._acc = store.acc
        self._nests: list[tirx.Stmt] = []
        self._tiles: list[tirx.Buffer] = []
        rows, cols = (taps_of(window) for window in windows_of(work.window))
        assert rows is not None and cols is not None
        self._rows = _Axis(rows, store, self._acc, position[0])
        self._cols = _Axis(cols, store, self._acc, position[1])
        # the loops of a line: all rows that the windows of the tile see
        self._line = Loop(tirx.Var("line", "int32"), self._rows.seen)
        self._lines = [self._line if loop is self._rows.loop else loop for loop in store.loops]

    def maxima(self) -> Maxima:
        lines = self._along_columns()
        result = self._tile("result", self._store.loops)
        rows, where = self._rows, self._conditions()
        self._put("rows", self._store.loops, result, lines(rows.at(rows.taps.home)), where)
        for tap in rows.taps.others:
            larger = tirx.Max(result, lines(rows.at(tap)))
            self._put(f"row{tap}", self._store.loops, result, larger, [*where, *rows.inside(tap)])
        return Maxima(self._nests, self._tiles, result, self._pooled(self._store.value, result))

    def _along_columns(self) -> _Lines:
        """The maxima along the columns, of all rows; gives them by row."""
        cols, taps = self._cols, self._cols.taps
        where = [*self._conditions(self._rows), *self._rows.exist(self._line.var)]

        def element(tap: int) -> TensorLoad:
            return self._element(self._line.var, cols.at(tap))

        home: TensorLoad = element(taps.home)
        if not taps.private:
            home = self._tile("lines", self._lines)
            self._put("columns", self._lines, home, element(taps.home), where)
        for tap in taps.others:
            larger = tirx.Max(home, element(tap))
            self._put(f"column{tap}", self._lines, home, larger, [*where, *cols.inside(tap)])
        return _Lines(home, self._line.var)

    def _element(self, row: Expr, col: Expr) -> TensorLoad:
        """The accumulator at a row and a column of what the tile sees."""
        index = list(self._acc.indices)
        index[self._rows.dim], index[self._cols.dim] = row, col
        return self._acc.source[tuple(index)]

    def _tile(self, name: str, loops: Sequence[Loop]) -> TensorLoad:
        extents = [loop.extent for loop in loops]
        tile = tirx.decl_buffer(extents, "int32", f"{self._prefix}{name}", scope=ACC)
        self._tiles.append(tile)
        return tile[tuple(loop.var for loop in loops)]

    def _conditions(self, without: _Axis | None = None) -> list[Expr]:
        """The conditions of the store, but for those of an axis."""
        parts = conjuncts(self._store.predicate)
        if without is None:
            return parts
        return [part for part in parts if not reads(part, without.loop.var)]

    def _put(
        self, name: str, loops: Sequence[Loop], at: TensorLoad, value: Expr, where: Sequence[Expr]
    ) -> None:
        store = tirx.BufferStore(at.source, value, list(at.indices))
        self._nests.append(nest(f"{self._prefix}{name}", "alu", loops, store, all_of(where)))

    def _pooled(self, value: Expr, result: TensorLoad) -> Expr:
        """`value` with `result` in place of the larger of two accumulators."""

        def larger(each: tirx.Max) -> Expr:
            sides = each.a, each.b
            both = all(
                isinstance(side, TensorLoad) and side.source.same_as(self._acc.source)
                for side in sides
            )
            return result if both else each

        return structural_map(value, (tirx.Max, larger))


@dataclass(frozen=True)
class _Lines:
    """Maxima along the columns by row."""

    element: TensorLoad
    row: tirx.Var

    def __call__(self, row: Expr) -> TensorLoad:
        return substituted(self.element, {self.row: row})


class _Axis:
    """Rows or columns: of the result, and of what the tile sees.

    Attributes:
        taps: of the windows.
        loop: over the tile's part of the result.
        dim: the dimension of the accumulators.
        seen: how many of them the tile sees.
    """

    def __init__(self, taps: Taps, store: Store, acc: TensorLoad, place: int):
        self.taps, self._place = taps, store.place[place]
        self.loop = next(each for each in store.loops[:-LANES] if reads(self._place, each.var))
        self.dim = next(n for n, at in enumerate(acc.indices) if reads(at, self.loop.var))
        self.seen = int(taps.window.extent(self.loop.extent, taps.window.taps))
        self._whole = self.loop.extent * int(taps.window.out // self.loop.extent)

    def at(self, tap: int) -> Expr:
        """What `tap` sees, counted from the first that the tile sees."""
        window = self.taps.window
        return self.loop.var * window.step + tap * window.dilation

    def inside(self, tap: int) -> list[Expr]:
        """Conditions under which `tap` is inside of the tensor."""
        window, (before, behind) = self.taps.window, self.taps.pads(tap)
        position = self._place * window.step + (tap * window.dilation - window.before)
        found = [position >= 0] if before else []
        return found + ([position < window.size] if behind else [])

    def exist(self, seen: Expr) -> list[Expr]:
        """Conditions under which `seen` of the tile is not behind all that windows see.

        What is before the tensor is computed too: without it, a tile would not begin at its start.
        """
        window = self.taps.window
        first = substituted(self._place, {self.loop.var: tirx.const(0, "int32")})
        position = first * window.step + seen - window.before
        last = min(window.size, window.highest() + 1)
        uneven = self._whole != window.out
        return [position < last] if window.pads[1] or uneven else []
