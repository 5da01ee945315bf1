"""Operators that make one value of many."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from vta_byoc.importers.relay.operators.entry import Attributes, Operator, Ref, Result, Site, scalar


def _axes(s: Site) -> list[int]:
    """The axes that go; with `exclude` those that are not named."""
    rank = len(s.shape())
    named = s.optional_integers("axis")
    axes = list(range(rank)) if named is None else [s.axis(axis, rank) for axis in named]
    return [a for a in range(rank) if a not in axes] if s.flag("exclude") else sorted(axes)


def _reduced(function: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    return lambda s: function(s.tensor(0), _axes(s), keepdims=s.flag("keepdims"))


def _truth(function: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    """Of booleans, as the least or the largest of 0 and 1."""

    def convert(s: Site) -> Result:
        numbers = s.emit(relax.op.astype(s.tensor(0), "int8"), "numbers")
        found = s.emit(function(numbers, _axes(s), keepdims=s.flag("keepdims")), "found")
        return relax.op.astype(found, "bool")

    return convert


def _arg(function: Callable[..., relax.Expr]) -> Callable[[Site], Result]:
    """The place of the first extreme value, or of the last; several axes count as one."""

    def convert(s: Site) -> Result:
        axes, shape, value = _axes(s), s.shape(), s.tensor(0)
        others = [a for a in range(len(shape)) if a not in axes]
        size = int(np.prod([shape[a] for a in axes]))
        if others + axes != list(range(len(shape))):
            value = s.emit(relax.op.permute_dims(value, [*others, *axes]), "order")
        value = s.emit(relax.op.reshape(value, [*(shape[a] for a in others), size]), "flat")
        if s.flag("select_last_index"):
            value = s.emit(relax.op.flip(value, len(others)), "turned")
        found = s.emit(function(value, len(others)), "found")
        if s.flag("select_last_index"):
            last = relax.const(np.array(size - 1, "int64"), "int64")
            found = s.emit(relax.op.subtract(last, found), "last")
        kept = [1 if a in axes else dim for a, dim in enumerate(shape)]
        if s.flag("keepdims"):
            found = s.emit(relax.op.reshape(found, kept), "kept")
        return relax.op.astype(found, "int32")

    return convert


def _variance(s: Site) -> Result:
    """The mean square of what is apart from a mean that is given."""
    apart = s.emit(relax.op.subtract(s.tensor(0), s.tensor(1)), "apart")
    squares = s.emit(relax.op.multiply(apart, apart), "squares")
    axes, keep = _axes(s), s.flag("keepdims")
    if not s.flag("unbiased"):
        return relax.op.mean(squares, axes, keepdims=keep)
    total = s.emit(relax.op.sum(squares, axes, keepdims=keep), "sum")
    count = int(np.prod([s.shape()[a] for a in axes])) - 1
    return relax.op.divide(total, scalar(count, s.dtype()))


def _logsumexp(s: Site) -> Result:
    axes, keep = _axes(s), s.flag("keepdims")
    most = s.emit(relax.op.max(s.tensor(0), axes, keepdims=True), "most")
    apart = s.emit(relax.op.subtract(s.tensor(0), most), "apart")
    powers = s.emit(relax.op.exp(apart), "exp")
    total = s.emit(relax.op.sum(powers, axes, keepdims=True), "sum")
    logarithm = s.emit(relax.op.log(total), "log")
    whole = relax.op.add(logarithm, most)
    return whole if keep else relax.op.squeeze(s.emit(whole, "whole"), axes)


_ATTRS: Attributes = {"axis": Ref(), "keepdims": False, "exclude": False}
_ARG: Attributes = {**_ATTRS, "select_last_index": False}
OPERATORS: dict[str, Operator] = {
    **{
        name: Operator(_reduced(getattr(relax.op, name)), 1, 1, _ATTRS)
        for name in ("sum", "mean", "max", "min", "prod")
    },
    "all": Operator(_truth(relax.op.min), 1, 1, _ATTRS),
    "any": Operator(_truth(relax.op.max), 1, 1, _ATTRS),
    "argmax": Operator(_arg(relax.op.argmax), 1, 1, _ARG),
    "argmin": Operator(_arg(relax.op.argmin), 1, 1, _ARG),
    "variance": Operator(_variance, 2, 2, {**_ATTRS, "unbiased": False}),
    "logsumexp": Operator(_logsumexp, 1, 1, _ATTRS),
}
"""Relay's name -> how it becomes Relax."""
