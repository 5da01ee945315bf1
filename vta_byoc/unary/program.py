"""A program of the vector ALU that computes a function of one int8 value.

The value is widened to int32; one or two chains of steps are applied to it; the two are joined by
an operation, and more steps follow, of which one may add what the second chain has made once more.
That is the form of an elementwise operator that reads one tensor twice, so that every strategy
which computes those computes these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.ir.chains import INT8_VALUES, INT32_HIGH, INT32_LOW, OTHER, SELF

VALUES = INT8_VALUES
"""Every int8 value, rising."""

SHIFT = 15
"""The largest right shift that one instruction of the ALU makes; a longer one takes two."""

Step: TypeAlias = tuple[str, int | str]
"""An operation (add, mul, shr, max or min) and its operand: an immediate, `SELF` or `OTHER`."""


def applied(op: str, value: np.ndarray, operand: np.ndarray | int) -> np.ndarray:
    """`value op operand` in int64."""
    if op == "add":
        return value + operand
    if op == "mul":
        return value * operand
    if op == "shr":
        return value >> operand
    return np.maximum(value, operand) if op == "max" else np.minimum(value, operand)


@dataclass(frozen=True)
class Program:
    """`after(left(x) op right(x))`, or `after(left(x))` where `op` is None.

    Attributes:
        left: the steps of the first chain.
        op: what joins the two chains: add, mul, max or min; None where there is one chain.
        right: the steps of the second chain.
        after: the steps on the joined value; the last of them leave an int8 value.  Those of
            `OTHER` add what the second chain has made.
    """

    left: tuple[Step, ...] = ()
    op: str | None = None
    right: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()

    def results(self, values: np.ndarray = VALUES) -> np.ndarray:
        """What the program makes of int8 `values`, int64."""
        found, other = applied_steps(values, self.left), None
        if self.op is not None:
            other = applied_steps(values, self.right)
            found = applied(self.op, found, other)
        return applied_steps(found, self.after, other)

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
        own = sum(tensor if isinstance(by, str) else imm for _, by in self.steps) + long * imm
        return 2 * chains + joins + own

    @property
    def bound(self) -> int:
        """The largest magnitude of any value on the way, for all int8 operands."""
        return int(max(np.abs(values).max() for values in self._values()))

    @property
    def fits(self) -> bool:
        """Whether every immediate is one, and no value on the way leaves int32."""
        if any(not _is_operand(op, by) for op, by in self.steps):
            return False
        return all(v.min() >= INT32_LOW and v.max() <= INT32_HIGH for v in self._values())

    def _values(self) -> Iterator[np.ndarray]:
        """All values on the way in order, for all int8 operands."""
        yield VALUES
        ends = []
        for steps in (self.left, self.right):
            ends.append(VALUES)
            for step in steps:
                ends[-1] = applied_steps(ends[-1], (step,))
                yield ends[-1]
        found, other = ends
        if self.op is not None:
            found = applied(self.op, found, other)
            yield found
        for step in self.after:
            found = applied_steps(found, (step,), other)
            yield found

    def to_json(self) -> Mapping[str, object]:
        """The program as JSON has it."""
        return {"left": self.left, "op": self.op, "right": self.right, "after": self.after}

    def __str__(self) -> str:
        """`(x: add 3, max 0) mul (x: add 1), shr 4`."""
        chains = [_text("x", self.left)]
        if self.op is not None:
            chains += [self.op, _text("x", self.right)]
        return ", ".join([" ".join(chains), *_words(self.after)])


def applied_steps(
    value: np.ndarray, steps: Sequence[Step], other: np.ndarray | None = None
) -> np.ndarray:
    """What a chain of steps makes of int64 `value`; those of `OTHER` add `other`."""
    for op, operand in steps:
        if operand == OTHER:
            assert other is not None, f"nothing is joined before {steps}"
            value = applied(op, value, other)
        else:
            value = applied(op, value, value if isinstance(operand, str) else operand)
    return value


def _is_operand(op: str, operand: int | str) -> bool:
    if isinstance(operand, str):
        return True
    return 0 <= operand <= 31 if op == "shr" else IMMEDIATE_LOW <= operand <= IMMEDIATE_HIGH


def _words(steps: Sequence[Step]) -> Iterator[str]:
    names = {SELF: "square", OTHER: "add the second"}
    return (names[by] if isinstance(by, str) else f"{op} {by}" for op, by in steps)


def _text(name: str, steps: Sequence[Step]) -> str:
    return f"({name}: {', '.join(_words(steps))})" if steps else name
