"""The operations of the vector ALU: one row says what every room needs to know of one.

A row names the step of a workload, the instruction, the node of TIR, how an expression is built,
exact arithmetic for proofs and what the machine makes of int32.  Which machine has an operation is
said in `hw/isa.py`; the simulators in `hw/` have arithmetic of their own, as second opinions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import tirx
from tvm.ir import Expr

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ALU_CAPABILITIES, AluOp

Exact = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Arithmetic on int64 arrays; operands of 32 bits do not overflow it."""


@dataclass(frozen=True)
class Operation:
    """One operation, `value = value op operand`.

    Attributes:
        name: the step's name in a workload.
        op: the ALU's operation that does it.
        tir: the class of its TIR node.
        exact: what it computes, in integers without limit.
        build: an expression of it; by default its TIR node.
        machine: what the ALU makes of int32 before the result wraps; by default `exact`.
        neutral: the operand that changes no value; None where there is none.
        commutes: whether value and operand may change places.
        negated: whether the ALU does it as `op` with the operand's opposite.
    """

    name: str
    op: AluOp
    tir: type[Expr]
    exact: Exact
    build: Callable[[Expr, Expr], Expr]
    machine: Exact | None = None
    neutral: int | None = 0
    commutes: bool = True
    negated: bool = False

    def interval(
        self, low: np.ndarray, high: np.ndarray, least: np.ndarray, most: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the result for values in [low, high] and operands in [least, most], int64.

        They are among the results of the ends: each operation rises or falls with one operand while
        the other stays.
        """
        ends = [self.exact(value, by) for value in (low, high) for by in (least, most)]
        return np.minimum.reduce(ends), np.maximum.reduce(ends)

    def bounds(self, low: int, high: int, least: int, most: int) -> tuple[int, int]:
        """`interval` of single integers of at most 32 bits."""
        found = self.interval(*(np.asarray(end, np.int64) for end in (low, high, least, most)))
        return int(found[0]), int(found[1])


def _shift(value: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The ALU's shift: to the right, or to the left by a negative amount, each modulo 32."""
    return np.where(by >= 0, value >> (by & 31), value << (-by & 31))


OPERATIONS: Mapping[str, Operation] = {
    row.name: row
    for row in (
        Operation("add", AluOp.ADD, tirx.Add, lambda v, x: v + x, lambda v, x: v + x),
        Operation("mul", AluOp.MUL, tirx.Mul, lambda v, x: v * x, lambda v, x: v * x, neutral=1),
        Operation(
            "shr",
            AluOp.SHR,
            tirx.RShift,
            lambda v, x: v >> x,
            lambda v, x: v >> x,
            machine=_shift,
            commutes=False,
        ),
        Operation("max", AluOp.MAX, tirx.Max, np.maximum, tirx.Max, neutral=None),
        Operation("min", AluOp.MIN, tirx.Min, np.minimum, tirx.Min, neutral=None),
        Operation(
            "shl",
            AluOp.SHR,
            tirx.LShift,
            lambda v, x: v << x,
            lambda v, x: v << x,
            commutes=False,
            negated=True,
        ),
        Operation(
            "sub",
            AluOp.ADD,
            tirx.Sub,
            lambda v, x: v - x,
            lambda v, x: v - x,
            commutes=False,
            negated=True,
        ),
    )
}
"""Every operation by its name; those that the ALU does with an opposite operand come last."""
BY_OPCODE: Mapping[AluOp, Operation] = {r.op: r for r in OPERATIONS.values() if not r.negated}
"""The operations that are one of the ALU's own."""


def operation_of(value: Expr) -> Operation | None:
    """The operation that a node of TIR is."""
    return next((row for row in OPERATIONS.values() if isinstance(value, row.tir)), None)


def is_shift(name: str) -> bool:
    """Whether the step `name` is a shift, to either side."""
    return name in OPERATIONS and OPERATIONS[name].op == AluOp.SHR


def missing(config: VTAConfig, op: AluOp) -> str:
    """The capability that the machine lacks for `op`; "" where it does it."""
    return "" if op in config.capabilities.alu_ops else ALU_CAPABILITIES[op]


def on_int32(op: AluOp, value: int, operand: int) -> int:
    """What the ALU makes of two int32 numbers: the low 32 bits of the result."""
    row = BY_OPCODE[op]
    wide = (row.machine or row.exact)(np.asarray(value, np.int64), np.asarray(operand, np.int64))
    return int(wide.astype(np.int32))
