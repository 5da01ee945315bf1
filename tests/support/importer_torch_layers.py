"""Generators of PyTorch cases: convolutions, pools, normalizations, products and images."""

from __future__ import annotations

from typing import Any

import numpy as np
from importer_draws import Draw
from importer_torch_inputs import KINDS, Drawn, Generator, aten, constant, small


def convolution(d: Draw) -> Drawn:
    rank, transposed, groups = d.size(1, 3), d.flag(), d.size(1, 2)
    inputs, outputs = groups * d.size(1, 3), groups * d.size(1, 3)
    kernel = [d.size(1, 3) for _ in range(rank)]
    stride, dilation = ([d.size(1, 3) for _ in range(rank)] for _ in range(2))
    padding = [d.size(0, 2) for _ in range(rank)]
    extra = [d.size(0, max(s, g) - 1) for s, g in zip(stride, dilation, strict=True)]
    channels = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight, bias = constant(d, *channels, *kernel), d.pick(None, constant(d, outputs))
    output_padding = extra if transposed else [0] * rank

    def function(x: Any) -> Any:
        return aten.convolution(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )

    return function, [d.floats((d.size(1, 2), inputs, *(d.size(4, 8) for _ in range(rank))))]


def _window(d: Draw, rank: int) -> tuple[list[int], list[int], list[int]]:
    kernel = [d.size(1, 4) for _ in range(rank)]
    stride = d.pick([], [d.size(1, 3) for _ in range(rank)])
    return kernel, stride, [d.size(0, size // 2) for size in kernel]


def _plane(d: Draw, rank: int, low: int = 6, high: int = 9) -> np.ndarray:
    """With or without a batch."""
    sizes = tuple(d.size(low, high) for _ in range(rank))
    return d.floats((*d.pick((), (d.size(1, 2),)), d.size(1, 3), *sizes))


def average(rank: int) -> Generator:
    def generate(d: Draw) -> Drawn:
        op = getattr(aten, f"avg_pool{rank}d")
        args = (*_window(d, rank), d.flag(), d.flag(), d.pick(*[None] * 9, 3))
        return lambda x: op(x, *args), [_plane(d, rank)]

    return generate


def maximal(rank: int) -> Generator:
    def generate(d: Draw) -> Drawn:
        op = getattr(aten, f"max_pool{rank}d_with_indices")
        args = (*_window(d, rank), [d.size(1, 2) for _ in range(rank)], d.flag())
        taken = d.pick(slice(1), slice(1, 2), slice(2))  # the maxima, their places, or both
        return lambda x: op(x, *args)[taken], [_plane(d, rank, 8, 11)]

    return generate


def adaptive(rank: int) -> Generator:
    def generate(d: Draw) -> Drawn:
        op = getattr(aten, f"_adaptive_avg_pool{rank}d")
        sizes = [d.size(1, 9) for _ in range(rank)]
        return lambda x: op(x, sizes), [_plane(d, rank)]

    return generate


def adaptive_maximal(rank: int) -> Generator:
    """Windows of one size on all axes or on none, and those that differ by one."""

    def generate(d: Draw) -> Drawn:
        op = getattr(aten, f"adaptive_max_pool{rank}d")
        counts, times = [d.size(1, 4) for _ in range(rank)], d.size(1, 3)
        extra = [d.pick(0, d.size(0, 2)) for _ in range(rank)]
        plane = [times * count + more for count, more in zip(counts, extra, strict=True)]
        return lambda x: op(x, counts)[0], [d.floats((*d.pick((), (1,), (2,)), 3, *plane))]

    return generate


def batch_norm(op: Any, training: bool = False) -> Generator:
    def generate(d: Draw) -> Drawn:
        shape = (d.size(2, 3), d.size(2, 4), *d.shape(0, 3))
        affine = d.flag()
        scale, shift = (constant(d, shape[1]) if affine else None for _ in range(2))
        mean, variance, eps = constant(d, shape[1]), constant(d, shape[1]).abs() + 0.5, 1e-3
        stats = () if training else (mean, variance)
        last = (True, 0.1, eps) if training else (0.1, eps)
        return lambda x: op(x, scale, shift, *stats, *last)[0], [d.floats(shape)]

    return generate


def layer_norm(d: Draw) -> Drawn:
    shape = d.shape(2)
    normal = shape[d.size(1, len(shape) - 1) :]
    scale, shift = d.pick(None, constant(d, *normal)), d.pick(None, constant(d, *normal))
    return lambda x: aten.native_layer_norm(x, list(normal), scale, shift, 1e-5)[0], [
        d.floats(shape)
    ]


def group_norm(d: Draw) -> Drawn:
    groups, n = d.size(1, 3), d.size(1, 2)
    channels, plane = groups * d.size(1, 2), d.shape(1, 3)
    scale, shift = d.pick(None, constant(d, channels)), d.pick(None, constant(d, channels))
    pixels = int(np.prod(plane))
    return lambda x: aten.native_group_norm(x, scale, shift, n, channels, pixels, groups, 1e-5)[
        0
    ], [d.floats((n, channels, *plane))]


def addmm(d: Draw) -> Drawn:
    m, k, n = d.size(), d.size(), d.size()
    bias = d.pick((n,), (m, n), (1, n), (m, 1))
    options = d.pick({}, {"alpha": 0.5, "beta": 2}, {"beta": 0}, {"alpha": 0})
    return lambda b, x, y: aten.addmm(b, x, y, **options), [
        d.floats(bias), d.floats((m, k)), d.floats((k, n)),
    ]  # fmt: skip


def product(batch: int) -> Generator:
    def generate(d: Draw) -> Drawn:
        outer = tuple(d.size() for _ in range(batch))
        m, k, n = d.size(), d.size(), d.size()
        kind = d.pick(KINDS[0], KINDS[0], small)
        op = aten.bmm if batch else aten.mm
        feed = [d.floats((*outer, m, k)), d.floats((*outer, k, n))]
        return lambda x, y: op(kind(x), kind(y)), feed

    return generate


def distances(d: Draw) -> Drawn:
    """Of few rows, and of so many that PyTorch computes them by a product."""
    outer, rows, k = tuple(d.size(1, 2) for _ in range(d.size(0, 2))), d.pick(3, 30), d.size()
    order, mode = d.pick(0.0, 1.0, 2.0, 2.0, 3.0, float("inf")), d.pick(None, 0, 1, 2)
    feed = [d.floats((*outer, rows, k)), d.floats((*outer, d.size(), k), 5, 9)]  # none is near 0
    return lambda x, y: aten._cdist_forward(x, y, order, mode), feed


def resized(op: Any, *more: Any, corners: bool = False) -> Generator:
    def generate(d: Draw) -> Drawn:
        x = d.floats((1, d.size(1, 2), d.size(2, 5), d.size(2, 5)))
        sizes, scales = [d.size(2, 9), d.size(2, 9)], None
        if d.flag():
            sizes, scales = None, [d.pick(2.0, 0.5, 1.5), d.pick(2.0, 3.0, 0.75)]
        args = ((d.flag(),) if corners else ()) + (scales,)
        return lambda x: op(x, sizes, *args), [x]

    return generate


def filtered(op: Any) -> Generator:
    """Sizes, or scales that give them.

    Two columns or more: PyTorch 2.13 reads one row only where one channel gets one column.
    """

    def generate(d: Draw) -> Drawn:
        rows, columns = d.size(2, 7), d.size(3, 7)
        x = d.floats((1, d.size(1, 2), rows, columns))
        if d.flag():
            sizes = [d.size(1, 9), d.size(2, 9)]
            return lambda x: op(x, sizes, False), [x]
        scales = [d.pick(2.0, 0.5, 0.6), d.pick(1.5, 0.75)]
        whole = [int(rows * scales[0]), int(columns * scales[1])]
        return lambda x: op(x, whole, False, *scales), [x]

    return generate


def grid(d: Draw) -> Drawn:
    feed = [d.floats((1, 2, d.size(2, 5), d.size(2, 5))), d.floats((1, 3, 4, 2), -1.5, 1.5)]
    args = (d.size(0, 2), d.size(0, 2), d.flag())
    return lambda x, grid: aten.grid_sampler_2d(x, grid, *args), feed
