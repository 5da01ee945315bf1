"""Arithmetic that gives the same bits on every machine.

BLAS sums in an order of its own, which normally changes the last bits and then every number
derived from them. Here it cannot: weights lie on an 8-bit grid and activations on a grid of
``2**-GRID_BITS``, so that every partial sum of their products is exact in float64, in any order.
What is derived from data is rounded to 8 significant bits and used in that form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

GRID_BITS = 14


def round_bits(values: npt.ArrayLike, bits: int = 8) -> F32:
    """Round to `bits` significant bits; exact in float32."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits), np.float32)


def on_int8_grid(weights: F64) -> F32:
    """Round to integers of at most 127 times one power of two."""
    step = 2.0 ** np.ceil(np.log2(np.abs(weights).max() / 127))
    return np.asarray(np.rint(weights / step) * step, np.float32)


def on_grid(values: npt.NDArray[Any]) -> F32:
    """Round to multiples of ``2**-GRID_BITS``, exact in float32 while ``|x| < 2**10``."""
    step = values.dtype.type(2.0**GRID_BITS)
    return np.asarray(np.rint(values * step) / step, np.float32)


def per_channel(values: npt.NDArray[Any]) -> F32:
    """(C,) as float32 (C, 1, 1), to broadcast over NCHW."""
    return np.asarray(values, np.float32)[:, None, None]


Pads = tuple[int, int, int, int]
"""Top, left, bottom, right."""


def all_pads(pad: int | Pads) -> Pads:
    """The four pads of a number for every side, or of the four."""
    return (pad,) * 4 if isinstance(pad, int) else pad


def conv2d(
    x: F32,
    w: F32,
    *,
    stride: int = 1,
    pad: int | Pads = 0,
    groups: int = 1,
    dilation: int = 1,
) -> F32:
    """NCHW x OIHW convolution: im2col and matmul in float64, rounded once to float32.

    `pad` is for every side, or (top, left, bottom, right).
    """
    top, left, bottom, right = all_pads(pad)
    o, c, kh, kw = w.shape
    seen = (dilation * (kh - 1) + 1, dilation * (kw - 1) + 1)
    oh = (x.shape[2] + top + bottom - seen[0]) // stride + 1
    ow = (x.shape[3] + left + right - seen[1]) // stride + 1
    kernel = w.reshape(groups, o // groups, c * kh * kw).astype(np.float64)
    out = np.empty((len(x), o, oh, ow), np.float32)
    for i in range(len(x)):
        padded = np.pad(x[i].astype(np.float64), ((0, 0), (top, bottom), (left, right)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, seen, axis=(1, 2))
        taps = windows[:, ::stride, ::stride, ::dilation, ::dilation]
        columns = taps.transpose(0, 3, 4, 1, 2).reshape(groups, c * kh * kw, oh * ow)
        out[i] = (kernel @ columns).reshape(o, oh, ow)
    return out


def patches(x: F32, kernel: int, count: int, rng: np.random.RandomState) -> F64:
    """What filters see at `count` random places of NCHW `x`, padded: (count, C, kernel**2)."""
    pad = kernel // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    image, row, column = (rng.randint(0, windows.shape[axis], count) for axis in (0, 2, 3))
    return windows[image, :, row, column].reshape(count, x.shape[1], -1).astype(np.float64)


def conv_transpose2d(x: F32, w: F32, *, stride: int, pad: int) -> F32:
    """NCHW x IOHW transposed convolution: matmul and overlapping additions in float64."""
    n, c, h, width = x.shape
    o, kh, kw = w.shape[1:]
    kernel = w.reshape(c, -1).T.astype(np.float64)
    full = np.zeros((n, o, (h - 1) * stride + kh, (width - 1) * stride + kw))
    for i in range(n):
        products = (kernel @ x[i].reshape(c, -1).astype(np.float64)).reshape(o, kh, kw, h, width)
        for row in range(kh):
            for column in range(kw):
                rows = slice(row, row + (h - 1) * stride + 1, stride)
                columns = slice(column, column + (width - 1) * stride + 1, stride)
                full[i, :, rows, columns] += products[:, row, column]
    inner = slice(pad, -pad or None)
    return np.asarray(full[:, :, inner, inner], np.float32)


def max_pool2d(x: F32, *, kernel: int, stride: int, pads: tuple[int, int, int, int]) -> F32:
    """NCHW maximum over windows; padding (top, left, bottom, right) never wins."""
    top, left, bottom, right = pads
    edges = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(x, edges, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    out = windows[..., 0, 0].copy()
    for tap in range(1, kernel**2):
        np.maximum(out, windows[..., tap // kernel, tap % kernel], out=out)
    return out


def channel_moments(x: F32) -> tuple[F64, F64]:
    """Mean and variance of each channel of NCHW, in float64."""
    moments = np.empty((2, x.shape[1]))
    for c in range(x.shape[1]):
        values = x[:, c].astype(np.float64)
        moments[:, c] = values.mean(), values.var()
    return moments[0], moments[1]


def channel_covariance(x: F32, y: F32) -> F64:
    """Covariance of channel c of `x` with channel c of `y`, both NCHW, in float64."""
    out = np.empty(x.shape[1])
    for c in range(x.shape[1]):
        a, b = x[:, c].astype(np.float64), y[:, c].astype(np.float64)
        out[c] = ((a - a.mean()) * (b - b.mean())).mean()
    return out
