"""Fused schedules: a scheduled PrimFunc that goes on with consumers before it stores.

The nest that stores a tile is found, and the fused consumers take its place (:mod:`.tile`).  Any
strategy's PrimFunc will do whose accumulators are not read again after the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from vta_byoc.codegen.narrowing import narrowed
from vta_byoc.codegen.nest import extent_of, leaf_chain
from vta_byoc.codegen.walk import lower
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.fused.consumer import (
    FusedConsumer,
    check_pool,
    fused_plan,
    operand_kinds,
    overlaps,
    pooled_by,
)
from vta_byoc.strategies.fused.nests import LANES, Loop, chains, nest, store_of, writes
from vta_byoc.strategies.fused.planes import Planes, Window, planes_of
from vta_byoc.strategies.fused.tile import Roles, Stage, Tile
from vta_byoc.strategies.te.tir_builder import sequence, serial_for
from vta_byoc.workload.memory import WGT
from vta_byoc.workload.workloads import Conv2dWorkload, PoolWorkload, Workload


def with_fused(
    func: tirx.PrimFunc,
    fused: Sequence[FusedConsumer],
    roles: Roles,
    config: VTAConfig,
    work: Workload | None = None,
) -> tirx.PrimFunc:
    """``func`` with ``fused`` between its computation and its store.

    ``work``: of the producer, where its accumulators may be sorted into planes.

    Parameters: those of ``func`` without its result; for each consumer its int8 operands from
    DRAM, its weights and its tensor operands; the result, in the shape that pools leave.
    """
    window, lowered = None, lower(func)
    if roles.sorted and isinstance(work, Conv2dWorkload):
        window = planes_of(work, fused)
    if window is not None:  # the loops of its conditions are divided too
        lowered = narrowed(lowered)
    return _Writer(lowered, fused, roles, config, window).func()


class _Writer:
    def __init__(
        self,
        func: tirx.PrimFunc,
        fused: Sequence[FusedConsumer],
        roles: Roles,
        config: VTAConfig,
        window: Window | None,
    ):
        self._func, self._roles, self._config = func, roles, config
        *self._inputs, self._out = func.params
        self._shape = [int(d) for d in self._out.shape]
        self._stages = [self._stage(number, each) for number, each in enumerate(fused)]
        self._result = self._out
        if pooled_by(fused) != (1, 1):
            self._result = tirx.decl_buffer(self._shape, "int8", str(self._out.name))
        self._planes: Planes | None = None
        if window is not None:
            (store,) = (
                store_of(*chain) for _, chain in chains(func.body) if writes(chain, self._out)
            )
            self._planes = Planes.of(store, roles.position, window)

    def func(self) -> tirx.PrimFunc:
        params = list(self._inputs)
        for stage in self._stages:
            params += [*stage.data.values(), stage.weights, *(p for _, p in stage.operands)]
        root = self._func.body
        loads, tiles = self._weights()
        body = sequence([*loads, self._visit(root.block.body)])
        tiles = [*self._buffers(root.block), *tiles]
        block = SBlock([], [], [], "root", body, alloc_buffers=tiles)
        func = tirx.PrimFunc([*params, self._result], SBlockRealize([], True, block))
        return func.with_attrs(dict(self._func.attrs))

    def _stage(self, number: int, consumer: FusedConsumer) -> Stage:
        config, prefix = self._config, f"fused{number}_"
        plan, scales = None, 1
        if isinstance(consumer.work, PoolWorkload):
            if not overlaps(consumer.work):
                check_pool(consumer.work)
            for dim, pooled in zip(self._roles.position, consumer.work.out_shape[2:], strict=True):
                self._shape[dim] = pooled
        else:
            plan = fused_plan(consumer, config)
            scales = len(plan.scales)
        shape = list(self._shape)
        lanes, name = shape[-LANES:], f"{prefix}scales"
        data = {i: tirx.decl_buffer(shape, "int8", f"{prefix}data{i}") for i in consumer.others}
        weights = tirx.decl_buffer((scales, config.block, config.block), "int8", name)
        operands = []
        for count, kind in enumerate(operand_kinds(consumer)):
            size = [shape[d] for d in self._roles.of(kind)]
            name = f"{prefix}operand{count}"
            operands.append((kind, tirx.decl_buffer((*size, *lanes), "int32", name)))
        return Stage(consumer, plan, data, weights, operands)

    def _weights(self) -> tuple[list[tirx.Stmt], list[tirx.Buffer]]:
        """The loads of the diagonal weights, which stay, and their tiles."""
        stmts, tiles = [], []
        for number, stage in enumerate(self._stages):
            if stage.plan is None or not stage.plan.loaded:
                continue
            held = stage.plan.weights
            shape = [len(held), *(int(d) for d in stage.weights.shape[1:])]
            name = f"fused{number}_weights"
            stage.staged = tirx.decl_buffer(shape, "int8", name, scope=WGT)
            loops = [Loop(tirx.Var(f"w{d}", "int32"), size) for d, size in enumerate(shape)]
            index = [loop.var for loop in loops]
            source = stage.weights[(index[0] + held.start, *index[1:])]
            store = tirx.BufferStore(stage.staged, source, index)
            stmts.append(nest(f"load_{name}", "dma_copy", loops, store, True))
            tiles.append(stage.staged)
        return stmts, tiles

    # ---------------------------------------------------------------- finding the store
    def _visit(self, stmt: tirx.Stmt) -> tirx.Stmt:
        if isinstance(stmt, tirx.SeqStmt):
            return sequence([self._visit(part) for part in stmt.seq])
        chain = leaf_chain(stmt) if isinstance(stmt, tirx.For | SBlockRealize) else None
        if chain is not None:
            if writes(chain, self._out):
                return self._continued(*chain)
            return stmt if self._planes is None else self._planes.sorted(*chain)
        if isinstance(stmt, tirx.For):
            return serial_for(stmt.loop_var, extent_of(stmt), self._visit(stmt.body))
        block = stmt.block
        tiles = self._buffers(block)
        inner = SBlock([], [], [], block.name_hint, self._visit(block.body), alloc_buffers=tiles)
        return SBlockRealize([], stmt.predicate, inner)

    def _buffers(self, block: SBlock) -> list[tirx.Buffer]:
        """The tiles of a block, accumulators in planes where they are sorted."""
        found = list(block.alloc_buffers)
        if self._planes is None:
            return found
        acc, tile = self._planes.acc, self._planes.tile
        return [tile if each.same_as(acc) else each for each in found]

    def _continued(self, loops: Sequence[tirx.For], real: SBlockRealize) -> tirx.Stmt:
        store, planes = store_of(loops, real), self._planes
        return Tile(store, self._result, self._stages, self._roles, self._config, planes).stmt()
