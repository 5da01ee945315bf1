"""Consumers in their producer's tiles: a scheduled PrimFunc that goes on before it stores.

The nest that stores a tile, ``out = int8(value(acc))``, becomes

    acc = value(acc);  for chunks of the tile:  load x;  acc += scale * x;  ...
    out = int8(steps(acc))

for each elementwise operator (:class:`.consumer.Tail`) that takes the tile where it is; a pool
makes a smaller tile of it.  Operands from DRAM are staged chunk by chunk, so that they need little
of the input buffer.  Any strategy's PrimFunc will do whose accumulators are not read again after
the store.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from tvm import ir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map, structural_walk

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.codegen.alu import loads_of
from vta_byoc.codegen.nest import extent_of, leaf_chain
from vta_byoc.codegen.walk import lower
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.elementwise.operands import Term
from vta_byoc.strategies.fused.consumer import (
    Carried,
    Tail,
    carried_plan,
    check_pool,
    pooled_by,
    tail_tensors,
)
from vta_byoc.strategies.te.base import OPERATORS
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, PoolWorkload, Step

CHUNK_SHARE = 4
"""A chunk takes at most this part of the input or the accumulator buffer."""
Expr: TypeAlias = tirx.Expr
Node = TypeVar("Node", bound=ir.Node)
LANES = 2


@dataclass(frozen=True)
class Roles:
    """Which dimensions of the result parameter are channels and which positions."""

    channel: tuple[int, ...]
    position: tuple[int, ...]

    def of(self, kind: str) -> tuple[int, ...]:
        """The dimensions that move an operand of ``kind``."""
        both = (*self.channel, *self.position)
        return {CHANNEL: self.channel, MAP: self.position, FULL: both}[kind]


def chunk_limit(config: VTAConfig) -> int:
    """Elements of a chunk, at most."""
    return max(1, min(config.inp_depth, config.acc_depth) // CHUNK_SHARE)


def with_tails(
    func: tirx.PrimFunc, tails: Sequence[Tail], roles: Roles, config: VTAConfig
) -> tirx.PrimFunc:
    """``func`` with ``tails`` between its computation and its store.

    Parameters: those of ``func`` without its result; for each tail the int8 operands that are not
    carried, its weights and its tensor operands; the result, in the shape that pools leave.
    """
    return _Writer(lower(func), tails, roles, config).func()


@dataclass
class _Stage:
    """One tail: its plan and its parameters."""

    tail: Tail
    plan: Carried | None
    data: dict[int, tirx.Buffer]
    weights: tirx.Buffer
    operands: list[tuple[str, tirx.Buffer]]
    staged: tirx.Buffer | None = None


@dataclass(frozen=True)
class _Loop:
    var: tirx.Var
    extent: int


@dataclass(frozen=True)
class _Store:
    """The nest that stores a tile, its lanes last; ``value`` is what STORE narrows to int8."""

    name: str
    loops: Sequence[_Loop]
    predicate: Expr
    place: Sequence[Expr]
    value: Expr

    @property
    def acc(self) -> TensorLoad:
        """The accumulators that the store reads; the ALU changes them in place."""
        value = self.value
        while not isinstance(value, TensorLoad):
            parts = [value.a, value.b] if hasattr(value, "a") else list(value.args)
            value = next(part for part in parts if loads_of(part))
        return value


class _Writer:
    def __init__(
        self, func: tirx.PrimFunc, tails: Sequence[Tail], roles: Roles, config: VTAConfig
    ):
        self._func, self._roles, self._config = func, roles, config
        *self._inputs, self._out = func.params
        self._shape = [int(d) for d in self._out.shape]
        self._stages = [self._stage(number, tail) for number, tail in enumerate(tails)]
        self._result = self._out
        if pooled_by(tails) != (1, 1):
            self._result = tirx.decl_buffer(self._shape, "int8", str(self._out.name))

    def func(self) -> tirx.PrimFunc:
        params = list(self._inputs)
        for stage in self._stages:
            params += [*stage.data.values(), stage.weights, *(p for _, p in stage.operands)]
        root = self._func.body
        loads, tiles = self._weights()
        body = _sequence([*loads, self._visit(root.block.body)])
        block = SBlock(
            [], [], [], "root", body, alloc_buffers=[*root.block.alloc_buffers, *tiles]
        )
        func = tirx.PrimFunc([*params, self._result], SBlockRealize([], True, block))
        return func.with_attrs(dict(self._func.attrs))

    def _stage(self, number: int, tail: Tail) -> _Stage:
        config, prefix = self._config, f"tail{number}_"
        plan, scales = None, 1
        if isinstance(tail.work, PoolWorkload):
            check_pool(tail.work)
            for dim, pooled in zip(self._roles.position, tail.work.out_shape[2:], strict=True):
                self._shape[dim] = pooled
        else:
            plan = carried_plan(tail, config)
            scales = len(plan.scales)
        shape = list(self._shape)
        lanes, name = shape[-LANES:], f"{prefix}scales"
        data = {i: tirx.decl_buffer(shape, "int8", f"{prefix}data{i}") for i in tail.others}
        weights = tirx.decl_buffer((scales, config.block, config.block), "int8", name)
        operands = []
        for count, kind in enumerate(tail_tensors(tail)):
            size = [shape[d] for d in self._roles.of(kind)]
            name = f"{prefix}operand{count}"
            operands.append((kind, tirx.decl_buffer((*size, *lanes), "int32", name)))
        return _Stage(tail, plan, data, weights, operands)

    def _weights(self) -> tuple[list[tirx.Stmt], list[tirx.Buffer]]:
        """The loads of the diagonal weights, which stay, and their tiles."""
        stmts, tiles = [], []
        for number, stage in enumerate(self._stages):
            if stage.plan is None or not stage.plan.loaded:
                continue
            held = stage.plan.weights
            shape = [len(held), *(int(d) for d in stage.weights.shape[1:])]
            name = f"tail{number}_weights"
            stage.staged = tirx.decl_buffer(shape, "int8", name, scope=WGT)
            loops = [_Loop(tirx.Var(f"w{d}", "int32"), size) for d, size in enumerate(shape)]
            index = [loop.var for loop in loops]
            source = stage.weights[(index[0] + held.start, *index[1:])]
            store = tirx.BufferStore(stage.staged, source, index)
            stmts.append(_nest(f"load_{name}", "dma_copy", loops, store, True))
            tiles.append(stage.staged)
        return stmts, tiles

    # ---------------------------------------------------------------- finding the store
    def _visit(self, stmt: tirx.Stmt) -> tirx.Stmt:
        if isinstance(stmt, tirx.SeqStmt):
            return _sequence([self._visit(part) for part in stmt.seq])
        chain = leaf_chain(stmt) if isinstance(stmt, tirx.For | SBlockRealize) else None
        if chain is not None:
            store = chain[1].block.body
            return self._continued(*chain) if self._is_store(store) else stmt
        if isinstance(stmt, tirx.For):
            return _for(_Loop(stmt.loop_var, extent_of(stmt)), self._visit(stmt.body))
        block = stmt.block
        inner = SBlock(
            [], [], [], block.name_hint, self._visit(block.body), alloc_buffers=block.alloc_buffers
        )
        return SBlockRealize([], stmt.predicate, inner)

    def _is_store(self, stmt: tirx.Stmt) -> bool:
        return isinstance(stmt, tirx.BufferStore) and bool(stmt.buffer.same_as(self._out))

    def _continued(self, loops: Sequence[tirx.For], real: SBlockRealize) -> tirx.Stmt:
        body = real.block.body
        store = _Store(
            str(real.block.name_hint),
            [_Loop(loop.loop_var, extent_of(loop)) for loop in loops],
            real.predicate,
            list(body.indices),
            body.value.value,
        )
        return _Tile(store, self._result, self._stages, self._roles, self._config).stmt()


class _Tile:
    """The statements that take the place of one store."""

    def __init__(
        self,
        store: _Store,
        result: tirx.Buffer,
        stages: Sequence[_Stage],
        roles: Roles,
        config: VTAConfig,
    ):
        self._store, self._result, self._stages = store, result, stages
        self._roles, self._config = roles, config
        self._acc = store.acc
        self._value = store.value
        self._body: list[tirx.Stmt] = []
        self._tiles: list[tirx.Buffer] = []
        self._lanes = [loop.var for loop in store.loops[-LANES:]]
        self._cut()

    def _cut(self) -> None:
        """Divide the loops into those over chunks and those of a chunk."""
        loops = self._store.loops
        extents = [loop.extent for loop in loops[:-LANES]]
        count = peeled(extents, chunk_limit(self._config))
        self._peeled, self._kept = loops[:count], loops[count:]

    def stmt(self) -> tirx.Stmt:
        for number, stage in enumerate(self._stages):
            if stage.plan is None:
                self._pool(f"tail{number}_", stage)
            else:
                self._tail(f"tail{number}_", stage, stage.plan)
        narrow = tirx.Cast("int8", self._value)
        store = tirx.BufferStore(self._result, narrow, list(self._store.place))
        pragma = "dma_copy" if self._value.same_as(self._acc) else "alu,dma_copy"
        self._add(self._nest(self._store.name, pragma, self._store.loops, store))
        if not self._tiles:
            return _sequence(self._body)
        block = SBlock([], [], [], "tile", _sequence(self._body), alloc_buffers=self._tiles)
        return SBlockRealize([], True, block)

    def _pool(self, prefix: str, stage: _Stage) -> None:
        """Windows of the tile become a smaller tile, on which everything goes on."""
        work = stage.tail.work
        assert isinstance(work, PoolWorkload)
        self._flush(f"{prefix}value", None)
        place, loops = list(self._store.place), list(self._store.loops)
        taps: list[dict[tirx.Var, Expr]] = [{}]
        for dim, size in zip(self._roles.position, work.kernel, strict=True):
            at = next(i for i, loop in enumerate(loops) if _reads(place[dim], loop.var))
            whole = loops[at]
            fresh = tirx.Var(f"{whole.var.name}_pooled", "int32")
            loops[at] = part = _Loop(fresh, whole.extent // size)
            first = part.var * size
            taps = [{**tap, whole.var: first + d} for tap in taps for d in range(size)]
            moved = _substituted(place[dim], {whole.var: first})
            place[dim] = tirx.floordiv(moved, size)
        join = OPERATORS["max" if work.kind == "max" else "add"]
        value = functools.reduce(join, (_substituted(self._acc, tap) for tap in taps))
        tile = tirx.decl_buffer(
            [loop.extent for loop in loops], "int32", f"{prefix}pooled", scope=ACC
        )
        # a window is there if its last row and column are
        where = _substituted(self._store.predicate, taps[-1])
        self._store = dataclasses.replace(self._store, loops=loops, predicate=where, place=place)
        self._tiles.append(tile)
        index = [loop.var for loop in loops]
        store = tirx.BufferStore(tile, value, index)
        self._add(self._nest(f"{prefix}pool", "alu", loops, store))
        self._acc = self._value = tile[tuple(index)]
        self._cut()
        self._after(prefix, stage, work.epilogue.steps, 0)

    def _tail(self, prefix: str, stage: _Stage, plan: Carried) -> None:
        chunk = _Chunk()
        if plan.other is not None:
            self._other(prefix, stage, plan, chunk)
        self._value = self._applied(prefix, stage, self._value, plan.before, plan.first, chunk)
        if plan.summed or plan.other is not None or chunk.body:
            self._flush(f"{prefix}before", chunk)
        for number, term in enumerate(plan.summed):
            self._gemm(f"{prefix}sum{number}", stage, plan, term, self._acc, chunk)
        if plan.other is not None:
            assert plan.op is not None
            joined = OPERATORS[plan.op](self._acc, chunk.other)
            self._alu(f"{prefix}joined", self._acc, joined, chunk)
        self._close(chunk)
        self._after(prefix, stage, plan.after, plan.last)

    def _after(self, prefix: str, stage: _Stage, steps: Sequence[Step], first: int) -> None:
        """``steps`` on the result of a stage."""
        chunk = _Chunk()
        self._value = self._applied(prefix, stage, self._value, steps, first, chunk)
        if chunk.body:
            # operands by position or channel are there for this chunk only
            self._flush(f"{prefix}after", chunk)
            self._close(chunk)

    def _other(self, prefix: str, stage: _Stage, plan: Carried, chunk: _Chunk) -> None:
        """The other side in accumulators of its own."""
        term = plan.other
        assert term is not None
        other = chunk.other = self._chunked(f"{prefix}other", ACC, "int32", chunk)
        start = other
        if plan.copied:
            self._flush(f"{prefix}value", None)
            start = self._acc
        else:
            zero = tirx.const(0, "int32")
            self._put(f"{prefix}clear", "gemm", other, zero, chunk)
            self._gemm(f"{prefix}widen", stage, plan, term, other, chunk)
        steps = plan.other_steps
        value = self._applied(prefix, stage, start, steps, term.first, chunk)
        if not value.same_as(other):
            self._alu(f"{prefix}other", other, value, chunk)

    def _applied(
        self,
        prefix: str,
        stage: _Stage,
        value: Expr,
        steps: Sequence[Step],
        first: int,
        chunk: _Chunk,
    ) -> Expr:
        """``value`` after ``steps``; their tensor operands, from ``first`` on, are staged."""
        for step in steps:
            operand: Expr
            if step.is_tensor:
                kind, param = stage.operands[first]
                operand = self._operand(f"{prefix}value{first}", kind, param, chunk)
                first += 1
            else:
                operand = tirx.const(int(step.operand), "int32")
            value = OPERATORS[step.op](value, operand)
        return value

    def _operand(self, name: str, kind: str, param: tirx.Buffer, chunk: _Chunk) -> Expr:
        """The staged tensor operand at the nest's element."""
        place = [self._store.place[d] for d in self._roles.of(kind)]
        used = [loop for loop in self._kept[:-LANES] if any(_reads(p, loop.var) for p in place)]
        loops = [*used, *self._kept[-LANES:]]
        tile = tirx.decl_buffer([loop.extent for loop in loops], "int32", name, scope=ACC)
        index = [loop.var for loop in loops]
        store = tirx.BufferStore(tile, param[(*place, *self._lanes)], index)
        idle = {loop.var: tirx.const(0, "int32") for loop in self._kept if loop not in loops}
        where = _substituted(self._store.predicate, idle)
        chunk.tiles.append(tile)
        chunk.body.append(_nest(f"load_{name}", "dma_copy", loops, store, where))
        return tile[tuple(index)]

    def _gemm(
        self, name: str, stage: _Stage, plan: Carried, term: Term, acc: Expr, chunk: _Chunk
    ) -> None:
        """``acc += scale * operand``."""
        data = self._chunked(f"{name}_data", INP, "int8", chunk)
        source = stage.data[term.operand][tuple(self._store.place)]
        self._put(f"{name}_load", "dma_copy", data, source, chunk)
        out, reduced = self._lanes[-1], _Loop(tirx.Var("rk", "int32"), self._config.block)
        left = data.source[(*list(data.indices)[:-1], reduced.var)]
        scale = plan.scales.index(term.scale) - plan.weights.start
        assert stage.staged is not None
        right = stage.staged[scale, out, reduced.var]
        value = acc + tirx.Cast("int32", left) * tirx.Cast("int32", right)
        store = tirx.BufferStore(acc.source, value, list(acc.indices))
        chunk.body.append(self._nest(name, "gemm", [*self._kept, reduced], store))

    # ---------------------------------------------------------------- nests
    def _chunked(self, name: str, scope: str, dtype: str, chunk: _Chunk) -> Expr:
        """A new tile for a chunk, at the nest's element."""
        tile = tirx.decl_buffer([loop.extent for loop in self._kept], dtype, name, scope=scope)
        chunk.tiles.append(tile)
        return tile[tuple(loop.var for loop in self._kept)]

    def _put(self, name: str, pragma: str, target: Expr, value: Expr, chunk: _Chunk) -> None:
        store = tirx.BufferStore(target.source, value, list(target.indices))
        chunk.body.append(self._nest(name, pragma, self._kept, store))

    def _alu(self, name: str, target: Expr, value: Expr, chunk: _Chunk) -> None:
        self._put(name, "alu", target, value, chunk)
        if target.same_as(self._acc):
            self._value = self._acc

    def _flush(self, name: str, chunk: _Chunk | None) -> None:
        """Compute what is pending: in ``chunk``, or for the whole tile."""
        if self._value.same_as(self._acc):
            return
        if chunk is not None and chunk.body:
            self._alu(name, self._acc, self._value, chunk)
            return
        store = tirx.BufferStore(self._acc.source, self._value, list(self._acc.indices))
        self._add(self._nest(name, "alu", self._store.loops, store))
        self._value = self._acc

    def _nest(
        self, name: str, pragma: str, loops: Sequence[_Loop], store: tirx.BufferStore
    ) -> tirx.Stmt:
        return _nest(name, pragma, loops, store, self._store.predicate)

    def _close(self, chunk: _Chunk) -> None:
        """Add the loops over chunks."""
        if not chunk.body:
            return
        block = SBlock([], [], [], "chunk", _sequence(chunk.body), alloc_buffers=chunk.tiles)
        stmt: tirx.Stmt = SBlockRealize([], True, block)
        fresh = {loop.var: tirx.Var(loop.var.name, "int32") for loop in self._peeled}
        stmt = _substituted(stmt, fresh)
        for loop in reversed(self._peeled):
            stmt = _for(_Loop(fresh[loop.var], loop.extent), stmt)
        self._add(stmt)

    def _add(self, stmt: tirx.Stmt) -> None:
        self._body.append(stmt)


@dataclass
class _Chunk:
    """Nests on a part of the tile, the tiles that they use, and the other side's element."""

    body: list[tirx.Stmt] = field(default_factory=list)
    tiles: list[tirx.Buffer] = field(default_factory=list)
    other: TensorLoad | None = None


def peeled(extents: Sequence[int], limit: int) -> int:
    """How many of the outermost loops run over chunks of at most ``limit`` elements."""
    count = 0
    while math.prod(extents[count:]) > limit:
        count += 1
    return count


def _reads(expr: Expr, var: tirx.Var) -> bool:
    found: list[tirx.Var] = []
    structural_walk(expr, (tirx.Var, found.append))
    return any(node.same_as(var) for node in found)


def _substituted(node: Node, values: Mapping[tirx.Var, Expr]) -> Node:
    return structural_map(node, (tirx.Var, lambda var: values.get(var, var)))


def _nest(
    name: str, pragma: str, loops: Sequence[_Loop], store: tirx.BufferStore, where: Expr | bool
) -> tirx.Stmt:
    """``store`` in loops of its own, which have the names of ``loops``."""
    fresh = {loop.var: tirx.Var(loop.var.name, "int32") for loop in loops}
    block = SBlock([], [], [], name, _substituted(store, fresh))
    predicate = where if isinstance(where, bool) else _substituted(where, fresh)
    stmt: tirx.Stmt = SBlockRealize([], predicate, block)
    notes: Mapping[str, str] = {PRAGMA_KEY: pragma}
    for loop in reversed(loops):
        stmt, notes = _for(_Loop(fresh[loop.var], loop.extent), stmt, notes), {}
    return stmt


def _for(loop: _Loop, body: tirx.Stmt, notes: Mapping[str, str] | None = None) -> tirx.For:
    kind = tirx.ForKind.SERIAL
    return tirx.For(loop.var, 0, loop.extent, kind, body, annotations=dict(notes or {}))


def _sequence(stmts: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return stmts[0] if len(stmts) == 1 else tirx.SeqStmt(list(stmts))
