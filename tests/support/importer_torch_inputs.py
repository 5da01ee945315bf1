"""Generators of PyTorch cases: families of operators by their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from importer_draws import Draw

aten = torch.ops.aten
Drawn = tuple[Callable[..., Any], list[np.ndarray]]
Generator = Callable[[Draw], Drawn]


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


def constant(d: Draw, *shape: int) -> Any:
    return torch.from_numpy(d.floats(shape, -1, 1))
