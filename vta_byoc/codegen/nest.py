"""The loops, blocks and innermost nests of a lowered PrimFunc as plain Python objects.

They are read once; walking them with concrete loop values then costs no call into TVM.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm import tirx
from tvm.s_tir import SBlockRealize

from vta_byoc.codegen.linear import CodegenError, VarTable
from vta_byoc.codegen.tensorizable import APART_KEY, PRAGMA_KEY, Classifier, TensorizableNest
from vta_byoc.workload.memory import SRAM_SCOPES


@dataclass(frozen=True, eq=False)
class Loop:
    """``extent`` turns of ``body``; with ``threads`` they are virtual threads."""

    var: int
    extent: int
    body: Node
    threads: bool = False


@dataclass(frozen=True, eq=False)
class Block:
    """``parts`` in order; every execution has new instances of ``buffers``."""

    parts: list[Node] = field(default_factory=list)
    buffers: list[tirx.Var] = field(default_factory=list)


Node = Loop | Block | TensorizableNest


class Reader:
    """Turns statements into nodes; refuses what is neither a loop nest nor around one."""

    def __init__(self, table: VarTable, classifier: Classifier):
        self._table = table
        self._classifier = classifier

    def read(self, stmt: tirx.Stmt, threaded: bool = False) -> Node:
        """The node of ``stmt``; ``threaded``: inside a loop of virtual threads."""
        if isinstance(stmt, tirx.SeqStmt):
            return Block([self.read(part, threaded) for part in stmt.seq[:]])
        if not isinstance(stmt, (tirx.For, SBlockRealize)):
            raise CodegenError(
                f"{type(stmt).__name__} around or between nests; a scheduled VTA function has "
                "loops, blocks and sequences only; decompose_reduction a block with an init"
            )
        chain = leaf_chain(stmt)
        if chain is not None:
            nest = self._classifier.classify(*chain)
            apart = any(APART_KEY in loop.annotations for loop in chain[0])
            if not apart and not nest.immediates_vary:
                return nest
        if isinstance(stmt, tirx.For):
            return self._loop(stmt, threaded)
        return self._block(stmt, threaded)

    def _loop(self, loop: tirx.For, threaded: bool) -> Loop:
        if PRAGMA_KEY in loop.annotations:
            raise CodegenError(
                f"loop {loop.loop_var.name} carries pragma {loop.annotations[PRAGMA_KEY]} but "
                "holds more than one block; annotate a loop around a single block"
            )
        extent = extent_of(loop)
        var = self._table.bind(loop.loop_var, extent)
        threads = loop.thread_binding is not None
        if threads:
            _check_thread(loop, threaded)
        return Loop(var, extent, self.read(loop.body, threaded or threads), threads)

    def _block(self, real: SBlockRealize, threaded: bool) -> Block:
        buffers = [self._table.same(buffer) for buffer in real.block.alloc_buffers]
        for buffer in buffers:
            if str(buffer.scope()) not in SRAM_SCOPES:
                raise CodegenError(
                    f"buffer {buffer.name} is allocated in {buffer.scope()}; VTA stages tensors in "
                    f"{', '.join(SRAM_SCOPES)}; set_scope or compute_inline it"
                )
        return Block([self.read(real.block.body, threaded)], buffers)


def _check_thread(loop: tirx.For, threaded: bool) -> None:
    tag, name = str(loop.thread_binding.thread_tag), loop.loop_var.name
    if not tag.startswith("vthread"):
        raise CodegenError(
            f"loop {name} is bound to {tag}; VTA has virtual threads only; bind it to vthread.x"
        )
    if threaded:
        raise CodegenError(
            f"loop {name} nests a virtual thread in another; their tiles interleave one way "
            "only; bind one loop to vthread.x at most"
        )


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
