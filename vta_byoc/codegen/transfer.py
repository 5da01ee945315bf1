"""From an n-dimensional copy with padding to the 2-D transfers the DMA can do.

A transfer that exceeds a field (size, stride, padding) is split; zeros that padding cannot reach
are loaded from one zero element in DRAM.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from vta_byoc.codegen.linear import CodegenError
from vta_byoc.hw.isa import PAD_LIMIT, SIZE_LIMIT
from vta_byoc.workload.dma import are_rows, is_row, runs_on


@dataclass(frozen=True)
class Dim:
    """One loop of a copy: ``total`` positions, data in [low, high), zeros elsewhere.

    ``dram`` and ``sram`` are strides in elements; the DRAM offset of position p is (p - low) * dram
    past the first datum.
    """

    total: int
    low: int
    high: int
    dram: int
    sram: int

    @property
    def padded(self) -> bool:
        """Whether some positions are zeros."""
        return self.low > 0 or self.high < self.total

    @property
    def pitch(self) -> int:
        """The stride in DRAM; a single datum is dense whatever its stride."""
        return 1 if self.high - self.low == 1 else self.dram


UNIT = Dim(1, 0, 1, 1, 1)
NOTHING = Dim(1, 0, 0, 0, 1)


@dataclass(frozen=True)
class Piece:
    """One LOAD or STORE.  Offsets in elements; ``zero``: it reads the zero element instead."""

    dram: int
    sram: int
    y_size: int
    x_size: int
    x_stride: int
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    zero: bool = False

    @property
    def sram_elems(self) -> int:
        """Elements written (or read) on the SRAM side, contiguous from ``sram``."""
        y0, y1, x0, x1 = self.pads
        return (y0 + self.y_size + y1) * (x0 + self.x_size + x1)


def plan_transfer(dims: Sequence[Dim], store: bool = False, fill: bool = False) -> list[Piece]:
    """The 2-D transfers of an n-dimensional copy (any order of ``dims``).

    SRAM positions must not interleave: each stride covers the dimensions inside it.  With ``fill``
    zeros may be written between the rows, and behind the last one up to the next row's place.
    """
    dims = sorted((d for d in dims if d.total > 1 or d.padded), key=lambda d: -d.sram)
    if any(d.high <= d.low for d in dims):
        return _zero_region(dims, 0)
    dims = _merge(dims)
    x = dims.pop() if dims and is_row(dims[-1].pitch, dims[-1].sram) else UNIT
    _check_nesting([*dims, x])
    if store and any(d.padded for d in (*dims, x)):
        raise CodegenError("a store cannot pad; store only what is inside the tensor")
    y = UNIT
    if dims and _row_fits(dims[-1], x, fill):
        y = dims.pop()
        x = _fill_gap(x, y)
    return _enumerate(dims, y, x)


def _merge(dims: list[Dim]) -> list[Dim]:
    merged: list[Dim] = []
    for d in reversed(dims):
        inner = merged[-1] if merged else None
        if (
            inner is not None
            and not (inner.padded or d.padded)
            and runs_on(d.dram, d.sram, inner.total * inner.dram, inner.total * inner.sram)
        ):
            total = d.total * inner.total
            merged[-1] = Dim(total, 0, total, inner.dram, inner.sram)
            continue
        merged.append(d)
    return merged[::-1]


def _check_nesting(dims: Sequence[Dim]) -> None:
    span = 1
    for d in reversed(dims):
        if d.total > 1 and d.sram < span:
            raise CodegenError(
                f"SRAM stride {d.sram} overlaps a row of {span} elements; a DMA writes rows one "
                "after the other; keep the loops of the copy in the order of the buffer"
            )
        span = max(span, (d.total - 1) * d.sram + span)


def _row_fits(y: Dim, x: Dim, fill: bool) -> bool:
    """Whether ``y`` can be the row loop around ``x`` in one instruction."""
    left, right = x.low, x.total - x.high
    if x.total > SIZE_LIMIT or max(left, right) > PAD_LIMIT:
        return False
    return bool(are_rows(y.dram, y.sram - x.total, PAD_LIMIT - right if fill else 0))


def _fill_gap(x: Dim, y: Dim) -> Dim:
    """Rows are dense in SRAM: zeros fill what the buffer's row has more than the tile's."""
    return dataclasses.replace(x, total=y.sram) if y.sram > x.total else x


def _enumerate(outer: list[Dim], y: Dim, x: Dim) -> list[Piece]:
    pieces: list[Piece] = []
    for index in itertools.product(*(range(d.total) for d in outer)):
        sram = sum(i * d.sram for i, d in zip(index, outer, strict=True))
        if any(not d.low <= i < d.high for i, d in zip(index, outer, strict=True)):
            pieces += _zero_region([y, x], sram)
            continue
        dram = sum((i - d.low) * d.dram for i, d in zip(index, outer, strict=True))
        pieces += _rows(y, x, dram, sram)
    return pieces


def _rows(y: Dim, x: Dim, dram: int, sram: int) -> list[Piece]:
    """One two-dimensional box; padding rows beyond the field are zero loads."""
    top, bottom = min(y.low, PAD_LIMIT), min(y.total - y.high, PAD_LIMIT)
    row = x.total
    pieces = _zeros(sram, (y.low - top) * row)
    first = y.low - top
    rows = y.high - y.low
    step = SIZE_LIMIT
    for start in range(0, rows, step):
        count = min(step, rows - start)
        pads = (top if start == 0 else 0, bottom if start + count == rows else 0)
        at = sram + (first + (top + start if start else 0)) * row
        pieces += _columns(count, y, x, dram + start * y.dram, at, pads)
    return pieces + _zeros(sram + (y.high + bottom) * row, (y.total - y.high - bottom) * row)


def _columns(rows: int, y: Dim, x: Dim, dram: int, sram: int, pads: tuple[int, int]) -> list[Piece]:
    left, right = min(x.low, PAD_LIMIT), min(x.total - x.high, PAD_LIMIT)
    wide = x.low > left or x.total - x.high > right or x.high - x.low > SIZE_LIMIT
    if not wide:
        stride = y.dram if rows > 1 else x.high - x.low
        around = (pads[0], pads[1], left, right)
        return [Piece(dram, sram, rows, x.high - x.low, stride, around)]
    if rows > 1 or pads != (0, 0):
        raise AssertionError("a wide row stands alone")
    pieces = _zeros(sram, x.low - left)
    width = x.high - x.low
    for start in range(0, width, SIZE_LIMIT):
        count = min(SIZE_LIMIT, width - start)
        around = (0, 0, left if start == 0 else 0, right if start + count == width else 0)
        at = sram + x.low - left + (left + start if start else 0)
        pieces.append(Piece(dram + start, at, 1, count, count, around))
    return pieces + _zeros(sram + x.high + right, x.total - x.high - right)


def _zero_region(dims: Sequence[Dim], sram: int) -> list[Piece]:
    """Zeros over a box of SRAM positions (every position of ``dims``)."""
    flat = [dataclasses.replace(d, low=0, high=d.total) for d in dims if d.total > 1]
    flat = _merge([dataclasses.replace(d, dram=d.sram) for d in flat])
    run = flat.pop().total if flat and flat[-1].sram == 1 else 1
    pieces: list[Piece] = []
    for index in itertools.product(*(range(d.total) for d in flat)):
        at = sram + sum(i * d.sram for i, d in zip(index, flat, strict=True))
        pieces += _zeros(at, run)
    return pieces


def _zeros(sram: int, count: int) -> list[Piece]:
    """``count`` zero elements from ``sram``: one DRAM element and padding around it."""
    pieces: list[Piece] = []
    width = 2 * PAD_LIMIT + 1
    while count > 0:
        cols = min(count, width)
        rows = min(count // cols, width)
        around = (*_around(rows), *_around(cols))
        pieces.append(Piece(0, sram, 1, 1, 1, around, zero=True))
        sram += rows * cols
        count -= rows * cols
    return pieces


def _around(total: int) -> tuple[int, int]:
    """Padding before and after one datum so that ``total`` positions are written."""
    before = min(total - 1, PAD_LIMIT)
    return before, total - 1 - before
