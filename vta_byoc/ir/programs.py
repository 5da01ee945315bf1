"""Programs of plain int32 steps, which several stages follow: quantizer, partition and strategies.

Each step makes one named value of another and of a number or a third value. A program is written
once, in a module of its own (`ir.norms`, `ir.attention`); nobody has a copy of its formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vta_byoc.hw.isa import IMMEDIATE_HIGH

Operand: TypeAlias = str | int
"""The name of an earlier value, or an immediate."""


@dataclass(frozen=True)
class Instruction:
    """One step: `name = left op right`; op is add, mul, shr, shl, max or min."""

    name: str
    op: str
    left: str
    right: Operand


Instructions: TypeAlias = tuple[Instruction, ...]


class Writer:
    """Collects instructions; each gives the name of its value."""

    def __init__(self) -> None:
        self.made: list[Instruction] = []

    def __call__(self, op: str, left: str, right: Operand, name: str = "") -> str:
        """Add `name = left op right`; gives its name, one of its own where none is given."""
        name = name or f"v{len(self.made)}"
        self.made.append(Instruction(name, op, left, right))
        return name

    def plus(self, left: str, amount: int, name: str = "") -> str:
        """`left` and a number of 0 or more, in as many immediates as it takes, at least one."""
        while amount > IMMEDIATE_HIGH:
            left, amount = self("add", left, IMMEDIATE_HIGH), amount - IMMEDIATE_HIGH
        return self("add", left, amount, name)


def run(program: Instructions, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All values of a program, in integers without limit (int64)."""
    found = {name: np.asarray(value, np.int64) for name, value in values.items()}
    for each in program:
        right = found[each.right] if isinstance(each.right, str) else each.right
        found[each.name] = _EXACT[each.op](found[each.left], right)
    return found


_EXACT = {
    "add": np.add,
    "mul": np.multiply,
    "shr": np.right_shift,
    "shl": np.left_shift,
    "max": np.maximum,
    "min": np.minimum,
}
