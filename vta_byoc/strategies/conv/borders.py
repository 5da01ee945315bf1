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
from vta_byoc.cost.usage import MOST_SLOTS, Array, ResourceUsage, Staged
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.fused.nests import (
    LANES,
    Loop,
    Store,
    all_of,
    chains,
    conjuncts,
    nest,
    reads,
    store_of,
    substituted,
    writes,
)
from vta_byoc.strategies.fused.tile import Roles
from vta_byoc.strategies.te.tir_builder import sequence, serial_for
from vta_byoc.workload.borders import apart, border_boxes
from vta_byoc.workload.memory import ACC
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


def in_boxes(work: Conv2dWorkload, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The constants of `bordered` as the layer takes them: (C,) in place of each (C, H, W)."""
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
class BorderWriter:
    """Writes what boxes add to the accumulators of a scheduled convolution, before its first step.

    Args:
        func: it stores int8 tiles of the result; its last parameters are the tensor operands of the
            epilogue and the result, and that of the boxes comes before them.
        work: the convolution.
        roles: the dimensions of the result.
        steps: the names of nests before the store that compute steps.
    """

    def __init__(
        self, func: tirx.PrimFunc, work: Conv2dWorkload, roles: Roles, steps: Sequence[str]
    ):
        self._func, self._work, self._steps = lower(func), work, steps
        self._out, self._boxes = self._func.params[-1], border_boxes(work)
        ((around, self._chain),) = (
            found for found in chains(self._func.body) if writes(found[1], self._out)
        )
        self._store = store = store_of(*self._chain)
        single = {loop.var: tirx.const(0, "int32") for loop in around if loop.extent == 1}
        place = [_simplified(at, single) for at in store.place]
        self._rows, self._cols = (place[dim] for dim in roles.position)
        self._channels = [place[dim] for dim in roles.channel]
        self._kept = [loop for loop in store.loops[:-LANES] if self._moves(loop)]
        self._outer = [loop.var for loop in around if self._moves(loop)]
        count = Loop(tirx.Var("box", "int32"), len(self._boxes))
        self._loops = [count, *self._kept, *store.loops[-LANES:]]
        sizes = [int(self._out.shape[dim]) for dim in (*roles.channel, *range(-LANES, 0))]
        self._param = tirx.decl_buffer((count.extent, *sizes), "int32", BORDERS)
        extents = [loop.extent for loop in self._loops]
        self._tile = tirx.decl_buffer(extents, "int32", f"{BORDERS}_tile", scope=ACC)
        acc = _last_load(store)
        self._acc = acc.source[tuple(_simplified(at, single) for at in acc.indices)]
        self._placed = False

    def _moves(self, loop: Loop) -> bool:
        """Whether the channels move with `loop`."""
        return any(reads(at, loop.var) for at in self._channels)

    def func(self) -> tirx.PrimFunc:
        """All of it."""
        params = list(self._func.params)
        at = len(params) - 1 - len(self._work.epilogue.tensors)
        body = self._visit(self._func.body, [])
        func = tirx.PrimFunc([*params[:at], self._param, *params[at:]], body)
        return func.with_attrs(dict(self._func.attrs))

    def _visit(self, stmt: tirx.Stmt, bound: Sequence[Var]) -> tirx.Stmt:
        """`stmt`, the store in it behind the boxes; ``bound`` are the variables of loops around."""
        if not _holds(stmt, self._chain[1]):
            return stmt
        if isinstance(stmt, tirx.SeqStmt):
            return sequence(self._parts(stmt, bound))
        if isinstance(stmt, tirx.For):
            inside = self._visit(stmt.body, [*bound, stmt.loop_var])
            return serial_for(stmt.loop_var, extent_of(stmt), inside, stmt.annotations)
        block = stmt.block
        here = not self._placed and all(_among(var, bound) for var in self._outer)
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
        conditions = [c for c in conjuncts(self._store.predicate) if _reads_only(c, known)]
        return nest(f"load_{BORDERS}", "dma_copy", self._loops, store, all_of(conditions))

    def _nests(self) -> Iterator[tirx.Stmt]:
        """The sums of each box, where the tile has a part of it."""
        index = [loop.var for loop in self._loops[1:]]
        sizes = self._work.out_shape[2:]
        for number, box in enumerate(self._boxes):
            added = self._tile[(tirx.const(number, "int32"), *index)]
            store = tirx.BufferStore(self._acc.source, self._acc + added, list(self._acc.indices))
            conditions = conjuncts(self._store.predicate)
            for at, (first, end), size in zip((self._rows, self._cols), box, sizes, strict=True):
                conditions += [at >= first] * (first > 0) + [at < end] * (end < size)
            name = f"{BORDERS}{number}"
            yield nest(name, "alu", self._store.loops, store, all_of(conditions))


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


def _reads_only(value: Expr, known: Sequence[Var]) -> bool:
    found: list[Var] = []
    structural_walk(value, (tirx.Var, found.append))
    return all(_among(var, known) for var in found)


def _among(var: Var, known: Sequence[Var]) -> bool:
    return any(var.same_as(each) for each in known)


# ---------------------------------------------------------------- what it costs
def with_borders_demand(
    demand: ResourceUsage,
    work: Conv2dWorkload,
    config: VTAConfig,
    tile: Mapping[str, Array],
    fills: Array,
    repeats: Array,
) -> ResourceUsage:
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
