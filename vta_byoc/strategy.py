"""Strategies: for each packed operator a workload, a compute and a schedule.

The compute is the operator's definition (it runs as it is on llvm); the schedule stages its tiles
in SRAM and states with pragmas what each nest is.  Code generation lowers the scheduled PrimFunc.

Packed layouts (b = BATCH, k = BLOCK):

* activations ``(N/b, C/k, H, W, b, k)`` int8,
* weights ``(O/k, I/k, KH, KW, k, k)`` int8,
* bias ``(O/k, b, k)`` int32, equal rows.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError

from .codegen import PRAGMA_KEY, SLOTS_ATTR
from .codegen.leaf import ACC, INP, WGT
from .tiling import AddTile, ConvTile, choose_add_tile, choose_conv_tile
from .workload import AddWorkload, Conv2dWorkload

STRATEGY_ATTR = "vta.strategy"
WORKLOAD_ATTR = "vta.workload"
DRAM_INP, DRAM_WGT, DRAM_ACC = "global.vta.inp", "global.vta.wgt", "global.vta.acc"


def blocks(size: int, block: int) -> int:
    """Blocks that hold ``size`` items."""
    return -(-size // block)


# ---------------------------------------------------------------- conv2d
def conv2d_compute(work: Conv2dWorkload, config: VTAConfig) -> tirx.PrimFunc:
    """``int8(clamp((conv2d(data, weight) + bias) >> shift, low, high))`` on packed tensors."""
    b, k = config.batch, config.block
    n, ci, co = blocks(work.batch, b), blocks(work.in_channels, k), blocks(work.out_channels, k)
    oh, ow = work.out_height, work.out_width
    data = te.placeholder((n, ci, work.height, work.width, b, k), "int8", name="data")
    weight = te.placeholder((co, ci, *work.kernel, k, k), "int8", name="weight")
    bias = te.placeholder((co, b, k), "int32", name="bias")
    inp = _input_stage(work, data)
    row_step = 1 if work.skips_rows else work.strides[0]
    rc = te.reduce_axis((0, ci), "rc")
    kh = te.reduce_axis((0, work.kernel[0]), "kh")
    kw = te.reduce_axis((0, work.kernel[1]), "kw")
    rk = te.reduce_axis((0, k), "rk")

    def mac(n_: Any, o: Any, h: Any, w: Any, bi: Any, bo: Any) -> Any:
        row = h * row_step + kh * work.dilation[0]
        col = w * work.strides[1] + kw * work.dilation[1]
        left = inp[n_, rc, row, col, bi, rk].astype("int32")
        right = weight[o, rc, kh, kw, bo, rk].astype("int32")
        return te.sum(left * right, axis=[rc, kh, kw, rk])

    shape = (n, co, oh, ow, b, k)
    acc = te.compute(shape, mac, name="acc")
    value = te.compute(
        shape, lambda n_, o, h, w, bi, bo: acc[n_, o, h, w, bi, bo] + bias[o, bi, bo], name="biased"
    )
    out = _epilogue(value, work.shift, work.low, work.high)
    return _with_attrs(te.create_prim_func([data, weight, bias, out]), "conv2d", work)


def _input_stage(work: Conv2dWorkload, data: te.Tensor) -> te.Tensor:
    """The padded input; for a 1-row kernel only the rows that the stride keeps."""
    top, left, bottom, right = work.padding
    n, ci, height, width, b, k = (int(s) for s in data.shape)
    rows = work.out_height if work.skips_rows else height + top + bottom
    step = work.strides[0] if work.skips_rows else 1
    padded = any(work.padding)

    def stage(n_: Any, c: Any, h: Any, w: Any, bi: Any, bk: Any) -> Any:
        row = h * step - top
        value = data[n_, c, row, w - left, bi, bk]
        if not padded:
            return value
        inside = tirx.all(row >= 0, row < height, w >= left, w < left + width)
        return tirx.if_then_else(inside, value, tirx.const(0, "int8"))

    return te.compute((n, ci, rows, width + left + right, b, k), stage, name="inp")


def _map(name: str, function: Callable[..., Any], *tensors: te.Tensor) -> te.Tensor:
    """Elementwise ``function`` over tensors of one shape."""
    return te.compute(
        tensors[0].shape, lambda *i: function(*(t(*i) for t in tensors)), name=name
    )


def _epilogue(value: te.Tensor, shift: int, low: int, high: int) -> te.Tensor:
    """``int8(min(max(value >> shift, low), high))`` as stages that the schedule inlines."""
    amount = tirx.const(abs(shift), "int32")
    if shift > 0:
        value = _map("shifted", lambda v: v >> amount, value)
    elif shift < 0:
        value = _map("shifted", lambda v: v << amount, value)
    value = _map("floored", lambda v: tirx.Max(v, tirx.const(low, "int32")), value)
    value = _map("capped", lambda v: tirx.Min(v, tirx.const(high, "int32")), value)
    return _map("out", lambda v: v.astype("int8"), value)


def conv2d_schedule(
    func: tirx.PrimFunc, work: Conv2dWorkload, config: VTAConfig, tile: ConvTile | None = None
) -> tirx.PrimFunc:
    """Tiles of ``tile`` (chosen by estimate when None) staged in SRAM."""
    tile = tile or choose_conv_tile(work, config)
    sch = s_tir.Schedule(func)
    weight = _stage_operands(sch)
    bias = sch.cache_read(sch.get_sblock("biased"), 1, ACC)
    _inline_epilogue(sch, ("biased", "shifted", "floored", "capped"))

    n, o, h, w, bi, bo = sch.get_loops(sch.get_sblock("out"))
    oo, oi = sch.split(o, [None, tile.co])
    ho, hi = sch.split(h, [None, tile.oh])
    wo, wi = sch.split(w, [None, tile.ow])
    outer = [oo, n, ho, wo] if tile.order == "weights" else [n, ho, wo, oo]
    sch.reorder(*outer, oi, hi, wi, bi, bo)

    acc = sch.get_sblock("acc")
    sch.compute_at(acc, outer[-1], preserve_unit_loops=True)
    an, ao, ah, aw, ab, ak, rc, kh, kw, rk = sch.get_loops(acc)[-10:]
    rco, rci = sch.split(rc, [None, tile.ci])
    sch.reorder(rco, an, ao, ah, aw, rci, kh, kw, ab, ak, rk)
    whole = tile.ci >= blocks(work.in_channels, config.block)
    sch.compute_at(sch.get_sblock("inp"), wo if whole and tile.order == "inputs" else rco)
    sch.compute_at(weight, oo if whole and tile.order == "weights" else rco)
    sch.compute_at(bias, oo)
    reset = sch.decompose_reduction(acc, rco)
    _pragma(sch, sch.get_sblock("inp"), "dma_copy")
    _pragma(sch, weight, "dma_copy")
    _pragma(sch, bias, "dma_copy")
    _pragma(sch, reset, "gemm")
    _pragma(sch, sch.get_sblock("acc_update"), "gemm")
    _pragma(sch, sch.get_sblock("out"), "alu,dma_copy")
    return sch.mod["main"].with_attr(SLOTS_ATTR, tile.slots())


def _stage_operands(sch: s_tir.Schedule) -> Any:
    """SRAM scopes of the input tile and the accumulator; returns the staged weights' block."""
    sch.set_scope(sch.get_sblock("inp"), 0, INP)
    weight = sch.cache_read(sch.get_sblock("acc"), 1, WGT)
    sch.set_scope(sch.get_sblock("acc"), 0, ACC)
    return weight


def _inline_epilogue(sch: s_tir.Schedule, names: tuple[str, ...]) -> None:
    """Inline the stages of the epilogue that exist into the store."""
    present = {str(sch.get(c).name_hint) for c in sch.get_child_blocks(sch.get_sblock("root"))}
    for name in names:
        if name in present:
            sch.compute_inline(sch.get_sblock(name))


def _pragma(sch: s_tir.Schedule, block: Any, pragma: str) -> None:
    """State on the innermost loop of ``block`` what its nest is."""
    sch.annotate(sch.get_loops(block)[-1], PRAGMA_KEY, pragma)


def pack_activation(x: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(n, c, h, w) to (n/b, c/k, h, w, b, k), zeros in the lanes that do not exist."""
    n, c, h, w = x.shape
    b, k = config.batch, config.block
    full = np.zeros((blocks(n, b) * b, blocks(c, k) * k, h, w), x.dtype)
    full[:n, :c] = x
    split = full.reshape(blocks(n, b), b, blocks(c, k), k, h, w)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 1, 3))


def unpack_activation(x: np.ndarray, batch: int, channels: int) -> np.ndarray:
    """The inverse of :func:`pack_activation` for ``batch`` rows and ``channels`` channels."""
    nb, cb, h, w, b, k = x.shape
    full = x.transpose(0, 4, 1, 5, 2, 3).reshape(nb * b, cb * k, h, w)
    return np.ascontiguousarray(full[:batch, :channels])


def pack_weight(weight: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(o, i, kh, kw) to (o/k, i/k, kh, kw, k, k), zeros in the lanes that do not exist."""
    o, i, kh, kw = weight.shape
    k = config.block
    full = np.zeros((blocks(o, k) * k, blocks(i, k) * k, kh, kw), weight.dtype)
    full[:o, :i] = weight
    split = full.reshape(blocks(o, k), k, blocks(i, k), k, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 1, 3))


def pack_bias(bias: np.ndarray, config: VTAConfig) -> np.ndarray:
    """(o,) int32 to (o/k, b, k), the same row for every batch lane."""
    k = config.block
    full = np.zeros(blocks(bias.size, k) * k, np.int32)
    full[: bias.size] = bias.reshape(-1)
    rows = np.repeat(full.reshape(-1, 1, k), config.batch, axis=1)
    return np.ascontiguousarray(rows)


# ---------------------------------------------------------------- add
def add_compute(work: AddWorkload, config: VTAConfig) -> tirx.PrimFunc:
    """``int8(clamp(((lhs << left_lhs) + (rhs << left_rhs) + rounding) >> shift, low, high))``."""
    b, k = config.batch, config.block
    shape = (blocks(work.batch, b), blocks(work.channels, k), work.height, work.width, b, k)
    params = [te.placeholder(shape, "int8", name=name) for name in ("lhs", "rhs")]
    sides = []
    for param, left in zip(params, (work.left_lhs, work.left_rhs), strict=True):
        side = _map(f"{param.op.name}_wide", lambda v: v.astype("int32"), param)
        sides.append(_shifted_left(f"{param.op.name}_scaled", side, left))
    total = _map("total", lambda x, y: x + y, *sides)
    if work.rounding:
        rounding = tirx.const(work.rounding, "int32")
        total = _map("rounded", lambda v: v + rounding, total)
    out = _epilogue(total, work.shift, work.low, work.high)
    return _with_attrs(te.create_prim_func([*params, out]), "add", work)


def _shifted_left(name: str, value: te.Tensor, amount: int) -> te.Tensor:
    """``value << amount``; a negative amount is a right shift that rounds half up."""
    if amount < 0:
        half, by = (tirx.const(v, "int32") for v in (1 << (-amount - 1), -amount))
        return _map(name, lambda v: (v + half) >> by, value)
    by = tirx.const(amount, "int32")
    return _map(name, lambda v: v << by, value) if amount else value


def add_schedule(
    func: tirx.PrimFunc, work: AddWorkload, config: VTAConfig, tile: AddTile | None = None
) -> tirx.PrimFunc:
    """Tiles of both operands widened into the accumulator, the sum stored from there."""
    tile = tile or choose_add_tile(work, config)
    sch = s_tir.Schedule(func)
    for name in ("lhs_wide", "rhs_wide"):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    stages = ("lhs_scaled", "rhs_scaled", "total", "rounded", "shifted", "floored", "capped")
    _inline_epilogue(sch, stages)
    n, c, h, w, bi, bo = sch.get_loops(sch.get_sblock("out"))
    co, ci = sch.split(c, [None, tile.c])
    ho, hi = sch.split(h, [None, tile.h])
    wo, wi = sch.split(w, [None, tile.w])
    sch.reorder(n, co, ho, wo, ci, hi, wi, bi, bo)
    for name in ("lhs_wide", "rhs_wide"):
        sch.compute_at(sch.get_sblock(name), wo)
        _pragma(sch, sch.get_sblock(name), "dma_copy")
    _pragma(sch, sch.get_sblock("out"), "alu,dma_copy")
    return sch.mod["main"].with_attr(SLOTS_ATTR, tile.slots())


# ---------------------------------------------------------------- table
@dataclass(frozen=True)
class Strategy:
    """How one kind of composite becomes instructions.

    ``scopes`` are the DRAM scopes it demands for its tensor arguments, in order; ``constants``
    packs what the partition table parsed into the arguments after the operands.
    """

    name: str
    workload: type[Any]
    compute: Callable[[Any, VTAConfig], tirx.PrimFunc]
    schedule: Callable[..., tirx.PrimFunc]
    scopes: tuple[str, ...]
    constants: Callable[[dict[str, np.ndarray], VTAConfig], list[np.ndarray]]


def _conv2d_constants(parts: dict[str, np.ndarray], config: VTAConfig) -> list[np.ndarray]:
    weight = parts["weight"]
    bias = np.broadcast_to(parts["bias"].reshape(-1), (weight.shape[0],))
    return [pack_weight(weight, config), pack_bias(bias, config)]


STRATEGIES: dict[str, Strategy] = {
    "conv2d": Strategy(
        "conv2d",
        Conv2dWorkload,
        conv2d_compute,
        conv2d_schedule,
        (DRAM_INP, DRAM_WGT, DRAM_ACC),
        _conv2d_constants,
    ),
    "add": Strategy(
        "add",
        AddWorkload,
        add_compute,
        add_schedule,
        (DRAM_ACC, DRAM_ACC),
        lambda _parts, _config: [],
    ),
}


def _with_attrs(func: tirx.PrimFunc, strategy: str, work: Any) -> tirx.PrimFunc:
    text = json.dumps(dataclasses.asdict(work), sort_keys=True)
    private = func.without_attr("global_symbol")
    return private.with_attrs({STRATEGY_ATTR: strategy, WORKLOAD_ATTR: text})


def strategy_of(func: tirx.PrimFunc) -> tuple[Strategy, Any]:
    """The strategy and workload that made the packed PrimFunc ``func``."""
    if func.attrs is None or STRATEGY_ATTR not in func.attrs:
        raise VTAError(
            f"PrimFunc has no {STRATEGY_ATTR} attribute; strategies known: "
            f"{', '.join(STRATEGIES)}; make it with the compute of one of them"
        )
    strategy = STRATEGIES[str(func.attrs[STRATEGY_ATTR])]
    fields = json.loads(str(func.attrs[WORKLOAD_ATTR]))
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return strategy, strategy.workload(**values)


def schedule_for(func: tirx.PrimFunc, config: VTAConfig) -> tirx.PrimFunc:
    """Schedule a packed PrimFunc with the strategy it names."""
    strategy, work = strategy_of(func)
    return strategy.schedule(func, work, config)
