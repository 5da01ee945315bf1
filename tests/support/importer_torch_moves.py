"""Generators of PyTorch cases: indices, movement of data, casts and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from importer_draws import Draw
from importer_torch_inputs import KINDS, Drawn, Generator, aten, constant, unary


# ---------------------------------------------------------------- indices
def _limits(x: Any, size: int) -> Any:
    """Integers from -size to size - 1 of floats from -4 to 4."""
    return (x * size / 4).floor().clamp(-size, size - 1).to(torch.int64)


def select(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    at = d.axis(shape[axis])
    return lambda x: aten.select.int(x, axis, at)


def slice_(d: Draw, shape: tuple[int, ...]) -> Any:
    axis, step = d.axis(len(shape)), d.size(1, 3)
    start, end = (d.pick(None, d.size(-7, 7), d.size(-2, 5)) for _ in range(2))
    return lambda x: aten.slice.Tensor(x, axis, start, end, step)


def index_select(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    at = torch.from_numpy(d.integers(d.shape(1, 1), 0, shape[axis] - 1))
    return lambda x: aten.index_select(x, axis, at)


def gather(d: Draw) -> Drawn:
    shape = d.shape(1)
    axis = d.axis(len(shape))
    other = [d.size(1, size) for size in shape]
    other[axis] = d.size(1, 6)

    def function(x: Any, i: Any) -> Any:
        return aten.gather(x, axis, _limits(i, shape[axis]).abs() % shape[axis])

    return function, [d.floats(shape), d.floats(other)]


def index(d: Draw) -> Drawn:
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
        for entry, fixed in zip(indices, constants, strict=True):
            computed = entry is not None and entry[0] == "computed"
            shift = _limits(i, entry[1]).reshape(()) if computed else 0
            given.append((fixed + shift) % entry[1] - 1 if computed else fixed)
        return aten.index.Tensor(x, given)

    return function, [d.floats(shape), offset]


def unfold(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    size, step = d.size(1, shape[axis]), d.size(1, 3)
    return lambda x: aten.unfold(x, axis, size, step)


def index_put(d: Draw) -> Drawn:
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


def scatter(value: bool) -> Generator:
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


def slice_scatter(d: Draw) -> Drawn:
    shape = d.shape(1)
    axis, step = d.axis(len(shape)), d.size(1, 3)
    start, end = (d.pick(None, d.size(-5, 5)) for _ in range(2))
    hole = aten.slice.Tensor(torch.zeros(shape), axis, start, end, step).shape

    def function(x: Any, y: Any) -> Any:
        return aten.slice_scatter(x, y, axis, start, end, step)

    return function, [d.floats(shape), d.floats(hole)]


def embedding(d: Draw) -> Drawn:
    table = constant(d, d.size(2, 6), d.size())
    return lambda i: aten.embedding(table, _limits(i, len(table)) % len(table)), [
        d.floats(d.shape(0, 3))
    ]


def bucketize(d: Draw) -> Drawn:
    bounds = torch.from_numpy(np.sort(d.floats((d.size(1, 6),))))
    options = {"right": d.flag(), "out_int32": d.flag()}
    return lambda x: aten.bucketize.Tensor(x, bounds, **options), [d.floats(d.shape(0))]


# ---------------------------------------------------------------- movement
def split(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    first = d.size(0, shape[axis])
    return lambda x: aten.split_with_sizes(x, [first, shape[axis] - first], axis)


def pad(d: Draw, shape: tuple[int, ...]) -> Any:
    widths = [d.size(-1 if size > 2 else 0, 2) for size in shape for _ in range(2)]
    used = 2 * d.size(1, len(shape))
    value = d.pick(0, 1.0, -2)
    return lambda x: aten.constant_pad_nd(x, widths[::-1][:used], value)


def cat(d: Draw) -> Drawn:
    shape = list(d.shape(1))
    axis = d.axis(len(shape))
    feed = []
    for _ in range(d.size(1, 3)):
        shape[axis] = d.size()
        feed.append(d.floats(shape))
    kinds = [d.pick(*KINDS) for _ in feed]
    return lambda *parts: aten.cat([k(p) for k, p in zip(kinds, parts, strict=True)], axis), feed


def expand(d: Draw) -> Drawn:
    shape = d.shape(0)
    wide = [d.size() if size == 1 else d.pick(size, -1) for size in shape]
    wide = [d.size() for _ in range(d.size(0, 2))] + wide
    return lambda x: aten.expand(x, wide), [d.floats(shape)]


def view(d: Draw, shape: tuple[int, ...]) -> Any:
    sizes = [*shape[1:], shape[0]]
    sizes[d.size(0, len(sizes) - 1)] = -1
    return lambda x: aten.view(x, sizes)


def repeat(d: Draw, shape: tuple[int, ...]) -> Any:
    times = [d.size(1, 3) for _ in range(len(shape) + d.size(0, 1))]
    return lambda x: aten.repeat(x, times)


def squeeze(d: Draw, shape: tuple[int, ...]) -> Any:
    axes = d.axes(len(shape))
    return lambda x: aten.squeeze.dims(x, axes)


def along(op: Any, *more: Any) -> Callable[[Draw, tuple[int, ...]], Any]:
    """`op(x, axis, *more)`."""

    def function(d: Draw, shape: tuple[int, ...]) -> Any:
        axis = d.axis(len(shape))
        return lambda x: op(x, axis, *more)

    return function


def sort(d: Draw, shape: tuple[int, ...]) -> Any:
    axis, descending = d.axis(len(shape)), d.flag()
    return lambda x: aten.sort(x, axis, descending)[0]


def topk(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape))
    count, largest = d.size(1, shape[axis]), d.flag()
    return lambda x: aten.topk(x, count, axis, largest)[0]


def diagonal(d: Draw) -> Drawn:
    shape = d.shape(2)
    first, second = (int(i) for i in d.rng.permutation(len(shape))[:2])
    offset = d.size(1 - shape[first], shape[second] - 1)
    return lambda x: aten.diagonal(x, offset, first, second), [d.floats(shape)]


def as_strided(d: Draw) -> Drawn:
    shape = d.shape(1)
    size, stride = list(shape), list(np.cumprod((1, *shape[:0:-1]))[::-1])
    return lambda x: aten.as_strided(x, size, [int(s) for s in stride]), [d.floats(shape)]


def added(x: Any, y: Any) -> Any:
    """Twice the second operand, but of booleans, which know no factor."""
    is_logical = x.dtype == y.dtype == torch.bool
    return aten.add.Tensor(x, y) if is_logical else aten.add.Tensor(x, y, alpha=2)


def made(function: Callable[[Draw], Callable[[], Any]]) -> Generator:
    """A tensor made of nothing, added to the input."""

    def generate(d: Draw) -> Drawn:
        make = function(d)
        return lambda x: make() + x, [d.floats(())]

    return generate


def arange(d: Draw) -> Callable[[], Any]:
    count, step = d.size(), d.pick(1, 2, 0.5)
    return lambda: aten.arange.start_step(1, 1 + count * step, step)


def full(d: Draw) -> Callable[[], Any]:
    shape, value = list(d.shape(0)), d.pick(1, 2.5, True)
    return lambda: aten.full(shape, value)


def flip(d: Draw, shape: tuple[int, ...]) -> Any:
    axes = d.axes(len(shape))
    return lambda x: aten.flip(x, axes)


def permute(d: Draw, shape: tuple[int, ...]) -> Any:
    order = [int(axis) for axis in d.rng.permutation(len(shape))]
    return lambda x: aten.permute(x, order)


def unsqueeze(d: Draw, shape: tuple[int, ...]) -> Any:
    axis = d.axis(len(shape) + 1)
    return lambda x: aten.unsqueeze(x, axis)


def emptied(d: Draw) -> Callable[[], Any]:
    """What is in it is nobody's business; its shape and dtype are."""
    shape = list(d.shape(1))
    order = list(range(len(shape)))
    return lambda: (
        aten.full_like(aten.empty.memory_format(shape), 2.5)
        + aten.full_like(aten.empty_permuted(shape, order), 0.5)
    )


def casts(d: Draw) -> Drawn:
    dtype = d.pick(
        torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool, torch.float64, torch.float16
    )
    low = 0 if dtype == torch.uint8 else -4
    back = d.flag()

    def function(x: Any) -> Any:
        y = aten._to_copy(x, dtype=dtype)
        return aten._to_copy(y, dtype=torch.float32) if back else y

    return function, [d.floats(d.shape(0), low)]


def clamp(d: Draw) -> Drawn:
    low, high = d.pick((-1, 2), (None, 1.5), (-0.5, None), (0, 6), (2, -1))
    kind = d.pick(*KINDS)
    return lambda x: aten.clamp(kind(x), low, high), [d.floats(d.shape(0))]


def clamp_tensors(d: Draw) -> Drawn:
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


def where(d: Draw) -> Drawn:
    shape, kinds = d.shape(0), [d.pick(*KINDS) for _ in range(2)]
    feed = [d.floats(shape), d.floats(d.broadcast(shape)), d.floats(d.broadcast(shape))]
    return lambda c, x, y: aten.where.self(c > 0, kinds[0](x), kinds[1](y)), feed


def special(op: Any) -> Generator:
    """Of numbers, infinities and what is no number."""
    return unary(lambda x: op(x.log() * 1e3), -1, 1)


def norm(d: Draw) -> Drawn:
    shape = d.shape(1)
    order = d.pick(2, 1, 3, 0.5, float("inf"), float("-inf"), 0)
    axes = d.pick(None, d.axes(len(shape)))
    keep = d.flag()
    return lambda x: aten.linalg_vector_norm(x, order, axes, keep), [d.floats(shape)]


def variance(op: Any) -> Generator:
    def generate(d: Draw) -> Drawn:
        shape = tuple(size + 1 for size in d.shape(1))
        axes = d.pick(None, d.axes(len(shape)))
        options = d.pick({}, {"correction": d.size(0, 1), "keepdim": d.flag()})
        return lambda x: op(x, axes, **options), [d.floats(shape)]

    return generate


def extreme_of(op: Any) -> Generator:
    def generate(d: Draw) -> Drawn:
        shape = d.shape(1)
        args = d.pick((), (None, True), (d.axis(len(shape)),), (d.axis(len(shape)), True))
        return lambda x: op(x, *args), [d.floats(shape)]

    return generate
