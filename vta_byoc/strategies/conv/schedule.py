"""The nests of a convolution: its definition by block-diagonal groups, and their schedule."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Expr, Var

from vta_byoc.codegen import APART_KEY, SLOTS_ATTR
from vta_byoc.cost.dma import copies_of
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.plain_schedule import PlainSchedule
from vta_byoc.strategies.conv.bias import BIAS, BIASED, bias_operands, bias_stage, continued
from vta_byoc.strategies.conv.copies import (
    KEEP,
    annotate,
    in_place,
    stage_before_copy,
    stage_copies,
    step_name,
)
from vta_byoc.strategies.conv.pooled import POOLED, PooledTiles, pooled_stage
from vta_byoc.strategies.conv.window import Window, windows
from vta_byoc.strategies.te.definition import OPERATORS, elementwise, stored
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Conv2dWorkload, Epilogue, Step

DIMS, BIAS_DIMS = 11, 8
"""Loops of a tile's accumulation: seven over the result, four over what is summed up, of a bias
one."""
WEIGHT_DIMS = 7
"""Dimensions of weights by output channel; those by input channel have no taps."""
WEIGHT_STATIONARY, INPUT_STATIONARY = "weights", "inputs"
"""Loop orders: a tile's weights stay while it walks the images, or its input while it walks the
output channels."""

LEAST_IN_HALVES = 128
"""Vectors of a tile whose byte planes are stored in halves: each takes longer than to begin it."""


@dataclass(frozen=True)
class ConvVariant:
    """What a tiling does besides its sizes.

    ``resident``: the order's operand is staged once for all steps of the reduction; ``gather``:
    only the columns that the stride keeps are loaded (kernels of one column).
    """

    order: str
    resident: bool
    gather: bool = False

    @property
    def text(self) -> str:
        """The variant as schedules and logs name it: `weights held gathered`."""
        return f"{self.order}{' held' if self.resident else ''}{' gathered' if self.gather else ''}"

    @classmethod
    def parse(cls, text: str) -> ConvVariant:
        """The variant that has this `text`."""
        words = text.split()
        return cls(words[0], "held" in words, "gathered" in words)


def conv_function(
    work: Conv2dWorkload,
    grouping: Grouping,
    config: VTAConfig,
    variant: ConvVariant,
    pool: PooledTiles | None = None,
) -> tirx.PrimFunc:
    """The convolution over block-diagonal groups.

    Parameters are data (n, groups, ci, H, W, b, k), weight (groups, co, ci, KH, KW, k, k), operands
    and the result (n, groups, co, OH, OW, b, k), which has byte planes in front where it is int32.

    Weights by input are (groups, ci, co, k, k).  A kernel without taps has neither data nor weight:
    its accumulators are 0.  Weights of two digits are (groups, co, 2, ci, KH, KW, k, k); each digit
    has its own accumulators.  The constant vector (1, b, k) and the weights (groups, co, k, k) of a
    bias are before the operands.  The result of ``pool`` is in the place of the convolution's.
    """
    b, k = config.batch, config.block
    images, groups = blocks(work.batch, b), grouping.count
    data_shape = (images, groups, grouping.ci, work.height, work.width, b, k)
    data = te.placeholder(data_shape, "int8", name="data")
    digits = (work.digits,) if work.digit_shift else ()
    weight_shape: tuple[int, ...] = (groups, grouping.co, *digits, grouping.ci, *work.kernel, k, k)
    if work.weight_by_input:
        weight_shape = (groups, grouping.ci, grouping.co, k, k)
    weight = te.placeholder(weight_shape, "int8", name="weight")
    shape = (images, groups, grouping.co, work.out_height, work.out_width, b, k)
    operands = [
        te.placeholder(_operand_shape(kind, shape), "int32", name=f"operand{i}")
        for i, kind in enumerate(work.epilogue.tensors)
    ]
    inputs: list[te.Tensor] = []
    acc: te.Tensor | None = None
    if has_taps(work):
        inputs = [data, weight]
        rows, cols = windows(work, variant.gather)
        acc = _accumulate(_input_stage(data, rows, cols), weight, digits, shape, rows, cols)
        if digits:
            acc = _joined(acc, work.digit_shift)
    if work.bias:
        inputs += bias_operands((groups, grouping.co), config)
        start = bias_stage(shape, *inputs[-2:])
        acc = elementwise(BIASED, operator.add, acc, start) if acc is not None else start
    if acc is None:
        acc = te.compute(shape, lambda *_: tirx.const(0, "int32"), name="acc")
    value = acc if pool is None else pooled_stage(acc, pool)
    value = _apply(value, work.epilogue.steps, operands)
    return te.create_prim_func([*inputs, *operands, stored(value, work.epilogue)])


def has_taps(work: Conv2dWorkload) -> bool:
    """Whether the kernel has any element."""
    return work.kernel[0] > 0 and work.kernel[1] > 0


def _operand_shape(kind: str, shape: Sequence[int]) -> tuple[int, ...]:
    _, groups, co, oh, ow, b, k = shape
    whole = (groups, co, oh, ow, b, k)
    return {CHANNEL: (groups, co, b, k), MAP: (oh, ow, b, k), FULL: whole}[kind]


def _input_stage(data: te.Tensor, rows: Window, cols: Window) -> te.Tensor:
    """The padded input, without what the stride skips where that is gathered."""

    def inside(position: Expr, window: Window) -> list[Expr]:
        before, behind = window.bounds
        checks = [position >= 0] if before else []
        return checks + ([position < window.size] if behind else [])

    def stage(n: Var, g: Var, c: Var, h: Var, w: Var, bi: Var, bk: Var) -> Expr:
        row, col = h * rows.skip - rows.before, w * cols.skip - cols.before
        value = data[n, g, c, row, col, bi, bk]
        checks = inside(row, rows) + inside(col, cols)
        if not checks:
            return value
        return tirx.if_then_else(tirx.all(*checks), value, tirx.const(0, "int8"))

    n, g, c, _, _, b, k = data.shape
    return te.compute((n, g, c, rows.staged, cols.staged, b, k), stage, name="inp")


JOINED = "joined"
"""The stage of the sums of both digits as one."""


def _joined(acc: te.Tensor, shift: int) -> te.Tensor:
    """The accumulators of both digits in one."""
    return te.compute(acc.shape[1:], lambda *i: (acc(0, *i) << shift) + acc(1, *i), name=JOINED)


def _accumulate(
    inp: te.Tensor,
    weight: te.Tensor,
    digits: tuple[int, ...],
    shape: Sequence[int],
    rows: Window,
    cols: Window,
) -> te.Tensor:
    """The accumulators, those of each digit in a plane of their own."""
    rc = te.reduce_axis((0, int(inp.shape[2])), "rc")
    kh = te.reduce_axis((0, rows.taps), "kh")
    kw = te.reduce_axis((0, cols.taps), "kw")
    rk = te.reduce_axis((0, int(shape[-1])), "rk")

    def mac(*index: Var) -> Expr:
        *digit, n, g, o, h, w, bi, bo = index
        row = h * rows.stage + kh * rows.dilation
        col = w * cols.stage + kw * cols.dilation
        left = inp[n, g, rc, row, col, bi, rk].astype("int32")
        by_input = len(weight.shape) < WEIGHT_DIMS
        place = (g, rc, o) if by_input else (g, o, *digit, rc, kh, kw)
        right = weight[(*place, bo, rk)].astype("int32")
        return te.sum(left * right, axis=[rc, kh, kw, rk])

    return te.compute((*digits, *shape), mac, name="acc")


def _apply(value: te.Tensor, steps: Sequence[Step], operands: Sequence[te.Tensor]) -> te.Tensor:
    waiting, kept = list(operands), value
    for number, step in enumerate(steps):
        if step.op == "keep":
            kept = elementwise(KEEP, lambda v: v, value)
            continue
        if step.is_kept:
            value = elementwise(step_name(number), OPERATORS[step.op], value, kept)
            continue
        operand = waiting.pop(0) if step.is_tensor else tirx.const(int(step.operand), "int32")
        stage = _step(value, OPERATORS[step.op], operand, step.operand)
        value = te.compute(value.shape, stage, name=step_name(number))
    return value


def _step(
    value: te.Tensor,
    function: Callable[[Expr, Expr], Expr],
    operand: te.Tensor | tirx.IntImm,
    kind: int | str,
) -> Callable[..., Expr]:
    def at(n: Var, g: Var, o: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        before = value[n, g, o, h, w, b, k]
        if isinstance(kind, int):
            return function(before, operand)
        places = {CHANNEL: (g, o, b, k), MAP: (h, w, b, k), FULL: (g, o, h, w, b, k)}
        return function(before, operand[places[kind]])

    return at


# ---------------------------------------------------------------- schedule
def conv_schedule(
    func: tirx.PrimFunc,
    work: Conv2dWorkload,
    choice: Choice,
    operands_at_groups: bool,
    bias_at_groups: bool = False,
    *,
    pooled: bool = False,
) -> tirx.PrimFunc:
    """``func`` of :func:`conv_function` tiled as ``choice`` says.

    ``operands_at_groups``: operands by channel are staged for all output channels of the tile's
    block-diagonal groups; ``bias_at_groups``: so are the weights of the bias.  ``pooled``: there is
    a pool.
    """
    variant = ConvVariant.parse(choice.variant)
    sch = PlainSchedule(func)
    sums = "acc" if has_taps(work) or not work.bias else BIAS
    sch.set_scope(sch.get_sblock(sums), 0, ACC)
    weight = sch.cache_read(sch.get_sblock(sums), 1, WGT) if has_taps(work) else None
    joins = bool(work.digit_shift) and weight is not None
    _inline(sch, [JOINED] * joins)
    before = stage_before_copy(work.epilogue)
    operands = _stage_operands(sch, work.epilogue)
    _inline(sch, [BIASED] * (work.bias and weight is not None) + [POOLED] * pooled)
    loops = _tile_output(sch, choice.tile, variant.order)
    if copies_of(work.epilogue.steps):
        stage_copies(sch, [KEEP] if before is None else [KEEP, before], loops["last"])
    weight_stationary = variant.order == WEIGHT_STATIONARY
    for kind, operand in operands:
        by_channel = loops["co" if weight_stationary or not operands_at_groups else "g"]
        at = {CHANNEL: by_channel, MAP: loops["ow"], FULL: loops["last"]}
        sch.compute_at(operand, at[kind])
        annotate(sch, operand, "dma_copy")

    if work.bias:
        by_group = bias_at_groups and not weight_stationary
        _stage_bias(sch, loops["g" if by_group else "co"], loops["last"])
    if sums != BIAS:
        acc = sch.get_sblock("acc")
        sch.compute_at(acc, loops["last"], preserve_unit_loops=True)
    if weight is not None:
        acc = _stage_products(sch, acc, weight, choice, loops, digits=joins)
    if sums != BIAS:
        annotate(sch, acc, "gemm")
    computes = joins or work.epilogue.steps or work.epilogue.dtype != "int8"
    annotate(sch, sch.get_sblock("out"), "alu,dma_copy" if computes else "dma_copy")
    done = sch.mod["main"]
    if before is not None:
        done = in_place(done, before, sums if sums == BIAS else "acc")
    if work.bias and sums != BIAS:
        done = continued(done, BIAS, sums)
    return done.with_attr(SLOTS_ATTR, choice.slots_attr())


def _stage_products(
    sch: s_tir.Schedule,
    acc: SBlockRV,
    weight: SBlockRV,
    choice: Choice,
    loops: Mapping[str, LoopRV],
    *,
    digits: bool,
) -> SBlockRV:
    """Stage input and weights at their loops; gives the block that clears the accumulators."""
    variant = ConvVariant.parse(choice.variant)
    weight_stationary = variant.order == WEIGHT_STATIONARY
    first, innermost = _split_reduction(sch, acc, choice.tile, digits)
    inp = sch.get_sblock("inp")
    sch.set_scope(inp, 0, INP)
    # weights first: they need not wait for the layer before
    sch.compute_at(weight, loops["co"] if variant.resident and weight_stationary else innermost)
    sch.compute_at(inp, loops["ow"] if variant.resident and not weight_stationary else innermost)
    clear = sch.decompose_reduction(acc, first)
    annotate(sch, inp, "dma_copy")
    annotate(sch, weight, "dma_copy")
    annotate(sch, sch.get_sblock("acc_update"), "gemm")
    return clear


def _stage_bias(sch: s_tir.Schedule, by_channel: LoopRV, last: LoopRV) -> None:
    """Compute the bias where the sums begin; its weights are staged at ``by_channel``."""
    start = sch.get_sblock(BIAS)
    sch.set_scope(start, 0, ACC)
    constant, weight = sch.cache_read(start, 0, INP), sch.cache_read(start, 1, WGT)
    sch.compute_at(start, last, preserve_unit_loops=True)
    sch.compute_at(weight, by_channel)
    clear = sch.decompose_reduction(start, sch.get_loops(start)[-BIAS_DIMS])
    for block, pragma in ((constant, "dma_copy"), (weight, "dma_copy"), (clear, "gemm")):
        annotate(sch, block, pragma)
    annotate(sch, sch.get_sblock(f"{BIAS}_update"), "gemm")


def _stage_operands(sch: s_tir.Schedule, epilogue: Epilogue) -> list[tuple[str, SBlockRV]]:
    """Kinds and staged blocks of the tensor operands; the steps become part of the store."""
    tensors = [(i, str(s.operand)) for i, s in enumerate(epilogue.steps) if s.is_tensor]
    staged = [(kind, sch.cache_read(sch.get_sblock(step_name(i)), 1, ACC)) for i, kind in tensors]
    stays = stage_before_copy(epilogue)
    names = [step_name(i) for i, s in enumerate(epilogue.steps) if s.op != "keep"]
    _inline(sch, (name for name in names if name != stays))
    return staged


def _tile_output(sch: s_tir.Schedule, tile: Mapping[str, int], order: str) -> dict[str, LoopRV]:
    """Tile the store; its loops over tiles by axis, the innermost also as "last"."""
    *planes, n, g, co, oh, ow, b, k = sch.get_loops(sch.get_sblock("out"))
    axes = (n, g, co, oh, ow)
    outer, inner = {}, []
    for name, loop in zip(("n", "g", "co", "oh", "ow"), axes, strict=True):
        outer[name], inside = sch.split(loop, [None, tile[name]])
        inner.append(inside)
    weight_stationary = order == WEIGHT_STATIONARY
    names = ("g", "co", "n", "oh", "ow") if weight_stationary else ("g", "n", "oh", "ow", "co")
    halves = _halved(sch, tile, inner) if planes else []
    sch.reorder(*(outer[name] for name in names), *planes, *halves, *inner, b, k)
    return {**outer, "last": outer[names[-1]]}


def _halved(sch: s_tir.Schedule, tile: Mapping[str, int], inner: list[LoopRV]) -> list[LoopRV]:
    """The loop over the halves of a large tile, whose byte planes are made one after the other.

    A plane is made in place of the one before, which must have been stored: while one half is, the
    ALU shifts the other.
    """
    sizes = [tile[name] for name in ("n", "g", "co", "oh", "ow")]
    if math.prod(sizes) < LEAST_IN_HALVES:
        return []
    axis = next(number for number, size in enumerate(sizes) if size > 1)
    half, inner[axis] = sch.split(inner[axis], [2, None])
    sch.annotate(half, APART_KEY, 1)
    return [half]


def _split_reduction(
    sch: s_tir.Schedule, acc: SBlockRV, tile: Mapping[str, int], digits: bool
) -> tuple[LoopRV, LoopRV]:
    """Tile the reduction; its outermost and its innermost loop over tiles."""
    count = DIMS + digits
    *places, rc, kh, kw, rk = sch.get_loops(acc)[-count:]
    rco, rci = sch.split(rc, [None, tile["ci"]])
    kho, khi = sch.split(kh, [None, tile["kh"]])
    kwo, kwi = sch.split(kw, [None, tile["kw"]])
    # the reduction outermost: equal destinations of a kernel stay far apart
    sch.reorder(rco, kho, kwo, rci, khi, kwi, *places, rk)
    return rco, kwo


def _inline(sch: s_tir.Schedule, names: Iterable[str]) -> None:
    """Inline the stages of ``names`` into what reads them."""
    for name in names:
        sch.compute_inline(sch.get_sblock(name))
