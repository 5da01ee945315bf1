"""What a bias adds beside the borders of a convolution's result: values by channel, box by box.

A bias by channel and position that is the same wherever the same taps see the input is one by
channel, and a vector for each box of the result beside a border, which the ALU adds there only.
As a map it would be as many int32 vectors as the result has, all of them loaded and added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from tvm import sym, te, tirx
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Var
from tvm_ffi import structural_walk

from vta_byoc.base.rewrites import is_on
from vta_byoc.codegen.nest import extent_of, leaf_chain
from vta_byoc.codegen.walk import lower
from vta_byoc.cost.dma import alu_cost
from vta_byoc.cost.usage import MOST_SLOTS, Array, Demand, Staged
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.fused.nests import LANES, Loop, Store, nest, reads, store_of, substituted
from vta_byoc.strategies.te.tir_builder import sequence, serial_for
from vta_byoc.workload.borders import apart, border_boxes
from vta_byoc.workload.memory import ACC, DRAM_ACC
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import CHANNEL, FULL, Conv2dWorkload, Epilogue, Step

BORDER_BIAS = "border_bias"
BORDERS = "borders"
"""Name of the constant array."""
MOST_BOXES = 48
"""Each box is an ALU instruction of its own: those of 7 rows and 7 columns that differ."""


# ---------------------------------------------------------------- choosing
def bordered(
    work: Conv2dWorkload, constants: Mapping[str, np.ndarray]
) -> tuple[Conv2dWorkload, dict[str, np.ndarray]] | None:
    """`work` whose bias by position is one by channel and by box, and its constants.

    The bias stays as it is among them, once more as "borders".  None where there is no such bias,
    it has other values or the rewrite is switched off.
    """
    steps = work.epilogue.steps
    if not is_on(BORDER_BIAS) or work.borders or work.epilogue.dtype != "int8":
        return None
    at = next((n for n, step in enumerate(steps) if step.operand == FULL), None)
    # sums wrap, so that the order of additions is free
    if at is None or any(step.op != "add" or step.is_kept for step in steps[: at + 1]):
        return None
    name = f"operand{sum(step.is_tensor for step in steps[:at])}"
    if len(border_boxes(work)) > MOST_BOXES or apart(work, constants[name]) is None:
        return None
    steps = (*steps[:at], Step("add", CHANNEL), *steps[at + 1 :])
    epilogue = Epilogue(steps, work.epilogue.dtype)
    given = {**constants, BORDERS: constants[name]}
    return dataclasses.replace(work, epilogue=epilogue, borders=True), given


def in_boxes(work: Conv2dWorkload, given: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The constants of `bordered` as the layer takes them: (C,) in place of each (C, H, W)."""
    if not work.borders:
        return given
    whole = given[BORDERS]
    found = apart(work, whole)
    assert found is not None, "the bias of a layer with borders is that of its boxes"
    inner, added = found
    taken = {name: inner if value is whole else value for name, value in given.items()}
    return {**taken, BORDERS: added}


# ---------------------------------------------------------------- what is computed
def borders_operand(work: Conv2dWorkload, config: VTAConfig) -> te.Tensor:
    """The placeholder of what each box adds."""
    shape = (len(border_boxes(work)), blocks(work.out_channels, config.block))
    return te.placeholder((*shape, config.batch, config.block), "int32", name=BORDERS)


def with_border_sums(acc: te.Tensor, work: Conv2dWorkload, borders: te.Tensor) -> te.Tensor:
    """`acc` (n, c, h, w, b, k) and what the boxes add."""

    def added(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        value = acc[n, c, h, w, b, k]
        for number, ((top, bottom), (left, right)) in enumerate(border_boxes(work)):
            inside = tirx.all(h >= top, h < bottom, w >= left, w < right)
            zero = tirx.const(0, "int32")
            value = value + tirx.if_then_else(inside, borders[number, c, b, k], zero)
        return value

    return te.compute(acc.shape, added, name="bordered")


# ---------------------------------------------------------------- how it is computed
def border_scopes(work: Conv2dWorkload) -> tuple[str, ...]:
    """The DRAM scope of what the boxes add, where they do."""
    return (DRAM_ACC,) if work.borders else ()


def with_borders(
    func: tirx.PrimFunc,
    work: Conv2dWorkload,
    channel: Sequence[int],
    position: Sequence[int],
    before: int,
    steps: Sequence[str],
) -> tirx.PrimFunc:
    """The scheduled `func` whose accumulators have what boxes add before its first step.

    Args:
        func: it stores int8 tiles of the result.
        work: the convolution.
        channel: the dimensions of the result that are channels.
        position: those that are rows and columns.
        before: how many of the parameters come before the new one.
        steps: the names of nests before the store that compute steps.
    """
    return _Writer(lower(func), work, channel, position, before, steps).func()


class _Writer:
    def __init__(
        self,
        func: tirx.PrimFunc,
        work: Conv2dWorkload,
        channel: Sequence[int],
        position: Sequence[int],
        before: int,
        steps: Sequence[str],
    ):
        self._func, self._work, self._before, self._steps = func, work, before, steps
        self._out, self._boxes = func.params[-1], border_boxes(work)
        ((around, self._chain),) = (
            found for found in _chains(func.body, []) if _stores(found[1][1], self._out)
        )
        self._store = store = store_of(*self._chain)
        single = {loop.var: tirx.const(0, "int32") for loop in around if loop.extent == 1}
        place = [_simplified(at, single) for at in store.place]
        self._rows, self._cols = (place[dim] for dim in position)
        self._channels = [place[dim] for dim in channel]
        self._kept = [loop for loop in store.loops[:-LANES] if self._moves(loop)]
        self._outer = [loop.var for loop in around if self._moves(loop)]
        count = Loop(tirx.Var("box", "int32"), len(self._boxes))
        self._loops = [count, *self._kept, *store.loops[-LANES:]]
        sizes = [self._out.shape[dim] for dim in (*channel, *range(-LANES, 0))]
        self._param = tirx.decl_buffer((count.extent, *map(int, sizes)), "int32", BORDERS)
        extents = [loop.extent for loop in self._loops]
        self._tile = tirx.decl_buffer(extents, "int32", f"{BORDERS}_tile", scope=ACC)
        acc = _last_load(store)
        self._acc = acc.source[tuple(_simplified(at, single) for at in acc.indices)]
        self._placed = False

    def _moves(self, loop: Loop) -> bool:
        """Whether the channels move with `loop`."""
        return any(reads(at, loop.var) for at in self._channels)

    def func(self) -> tirx.PrimFunc:
        """All of it, the boxes a parameter behind the first ones."""
        params, at = list(self._func.params), self._before
        body = self._visit(self._func.body, [])
        func = tirx.PrimFunc([*params[:at], self._param, *params[at:]], body)
        return func.with_attrs(dict(self._func.attrs))

    def _visit(self, stmt: tirx.Stmt, bound: Sequence[Var]) -> tirx.Stmt:
        if stmt.same_as(self._head):
            return sequence([*self._nests(), stmt])
        if isinstance(stmt, tirx.SeqStmt):
            return sequence(self._parts(stmt, bound))
        if not _holds(stmt, self._chain[1]):
            return stmt
        if isinstance(stmt, tirx.For):
            inside = self._visit(stmt.body, [*bound, stmt.loop_var])
            return serial_for(stmt.loop_var, extent_of(stmt), inside, stmt.annotations)
        block = stmt.block
        here = not self._placed and all(any(v.same_as(b) for b in bound) for v in self._outer)
        self._placed = self._placed or here
        body, tiles = self._visit(block.body, bound), list(block.alloc_buffers)
        if here:
            body, tiles = sequence([self._load(), body]), [*tiles, self._tile]
        inner = SBlock([], [], [], block.name_hint, body, alloc_buffers=tiles)
        return SBlockRealize([], stmt.predicate, inner)

    @property
    def _head(self) -> tirx.Stmt:
        """The outermost loop of the nest that stores."""
        return self._chain[0][0]

    def _parts(self, stmt: tirx.SeqStmt, bound: Sequence[Var]) -> list[tirx.Stmt]:
        """Those of a sequence; the boxes come before the first step."""
        if not any(part.same_as(self._head) for part in stmt.seq):
            return [self._visit(part, bound) for part in stmt.seq]
        parts = list(stmt.seq)
        at = next(number for number, part in enumerate(parts) if self._is_step(part))
        return [*parts[:at], *self._nests(), *parts[at:]]

    def _is_step(self, stmt: tirx.Stmt) -> bool:
        """Whether it is the nest that stores, or a step before it."""
        chain = leaf_chain(stmt) if isinstance(stmt, tirx.For) else None
        is_named = chain is not None and str(chain[1].block.name_hint) in self._steps
        return is_named or bool(stmt.same_as(self._head))

    def _load(self) -> tirx.Stmt:
        number, *_ = (loop.var for loop in self._loops)
        lanes = [loop.var for loop in self._store.loops[-LANES:]]
        value = self._param[(number, *self._channels, *lanes)]
        store = tirx.BufferStore(self._tile, value, [loop.var for loop in self._loops])
        known = [*self._outer, *(loop.var for loop in self._kept)]
        conditions = [c for c in _conjuncts(self._store.predicate) if _reads_only(c, known)]
        return nest(f"load_{BORDERS}", "dma_copy", self._loops, store, _all(conditions))

    def _nests(self) -> Iterator[tirx.Stmt]:
        """The sums of each box, where the tile has a part of it."""
        index = [loop.var for loop in self._loops[1:]]
        sizes = self._work.out_shape[2:]
        for number, box in enumerate(self._boxes):
            added = self._tile[(tirx.const(number, "int32"), *index)]
            store = tirx.BufferStore(self._acc.source, self._acc + added, list(self._acc.indices))
            conditions = _conjuncts(self._store.predicate)
            for at, (first, end), size in zip((self._rows, self._cols), box, sizes, strict=True):
                conditions += [at >= first] * (first > 0) + [at < end] * (end < size)
            name = f"{BORDERS}{number}"
            yield nest(name, "alu", self._store.loops, store, _all(conditions))


def _chains(
    stmt: tirx.Stmt, around: list[Loop]
) -> Iterator[tuple[list[Loop], tuple[list[tirx.For], SBlockRealize]]]:
    """All nests, each with the loops around it."""
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _chains(part, around)
        return
    chain = leaf_chain(stmt) if isinstance(stmt, tirx.For | SBlockRealize) else None
    if chain is not None:
        yield around, chain
    elif isinstance(stmt, tirx.For):
        yield from _chains(stmt.body, [*around, Loop(stmt.loop_var, extent_of(stmt))])
    else:
        yield from _chains(stmt.block.body, around)


def _stores(real: SBlockRealize, out: tirx.Buffer) -> bool:
    body = real.block.body
    return isinstance(body, tirx.BufferStore) and bool(body.buffer.same_as(out))


def _holds(stmt: tirx.Stmt, real: SBlockRealize) -> bool:
    found: list[SBlockRealize] = []
    structural_walk(stmt, (SBlockRealize, found.append))
    return any(each.same_as(real) for each in found)


def _last_load(store: Store) -> TensorLoad:
    """The accumulators; of two digits the lower ones."""
    found: list[TensorLoad] = []
    structural_walk(store.value, (TensorLoad, found.append))
    return [each for each in found if each.source.same_as(store.acc.source)][-1]


def _simplified(value: Expr, values: Mapping[Var, Expr]) -> Expr:
    return sym.Analyzer().simplify(substituted(value, values))


def _conjuncts(where: Expr | bool) -> list[Expr]:
    if isinstance(where, tirx.And):
        return [*_conjuncts(where.a), *_conjuncts(where.b)]
    is_true = where is True or (isinstance(where, tirx.IntImm) and bool(where.value))
    return [] if is_true else [where]


def _all(conditions: Sequence[Expr]) -> Expr | bool:
    return tirx.all(*conditions) if conditions else True


def _reads_only(value: Expr, known: Sequence[Var]) -> bool:
    found: list[Var] = []
    structural_walk(value, (tirx.Var, found.append))
    return all(any(var.same_as(each) for each in known) for var in found)


# ---------------------------------------------------------------- what it costs
def with_borders_demand(
    demand: Demand,
    work: Conv2dWorkload,
    config: VTAConfig,
    tile: Mapping[str, Array],
    fills: Array,
    repeats: Array,
) -> Demand:
    """`demand` and what the boxes take.

    Args:
        demand: of the layer without them.
        work: the convolution.
        config: the machine.
        tile: its blocks of "channels", rows "oh" and columns "ow".
        fills: how often the vectors of the boxes are loaded.
        repeats: tiles of the same rows and columns.
    """
    boxes, area = border_boxes(work), 0
    touched: Array = np.float64(0)
    for (top, bottom), (left, right) in boxes:
        area += (bottom - top) * (right - left)
        rows = (bottom - 1) // tile["oh"] - top // tile["oh"] + 1
        touched = touched + rows * ((right - 1) // tile["ow"] - left // tile["ow"] + 1)
    planes = blocks(work.batch, config.batch) * blocks(work.out_channels, config.block)
    cycles, _ = alu_cost((Step("add", CHANNEL),), config)
    size, starts = len(boxes) * tile["channels"], touched * repeats
    nbytes = fills * size * float(config.acc_elem_bytes)
    kernels = np.minimum(starts, MOST_SLOTS * len(boxes))
    return dataclasses.replace(
        demand,
        staged=(*demand.staged, Staged(ACC, size, fills, nbytes, fills)),
        alu=demand.alu + area * planes * cycles,
        alu_starts=demand.alu_starts + starts,
        kernels=demand.kernels + kernels,
        uops=demand.uops + kernels * tile["channels"],
    )
