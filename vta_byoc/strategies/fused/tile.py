"""The tile of a producer with fused consumers: what takes the place of the nest that stores it.

The nest ``out = int8(value(acc))`` becomes

    acc = value(acc);  for chunks of the tile:  load x;  acc += scale * x;  ...
    out = int8(steps(acc))

for each elementwise operator; a pool makes a smaller tile of it.  Operands from DRAM are staged
chunk by chunk, so that they need little of the input buffer.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.fused.chunks import chunk_limit, divisor, peeled
from vta_byoc.strategies.fused.consumer import (
    RISING,
    FusedConsumer,
    FusedPlan,
    computed_order,
    overlaps,
    pools_first,
)
from vta_byoc.strategies.fused.nests import (
    LANES,
    Expr,
    Loop,
    Store,
    nest,
    reads,
    substituted,
    with_loads,
)
from vta_byoc.strategies.fused.overlapping import overlapping_maxima
from vta_byoc.strategies.fused.planes import Planes
from vta_byoc.strategies.te.definition import OPERATORS
from vta_byoc.strategies.te.prologue import Term
from vta_byoc.strategies.te.tir_builder import sequence, serial_for
from vta_byoc.workload.alu import operation_of
from vta_byoc.workload.memory import ACC, INP
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, PoolWorkload, Step


@dataclass(frozen=True)
class Roles:
    """Which dimensions of the result parameter are channels and which positions.

    ``sorted``: whether the GEMM core may sort the accumulators into planes (:mod:`.planes`).
    """

    channel: tuple[int, ...]
    position: tuple[int, ...]
    sorted: bool = False

    def of(self, kind: str) -> tuple[int, ...]:
        """The dimensions that move an operand of ``kind``."""
        both = (*self.channel, *self.position)
        return {CHANNEL: self.channel, MAP: self.position, FULL: both}[kind]


@dataclass
class Stage:
    """One fused consumer: its plan (None of a pool) and its parameters."""

    consumer: FusedConsumer
    plan: FusedPlan | None
    data: dict[int, tirx.Buffer]
    weights: tirx.Buffer
    operands: list[tuple[str, tirx.Buffer]]
    staged: tirx.Buffer | None = None


class Tile:
    """The statements that take the place of one store."""

    def __init__(
        self,
        store: Store,
        result: tirx.Buffer,
        stages: Sequence[Stage],
        roles: Roles,
        config: VTAConfig,
        planes: Planes | None = None,
    ):
        self._planes = planes
        self._store, self._result, self._stages = store, result, stages
        self._roles, self._config = roles, config
        self._acc = store.acc
        self._value = store.value
        self._body: list[tirx.Stmt] = []
        self._tiles: list[tirx.Buffer] = []
        self._lanes = [loop.var for loop in store.loops[-LANES:]]
        self._cut()

    def _cut(self) -> None:
        """Divide the loops into those over chunks and those of a chunk, one perhaps into both."""
        loops, limit = self._store.loops, chunk_limit(self._config)
        extents = [loop.extent for loop in loops[:-LANES]]
        count = peeled(extents, limit)
        self._peeled, self._kept, self._divided = loops[:count], loops[count:], {}
        part = divisor(extents[count - 1], limit // math.prod(extents[count:])) if count else 1
        if part > 1:
            *outer, whole = self._peeled
            over = Loop(tirx.Var(f"{whole.var.name}_chunk", "int32"), whole.extent // part)
            inside = Loop(tirx.Var(f"{whole.var.name}_part", "int32"), part)
            self._peeled, self._kept = [*outer, over], [inside, *self._kept]
            self._divided = {whole.var: over.var * part + inside.var}

    def stmt(self) -> tirx.Stmt:
        """All of them, the store of the result last."""
        for number in computed_order([stage.consumer for stage in self._stages]):
            stage = self._stages[number]
            if overlaps(stage.consumer.work):
                self._overlapping(f"fused{number}_", stage)
            elif stage.plan is None:
                self._pool(f"fused{number}_", stage)
            else:
                self._elementwise(f"fused{number}_", stage, stage.plan)
        narrow = tirx.Cast("int8", self._value)
        store = tirx.BufferStore(self._result, narrow, list(self._store.place))
        pragma = "dma_copy" if self._value.same_as(self._acc) else "alu,dma_copy"
        self._add(self._nest(self._store.name, pragma, self._store.loops, store))
        if not self._tiles:
            return sequence(self._body)
        block = SBlock([], [], [], "tile", sequence(self._body), alloc_buffers=self._tiles)
        return SBlockRealize([], True, block)

    def _pool(self, prefix: str, stage: Stage) -> None:
        """Windows of the tile become a smaller tile, on which everything goes on."""
        work = stage.consumer.work
        assert isinstance(work, PoolWorkload)
        pending, raw = self._value, self._acc
        planes, self._planes = self._planes, None  # a pool behind has a tile of windows
        if planes is not None or (
            is_on("pool_first") and pools_first(work) and self._rises(pending)
        ):
            self._value = raw  # what is pending is computed of the maxima
        else:
            self._flush(f"{prefix}value", None)
            pending = raw
        windows = self._windows(work)
        index = [loop.var for loop in self._store.loops]
        if planes is None:
            values = [substituted(self._acc, tap) for tap in windows.taps]
            extents = [loop.extent for loop in self._store.loops]
            tile = tirx.decl_buffer(extents, "int32", f"{prefix}pooled", scope=ACC)
            self._tiles.append(tile)
            pooled = tile[tuple(index)]
        else:
            values = planes.elements(self._acc, windows.parts)
            pooled = values[0]
        join = OPERATORS["max" if work.kind == "max" else "add"]
        value = functools.reduce(join, values)
        store = tirx.BufferStore(pooled.source, value, list(pooled.indices))
        self._add(self._nest(f"{prefix}pool", "alu", self._store.loops, store))
        self._acc = pooled
        self._value = with_loads(pending, raw, self._acc)
        self._cut()
        self._after(prefix, stage, work.epilogue.steps, 0)

    def _windows(self, work: PoolWorkload) -> _Windows:
        """Go on with a loop over windows in place of each over positions."""
        place, loops = list(self._store.place), list(self._store.loops)
        taps: list[dict[tirx.Var, Expr]] = [{}]
        parts: list[tirx.Var] = []
        for dim, size in zip(self._roles.position, work.kernel, strict=True):
            at = next(i for i, loop in enumerate(loops) if reads(place[dim], loop.var))
            whole = loops[at]
            fresh = tirx.Var(f"{whole.var.name}_pooled", "int32")
            loops[at] = part = Loop(fresh, whole.extent // size)
            parts.append(part.var)
            first = part.var * size
            taps = [{**tap, whole.var: first + d} for tap in taps for d in range(size)]
            moved = substituted(place[dim], {whole.var: first})
            place[dim] = tirx.floordiv(moved, size)
        # a window is there if its last row and column are
        where = substituted(self._store.predicate, taps[-1])
        self._store = dataclasses.replace(self._store, loops=loops, predicate=where, place=place)
        return _Windows(taps, parts)

    def _overlapping(self, prefix: str, stage: Stage) -> None:
        """Windows that the tile, which is of the pool's result, sees become one each."""
        work = stage.consumer.work
        assert isinstance(work, PoolWorkload)
        maxima = overlapping_maxima(prefix, self._store, work, self._roles.position)
        self._tiles += maxima.tiles
        for each in maxima.nests:
            self._add(each)
        self._acc, self._value = maxima.result, maxima.value

    def _rises(self, value: Expr) -> bool:
        """Whether ``value`` never falls where its accumulator rises, alike at all positions."""
        if value.same_as(self._acc):
            return True
        if isinstance(value, tirx.Sub) and isinstance(value.b, tirx.IntImm):
            return self._rises(value.a)  # which TVM makes of a negative number that is added
        row = operation_of(value)
        if row is None or row.name not in (*RISING, "mul"):
            return False
        operand = value.b
        if isinstance(operand, tirx.IntImm):
            return self._rises(value.a) and (row.name != "mul" or int(operand.value) >= 0)
        moved = [self._store.place[dim] for dim in self._roles.position]
        loops = [x.var for x in self._store.loops if any(reads(at, x.var) for at in moved)]
        is_channel = isinstance(operand, TensorLoad) and row.name in RISING
        return is_channel and self._rises(value.a) and not any(reads(operand, v) for v in loops)

    def _elementwise(self, prefix: str, stage: Stage, plan: FusedPlan) -> None:
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
            own = (prefix, stage, joined, plan.with_other, plan.last, chunk)
            self._alu(f"{prefix}joined", self._acc, self._applied(*own), chunk)
        self._close(chunk)
        tensors = sum(step.is_tensor for step in plan.with_other)
        self._after(prefix, stage, plan.after[len(plan.with_other) :], plan.last + tensors)

    def _after(self, prefix: str, stage: Stage, steps: Sequence[Step], first: int) -> None:
        """``steps`` on the result of a stage."""
        chunk = _Chunk()
        self._value = self._applied(prefix, stage, self._value, steps, first, chunk)
        if chunk.body:
            # operands by position or channel are there for this chunk only
            self._flush(f"{prefix}after", chunk)
            self._close(chunk)

    def _other(self, prefix: str, stage: Stage, plan: FusedPlan, chunk: _Chunk) -> None:
        """The other operand in accumulators of its own."""
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
        stage: Stage,
        value: Expr,
        steps: Sequence[Step],
        first: int,
        chunk: _Chunk,
    ) -> Expr:
        """``value`` after ``steps``; their tensor operands, from ``first`` on, are staged."""
        for step in steps:
            operand: Expr
            if step.is_square:
                operand = value
            elif step.is_other:
                assert chunk.other is not None, f"nothing is joined before {steps}"
                operand = chunk.other
            elif step.is_tensor:
                kind, param = stage.operands[first]
                operand = self._operand(f"{prefix}value{first}", kind, param, chunk)
                first += 1
            else:
                operand = tirx.const(int(step.operand), "int32")
            value = OPERATORS[step.op](value, operand)
        return value

    def _operand(self, name: str, kind: str, param: tirx.Buffer, chunk: _Chunk) -> Expr:
        """The staged tensor operand at the nest's element."""
        place = [substituted(self._store.place[d], self._divided) for d in self._roles.of(kind)]
        used = [loop for loop in self._kept[:-LANES] if any(reads(p, loop.var) for p in place)]
        loops = [*used, *self._kept[-LANES:]]
        tile = tirx.decl_buffer([loop.extent for loop in loops], "int32", name, scope=ACC)
        index = [loop.var for loop in loops]
        store = tirx.BufferStore(tile, param[(*place, *self._lanes)], index)
        idle = {loop.var: tirx.const(0, "int32") for loop in self._kept if loop not in loops}
        where = substituted(substituted(self._store.predicate, self._divided), idle)
        chunk.tiles.append(tile)
        chunk.body.append(nest(f"load_{name}", "dma_copy", loops, store, where))
        return tile[tuple(index)]

    def _gemm(
        self, name: str, stage: Stage, plan: FusedPlan, term: Term, acc: Expr, chunk: _Chunk
    ) -> None:
        """``acc += scale * operand``."""
        data = self._chunked(f"{name}_data", INP, "int8", chunk)
        source = stage.data[term.operand][tuple(self._store.place)]
        self._put(f"{name}_load", "dma_copy", data, source, chunk)
        out, reduced = self._lanes[-1], Loop(tirx.Var("rk", "int32"), self._config.block)
        left = data.source[(*list(data.indices)[:-1], reduced.var)]
        scale = plan.scales.index(term.scale) - plan.weights.start
        assert stage.staged is not None
        right = stage.staged[scale, out, reduced.var]
        value = acc + tirx.Cast("int32", left) * tirx.Cast("int32", right)
        store = tirx.BufferStore(acc.source, value, list(acc.indices))
        chunk.body.append(self._part(name, "gemm", [*self._kept, reduced], store))

    # ---------------------------------------------------------------- nests
    def _chunked(self, name: str, scope: str, dtype: str, chunk: _Chunk) -> Expr:
        """A new tile for a chunk, at the nest's element."""
        tile = tirx.decl_buffer([loop.extent for loop in self._kept], dtype, name, scope=scope)
        chunk.tiles.append(tile)
        return tile[tuple(loop.var for loop in self._kept)]

    def _put(self, name: str, pragma: str, target: Expr, value: Expr, chunk: _Chunk) -> None:
        store = tirx.BufferStore(target.source, value, list(target.indices))
        chunk.body.append(self._part(name, pragma, self._kept, store))

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
        self, name: str, pragma: str, loops: Sequence[Loop], store: tirx.BufferStore
    ) -> tirx.Stmt:
        return nest(name, pragma, loops, store, self._store.predicate)

    def _part(
        self, name: str, pragma: str, loops: Sequence[Loop], store: tirx.BufferStore
    ) -> tirx.Stmt:
        """A nest on a chunk."""
        where = substituted(self._store.predicate, self._divided)
        return nest(name, pragma, loops, substituted(store, self._divided), where)

    def _close(self, chunk: _Chunk) -> None:
        """Add the loops over chunks."""
        if not chunk.body:
            return
        block = SBlock([], [], [], "chunk", sequence(chunk.body), alloc_buffers=chunk.tiles)
        stmt: tirx.Stmt = SBlockRealize([], True, block)
        fresh = {loop.var: tirx.Var(loop.var.name, "int32") for loop in self._peeled}
        stmt = substituted(stmt, fresh)
        for loop in reversed(self._peeled):
            stmt = serial_for(fresh[loop.var], loop.extent, stmt)
        self._add(stmt)

    def _add(self, stmt: tirx.Stmt) -> None:
        self._body.append(stmt)


@dataclass(frozen=True)
class _Windows:
    """Windows in place of positions: where each of theirs was, and the loops along them."""

    taps: list[dict[tirx.Var, Expr]]
    parts: list[tirx.Var]


@dataclass
class _Chunk:
    """Nests on a part of the tile, the tiles that they use, and the other operand's element."""

    body: list[tirx.Stmt] = field(default_factory=list)
    tiles: list[tirx.Buffer] = field(default_factory=list)
    other: TensorLoad | None = None
