"""Accumulators of a tile in planes: one for each position within a window that a pool joins.

A pool of windows that neither overlap nor leave gaps, in the tile of a convolution, would copy the
first position of each window into a tile of its own, to join the others to it: STORE reads dense
vectors only.  With the positions of a window in planes the first plane is dense, and is joined in
place.  The GEMM core sorts its results by its micro-ops, at no cycle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map

from vta_byoc.base.rewrites import is_on
from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.codegen.nest import extent_of
from vta_byoc.cost.search import Array, Mask
from vta_byoc.strategies.fused.consumer import (
    FusedConsumer,
    computed_order,
    overlaps,
    pools_first,
    rises,
)
from vta_byoc.strategies.fused.nests import Expr, Loop, Store, nest, reads, substituted
from vta_byoc.workload.memory import ACC
from vta_byoc.workload.workloads import Conv2dWorkload, PoolWorkload

POOL_PLANES = "pool_planes"
MOST_PLANES = 4
"""Each plane has micro-ops of its own: nine of them cost more than the copy of one in nine."""
Window = tuple[int, int]
"""Rows and columns of the windows."""


def planes_of(work: Conv2dWorkload, fused: Sequence[FusedConsumer]) -> Window | None:
    """The windows by whose positions the accumulators of `work` are sorted; None: they are not.

    They are where a pool of maxima of few positions is the first of `fused` that is computed in a
    tile.
    """
    if not (is_on(POOL_PLANES) and is_on("pool_first") and fused):
        return None
    pool = fused[computed_order(fused)[0]].work
    if not isinstance(pool, PoolWorkload) or overlaps(pool) or not pools_first(pool):
        return None
    if math.prod(pool.kernel) > MOST_PLANES or work.digit_shift or not rises(work.epilogue.steps):
        return None
    return pool.kernel


def whole(window: Window, rows: Array, cols: Array) -> Mask:
    """Whether a tile of so many rows and columns is one of whole windows; others are not sorted."""
    return np.asarray(rows % window[0] == 0) & np.asarray(cols % window[1] == 0)


@dataclass(frozen=True)
class Planes:
    """The planes that take the place of the accumulators of a tile.

    Attributes:
        acc: the accumulators, each dimension of a tile one of theirs.
        dims: the dimensions that are rows and columns.
        window: of the pool.
        tile: int32 (window rows, window columns, dimensions of `acc`); rows and columns are of
            windows.
    """

    acc: tirx.Buffer
    dims: tuple[int, int]
    window: Window
    tile: tirx.Buffer

    @classmethod
    def of(cls, store: Store, position: Sequence[int], window: Window) -> Planes | None:
        """Of the tile that `store` stores; None where it has parts of windows.

        Args:
            store: the nest.
            position: the dimensions of the result that are rows and columns.
            window: of the pool.
        """
        loops = [_loop_of(store, at) for at in position]
        dims = [_dim_of(store.acc, loop.var) for loop in loops]
        if not whole(window, loops[0].extent, loops[1].extent):
            return None
        shape = [int(extent) for extent in store.acc.source.shape]
        for dim, size in zip(dims, window, strict=True):
            shape[dim] //= size
        name = f"{store.acc.source.name}_planes"
        tile = tirx.decl_buffer([*window, *shape], "int32", name, scope=ACC)
        return cls(store.acc.source, (dims[0], dims[1]), window, tile)

    def sorted(self, loops: Sequence[tirx.For], real: SBlockRealize) -> tirx.Stmt:
        """The nest `real` in `loops`, on the planes where it is one on the accumulators.

        Its loops over rows and columns are divided into those over planes and those over windows.
        """
        body = real.block.body
        assert isinstance(body, tirx.BufferStore), "a nest is one store"
        if not body.buffer.same_as(self.acc):
            return loops[0]
        at = list(body.indices)
        phases: list[Loop] = []
        kept = [Loop(loop.loop_var, extent_of(loop)) for loop in loops]
        values: dict[tirx.Var, Expr] = {}
        places: list[tuple[Expr, Expr]] = []
        for dim, size in zip(self.dims, self.window, strict=True):
            if size == 1:
                places.append((tirx.const(0, "int32"), at[dim]))
                continue
            number = _number_of(kept, at[dim])
            along = kept[number]
            phase = Loop(tirx.Var(f"{along.var.name}_plane", "int32"), size)
            part = Loop(tirx.Var(along.var.name, "int32"), along.extent // size)
            phases.append(phase)
            kept[number] = part
            values[along.var] = part.var * size + phase.var
            places.append((phase.var, part.var))
        moved = self._on_planes(body, values, places)
        where = real.predicate
        where = where if isinstance(where, bool) else substituted(where, values)
        pragma = str(loops[-1].annotations[PRAGMA_KEY])
        return nest(str(real.block.name_hint), pragma, [*phases, *kept], moved, where)

    def _on_planes(
        self,
        store: tirx.BufferStore,
        values: Mapping[tirx.Var, Expr],
        places: Sequence[tuple[Expr, Expr]],
    ) -> tirx.BufferStore:
        def index(indices: Sequence[Expr]) -> list[Expr]:
            found = list(indices)
            for dim, (_, part) in zip(self.dims, places, strict=True):
                found[dim] = part
            return [phase for phase, _ in places] + found

        def load(each: TensorLoad) -> TensorLoad:
            if not each.source.same_as(self.acc):
                return each
            return self.tile[tuple(index(list(each.indices)))]

        value = substituted(structural_map(store.value, (TensorLoad, load)), values)
        at = [substituted(each, values) for each in index(list(store.indices))]
        return tirx.BufferStore(self.tile, value, at)

    def elements(self, acc: TensorLoad, parts: Sequence[Expr]) -> list[TensorLoad]:
        """The accumulators of the window that is at row and column `parts`, in order."""
        index = list(acc.indices)
        for dim, part in zip(self.dims, parts, strict=True):
            index[dim] = part
        taps = itertools.product(*(range(size) for size in self.window))
        return [self.tile[(*(tirx.const(at, "int32") for at in tap), *index)] for tap in taps]


def _loop_of(store: Store, position: int) -> Loop:
    """The loop of `store` along a dimension of the result."""
    return next(loop for loop in store.loops if reads(store.place[position], loop.var))


def _dim_of(acc: TensorLoad, var: tirx.Var) -> int:
    """The dimension of the accumulators that moves with `var`."""
    return next(dim for dim, at in enumerate(acc.indices) if reads(at, var))


def _number_of(loops: Sequence[Loop], index: Expr) -> int:
    """The loop that an index of the accumulators is."""
    analyzer = sym.Analyzer()
    for number, loop in enumerate(loops):
        left = analyzer.simplify(index - loop.var)
        if isinstance(left, tirx.IntImm) and int(left.value) == 0:
            return number
    raise AssertionError(f"{index} is a row or a column of a tile, which a loop runs over")
