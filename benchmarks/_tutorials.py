"""The schedules of VTA's published tutorials, written by hand, and the published counters.

They check code generation against numbers that others published, and they show how to write a
schedule: a compute, SRAM scopes, tiles, a pragma on every nest.  They need the default
configuration and the loop compression TUTORIALS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from vta_byoc import codegen
from vta_byoc.codegen import PRAGMA_KEY, SLOTS_ATTR, ProgramBuilder
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.counters import COUNTER_NAMES
from vta_byoc.hw.program.program import Program
from vta_byoc.workload.memory import ACC, INP, WGT

SOURCE = "VTA tutorials in the TVM documentation: functional simulator, default configuration"


def _counters(*values: int) -> dict[str, int]:
    return dict(zip(COUNTER_NAMES, values, strict=True))


# bytes loaded for inp, wgt, acc, uop; bytes stored; GEMM and ALU micro-ops.  The networks' acc
# bytes count an int8 operand at four bytes a lane: ResNet-18's are 480 bias vectors and 94,080
# residual vectors, of which the latter are 16 bytes each in DRAM.
COUNTERS: dict[str, dict[str, int]] = {
    "matrix_multiply": _counters(256, 65_536, 0, 8, 256, 256, 0),
    "matrix_multiply_opt": _counters(4_096, 1_048_576, 0, 20, 1_024, 4_096, 192),
    "convolution_opt": _counters(114_688, 1_179_648, 0, 1_144, 50_176, 451_584, 9_408),
    "ResNet-18 v1, 19 convs and residuals offloaded": _counters(
        5_549_568, 12_763_136, 6_051_840, 22_864, 2_433_536, 6_623_232, 699_328
    ),
    "YOLOv3-tiny": _counters(25_462_784, 17_558_016, 96_128, 5_024, 3_396_224, 10_578_048, 849_056),
}


@dataclass(frozen=True)
class Tutorial:
    """One tutorial; its PrimFunc takes packed data and weight and gives out."""

    name: str
    schedule: Callable[[VTAConfig], tirx.PrimFunc]

    def counters(self) -> dict[str, int]:
        """The seven published counters."""
        return COUNTERS[self.name]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of data, weight and out."""
        params = self.schedule(VTAConfig()).params
        names = ("data", "weight", "out")
        return {n: tuple(int(s) for s in p.shape) for n, p in zip(names, params, strict=True)}

    def program(self, weight: np.ndarray) -> Program:
        """Input ``data``, output ``out``, the packed int8 ``weight`` in the image."""
        config = VTAConfig()
        shapes = self.shapes()
        builder = ProgramBuilder(config, compression=codegen.TUTORIALS)
        builder.symbol("data", "input", shapes["data"], "int8")
        builder.constant("weight", weight)
        builder.symbol("out", "output", shapes["out"], "int8")
        builder.layer(self.name, self.schedule(config), ["data", "weight", "out"])
        return builder.finish()


# ---------------------------------------------------------------- parts
def _map(name: str, function: Callable[[Any], Any], value: te.Tensor) -> te.Tensor:
    return te.compute(value.shape, lambda *i: function(value(*i)), name=name)


def _saturated(value: te.Tensor) -> te.Tensor:
    """``int8(min(max(value >> 8, 0), 127))`` in four stages."""
    eight, zero, top = (tirx.const(v, "int32") for v in (8, 0, 127))
    value = _map("shifted", lambda v: v >> eight, value)
    value = _map("floored", lambda v: tirx.Max(v, zero), value)
    value = _map("capped", lambda v: tirx.Min(v, top), value)
    return _map("out", lambda v: v.astype("int8"), value)


def _dense(data: te.Tensor, weight: te.Tensor, config: VTAConfig) -> te.Tensor:
    """``data`` (n, i, b, k) times ``weight`` (o, i, k, k), transposed blocks, in int32."""
    n, ci, b, k = (int(s) for s in data.shape)
    rc, rk = te.reduce_axis((0, ci), "rc"), te.reduce_axis((0, k), "rk")

    def mac(n_: Any, o: Any, bi: Any, bo: Any) -> Any:
        left = data[n_, rc, bi, rk].astype("int32")
        return te.sum(left * weight[o, rc, bo, rk].astype("int32"), axis=[rc, rk])

    return te.compute((n, int(weight.shape[0]), b, k), mac, name="acc")


def _stage(sch: s_tir.Schedule) -> tuple[Any, Any]:
    """Operands and accumulator into SRAM; returns the blocks that load data and weight."""
    acc = sch.get_sblock("acc")
    loads = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    return loads


def _state(sch: s_tir.Schedule, **pragmas: str) -> None:
    """The pragma of each block, by name, on its innermost loop."""
    for name, pragma in pragmas.items():
        sch.annotate(sch.get_loops(sch.get_sblock(name))[-1], PRAGMA_KEY, pragma)


def _name(sch: s_tir.Schedule, block: Any) -> str:
    return str(sch.get(block).name_hint)


def _one_slot(sch: s_tir.Schedule) -> tirx.PrimFunc:
    """The tutorials never double buffer; two virtual threads do it for the convolution."""
    return sch.mod["main"].with_attr(SLOTS_ATTR, {INP: 1, WGT: 1, ACC: 1})


# ---------------------------------------------------------------- tutorials
def matrix_multiply(config: VTAConfig) -> tirx.PrimFunc:
    """1×256 times 256×256, one tile, the accumulator truncated to int8."""
    b, k, size = config.batch, config.block, 256 // config.block
    data = te.placeholder((1, size, b, k), "int8", name="data")
    weight = te.placeholder((size, size, k, k), "int8", name="weight")
    acc = _dense(data, weight, config)
    out = te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="out")
    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    load, fetch = _stage(sch)
    acc_block = sch.get_sblock("acc")
    n, o, bi, bo, rc, rk = sch.get_loops(acc_block)
    sch.reorder(rc, n, o, bi, bo, rk)
    sch.decompose_reduction(acc_block, rc)
    operands = {_name(sch, load): "dma_copy", _name(sch, fetch): "dma_copy"}
    _state(sch, **operands, acc_init="gemm", acc_update="gemm", out="dma_copy")
    return _one_slot(sch)


def matrix_multiply_opt(config: VTAConfig) -> tirx.PrimFunc:
    """1×1024 times 1024×1024 in tiles of 256×256, shifted and clamped to [0, 127]."""
    b, k, size, tile = config.batch, config.block, 1024 // config.block, 256 // config.block
    data = te.placeholder((1, size, b, k), "int8", name="data")
    weight = te.placeholder((size, size, k, k), "int8", name="weight")
    out = _saturated(_dense(data, weight, config))
    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    load, fetch = _stage(sch)
    for name in ("shifted", "floored", "capped"):
        sch.compute_inline(sch.get_sblock(name))

    n, o, bi, bo = sch.get_loops(sch.get_sblock("out"))
    oo, oi = sch.split(o, [None, tile])
    sch.reorder(oo, n, oi, bi, bo)
    acc = sch.get_sblock("acc")
    sch.compute_at(acc, oo, preserve_unit_loops=True)
    an, ao, ab, ak, rc, rk = sch.get_loops(acc)[-6:]
    rco, rci = sch.split(rc, [None, tile])
    # outputs inside inputs: equal destinations are a whole tile apart
    sch.reorder(rco, rci, an, ao, ab, ak, rk)
    for block in (load, fetch):
        sch.compute_at(block, rco)
    sch.decompose_reduction(acc, rco)
    operands = {_name(sch, load): "dma_copy", _name(sch, fetch): "dma_copy"}
    _state(sch, **operands, acc_init="gemm", acc_update="gemm", out="alu,dma_copy")
    return _one_slot(sch)


def convolution_opt(config: VTAConfig) -> tirx.PrimFunc:
    """256 to 256 channels, 14×14, 3×3, pad 1; 7 rows, 128 channels, 16 inputs, two threads."""
    b, k, size, threads = config.batch, config.block, 256 // config.block, 2
    data = te.placeholder((1, size, 14, 14, b, k), "int8", name="data")
    weight = te.placeholder((size, size, 3, 3, k, k), "int8", name="weight")

    def pad(n_: Any, c: Any, h: Any, w: Any, bi: Any, bk: Any) -> Any:
        inside = tirx.all(h >= 1, h < 15, w >= 1, w < 15)
        value = data[n_, c, h - 1, w - 1, bi, bk]
        return tirx.if_then_else(inside, value, tirx.const(0, "int8"))

    inp = te.compute((1, size, 16, 16, b, k), pad, name="inp")
    rc, di, dj, rk = (
        te.reduce_axis((0, n), s) for n, s in ((size, "rc"), (3, "di"), (3, "dj"), (k, "rk"))
    )

    def mac(n_: Any, o: Any, h: Any, w: Any, bi: Any, bo: Any) -> Any:
        left = inp[n_, rc, h + di, w + dj, bi, rk].astype("int32")
        return te.sum(left * weight[o, rc, di, dj, bo, rk].astype("int32"), axis=[rc, di, dj, rk])

    out = _saturated(te.compute((1, size, 14, 14, b, k), mac, name="acc"))
    sch = s_tir.Schedule(te.create_prim_func([data, weight, out]))
    sch.set_scope(sch.get_sblock("inp"), 0, INP)
    fetch = sch.cache_read(sch.get_sblock("acc"), 1, WGT)
    sch.set_scope(sch.get_sblock("acc"), 0, ACC)
    for name in ("shifted", "floored", "capped"):
        sch.compute_inline(sch.get_sblock(name))

    n, o, h, w, bi, bo = sch.get_loops(sch.get_sblock("out"))
    oo, thread, oi = sch.split(o, [None, threads, 128 // k])
    ho, hi = sch.split(h, [None, 7])
    sch.reorder(oo, thread, n, ho, oi, hi, w, bi, bo)
    sch.bind(thread, "vthread.x")
    acc = sch.get_sblock("acc")
    sch.compute_at(acc, ho, preserve_unit_loops=True)
    an, ao, ah, aw, ab, ak, rc, di, dj, rk = sch.get_loops(acc)[-10:]
    rco, rci = sch.split(rc, [None, 16 // k])
    # the two outermost loops of the GEMM nest become the hardware loops
    sch.reorder(rco, an, ao, ah, rci, di, dj, aw, ab, ak, rk)
    sch.compute_at(sch.get_sblock("inp"), rco)
    sch.compute_at(fetch, rco)
    sch.decompose_reduction(acc, rco)
    operands = {"inp": "dma_copy", _name(sch, fetch): "dma_copy"}
    _state(sch, **operands, acc_init="gemm", acc_update="gemm", out="alu,dma_copy")
    return _one_slot(sch)


TUTORIALS = (
    Tutorial("matrix_multiply", matrix_multiply),
    Tutorial("matrix_multiply_opt", matrix_multiply_opt),
    Tutorial("convolution_opt", convolution_opt),
)
