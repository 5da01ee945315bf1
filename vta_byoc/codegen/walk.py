"""Walks a scheduled, lowered PrimFunc with concrete loop values and emits instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from tvm import IRModule, s_tir, tirx
from tvm.ir import transform as ir_transform
from tvm.s_tir import SBlockRealize

from vta_byoc.hw.config import VTAConfig

from .leaf import ACC, INP, PRAGMA_KEY, SRAM_SCOPES, WGT, Classifier, Leaf, element_scalars
from .linear import CodegenError, VarTable

SLOTS_ATTR = "vta.slots"
DEFAULT_SLOTS = 2


def lower(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The stock passes that make SRAM tiles explicit and blocks opaque."""
    passes = ir_transform.Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
        ]
    )
    return passes(IRModule({"main": func}))["main"]


class Emitter(Protocol):
    """What the walker drives: one call per execution of a leaf."""

    def emit(self, leaf: Leaf, env: Mapping[int, int], sram: SramMap) -> None: ...


def depth_of(config: VTAConfig, scope: str) -> int:
    """Elements of the SRAM behind ``scope``."""
    return {INP: config.inp_depth, WGT: config.wgt_depth, ACC: config.acc_depth}[scope]


class SramMap:
    """Where each SRAM buffer's current instance lives.

    Each execution of an allocating block is a new instance; instance i takes slot i mod slots, a
    slot is carved out when it is first used.  A virtual thread owns the slot of its number.
    """

    def __init__(
        self,
        config: VTAConfig,
        shapes: Mapping[tirx.Var, Sequence[int]],
        slots: Mapping[str, int],
    ):
        self._config = config
        self._shapes = shapes
        self._slots = slots
        self._top = dict.fromkeys(SRAM_SCOPES, 0)
        self._base: dict[tuple[tirx.Var, int], int] = {}
        self._count: dict[tirx.Var, int] = {}
        self._now: dict[tirx.Var, int] = {}
        self.generation: dict[tirx.Var, int] = {}

    def size(self, buffer: tirx.Var) -> int:
        """Elements of one instance of ``buffer``."""
        unit = element_scalars(self._config, str(buffer.scope()))
        scalars = int(np.prod([int(s) for s in self._shapes[buffer]], dtype=np.int64))
        if scalars % unit:
            raise CodegenError(
                f"buffer {buffer.name} in {buffer.scope()} has {scalars} scalars; an element has "
                f"{unit}; stage whole elements"
            )
        return scalars // unit

    def new_instance(self, buffer: tirx.Var, thread: int | None) -> None:
        count = self._count.get(buffer, 0)
        self._count[buffer] = count + 1
        slots = self._slots.get(str(buffer.scope()), DEFAULT_SLOTS)
        self._select(buffer, count % slots if thread is None else thread)
        self.generation[buffer] = self.generation.get(buffer, 0) + 1

    def select_thread(self, thread: int, buffers: Sequence[tirx.Var]) -> None:
        """Make every buffer of ``buffers`` mean the instance of virtual thread ``thread``."""
        for buffer in buffers:
            self._select(buffer, thread)

    def base(self, buffer: tirx.Var) -> int:
        """First SRAM element of the current instance."""
        return self._now[buffer]

    def _select(self, buffer: tirx.Var, slot: int) -> None:
        if (buffer, slot) not in self._base:
            scope = str(buffer.scope())
            at, size, depth = self._top[scope], self.size(buffer), depth_of(self._config, scope)
            if at + size > depth:
                raise CodegenError(
                    f"{scope} needs {at + size} elements for {buffer.name} (slot {slot}); this "
                    f"machine has {depth}; use smaller tiles or one slot ({SLOTS_ATTR})"
                )
            self._base[buffer, slot] = at
            self._top[scope] = at + size
        self._now[buffer] = self._base[buffer, slot]


def _slots_of(func: tirx.PrimFunc) -> dict[str, int]:
    """Slots per SRAM scope that the schedule asked for (attribute SLOTS_ATTR)."""
    if SLOTS_ATTR not in func.attrs:
        return {}
    return {str(scope): int(count) for scope, count in func.attrs[SLOTS_ATTR].items()}


class Walker:
    """Executes the loops of one PrimFunc and hands every leaf to the emitter."""

    def __init__(self, config: VTAConfig, func: tirx.PrimFunc, emitter: Emitter):
        self._table = VarTable()
        self._emitter = emitter
        self._env: dict[int, int] = {}
        self._threads: list[tuple[int, int]] = []
        self._threaded: list[tirx.Var] = []
        self._leaves: dict[tirx.Stmt, Leaf | None] = {}
        shapes = tile_shapes(func, self._table)
        self._classifier = Classifier(config, self._table, shapes)
        self._sram = SramMap(config, shapes, _slots_of(func))
        self._body = func.body

    def run(self) -> None:
        """Walk the whole function."""
        self._visit(self._body)

    def _visit(self, stmt: tirx.Stmt) -> None:
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self._visit(part)
        elif isinstance(stmt, (tirx.For, SBlockRealize)):
            leaf = self._leaf(stmt)
            if leaf is not None:
                self._execute(leaf)
            elif isinstance(stmt, tirx.For):
                self._loop(stmt)
            else:
                self._block(stmt)
        else:
            raise CodegenError(
                f"{type(stmt).__name__} around or between nests; a scheduled VTA function has "
                "loops, blocks and sequences only; decompose_reduction a block with an init"
            )

    def _loop(self, loop: tirx.For) -> None:
        if PRAGMA_KEY in loop.annotations:
            raise CodegenError(
                f"loop {loop.loop_var.name} carries pragma {loop.annotations[PRAGMA_KEY]} but "
                "holds more than one block; annotate a loop around a single block"
            )
        extent = extent_of(loop)
        var = self._table.bind(loop.loop_var, extent)
        if loop.thread_binding is not None:
            self._check_thread(loop)
            self._threads.append((var, extent))
            self._visit(loop.body)
            self._threads.pop()
            self._threaded.clear()
            return
        for value in range(extent):
            self._env[var] = value
            self._visit(loop.body)
        self._env.pop(var, None)

    def _check_thread(self, loop: tirx.For) -> None:
        tag, name = str(loop.thread_binding.thread_tag), loop.loop_var.name
        if not tag.startswith("vthread"):
            raise CodegenError(
                f"loop {name} is bound to {tag}; VTA has virtual threads only; bind it to vthread.x"
            )
        if self._threads:
            raise CodegenError(
                f"loop {name} nests a virtual thread in another; their tiles interleave one way "
                "only; bind one loop to vthread.x at most"
            )

    def _block(self, real: SBlockRealize) -> None:
        for buffer in real.block.alloc_buffers:
            if str(buffer.scope()) not in SRAM_SCOPES:
                raise CodegenError(
                    f"buffer {buffer.name} is allocated in {buffer.scope()}; VTA stages tensors in "
                    f"{', '.join(SRAM_SCOPES)}; set_scope or compute_inline it"
                )
            for thread in range(self._threads[0][1]) if self._threads else [None]:
                self._sram.new_instance(buffer, thread)
            if self._threads and buffer not in self._threaded:
                self._threaded.append(buffer)
        self._visit(real.block.body)

    def _execute(self, leaf: Leaf) -> None:
        if not self._threads:
            self._emitter.emit(leaf, self._env, self._sram)
            return
        var, extent = self._threads[0]
        for thread in range(extent):
            self._env[var] = thread
            self._sram.select_thread(thread, self._threaded)
            self._emitter.emit(leaf, self._env, self._sram)
        del self._env[var]

    def _leaf(self, stmt: tirx.For | SBlockRealize) -> Leaf | None:
        if stmt not in self._leaves:
            chain = leaf_chain(stmt)
            self._leaves[stmt] = self._classifier.classify(*chain) if chain else None
        return self._leaves[stmt]


def extent_of(loop: tirx.For) -> int:
    """Turns of ``loop``, which must be a constant number from 0 on."""
    numbers = isinstance(loop.extent, tirx.IntImm) and isinstance(loop.min, tirx.IntImm)
    if numbers and int(loop.min) == 0:
        return int(loop.extent)
    raise CodegenError(
        f"loop {loop.loop_var.name} runs from {loop.min} for {loop.extent} turns; loops start at 0 "
        "and have constant extents; shift or specialise it"
    )


def leaf_chain(stmt: tirx.Stmt) -> tuple[list[tirx.For], SBlockRealize] | None:
    """The loops around a single innermost block, or None where ``stmt`` is not such a chain."""
    loops: list[tirx.For] = []
    while isinstance(stmt, tirx.For) and stmt.thread_binding is None:
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, SBlockRealize):
        return None
    if stmt.block.alloc_buffers:
        _refuse_unread(stmt)
        return None
    if isinstance(stmt.block.body, (tirx.For, tirx.SeqStmt, SBlockRealize)):
        return None
    return loops, stmt


def _refuse_unread(real: SBlockRealize) -> None:
    """TVM allocates a buffer inside the block that writes it when no other block reads it."""
    body = real.block.body
    if isinstance(body, tirx.BufferStore) and body.buffer in list(real.block.alloc_buffers):
        raise CodegenError(
            f"block {real.block.name_hint} writes {body.buffer.name}, which no other block reads; "
            "remove the nest or use its result"
        )


def tile_shapes(func: tirx.PrimFunc, table: VarTable) -> dict[tirx.Var, list[int]]:
    """Shape of every SRAM buffer, from the nests that fill it.

    Compaction sizes a padded stride-2 tile that does not divide its tensor for the whole tensor;
    the loops that write the tile say how large it really is.
    """
    finder = _TileFinder(table)
    finder.visit(func.body, [])
    return finder.shapes()


class _TileFinder:
    def __init__(self, table: VarTable):
        self._table = table
        self._declared: dict[tirx.Var, list[int]] = {}
        self._outer: dict[tirx.Var, set[int]] = {}
        self._written: dict[tirx.Var, list[int] | None] = {}

    def visit(self, stmt: tirx.Stmt, loops: list[tuple[int, int]]) -> None:
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.visit(part, loops)
        elif isinstance(stmt, tirx.For):
            extent = extent_of(stmt)
            var = self._table.bind(stmt.loop_var, extent)
            self.visit(stmt.body, [*loops, (var, extent)])
        elif isinstance(stmt, SBlockRealize):
            for buffer in stmt.block.alloc_buffers:
                self._declared[buffer] = [int(s) for s in buffer.shape]
                self._outer[buffer] = {v for v, _ in loops}
            self.visit(stmt.block.body, loops)
        elif isinstance(stmt, tirx.BufferStore) and stmt.buffer in self._declared:
            self._store(stmt, loops)

    def _store(self, stmt: tirx.BufferStore, loops: list[tuple[int, int]]) -> None:
        buffer = stmt.buffer
        if buffer in self._written and self._written[buffer] is None:
            return
        shape = self._extents(stmt, dict(loops))
        before = self._written.get(buffer)
        if shape is None:
            self._written[buffer] = None
        else:
            self._written[buffer] = [max(a, b) for a, b in zip(shape, before or shape, strict=True)]

    def _extents(self, stmt: tirx.BufferStore, extents: dict[int, int]) -> list[int] | None:
        """Written extent of each dimension, or None where it is not that simple."""
        shape = []
        for index in stmt.indices:
            try:
                form = self._table.linear(index)
            except CodegenError:
                return None
            outer = self._outer[stmt.buffer]
            if form.const or any(v in outer or c < 0 for v, c in form.terms):
                return None
            shape.append(1 + sum(c * (extents[v] - 1) for v, c in form.terms))
        return shape

    def shapes(self) -> dict[tirx.Var, list[int]]:
        result = {}
        for buffer, declared in self._declared.items():
            written = self._written.get(buffer)
            result[buffer] = [min(a, b) for a, b in zip(declared, written or declared, strict=True)]
        return result
