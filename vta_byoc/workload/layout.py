"""How tensors of any rank are seen as (N, C, H, W), and the host functions between the layouts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.packing import PLANES, blocks, packed_shape, unpacked
from vta_byoc.workload.workloads import Shape

NCHW, ROWS = "nchw", "rows"
"""Channels second; or channels last, all other axes rows of a matrix."""


def canonical(shape: Sequence[int], layout: str) -> Shape | None:
    """``shape`` as (N, C, H, W), None where the layout has no such view.

    NCHW: (N, C), (N, C, W) and (N, C, H, W).  ROWS: (..., C), every other axis a row.
    """
    if layout == ROWS:
        return (math.prod(shape[:-1]), shape[-1], 1, 1) if len(shape) >= 2 else None
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    if len(shape) not in (2, 4):
        return None
    n, c, h, w = (*shape, 1, 1)[:4]
    return n, c, h, w


def read_packed(packed: np.ndarray, shape: Sequence[int]) -> Iterator[np.ndarray]:
    """``packed`` as a tensor of ``shape``, in each layout that it can have."""
    *_, nb, cb, h, w, b, k = packed.shape
    for layout in (NCHW, ROWS):
        view = canonical(shape, layout)
        if view is not None and (blocks(view[0], b), blocks(view[1], k), *view[2:]) == (
            nb,
            cb,
            h,
            w,
        ):
            yield unpacked(packed, view).reshape(shape)


def dims(shape: Sequence[int]) -> tuple[tirx.IntImm, ...]:
    """Relax shapes are int64; FuseTIR wants its neighbours' buffers to agree."""
    return tuple(tirx.IntImm("int64", s) for s in shape)


def _host_function(source: te.Tensor, out: te.Tensor) -> tirx.PrimFunc:
    """The function of a copy; all of its indices are int64, as its text parses back."""
    func = te.create_prim_func([source, out], index_dtype_override="int64")
    return func.without_attr("global_symbol")


def pack_compute(shape: Shape, config: VTAConfig) -> tirx.PrimFunc:
    """(N, C, H, W) int8 to packed, zeros in lanes that do not exist."""
    n, c, _, _ = shape
    b, k = config.batch, config.block
    source = te.placeholder(dims(shape), "int8", name="x")

    def value(nb: Var, cb: Var, y: Var, x: Var, bi: Var, ci: Var) -> Expr:
        row, channel = nb * b + bi, cb * k + ci
        inside = tirx.all(row < n, channel < c)
        return tirx.if_then_else(inside, source[row, channel, y, x], tirx.const(0, "int8"))

    out = te.compute(dims(packed_shape(shape, config)), value, name="packed")
    return _host_function(source, out)


def unpack_compute(shape: Shape, config: VTAConfig, dtype: str = "int8") -> tirx.PrimFunc:
    """Packed to (N, C, H, W) ``dtype``; int32 is put together from its byte planes."""
    b, k = config.batch, config.block
    source = te.placeholder(dims(packed_shape(shape, config, dtype)), "int8", name="x")

    def value(n: Var, c: Var, y: Var, x: Var) -> Expr:
        at = (
            tirx.floordiv(n, b),
            tirx.floordiv(c, k),
            y,
            x,
            tirx.floormod(n, b),
            tirx.floormod(c, k),
        )
        if dtype == "int8":
            return source[at]
        parts = [source[(p, *at)].astype("int32") for p in range(PLANES)]
        word = parts[-1]
        for part in parts[-2::-1]:
            word = tirx.bitwise_or(word << tirx.const(8, "int32"), part & tirx.const(255, "int32"))
        return word

    out = te.compute(dims(shape), value, name="unpacked")
    return _host_function(source, out)
