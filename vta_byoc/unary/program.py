"""A program of the vector ALU that computes a function of one int8 value.

The value is widened to int32; one or two chains of steps are applied to it; the two are joined by
an operation, and more steps follow.  That is the form of an elementwise operator that reads one
tensor twice, so that every strategy which computes those computes these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.ir.chains import INT8_HIGH, INT8_LOW, INT32_HIGH, INT32_LOW, SELF

VALUES = np.arange(-(1 << 7), 1 << 7, dtype=np.int64)
"""Every int8 value, rising."""

SHIFT = 15
"""The largest right shift that one instruction of the ALU makes; a longer one takes two."""

Step: TypeAlias = tuple[str, int | str]
"""An operation (add, mul, shr, max or min) and its operand: an immediate or `SELF`."""
Interval: TypeAlias = tuple[int, int]


def applied(op: str, value: np.ndarray, operand: np.ndarray | int) -> np.ndarray:
    """`value op operand` in int64."""
    if op == "add":
        return value + operand
    if op == "mul":
        return value * operand
    if op == "shr":
        return value >> operand
    return np.maximum(value, operand) if op == "max" else np.minimum(value, operand)


OF_INTEGERS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "mul": operator.mul,
    "shr": operator.rshift,
    "max": max,
    "min": min,
}
"""`applied` of two integers."""


def bounds(op: str, value: Interval, operand: Interval) -> Interval:
    """The interval of `value op operand`; the operand is independent of the value."""
    ends = [OF_INTEGERS[op](v, by) for v in value for by in operand]
    return min(ends), max(ends)


@dataclass(frozen=True)
class Program:
    """`after(left(x) op right(x))`, or `after(left(x))` where `op` is None.

    Attributes:
        left: the steps of the first chain.
        op: what joins the two chains: add, mul, max or min; None where there is one chain.
        right: the steps of the second chain.
        after: the steps on the joined value; the last of them leave an int8 value.
    """

    left: tuple[Step, ...] = ()
    op: str | None = None
    right: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()

    def results(self, values: np.ndarray = VALUES) -> np.ndarray:
        """What the program makes of int8 `values`, int64."""
        found = applied_steps(values, self.left)
        if self.op is not None:
            found = applied(self.op, found, applied_steps(values, self.right))
        return applied_steps(found, self.after)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of the chains, without the one that joins them."""
        return (*self.left, *self.right, *self.after)

    @property
    def multiplies(self) -> bool:
        """Whether the ALU must have MUL."""
        return self.op == "mul" or any(op == "mul" for op, _ in self.steps)

    def cycles(self, imm: int = 1, tensor: int = 2) -> int:
        """Cycles a vector of an operator of its own: cleared, widened by the GEMM core, computed.

        Args:
            imm: cycles of an ALU operation with an immediate.
            tensor: cycles of one with two values of the accumulator buffer.
        """
        chains = 1 if self.op is None else 2
        joins = 0 if self.op is None else tensor
        long = sum(op == "shr" and int(by) > SHIFT for op, by in self.steps)
        own = sum(tensor if by == SELF else imm for _, by in self.steps) + long * imm
        return 2 * chains + joins + own

    @property
    def bound(self) -> int:
        """The largest magnitude of any value on the way, for all int8 operands."""
        found = [VALUES]
        for steps in (self.left, self.right):
            found += [applied_steps(VALUES, steps[: count + 1]) for count in range(len(steps))]
        joined = replace(self, after=()).results()
        found += [applied_steps(joined, self.after[:count]) for count in range(len(self.after) + 1)]
        return int(max(np.abs(values).max() for values in found))

    @property
    def fits(self) -> bool:
        """Whether every immediate is one, and no value can leave int32 as intervals tell it."""
        if any(not _is_operand(op, by) for op, by in self.steps):
            return False
        found = _interval((INT8_LOW, INT8_HIGH), self.left)
        if found is not None and self.op is not None:
            other = _interval((INT8_LOW, INT8_HIGH), self.right)
            found = None if other is None else _held(bounds(self.op, found, other))
        return found is not None and _interval(found, self.after) is not None

    def to_json(self) -> Mapping[str, object]:
        """The program as JSON has it."""
        return {"left": self.left, "op": self.op, "right": self.right, "after": self.after}

    def __str__(self) -> str:
        """`(x: add 3, max 0) mul (x: add 1), shr 4`."""
        chains = [_text("x", self.left)]
        if self.op is not None:
            chains += [self.op, _text("x", self.right)]
        return ", ".join([" ".join(chains), *_words(self.after)])


def applied_steps(value: np.ndarray, steps: Sequence[Step]) -> np.ndarray:
    """What a chain of steps makes of int64 `value`."""
    for op, operand in steps:
        value = applied(op, value, value if isinstance(operand, str) else operand)
    return value


def _is_operand(op: str, operand: int | str) -> bool:
    if isinstance(operand, str):
        return True
    return 0 <= operand <= 31 if op == "shr" else IMMEDIATE_LOW <= operand <= IMMEDIATE_HIGH


def _held(value: Interval) -> Interval | None:
    """The interval, None where int32 does not hold it."""
    return value if value[0] >= INT32_LOW and value[1] <= INT32_HIGH else None


def squared(value: Interval) -> Interval:
    """The interval of the squares of `value`."""
    most = max(value[0] ** 2, value[1] ** 2)
    return (0 if value[0] <= 0 <= value[1] else min(value[0] ** 2, value[1] ** 2)), most


def _interval(value: Interval, steps: Sequence[Step]) -> Interval | None:
    found: Interval | None = value
    for op, by in steps:
        if found is None:
            return None
        found = _held(squared(found) if isinstance(by, str) else bounds(op, found, (by, by)))
    return found


def _words(steps: Sequence[Step]) -> Iterator[str]:
    return ("square" if by == SELF else f"{op} {by}" for op, by in steps)


def _text(name: str, steps: Sequence[Step]) -> str:
    return f"({name}: {', '.join(_words(steps))})" if steps else name
