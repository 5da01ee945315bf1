"""Folding: the host gathers windows of an image into channels, for layers with few of them.

A convolution of 3 channels leaves 13 of 16 input lanes idle.  The host, which has to pack the
tensor anyway, can copy a window of pixels into the channels of one: with window 2 x 2 on a grid of
2 x 2 (space to depth) a 7 x 7 kernel of stride 2 becomes a 4 x 4 kernel over 12 channels; with a
window of the whole kernel it becomes 1 x 1 over 147.  Larger windows save GEMM work and cost
copies: the bytes that the host writes are part of the choice and of the report.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.tirx import Expr, Var

from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.layout import dims
from vta_byoc.workload.packing import blocks, packed_shape
from vta_byoc.workload.workloads import Conv2dWorkload, Shape

CANDIDATES = 6
LARGE = 127
"""The constant of all lanes that make a bias but the last, and the largest of their weights."""
FOLD_ATTR = "vta.fold"


@dataclass(frozen=True)
class Im2col:
    """Windows of pixels as the channels of one pixel (im2col).

    Channel ``(dy * window[1] + dx) * C + c`` of pixel (y, x) is channel c of pixel
    ``(y * grid[0] + dy * dilation[0] - top, x * grid[1] + dx * dilation[1] - left)``, 0 outside.
    The last ``constants`` channels hold LARGE, the very last holds 1: their products make a bias.
    """

    window: tuple[int, int]
    grid: tuple[int, int]
    dilation: tuple[int, int]
    offset: tuple[int, int]
    shape: Shape
    constants: int = 0

    @property
    def text(self) -> str:
        """In words."""
        (wh, ww), (gy, gx) = self.window, self.grid
        return f"windows of {wh}x{ww} every {gy}x{gx} folded into {self.shape[1]} channels"

    def nbytes(self, config: VTAConfig) -> int:
        """Bytes that the host writes."""
        return math.prod(packed_shape(self.shape, config))

    def weight(self, weight: np.ndarray) -> np.ndarray:
        """(O, I, KH, KW) for the folded channels: (O, window * I, taps, taps)."""
        (wh, ww), (o, i, kh, kw) = self.window, weight.shape
        th, tw = blocks(kh, wh), blocks(kw, ww)
        full = np.zeros((o, i, th * wh, tw * ww), weight.dtype)
        full[:, :, :kh, :kw] = weight
        split = full.reshape(o, i, th, wh, tw, ww)
        return np.ascontiguousarray(
            split.transpose(0, 3, 5, 1, 2, 4).reshape(o, wh * ww * i, th, tw)
        )

    def compute(self, source: Sequence[int], config: VTAConfig) -> tirx.PrimFunc:
        """int8 NCHW ``source`` to the packed folded tensor."""
        n, c, height, width = source
        b, k = config.batch, config.block
        (top, left), channels = self.offset, self.shape[1]
        (gy, gx), (dy, dx) = self.grid, self.dilation
        copied = channels - self.constants
        x = te.placeholder(dims(source), "int8", name="x")

        def value(nb: Var, cb: Var, h: Var, w: Var, bi: Var, ci: Var) -> Expr:
            image, lane = nb * b + bi, cb * k + ci
            tap = tirx.floordiv(lane, c)
            row = h * gy + tirx.floordiv(tap, self.window[1]) * dy - top
            col = w * gx + tirx.floormod(tap, self.window[1]) * dx - left
            inside = tirx.all(
                image < n, lane < copied, row >= 0, row < height, col >= 0, col < width
            )
            zero = tirx.const(0, "int8")
            found = tirx.if_then_else(inside, x[image, tirx.floormod(lane, c), row, col], zero)
            if not self.constants:
                return found
            large, one = tirx.const(LARGE, "int8"), tirx.const(1, "int8")
            constant = tirx.if_then_else(lane == channels - 1, one, large)
            return tirx.if_then_else(lane < copied, found, constant)

        out = te.compute(dims(packed_shape(self.shape, config)), value, name="folded")
        func = te.create_prim_func([x, out], index_dtype_override="int64")
        return func.without_attr("global_symbol").with_attr(FOLD_ATTR, dataclasses.asdict(self))

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Im2col:
        """The fold that :meth:`compute` wrote ``func`` for."""
        fields: Mapping[str, Any] = func.attrs[FOLD_ATTR]
        found: dict[str, Any] = {
            str(k): int(v) if str(k) == "constants" else tuple(map(int, v))
            for k, v in fields.items()
        }
        return cls(**found)


def folded(work: Conv2dWorkload, fold: Im2col) -> Conv2dWorkload:
    """The convolution of the folded tensor."""
    rows, cols = (_taps(work, fold, axis) for axis in (0, 1))
    strides = (work.strides[0] // fold.grid[0], work.strides[1] // fold.grid[1])
    return dataclasses.replace(
        work,
        in_channels=fold.shape[1],
        height=fold.shape[2],
        width=fold.shape[3],
        kernel=(rows[0], cols[0]),
        strides=strides,
        padding=(0, 0, 0, 0),
        dilation=(rows[1], cols[1]),
        filled=(),
    )


def _taps(work: Conv2dWorkload, fold: Im2col, axis: int) -> tuple[int, int]:
    """Taps along an axis, and their distance in folded pixels."""
    taps = blocks(work.kernel[axis], fold.window[axis])
    step = fold.window[axis] * work.dilation[axis] // fold.grid[axis]
    return taps, step if taps > 1 else 1


def folds(work: Conv2dWorkload, config: VTAConfig) -> list[Im2col]:
    """The most promising folds of ``work``: few GEMM steps for few copied bytes."""
    if work.groups != 1 or work.in_channels % config.block == 0 or work.kernel == (1, 1):
        return []
    plain = blocks(work.in_channels, config.block) * math.prod(work.kernel)
    pixels = blocks(work.batch, config.batch) * work.out_height * work.out_width
    lanes = pixels * blocks(work.out_channels, config.block)

    def rank(fold: Im2col) -> float:
        return _steps(work, fold, config) * lanes + host_cycles(fold.nbytes(config), config)

    better = [f for f in _all(work) if _steps(work, f, config) < plain]
    return sorted(better, key=lambda f: (rank(f), f.window, f.grid))[:CANDIDATES]


def host_cycles(nbytes: int, config: VTAConfig) -> float:
    """What the host takes to gather ``nbytes``, in the machine's cycles."""
    return nbytes / config.timing.host_copy_bytes


def _steps(work: Conv2dWorkload, fold: Im2col, config: VTAConfig) -> int:
    """GEMM steps for one output vector."""
    taps = [blocks(k, w) for k, w in zip(work.kernel, fold.window, strict=True)]
    return blocks(fold.shape[1], config.block) * math.prod(taps)


def _all(work: Conv2dWorkload) -> Iterator[Im2col]:
    """Every window; that of one tap, which changes nothing, takes as many steps as `work`."""
    for rows, cols in itertools.product(_axis(work, 0), _axis(work, 1)):
        (wh, gy, height), (ww, gx, width) = rows, cols
        shape = (work.batch, work.in_channels * wh * ww, height, width)
        yield Im2col((wh, ww), (gy, gx), work.dilation, work.padding[:2], shape)


def _axis(work: Conv2dWorkload, axis: int) -> Iterator[tuple[int, int, int]]:
    """(window, grid, positions) along one axis; taps must lie on the grid."""
    kernel, stride, dilation = work.kernel[axis], work.strides[axis], work.dilation[axis]
    outputs = (work.out_height, work.out_width)[axis]
    for window in range(1, kernel + 1):
        taps = blocks(kernel, window)
        grid = stride if taps == 1 else math.gcd(stride, window * dilation)
        reach = (taps - 1) * (window * dilation // grid) + 1
        yield window, grid, (outputs - 1) * (stride // grid) + reach
