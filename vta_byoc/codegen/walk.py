"""Walks a scheduled, lowered PrimFunc with concrete loop values and emits instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tvm import IRModule, s_tir, tirx
from tvm.ir import transform as ir_transform

from vta_byoc.codegen.linear import VarTable
from vta_byoc.codegen.nest import Block, Loop, Node, Reader
from vta_byoc.codegen.sram import SramMap, slots_of, tile_shapes
from vta_byoc.codegen.tensorizable import Classifier, TensorizableNest
from vta_byoc.codegen.views import views_of
from vta_byoc.hw.config import VTAConfig


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
    """What the walker drives: one call per execution of a nest."""

    def emit(self, nest: TensorizableNest, env: Mapping[int, int], sram: SramMap) -> None:
        """Take one execution of a nest with the outer loop values `env`."""


class Walker:
    """Executes the loops of one PrimFunc and hands every nest to the emitter.

    ``weight_room`` is that of `SramMap`.
    """

    def __init__(
        self, config: VTAConfig, func: tirx.PrimFunc, emitter: Emitter, weight_room: int = 0
    ):
        table = VarTable()
        shapes = tile_shapes(func, table)
        classifier = Classifier(config, table, shapes, views_of(func))
        self._root = Reader(table, classifier).read(func.body)
        self._sram = SramMap(config, shapes, slots_of(func), weight_room)
        self._emitter = emitter
        self._env: dict[int, int] = {}
        self._threads: Loop | None = None
        self._threaded: list[tirx.Var] = []

    def run(self) -> None:
        """Walk the whole function."""
        self._visit(self._root)

    def _visit(self, node: Node) -> None:
        if isinstance(node, TensorizableNest):
            self._execute(node)
        elif isinstance(node, Loop):
            self._loop(node)
        else:
            self._block(node)

    def _loop(self, loop: Loop) -> None:
        if loop.threads:
            self._threads = loop
            self._visit(loop.body)
            self._threads = None
            self._threaded.clear()
            return
        for value in range(loop.extent):
            self._env[loop.var] = value
            self._visit(loop.body)
        self._env.pop(loop.var, None)

    def _block(self, block: Block) -> None:
        for buffer in block.buffers:
            for thread in range(self._threads.extent) if self._threads else [None]:
                self._sram.new_instance(buffer, thread)
            if self._threads and buffer not in self._threaded:
                self._threaded.append(buffer)
        for part in block.parts:
            self._visit(part)

    def _execute(self, nest: TensorizableNest) -> None:
        if self._threads is None:
            self._emitter.emit(nest, self._env, self._sram)
            return
        for thread in range(self._threads.extent):
            self._env[self._threads.var] = thread
            self._sram.select_thread(thread, self._threaded)
            self._emitter.emit(nest, self._env, self._sram)
        del self._env[self._threads.var]
