"""Block IR written nest by nest, for strategies that compute in place or gather by GEMM.

A strategy says loop by loop which tiles there are and what happens to them; lanes, casts, pragmas
and allocations are added here.  Indices are of whole elements (vectors).

    nests = Nests(config)
    x, unit, y = nests.param("x", (64,)), nests.weights("unit", 1), nests.param("y", (64,))
    w, acc = nests.sram(WGT, "w", (1,)), nests.sram(ACC, "acc", (16,))
    data = nests.sram(INP, "data", (16,))
    nests.load("load_w", (1,), lambda i: (w[i], unit[i]))
    with nests.loop("t", 4) as t:
        nests.load("load", (16,), lambda i: (data[i], x[t * 16 + i]))
        nests.reset("clear", (16,), lambda i: acc[i])
        nests.gemm("widen", (16,), lambda i: (acc[i], data[i], w[0]))
        nests.store("store", (16,), lambda i: (y[t * 16 + i], acc[i] >> 1))
    func = nests.func({ACC: 2})
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize

from vta_byoc.codegen import PRAGMA_KEY, SLOTS_ATTR
from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.memory import ACC, WGT

Expr: TypeAlias = tirx.Expr | int
"""A TIR expression or an integer."""
Load: TypeAlias = TensorLoad
"""An element of a tensor as a TIR expression (of one of its lanes)."""
Change: TypeAlias = Callable[..., tuple[Load, Expr]]
"""Of the loop variables: a destination and its value."""
Where: TypeAlias = Callable[..., Sequence[Expr]] | None
"""Of the loop variables: conditions."""


class NestTensor:
    """A DRAM tensor or SRAM tile; indexing gives an element with the lanes of the nest."""

    def __init__(self, nests: Nests, buffer: tirx.Buffer):
        self._nests = nests
        self.buffer = buffer

    def __getitem__(self, index: Expr | tuple[Expr, ...]) -> Load:
        place = index if isinstance(index, tuple) else (index,)
        return self.buffer[(*place, *self._nests.lanes)]


class Nests:
    """The nests of one PrimFunc, in the order of the calls.

    Every nest takes the ``extents`` of its loops and functions of the loop variables; ``where``
    gives the conditions under which it does anything (tails: affine comparisons).
    """

    def __init__(self, config: VTAConfig):
        self._unit = (config.batch, config.block)
        self._block = config.block
        self._params: list[tirx.Buffer] = []
        self._sram: list[tirx.Buffer] = []
        self._body: list[list[tirx.Stmt]] = [[]]
        self.lanes: tuple[tirx.Var, tirx.Var] = _lanes()

    # ---------------------------------------------------------------- tensors
    def param(self, name: str, shape: Sequence[int], dtype: str = "int8") -> NestTensor:
        """A DRAM tensor of ``shape`` vectors."""
        return self._param(name, (*shape, *self._unit), dtype)

    def weights(self, name: str, count: int) -> NestTensor:
        """A DRAM tensor of ``count`` weight elements, int8."""
        return self._param(name, (count, self._block, self._block), "int8")

    def _param(self, name: str, shape: tuple[int, ...], dtype: str) -> NestTensor:
        self._params.append(tirx.decl_buffer(shape, dtype, name))
        return NestTensor(self, self._params[-1])

    def sram(self, scope: str, name: str, shape: Sequence[int]) -> NestTensor:
        """A tile of ``shape`` elements; it lives in the innermost loop around all its uses."""
        unit = (self._block, self._block) if scope == WGT else self._unit
        dtype = "int32" if scope == ACC else "int8"
        self._sram.append(tirx.decl_buffer((*shape, *unit), dtype, name, scope=scope))
        return NestTensor(self, self._sram[-1])

    # ---------------------------------------------------------------- nests
    @contextlib.contextmanager
    def loop(self, name: str, extent: int) -> Iterator[tirx.Var]:
        """A loop around the nests inside; gives its variable."""
        var = tirx.Var(name, "int32")
        self._body.append([])
        yield var
        self._body[-2].append(serial_for(var, extent, sequence(self._body.pop())))

    def load(
        self,
        name: str,
        extents: Sequence[int],
        move: Callable[..., tuple[Load, Load]],
        where: Where = None,
        inside: Where = None,
    ) -> None:
        """A DMA: ``move`` gives (destination, source); zero where ``inside`` does not hold."""
        loops = self._begin(extents)
        dst, src = move(*loops)
        weights = str(dst.source.scope()) == WGT
        value = src
        if dst.source.dtype != src.source.dtype:
            value = tirx.Cast(str(dst.source.dtype), src)
        conditions = list(inside(*loops)) if inside else []
        if conditions:
            zero = tirx.const(0, str(dst.source.dtype))
            value = tirx.if_then_else(tirx.all(*conditions), value, zero)
        unit = (self._block, self._block) if weights else self._unit
        self._nest(name, "dma_copy", loops, extents, unit, dst, value, where)

    def reset(
        self,
        name: str,
        extents: Sequence[int],
        target: Callable[..., Load],
        where: Where = None,
    ) -> None:
        """Zeros into the accumulator."""
        loops = self._begin(extents)
        zero = tirx.const(0, "int32")
        self._nest(name, "gemm", loops, extents, self._unit, target(*loops), zero, where)

    def gemm(
        self,
        name: str,
        extents: Sequence[int],
        operands: Callable[..., tuple[Load, Load, Load]],
        where: Where = None,
    ) -> None:
        """``acc += inp . wgt``: ``operands`` gives (acc, inp, wgt)."""
        loops = self._begin(extents)
        acc, inp, wgt = operands(*loops)
        (b, o), k = self.lanes, tirx.Var("rk", "int32")
        left = inp.source[(*list(inp.indices)[:-2], b, k)]
        right = wgt.source[(*list(wgt.indices)[:-2], o, k)]
        value = acc + tirx.Cast("int32", left) * tirx.Cast("int32", right)
        unit = (*self._unit, self._block)
        self._nest(name, "gemm", loops, extents, unit, acc, value, where, [k])

    def alu(self, name: str, extents: Sequence[int], change: Change, where: Where = None) -> None:
        """``change`` gives (destination, value); the value may read the destination."""
        loops = self._begin(extents)
        dst, value = change(*loops)
        self._nest(name, "alu", loops, extents, self._unit, dst, value, where)

    def store(self, name: str, extents: Sequence[int], change: Change, where: Where = None) -> None:
        """As :meth:`alu`; the value goes to DRAM as int8."""
        loops = self._begin(extents)
        dst, value = change(*loops)
        pragma = "dma_copy" if isinstance(value, type(dst)) else "alu,dma_copy"
        narrow = tirx.Cast("int8", value)
        self._nest(name, pragma, loops, extents, self._unit, dst, narrow, where)

    def keep(self, tile: NestTensor) -> None:
        """One instance of ``tile`` for all loops opened from here on.

        A tile lives where all its uses are: this is a use that never runs.
        """
        first = [0] * (len(tile.buffer.shape) - len(self._unit))
        never = tirx.const(0, "int32") < tirx.const(0, "int32")
        pragma = "gemm" if str(tile.buffer.scope()) == ACC else "dma_copy"
        zero, name = tirx.const(0, str(tile.buffer.dtype)), f"keep_{tile.buffer.name}"
        self._begin(())
        place = tile[tuple(first)]
        self._nest(name, pragma, (), (), self._unit, place, zero, lambda: [never])

    # ---------------------------------------------------------------- statements
    def _begin(self, extents: Sequence[int]) -> list[tirx.Var]:
        self.lanes = _lanes()
        return [tirx.Var(f"i{n}", "int32") for n in range(len(extents))]

    def _nest(
        self,
        name: str,
        pragma: str,
        loops: Sequence[tirx.Var],
        extents: Sequence[int],
        unit: Sequence[int],
        dst: Load,
        value: Expr,
        where: Where,
        reduced: Sequence[tirx.Var] = (),
    ) -> None:
        conditions = list(where(*loops)) if where else []
        holds = tirx.all(*conditions) if conditions else True
        block = SBlock([], [], [], name, tirx.BufferStore(dst.source, value, list(dst.indices)))
        stmt: tirx.Stmt = SBlockRealize([], holds, block)
        lanes = zip((*self.lanes, *reduced), unit, strict=True)
        pairs = [*zip(loops, extents, strict=True), *lanes]
        notes: Mapping[str, str] = {PRAGMA_KEY: pragma}
        for var, extent in reversed(pairs):
            stmt, notes = serial_for(var, extent, stmt, notes), {}
        self._body[-1].append(stmt)

    def func(self, slots: Mapping[str, int]) -> tirx.PrimFunc:
        """The PrimFunc of all nests so far; ``slots`` by SRAM scope."""
        block = SBlock([], [], [], "root", sequence(self._body[0]), alloc_buffers=self._sram)
        func = tirx.PrimFunc(self._params, SBlockRealize([], True, block))
        return func.with_attr(SLOTS_ATTR, dict(slots))


def _lanes() -> tuple[tirx.Var, tirx.Var]:
    return tirx.Var("b", "int32"), tirx.Var("k", "int32")


def serial_for(
    var: tirx.Var, extent: int, body: tirx.Stmt, notes: Mapping[str, str] | None = None
) -> tirx.For:
    """A serial loop from 0 to ``extent``; ``notes`` are its annotations."""
    return tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body, annotations=dict(notes or {}))


def sequence(stmts: Sequence[tirx.Stmt]) -> tirx.Stmt:
    """One statement for several in order."""
    return tirx.stmt_seq(*stmts)
