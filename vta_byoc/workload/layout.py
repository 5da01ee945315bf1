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
TOKENS, TURNED = "tokens", "turned"
"""Channels last, tokens before them, and these two the other way round; see `tokens`."""


def tokens(block: int) -> str:
    """The layout of (..., T, C) whose columns are tokens; T and C fill whole blocks of ``block``.

    Packed it is also a weight: ``block`` tokens times ``block`` channels are one WGT element.
    """
    return f"{TOKENS}{block}"


def fits_tokens(shape: Sequence[int], config: VTAConfig) -> bool:
    """Whether the tokens of (1, ..., 1, T, C) are columns: there is a whole block of them.

    Fewer would fill less than half of the columns; rows of such a matrix cost less.
    """
    is_one = config.batch == 1 and len(shape) >= 3 and math.prod(shape[:-2]) == 1
    return is_one and shape[-2] >= config.block


def turned(block: int) -> str:
    """As `tokens`, of (..., C, T)."""
    return f"{TURNED}{block}"


def is_tokens(layout: str) -> bool:
    """Whether tokens are columns in ``layout``."""
    return layout.startswith((TOKENS, TURNED))


def groups_of(shape: Sequence[int], layout: str) -> tuple[int, int, int]:
    """Groups, tokens and channels of ``shape`` in a layout of tokens."""
    rows, channels = shape[-2:] if layout.startswith(TOKENS) else shape[:-3:-1]
    return math.prod(shape[:-2]), rows, channels


def _whole(size: int, layout: str) -> int:
    """``size`` in whole blocks of a layout of tokens."""
    block = int(layout.removeprefix(TOKENS).removeprefix(TURNED))
    return blocks(size, block) * block


def token_places(elements: np.ndarray, layout: str) -> np.ndarray:
    """``elements`` as a layout of tokens packs them, -1 in lanes that do not exist.

    The result is (groups, channel blocks, tokens, lanes).
    """
    groups, rows, channels = groups_of(elements.shape, layout)
    whole = _whole(rows, layout), _whole(channels, layout)
    if layout.startswith(TURNED):
        elements = np.swapaxes(elements, -1, -2)
    full = np.full((groups, *whole), -1, elements.dtype)
    full[:, :rows, :channels] = elements.reshape(groups, rows, channels)
    split = full.reshape(groups, whole[0], -1, _whole(1, layout))
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3))


def by_channel(places: np.ndarray) -> np.ndarray:
    """(groups, channel blocks, tokens, lanes) in the order of (1, channels, 1, tokens), flat."""
    return places.transpose(0, 1, 3, 2).reshape(-1)


def canonical(shape: Sequence[int], layout: str) -> Shape | None:
    """``shape`` as (N, C, H, W), None where the layout has no such view.

    NCHW: (N, C), (N, C, W) and (N, C, H, W).  ROWS: (..., C), every other axis a row.  Tokens:
    (..., T, C) as (1, groups * C, 1, T), T and C in whole blocks.
    """
    if is_tokens(layout):
        if len(shape) < 2:
            return None
        groups, rows, channels = groups_of(shape, layout)
        return 1, groups * _whole(channels, layout), 1, _whole(rows, layout)
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
    for layout in (tokens(k), turned(k)):
        view = canonical(shape, layout)
        if b == 1 and nb == 1 and view is not None and (view[1] // k, *view[2:]) == (cb, h, w):
            values = unpacked(packed, view).reshape(-1)
            elements = np.arange(math.prod(shape)).reshape(shape)
            places = by_channel(token_places(elements, layout))
            found = np.empty(math.prod(shape), values.dtype)
            found[places[places >= 0]] = values[places >= 0]
            yield found.reshape(shape)


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


def pack_tokens_compute(shape: Sequence[int], layout: str, config: VTAConfig) -> tirx.PrimFunc:
    """(G, T, C) or (G, C, T) int8 to packed tokens, zeros in lanes that do not exist."""
    groups, rows, channels = groups_of(shape, layout)
    each = _whole(channels, layout) // config.block
    view = canonical(shape, layout)
    assert view is not None
    source = te.placeholder(dims((groups, *shape[-2:])), "int8", name="x")

    def value(_n: Var, block: Var, _y: Var, row: Var, _b: Var, lane: Var) -> Expr:
        channel = tirx.floormod(block, each) * config.block + lane
        at = (row, channel) if layout.startswith(TOKENS) else (channel, row)
        inside = tirx.all(row < rows, channel < channels)
        element = source[(tirx.floordiv(block, each), *at)]
        return tirx.if_then_else(inside, element, tirx.const(0, "int8"))

    out = te.compute(dims(packed_shape(view, config)), value, name="packed")
    return _host_function(source, out)


def _element(source: te.Tensor, at: Sequence[Expr | int], dtype: str) -> Expr:
    """The element ``at`` a place of a packed tensor; of int32 its byte planes put together."""
    if dtype == "int8":
        return source[tuple(at)]
    parts = [source[(p, *at)].astype("int32") for p in range(PLANES)]
    word = parts[-1]
    for part in parts[-2::-1]:
        word = tirx.bitwise_or(word << tirx.const(8, "int32"), part & tirx.const(255, "int32"))
    return word


def unpack_tokens_compute(
    shape: Sequence[int], layout: str, config: VTAConfig, dtype: str = "int8"
) -> tirx.PrimFunc:
    """Packed tokens to (G, T, C) ``dtype``."""
    groups, rows, channels = groups_of(shape, layout)
    each, k = _whole(channels, layout) // config.block, config.block
    view = canonical(shape, layout)
    assert view is not None
    source = te.placeholder(dims(packed_shape(view, config, dtype)), "int8", name="x")

    def value(group: Var, row: Var, channel: Var) -> Expr:
        block = group * each + tirx.floordiv(channel, k)
        return _element(source, (0, block, 0, row, 0, tirx.floormod(channel, k)), dtype)

    out = te.compute(dims((groups, rows, channels)), value, name="unpacked")
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
        return _element(source, at, dtype)

    out = te.compute(dims(shape), value, name="unpacked")
    return _host_function(source, out)
