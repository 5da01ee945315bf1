"""What a chain of reshapes and permutations does, as digits of the places of elements.

The place of an element in a tensor is a number of several digits, one an axis. A reshape parts
digits or joins them, a permutation changes their order. Whatever a chain has done, it is one
reshape, one permutation and one reshape, and mostly fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from tvm import relax

from vta_byoc.ir.bindings import known_shape, op_name

RESHAPES = tuple(f"relax.{n}" for n in ("reshape", "flatten", "squeeze", "expand_dims"))
"""Operators that keep the row-major order of their operand."""
PERMUTE_DIMS = "relax.permute_dims"
VIEWS = (*RESHAPES, PERMUTE_DIMS)
"""Operators that give each element another place, and change nothing else."""
Shape: TypeAlias = tuple[int, ...]
RESHAPE, PERMUTE = "reshape", "permute"
Move: TypeAlias = tuple[str, Shape]
"""RESHAPE and the shape of the result, or PERMUTE and the order of the operand's axes."""


@dataclass(frozen=True)
class Digit:
    """One digit of a place: how many values it has, and how far apart these are."""

    size: int
    stride: int

    def holds(self, other: Digit) -> bool:
        """Whether the values of `other` are a part of this digit's."""
        return self.stride <= other.stride < self.stride * self.size


@dataclass(frozen=True)
class View:
    """Elements of a tensor of `source`, in the order of their digits, as a tensor of `shape`.

    Attributes:
        source: the shape of the tensor that the elements are read from.
        shape: the shape of the result.
        axes: the digits of each axis of the result, outermost first; an axis of 1 has none.
    """

    source: Shape
    shape: Shape
    axes: tuple[tuple[Digit, ...], ...]

    @staticmethod
    def of(shape: Sequence[int]) -> View:
        """The tensor itself."""
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        axes = ((Digit(n, s),) if n != 1 else () for n, s in zip(shape, strides, strict=True))
        return View(tuple(shape), tuple(shape), tuple(axes))

    def permuted(self, order: Sequence[int]) -> View:
        """The axes in another order."""
        shape = tuple(self.shape[axis] for axis in order)
        return View(self.source, shape, tuple(self.axes[axis] for axis in order))

    def repeated(self, shape: Sequence[int]) -> View:
        """Axes of 1 repeated: a digit of stride 0 each."""
        axes = (
            digits if old == new else (Digit(new, 0),)
            for digits, old, new in zip(self.axes, self.shape, shape, strict=True)
        )
        return View(self.source, tuple(shape), tuple(axes))

    def resized(self, axis: int, size: int) -> View | None:
        """The same moves of a source that has `size` places along the digit of `axis`.

        None where the axis has not one digit, or that is no digit of one axis of the source, or
        another digit counts inside and outside of it.
        """
        own = self.source_axis(axis)
        if own is None:
            return None
        (digit,) = self.axes[axis]
        above = digit.stride * digit.size
        axes = []
        for digits in self.axes:
            kept = []
            for other in digits:
                if other == digit:
                    kept += [Digit(size, digit.stride)] if size > 1 else []
                elif other.stride >= above:
                    kept.append(Digit(other.size, other.stride // digit.size * size))
                elif other.stride * other.size <= digit.stride:
                    kept.append(other)
                else:
                    return None
            axes.append(tuple(kept))
        shape = tuple(size if i == axis else n for i, n in enumerate(self.shape))
        source = tuple(n // digit.size * size if i == own else n for i, n in enumerate(self.source))
        return View(source, shape, tuple(axes))

    def parted(self, axis: int, size: int) -> View | None:
        """The same moves of a source whose last axis has `size` places for each that it had.

        Which of these it is, the result's `axis` tells, that was 1; None where it was longer.
        """
        if self.axes[axis]:
            return None
        axes = [tuple(Digit(d.size, d.stride * size) for d in digits) for digits in self.axes]
        axes[axis] = (Digit(size, 1),)
        shape = tuple(size if i == axis else n for i, n in enumerate(self.shape))
        return View((*self.source[:-1], self.source[-1] * size), shape, tuple(axes))

    def source_axis(self, axis: int) -> int | None:
        """The axis of the source of which the one digit of `axis` is a digit."""
        if len(self.axes[axis]) != 1:
            return None
        (digit,) = self.axes[axis]
        for own, size in enumerate(self.source):
            inner = math.prod(self.source[own + 1 :])
            if digit.stride % inner == 0 and digit.stride * digit.size <= inner * size:
                return own if inner * size % (digit.stride * digit.size) == 0 else None
        return None

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; None where an axis cuts a digit unevenly."""
        rest = [digit for axis in self.axes for digit in axis]
        axes = []
        for size in shape:
            taken = _taken(rest, size)
            if taken is None:
                return None
            axes.append(tuple(_joined(taken)))
        return View(self.source, tuple(shape), tuple(axes))

    @property
    def digits(self) -> list[Digit]:
        """All digits of the result, outermost first."""
        return [digit for axis in self.axes for digit in axis]

    def moves(self) -> list[Move]:
        """The least operators that do it; a reshape rather than a permutation."""
        found = [self._through(_joined(self.digits)), *self._to_shape(), *self._from_source()]
        return min(
            found, key=lambda moves: (len(moves), [kind for kind, _ in moves].count(PERMUTE))
        )

    def _through(self, digits: Sequence[Digit]) -> list[Move]:
        """A reshape to the digits in the order of the source, a permutation, a reshape."""
        order = sorted(range(len(digits)), key=lambda i: -digits[i].stride)
        before = tuple(digits[i].size for i in order)
        return self._written(before, tuple(order.index(i) for i in range(len(digits))))

    def _to_shape(self) -> list[list[Move]]:
        """A permutation whose result has the shape, where no axis has two digits."""
        if any(len(axis) > 1 for axis in self.axes):
            return []
        units = [i for i, axis in enumerate(self.axes) if not axis]
        longer = [i for i, axis in enumerate(self.axes) if axis]
        longer.sort(key=lambda i: -self.axes[i][0].stride)
        order = [*units, *longer]
        if [len(self.source), self.source.count(1)] == [len(self.shape), len(units)]:
            order = [(units if n == 1 else longer).pop(0) for n in self.source]
        before = tuple(self.shape[i] for i in order)
        return [self._written(before, tuple(order.index(i) for i in range(len(order))))]

    def _from_source(self) -> list[list[Move]]:
        """A permutation of the source's axes, where every digit is whole axes."""
        own = [axis[0] if axis else None for axis in View.of(self.source).axes]
        order = [i for i, digit in enumerate(own) if digit is None]
        for digit in _joined(self.digits):
            inside = [i for i, d in enumerate(own) if d is not None and digit.holds(d)]
            if math.prod(self.source[i] for i in inside) != digit.size:
                return []
            order += inside
        return [self._written(self.source, tuple(order))]

    def _written(self, before: Shape, order: Shape) -> list[Move]:
        """Through the shape `before`; what changes nothing is left out."""
        if order == tuple(range(len(order))):
            return [(RESHAPE, self.shape)] if self.source != self.shape else []
        moves = [(RESHAPE, before)] if before != self.source else []
        moves.append((PERMUTE, order))
        if tuple(before[axis] for axis in order) != self.shape:
            moves.append((RESHAPE, self.shape))
        return moves


def axes_of(call: relax.Call) -> list[int]:
    """The order of a permutation; without axes it reverses them."""
    rank = call.ty.ndim if isinstance(call.ty, relax.TensorType) else call.args[0].ty.ndim
    if call.attrs.axes is None:
        return list(reversed(range(rank)))
    return [int(axis) % rank for axis in call.attrs.axes]


def exchanges(call: relax.Expr | None) -> TypeGuard[relax.Call]:
    """Whether a call is a permutation that exchanges the last two axes."""
    if call is None or op_name(call) != PERMUTE_DIMS:
        return False
    return axes_of(call) == exchange(call.ty.ndim)


def exchange(rank: int) -> list[int]:
    """The order of axes that exchanges the last two."""
    return [*range(rank - 2), rank - 1, rank - 2]


def chain_of(
    produced: Callable[[relax.Expr], relax.Expr | None], value: relax.Expr
) -> tuple[relax.Expr, list[relax.Call]]:
    """What a chain of `VIEWS` begins with, and these, first to last.

    Args:
        produced: what a variable is bound to.
        value: the result of the chain.
    """
    chain: list[relax.Call] = []
    while (call := produced(value)) is not None and op_name(call) in VIEWS:
        chain.insert(0, call)
        value = call.args[0]
    return value, chain


def view_of(source: relax.Expr, chain: Sequence[relax.Call]) -> View | None:
    """What the moves of `chain` make of `source`; None where one has no such form."""
    shape = known_shape(source.ty)
    return None if shape is None else behind(View.of(shape), chain)


def behind(view: View | None, chain: Sequence[relax.Call]) -> View | None:
    """What further moves make of a view; None where one has no such form."""
    for call in chain:
        shape = known_shape(call.ty)
        if view is None or shape is None:
            return None
        is_permutation = op_name(call) == PERMUTE_DIMS
        view = view.permuted(axes_of(call)) if is_permutation else view.reshaped(shape)
    return view


def _taken(rest: list[Digit], size: int) -> list[Digit] | None:
    """Take digits of `size` values from the front of `rest`; None where one is cut unevenly."""
    taken: list[Digit] = []
    while size != 1:
        if not rest:
            return None
        digit = rest.pop(0)
        if size % digit.size == 0:
            size //= digit.size
            taken.append(digit)
        elif digit.size % size == 0:
            inner = digit.size // size
            taken.append(Digit(size, digit.stride * inner))
            rest.insert(0, Digit(inner, digit.stride))
            size = 1
        else:
            return None
    return taken


def _joined(digits: Sequence[Digit]) -> list[Digit]:
    """Neighbours that count on from each other as one digit."""
    joined: list[Digit] = []
    for digit in digits:
        last = joined[-1] if joined else None
        if last is not None and last.stride == digit.stride * digit.size:
            joined[-1] = Digit(last.size * digit.size, digit.stride)
        else:
            joined.append(digit)
    return joined
