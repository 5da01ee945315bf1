"""Cases for every operator of the PyTorch importer: programs with one call, against eager PyTorch.

A generator draws a function of tensors and its inputs. Programs take float32 only; integers and
booleans are made of it inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from importer_draws import Case, Draw

aten = torch.ops.aten
Drawn = tuple[Callable[..., Any], list[np.ndarray]]
Generator = Callable[[Draw], Drawn]


# ---------------------------------------------------------------- inputs
def whole(x: Any) -> Any:
    return x.to(torch.int64)


def small(x: Any) -> Any:
    return x.to(torch.int32)


def positive(x: Any) -> Any:
    return x > 0


KINDS = (lambda x: x, whole, small)


def unary(op: Any, low: float = -4, high: float = 4, *kinds: Any, **options: Any) -> Generator:
    """`op` of one tensor, of floats or of one of `kinds`."""

    def generate(d: Draw) -> Drawn:
        kind = d.pick(KINDS[0], *kinds)
        return lambda x: op(kind(x), **options), [d.floats(d.shape(0), low, high)]

    return generate


def binary(op: Any, *kinds: Any, low: float = -4, low_right: float = -4) -> Generator:
    """`op` of two tensors that broadcast."""

    def generate(d: Draw) -> Drawn:
        left, right = d.pick(*(kinds or KINDS)), d.pick(*(kinds or KINDS))
        shape = d.shape(0)
        shapes = [shape, d.broadcast(shape)]
        if d.flag():
            shapes.reverse()
        feed = [d.floats(shapes[0], low), d.floats(shapes[1], low_right)]
        return lambda x, y: op(left(x), right(y)), feed

    return generate


def scalar(op: Any, *kinds: Any, low: float = -4, numbers: Sequence[Any] = ()) -> Generator:
    """`op` of a tensor and a number."""

    def generate(d: Draw) -> Drawn:
        kind = d.pick(*(kinds or KINDS))
        number = d.pick(*(numbers or (2, -3, 0.5, 2.0, -1.5)))
        return lambda x: op(kind(x), number), [d.floats(d.shape(0), low)]

    return generate


def reduction(op: Any, *kinds: Any, many: bool = True, keep: bool = True) -> Generator:
    """`op(x, axes, keepdim)`."""

    def generate(d: Draw) -> Drawn:
        kind, shape = d.pick(*(kinds or (KINDS[0],))), d.shape(1)
        axes = d.axes(len(shape)) if many else d.axis(len(shape))
        kept = (d.flag(),) if keep else ()
        return lambda x: op(kind(x), axes, *kept), [d.floats(shape)]

    return generate


def moved(
    function: Callable[[Draw, tuple[int, ...]], Any], kinds: Sequence[Any] = KINDS
) -> Generator:
    """`function(d, shape)` gives a function of one tensor of that shape, floats or integers."""

    def generate(d: Draw) -> Drawn:
        shape = d.shape(1)
        op, kind = function(d, shape), d.pick(*kinds)
        return lambda x: op(kind(x)), [d.floats(shape)]

    return generate


# ---------------------------------------------------------------- layers and pools
def _constant(d: Draw, *shape: int) -> Any:
    return torch.from_numpy(d.floats(shape, -1, 1))


def _convolution(d: Draw) -> Drawn:
    rank, transposed, groups = d.size(1, 3), d.flag(), d.size(1, 2)
    inputs, outputs = groups * d.size(1, 3), groups * d.size(1, 3)
    kernel = [d.size(1, 3) for _ in range(rank)]
    stride, dilation = ([d.size(1, 3) for _ in range(rank)] for _ in range(2))
    padding = [d.size(0, 2) for _ in range(rank)]
    extra = [d.size(0, max(s, g) - 1) for s, g in zip(stride, dilation, strict=True)]
    channels = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight, bias = _constant(d, *channels, *kernel), d.pick(None, _constant(d, outputs))
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
        return lambda x: op(x, *args)[0], [_plane(d, rank, 8, 11)]

    return generate


def adaptive(rank: int) -> Generator:
    def generate(d: Draw) -> Drawn:
        op = getattr(aten, f"_adaptive_avg_pool{rank}d")
        sizes = [d.size(1, 9) for _ in range(rank)]
        return lambda x: op(x, sizes), [_plane(d, rank)]

    return generate


def _batch_norm(op: Any, training: bool = False) -> Generator:
    def generate(d: Draw) -> Drawn:
        shape = (d.size(2, 3), d.size(2, 4), *d.shape(0, 3))
        affine = d.flag()
        scale, shift = (_constant(d, shape[1]) if affine else None for _ in range(2))
        mean, variance, eps = _constant(d, shape[1]), _constant(d, shape[1]).abs() + 0.5, 1e-3
        stats = () if training else (mean, variance)
        last = (True, 0.1, eps) if training else (0.1, eps)
        return lambda x: op(x, scale, shift, *stats, *last)[0], [d.floats(shape)]

    return generate


def _layer_norm(d: Draw) -> Drawn:
    shape = d.shape(2)
    normal = shape[d.size(1, len(shape) - 1) :]
    scale, shift = d.pick(None, _constant(d, *normal)), d.pick(None, _constant(d, *normal))
    return lambda x: aten.native_layer_norm(x, list(normal), scale, shift, 1e-5)[0], [
        d.floats(shape)
    ]


def _group_norm(d: Draw) -> Drawn:
    groups, n = d.size(1, 3), d.size(1, 2)
    channels, plane = groups * d.size(1, 2), d.shape(1, 3)
    scale, shift = d.pick(None, _constant(d, channels)), d.pick(None, _constant(d, channels))
    pixels = int(np.prod(plane))
    return lambda x: aten.native_group_norm(x, scale, shift, n, channels, pixels, groups, 1e-5)[
        0
    ], [d.floats((n, channels, *plane))]


def _addmm(d: Draw) -> Drawn:
    m, k, n = d.size(), d.size(), d.size()
    bias = d.pick((n,), (m, n), (1, n), (m, 1))
    options = d.pick({}, {"alpha": 0.5, "beta": 2}, {"beta": 0}, {"alpha": 0})
    return lambda b, x, y: aten.addmm(b, x, y, **options), [
        d.floats(bias), d.floats((m, k)), d.floats((k, n)),
    ]  # fmt: skip


def _product(batch: int) -> Generator:
    def generate(d: Draw) -> Drawn:
        outer = tuple(d.size() for _ in range(batch))
        m, k, n = d.size(), d.size(), d.size()
        kind = d.pick(KINDS[0], KINDS[0], small)
        op = aten.bmm if batch else aten.mm
        feed = [d.floats((*outer, m, k)), d.floats((*outer, k, n))]
        return lambda x, y: op(kind(x), kind(y)), feed

    return generate


def _resized(op: Any, *more: Any, corners: bool = False) -> Generator:
    def generate(d: Draw) -> Drawn:
        x = d.floats((1, d.size(1, 2), d.size(2, 5), d.size(2, 5)))
        sizes, scales = [d.size(2, 9), d.size(2, 9)], None
        if d.flag():
            sizes, scales = None, [d.pick(2.0, 0.5, 1.5), d.pick(2.0, 3.0, 0.75)]
        args = ((d.flag(),) if corners else ()) + (scales,)
        return lambda x: op(x, sizes, *args), [x]

    return generate


def _grid(d: Draw) -> Drawn:
    feed = [d.floats((1, 2, d.size(2, 5), d.size(2, 5))), d.floats((1, 3, 4, 2), -1.5, 1.5)]
    args = (d.size(0, 2), d.size(0, 2), d.flag())
    return lambda x, grid: aten.grid_sampler_2d(x, grid, *args), feed


# ---------------------------------------------------------------- indices
def _limits(x: Any, size: int) -> Any:
    """Integers from -size to size - 1 of floats from -4 to 4."""
    return (x * size / 4).floor().clamp(-size, size - 1).to(torch.int64)


def _select(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    at = d.axis(shape[axis])
    return lambda x: aten.select.int(x, axis, at)


def _slice(d: Draw, shape: tuple[int, ...]) -> Any:
    axis, step = d.axis(len(shape)), d.size(1, 3)
    start, end = (d.pick(None, d.size(-7, 7), d.size(-2, 5)) for _ in range(2))
    return lambda x: aten.slice.Tensor(x, axis, start, end, step)


def _index_select(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    at = torch.from_numpy(d.integers(d.shape(1, 1), 0, shape[axis] - 1))
    return lambda x: aten.index_select(x, axis, at)


def _gather(d: Draw) -> Drawn:
    shape = d.shape(1)
    axis = d.axis(len(shape))
    other = [d.size(1, size) for size in shape]
    other[axis] = d.size(1, 6)

    def function(x: Any, i: Any) -> Any:
        return aten.gather(x, axis, _limits(i, shape[axis]).abs() % shape[axis])

    return function, [d.floats(shape), d.floats(other)]


def _index(d: Draw) -> Drawn:
    """Constant and computed indices, some axes whole, at any place."""
    shape = d.shape(1)
    common = d.shape(0, 2)
    indices: list[Any] = []
    for size in shape[: d.size(1, len(shape))]:
        kind = d.pick("whole", "constant", "computed")
        indices.append(None if kind == "whole" else (kind, size, d.broadcast(common)))
    if all(entry is None for entry in indices):
        indices[-1] = ("constant", shape[len(indices) - 1], common)
    constants = [
        torch.from_numpy(d.integers(entry[2], -entry[1], entry[1] - 1)) if entry else None
        for entry in indices
    ]
    offset = d.floats((1,))

    def function(x: Any, i: Any) -> Any:
        given = []
        for entry, constant in zip(indices, constants, strict=True):
            computed = entry is not None and entry[0] == "computed"
            shift = _limits(i, entry[1]).reshape(()) if computed else 0
            given.append((constant + shift) % entry[1] - 1 if computed else constant)
        return aten.index.Tensor(x, given)

    return function, [d.floats(shape), offset]


def _index_put(d: Draw) -> Drawn:
    shape = d.shape(1)
    used = d.size(1, len(shape))
    count = d.size(1, 3)
    first = torch.from_numpy(d.rng.permutation(shape[0])[:count])
    given = [first] + [
        torch.from_numpy(d.integers(first.shape, -size, size - 1)) for size in shape[1:used]
    ]
    values = d.pick((), (len(first), *shape[used:]), shape[used:])
    accumulate = d.flag()

    def function(x: Any, y: Any) -> Any:
        return aten.index_put(x, given, y, accumulate)

    return function, [d.floats(shape), d.floats(values)]


def _scatter(value: bool) -> Generator:
    def generate(d: Draw) -> Drawn:
        shape = d.shape(1)
        axis = d.axis(len(shape))
        other = [d.size(1, size) for size in shape]
        sizes = [*other[:axis], shape[axis], *other[axis:][1:]]
        order = np.argsort(d.rng.uniform(size=sizes), axis)
        index = torch.from_numpy(np.take(order, range(other[axis]), axis).astype("int64"))
        if value:
            return lambda x: aten.scatter.value(x, axis, index, 2.5), [d.floats(shape)]
        source = tuple(size + d.size(0, 1) for size in other)
        return lambda x, y: aten.scatter.src(x, axis, index, y), [d.floats(shape), d.floats(source)]

    return generate


def _slice_scatter(d: Draw) -> Drawn:
    shape = d.shape(1)
    axis, step = d.axis(len(shape)), d.size(1, 3)
    start, end = (d.pick(None, d.size(-5, 5)) for _ in range(2))
    hole = aten.slice.Tensor(torch.zeros(shape), axis, start, end, step).shape

    def function(x: Any, y: Any) -> Any:
        return aten.slice_scatter(x, y, axis, start, end, step)

    return function, [d.floats(shape), d.floats(hole)]


def _embedding(d: Draw) -> Drawn:
    table = _constant(d, d.size(2, 6), d.size())
    return lambda i: aten.embedding(table, _limits(i, len(table)) % len(table)), [
        d.floats(d.shape(0, 3))
    ]


def _bucketize(d: Draw) -> Drawn:
    bounds = torch.from_numpy(np.sort(d.floats((d.size(1, 6),))))
    options = {"right": d.flag(), "out_int32": d.flag()}
    return lambda x: aten.bucketize.Tensor(x, bounds, **options), [d.floats(d.shape(0))]


# ---------------------------------------------------------------- movement
def _split(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    first = d.size(0, shape[axis])
    return lambda x: aten.split_with_sizes(x, [first, shape[axis] - first], axis)


def _pad(d: Draw, shape: tuple[int, ...]) -> Any:
    widths = [d.size(-1 if size > 2 else 0, 2) for size in shape for _ in range(2)]
    used = 2 * d.size(1, len(shape))
    value = d.pick(0, 1.0, -2)
    return lambda x: aten.constant_pad_nd(x, widths[::-1][:used], value)


def _cat(d: Draw) -> Drawn:
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    feed = []
    for _ in range(d.size(1, 3)):
        shape[axis] = d.size()
        feed.append(d.floats(shape))
    kinds = [d.pick(*KINDS) for _ in feed]
    return lambda *parts: aten.cat([k(p) for k, p in zip(kinds, parts, strict=True)], axis), feed


def _expand(d: Draw) -> Drawn:
    shape = d.shape(0)
    wide = [d.size() if size == 1 else d.pick(size, -1) for size in shape]
    wide = [d.size() for _ in range(d.size(0, 2))] + wide
    return lambda x: aten.expand(x, wide), [d.floats(shape)]


def _view(d: Draw, shape: tuple[int, ...]) -> Any:
    sizes = [*shape[1:], shape[0]]
    sizes[d.size(0, len(sizes) - 1)] = -1
    return lambda x: aten.view(x, sizes)


def _repeat(d: Draw, shape: tuple[int, ...]) -> Any:
    times = [d.size(1, 3) for _ in range(len(shape) + d.size(0, 1))]
    return lambda x: aten.repeat(x, times)


def _squeeze(d: Draw, shape: tuple[int, ...]) -> Any:
    axes = d.axes(len(shape))
    return lambda x: aten.squeeze.dims(x, axes)


def _along(op: Any, *more: Any) -> Callable[[Draw, tuple[int, ...]], Any]:
    """`op(x, axis, *more)`."""

    def function(d: Draw, shape: tuple[int, ...]) -> Any:
        axis = d.axis(len(shape))
        return lambda x: op(x, axis, *more)

    return function


def _sort(d: Draw, shape: tuple[int, ...]) -> Any:
    axis, descending = d.axis(len(shape)), d.flag()
    return lambda x: aten.sort(x, axis, descending)[0]


def _topk(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    count, largest = d.size(1, shape[axis]), d.flag()
    return lambda x: aten.topk(x, count, axis, largest)[0]


def _diagonal(d: Draw) -> Drawn:
    shape = d.shape(2)
    first, second = (int(i) for i in d.rng.permutation(len(shape))[:2])
    offset = d.size(1 - shape[first], shape[second] - 1)
    return lambda x: aten.diagonal(x, offset, first, second), [d.floats(shape)]


def _as_strided(d: Draw) -> Drawn:
    shape = d.shape(1)
    size, stride = list(shape), list(np.cumprod((1, *shape[:0:-1]))[::-1])
    return lambda x: aten.as_strided(x, size, [int(s) for s in stride]), [d.floats(shape)]


def _added(x: Any, y: Any) -> Any:
    """Twice the second operand, but of booleans, which know no factor."""
    is_logical = x.dtype == y.dtype == torch.bool
    return aten.add.Tensor(x, y) if is_logical else aten.add.Tensor(x, y, alpha=2)


def made(function: Callable[[Draw], Callable[[], Any]]) -> Generator:
    """A tensor made of nothing, added to the input."""

    def generate(d: Draw) -> Drawn:
        make = function(d)
        return lambda x: make() + x, [d.floats(())]

    return generate


def _arange(d: Draw) -> Callable[[], Any]:
    count, step = d.size(), d.pick(1, 2, 0.5)
    return lambda: aten.arange.start_step(1, 1 + count * step, step)


def _full(d: Draw) -> Callable[[], Any]:
    shape, value = list(d.shape(0)), d.pick(1, 2.5, True)
    return lambda: aten.full(shape, value)


def _flip(d: Draw, shape: tuple[int, ...]) -> Any:
    axes = d.axes(len(shape))
    return lambda x: aten.flip(x, axes)


def _permute(d: Draw, shape: tuple[int, ...]) -> Any:
    order = [int(axis) for axis in d.rng.permutation(len(shape))]
    return lambda x: aten.permute(x, order)


def _unsqueeze(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape) + 1)
    return lambda x: aten.unsqueeze(x, axis)


def _emptied(d: Draw) -> Callable[[], Any]:
    """What is in it is nobody's business; its shape and dtype are."""
    shape = list(d.shape(1))
    order = list(range(len(shape)))
    return lambda: (
        aten.full_like(aten.empty.memory_format(shape), 2.5)
        + aten.full_like(aten.empty_permuted(shape, order), 0.5)
    )


def _casts(d: Draw) -> Drawn:
    dtype = d.pick(
        torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool, torch.float64, torch.float16
    )
    low = 0 if dtype == torch.uint8 else -4
    back = d.flag()

    def function(x: Any) -> Any:
        y = aten._to_copy(x, dtype=dtype)
        return aten._to_copy(y, dtype=torch.float32) if back else y

    return function, [d.floats(d.shape(0), low)]


def _clamp(d: Draw) -> Drawn:
    low, high = d.pick((-1, 2), (None, 1.5), (-0.5, None), (0, 6), (2, -1))
    kind = d.pick(*KINDS)
    return lambda x: aten.clamp(kind(x), low, high), [d.floats(d.shape(0))]


def _clamp_tensors(d: Draw) -> Drawn:
    shape = d.shape(0)
    feed = [d.floats(shape), d.floats(d.broadcast(shape)), d.floats(d.broadcast(shape))]
    which = d.pick((1, 1), (1, 0), (0, 1))
    return (
        lambda x, a, b: (
            aten.clamp.Tensor(x, a if which[0] else None, b if which[1] else None)
            + 0 * a.sum()
            + 0 * b.sum()
        ),
        feed,
    )


def _where(d: Draw) -> Drawn:
    shape, kinds = d.shape(0), [d.pick(*KINDS) for _ in range(2)]
    feed = [d.floats(shape), d.floats(d.broadcast(shape)), d.floats(d.broadcast(shape))]
    return lambda c, x, y: aten.where.self(c > 0, kinds[0](x), kinds[1](y)), feed


def _special(op: Any) -> Generator:
    """Of numbers, infinities and what is no number."""
    return unary(lambda x: op(x.log() * 1e3), -1, 1)


def _norm(d: Draw) -> Drawn:
    shape = d.shape(1)
    order = d.pick(2, 1, 3, 0.5, float("inf"), float("-inf"), 0)
    axes = d.pick(None, d.axes(len(shape)))
    keep = d.flag()
    return lambda x: aten.linalg_vector_norm(x, order, axes, keep), [d.floats(shape)]


def _variance(d: Draw) -> Drawn:
    shape = tuple(size + 1 for size in d.shape(1))
    axes = d.pick(None, d.axes(len(shape)))
    options = {"correction": d.size(0, 1), "keepdim": d.flag()}
    return lambda x: aten.var.correction(x, axes, **options), [d.floats(shape)]


def _extreme_of(op: Any) -> Generator:
    def generate(d: Draw) -> Drawn:
        shape = d.shape(1)
        args = d.pick((), (None, True), (d.axis(len(shape)),), (d.axis(len(shape)), True))
        return lambda x: op(x, *args), [d.floats(shape)]

    return generate


CASES: dict[str, Generator] = {
    "_adaptive_avg_pool2d.default": adaptive(2),
    "_adaptive_avg_pool3d.default": adaptive(3),
    "_log_softmax.default": moved(_along(aten._log_softmax, False), kinds=KINDS[:1]),
    "_native_batch_norm_legit.no_stats": _batch_norm(aten._native_batch_norm_legit.no_stats, True),
    "_native_batch_norm_legit_no_training.default": _batch_norm(
        aten._native_batch_norm_legit_no_training
    ),
    "_softmax.default": moved(_along(aten._softmax, False), kinds=KINDS[:1]),
    "_to_copy.default": _casts,
    "abs.default": unary(aten.abs, -4, 4, whole),
    "acos.default": unary(aten.acos, -1, 1),
    "acosh.default": unary(aten.acosh, 1, 9),
    "add.Scalar": scalar(aten.add.Scalar),
    "add.Tensor": binary(_added, *KINDS, positive),
    "addmm.default": _addmm,
    "alias.default": unary(aten.alias),
    "amax.default": reduction(aten.amax, *KINDS),
    "amin.default": reduction(aten.amin, *KINDS),
    "any.default": unary(aten.any, -1, 1, positive),
    "any.dim": reduction(aten.any.dim, positive, *KINDS, many=False),
    "any.dims": reduction(aten.any.dims, positive, *KINDS),
    "arange.start_step": made(_arange),
    "argmax.default": _extreme_of(aten.argmax),
    "argmin.default": _extreme_of(aten.argmin),
    "as_strided.default": _as_strided,
    "asin.default": unary(aten.asin, -1, 1),
    "asinh.default": unary(aten.asinh),
    "atan.default": unary(aten.atan),
    "atan2.default": binary(aten.atan2, KINDS[0]),
    "atanh.default": unary(aten.atanh, -0.9, 0.9),
    "avg_pool2d.default": average(2),
    "avg_pool3d.default": average(3),
    "bitwise_and.Scalar": scalar(aten.bitwise_and.Scalar, whole, small, numbers=(3, 1)),
    "bitwise_and.Tensor": binary(aten.bitwise_and.Tensor, whole, small),
    "bitwise_not.default": unary(lambda x: aten.bitwise_not(whole(x))),
    "bitwise_or.Scalar": scalar(aten.bitwise_or.Scalar, whole, small, numbers=(3, 1)),
    "bitwise_or.Tensor": binary(aten.bitwise_or.Tensor, whole, small, positive),
    "bitwise_xor.Scalar": scalar(aten.bitwise_xor.Scalar, whole, small, numbers=(3, 1)),
    "bitwise_xor.Tensor": binary(aten.bitwise_xor.Tensor, whole, small, positive),
    "bmm.default": _product(1),
    "bucketize.Tensor": _bucketize,
    "cat.default": _cat,
    "ceil.default": unary(aten.ceil),
    "clamp.Tensor": _clamp_tensors,
    "clamp.default": _clamp,
    "clone.default": unary(aten.clone),
    "constant_pad_nd.default": moved(_pad),
    "convolution.default": _convolution,
    "copy.default": binary(lambda x, y: aten.copy(x + 0 * y, x), KINDS[0]),
    "cos.default": unary(aten.cos),
    "cosh.default": unary(aten.cosh),
    "cumprod.default": moved(_along(aten.cumprod)),
    "cumsum.default": moved(_along(aten.cumsum)),
    "diagonal.default": _diagonal,
    "div.Scalar": scalar(aten.div.Scalar),
    "div.Tensor": binary(aten.div.Tensor, low_right=0.5),
    "div.Tensor_mode": binary(
        lambda x, y: (
            aten.div.Tensor_mode(x, y, rounding_mode="floor"),
            aten.div.Tensor_mode(x, y, rounding_mode="trunc"),
        ),
        low_right=1,
    ),
    "elu.default": scalar(lambda x, a: aten.elu(x, a), KINDS[0], numbers=(1.0, 0.5, 2)),
    "embedding.default": _embedding,
    "empty.memory_format": made(_emptied),
    "empty_permuted.default": made(_emptied),
    "eq.Scalar": scalar(aten.eq.Scalar),
    "eq.Tensor": binary(aten.eq.Tensor),
    "erf.default": unary(aten.erf),
    "exp.default": unary(aten.exp),
    "expand.default": _expand,
    "expm1.default": unary(aten.expm1),
    "flip.default": moved(_flip),
    "floor.default": unary(aten.floor),
    "fmod.Scalar": scalar(aten.fmod.Scalar),
    "fmod.Tensor": binary(aten.fmod.Tensor, low_right=1),
    "full.default": made(_full),
    "full_like.default": unary(lambda x: aten.full_like(x, 2.5), -4, 4, whole),
    "gather.default": _gather,
    "ge.Scalar": scalar(aten.ge.Scalar),
    "ge.Tensor": binary(aten.ge.Tensor),
    "gelu.default": unary(aten.gelu),
    "grid_sampler_2d.default": _grid,
    "gt.Scalar": scalar(aten.gt.Scalar),
    "gt.Tensor": binary(aten.gt.Tensor),
    "hardtanh.default": scalar(
        lambda x, a: aten.hardtanh(x, -a, 2 * a), KINDS[0], numbers=(1, 0.5, 3)
    ),
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "index_select.default": moved(_index_select),
    "isinf.default": _special(aten.isinf),
    "isnan.default": _special(aten.isnan),
    "le.Scalar": scalar(aten.le.Scalar),
    "le.Tensor": binary(aten.le.Tensor),
    "leaky_relu.default": scalar(aten.leaky_relu, KINDS[0], numbers=(0.1, 0.01, 1.5)),
    "lift_fresh_copy.default": unary(lambda x: x + torch.tensor(2.0)),
    "linalg_vector_norm.default": _norm,
    "log.default": unary(aten.log, 0.1, 9),
    "log10.default": unary(aten.log10, 0.1, 9),
    "log1p.default": unary(aten.log1p, -0.9, 9),
    "log2.default": unary(aten.log2, 0.1, 9),
    "logical_and.default": binary(aten.logical_and, *KINDS, positive),
    "logical_not.default": unary(aten.logical_not, -1, 1, positive, whole),
    "logical_or.default": binary(aten.logical_or, *KINDS, positive),
    "logical_xor.default": binary(aten.logical_xor, *KINDS, positive),
    "lt.Scalar": scalar(aten.lt.Scalar),
    "lt.Tensor": binary(aten.lt.Tensor),
    "max.default": unary(aten.max, -4, 4, whole),
    "max.dim": reduction(lambda *a: aten.max.dim(*a)[0], *KINDS, many=False),
    "max_pool2d_with_indices.default": maximal(2),
    "max_pool3d_with_indices.default": maximal(3),
    "maximum.default": binary(aten.maximum, *KINDS, positive),
    "mean.default": unary(aten.mean),
    "mean.dim": reduction(aten.mean.dim),
    "median.default": unary(aten.median),
    "median.dim": reduction(lambda *a: aten.median.dim(*a)[0], many=False),
    "min.default": unary(aten.min, -4, 4, whole),
    "min.dim": reduction(lambda *a: aten.min.dim(*a)[0], *KINDS, many=False),
    "minimum.default": binary(aten.minimum, *KINDS, positive),
    "mm.default": _product(0),
    "mul.Scalar": scalar(aten.mul.Scalar),
    "mul.Tensor": binary(aten.mul.Tensor, *KINDS, positive),
    "native_group_norm.default": _group_norm,
    "native_layer_norm.default": _layer_norm,
    "ne.Scalar": scalar(aten.ne.Scalar),
    "ne.Tensor": binary(aten.ne.Tensor),
    "neg.default": unary(aten.neg, -4, 4, whole),
    "permute.default": moved(_permute),
    "pow.Scalar": scalar(lambda x, n: aten.pow.Scalar(n, x), KINDS[0], numbers=(2, 0.5, 3.0)),
    "pow.Tensor_Scalar": scalar(aten.pow.Tensor_Scalar, numbers=(2, 3, 0, 1)),
    "pow.Tensor_Tensor": binary(aten.pow.Tensor_Tensor, KINDS[0], low=0.5),
    "prod.default": unary(aten.prod),
    "prod.dim_int": reduction(aten.prod.dim_int, many=False),
    "reciprocal.default": unary(aten.reciprocal, 0.5, 4),
    "relu.default": unary(aten.relu),
    "remainder.Scalar": scalar(aten.remainder.Scalar),
    "remainder.Tensor": binary(aten.remainder.Tensor, low_right=1),
    "repeat.default": moved(_repeat),
    "round.decimals": unary(lambda x: aten.round.decimals(x, decimals=1)),
    "round.default": unary(aten.round),
    "rsqrt.default": unary(aten.rsqrt, 0.1, 9),
    "scalar_tensor.default": unary(lambda x: x + aten.scalar_tensor(2.5)),
    "scatter.src": _scatter(False),
    "scatter.value": _scatter(True),
    "select.int": moved(_select),
    "sigmoid.default": unary(aten.sigmoid, -20, 20),
    "sign.default": unary(aten.sign, -4, 4, whole),
    "sin.default": unary(aten.sin),
    "sinh.default": unary(aten.sinh),
    "slice.Tensor": moved(_slice),
    "slice_scatter.default": _slice_scatter,
    "sort.default": moved(_sort),
    "split_with_sizes.default": moved(_split),
    "sqrt.default": unary(aten.sqrt, 0, 9),
    "squeeze.dims": moved(_squeeze),
    "sub.Scalar": scalar(aten.sub.Scalar),
    "sub.Tensor": binary(lambda x, y: aten.sub.Tensor(x, y, alpha=3), *KINDS),
    "sum.dim_IntList": reduction(aten.sum.dim_IntList, *KINDS, positive),
    "tan.default": unary(aten.tan, -1, 1),
    "tanh.default": unary(aten.tanh),
    "topk.default": moved(_topk),
    "trunc.default": unary(aten.trunc),
    "unsqueeze.default": moved(_unsqueeze),
    "upsample_bilinear2d.vec": _resized(aten.upsample_bilinear2d.vec, corners=True),
    "upsample_nearest2d.vec": _resized(aten.upsample_nearest2d.vec),
    "var.correction": _variance,
    "view.default": moved(_view),
    "where.self": _where,
}
"""Operator, as the importer's table calls it -> generator."""


def case(name: str, number: int, seed: int = 0) -> Case:
    """Draw `number` of the operator `name`."""
    function, feed = CASES[name](Draw(seed, number, *name.encode()))
    return _case(name, f"draw {number}", function, feed)


def _case(name: str, text: str, function: Callable[..., Any], feed: Sequence[np.ndarray]) -> Case:
    tensors = _tensors(feed)

    def expected() -> list[np.ndarray]:
        result = function(*tensors)
        results = result if isinstance(result, tuple | list) else [result]
        return [tensor.detach().numpy() for tensor in results]

    return Case(name, lambda: function, feed, expected, text)


def _tensors(feed: Sequence[np.ndarray]) -> tuple[Any, ...]:
    return tuple(torch.from_numpy(array) for array in feed)


class _Joined(torch.nn.Module):
    """Functions of tensors as one program: all their inputs, all their results."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.functions = [(case.model(), len(case.feed)) for case in cases]

    def forward(self, *args: Any) -> Any:
        results, start = [], 0
        for function, count in self.functions:
            result = function(*args[start : start + count])
            results += result if isinstance(result, tuple | list) else [result]
            start += count
        return tuple(results)


def joined(cases: Sequence[Case]) -> Any:
    """One exported program of several cases."""
    feed = [array for case in cases for array in case.feed]
    return torch.export.export(_Joined(cases).eval(), _tensors(feed))
