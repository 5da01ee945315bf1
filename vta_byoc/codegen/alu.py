"""Expressions to steps of the vector ALU.

The ALU works in place, ``acc[dst] = acc[dst] op operand``: a value that a step has changed is
gone, and an expression that would read it again is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm_ffi import structural_equal, structural_walk

from vta_byoc.codegen.linear import CodegenError, Linear, VarTable
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW, AluOp
from vta_byoc.workload.alu import Operation, missing, operation_of

HALF_BITS = (IMMEDIATE_HIGH - IMMEDIATE_LOW).bit_length()
"""Bits of an immediate, which is half of an int32."""


@dataclass(frozen=True, eq=False)
class Access:
    """One buffer reference: per-dimension linear forms of its indices, and all in one.

    Equal references are one object (the classifier sees to that).
    """

    buffer: tirx.Var
    dims: tuple[Linear, ...]
    flat: Linear
    scope: str


@dataclass(frozen=True)
class AluStep:
    """``acc[dst] = acc[dst] op operand``: the operand is an immediate or another access.

    An immediate may depend on loops around the nest; ``amount`` is its value for given ones.  A
    shift is of any amount here, to the left when negative.
    """

    op: AluOp
    dst: Access
    imm: Linear | None = None
    src: Access | None = None

    def amount(self, env: Mapping[int, int]) -> int | None:
        """The immediate for given outer loops; None where the operand is another access."""
        return None if self.imm is None else self.imm.at(env)


class AluExpression:
    """Turns the value of block ``name`` into ``steps``.

    ``access`` resolves a tensor read; ``into`` is the block's destination where it may be an
    operand of its own value.
    """

    def __init__(
        self,
        config: VTAConfig,
        name: str,
        table: VarTable,
        access: Callable[[TensorLoad], Access],
        into: Access | None = None,
    ):
        self.steps: list[AluStep] = []
        self._config = config
        self._name = name
        self._table = table
        self._access = access
        self._into = into

    def evaluate(self, value: Expr, home: Access | None = None) -> Access:
        """Append the steps of ``value``; returns the access that then holds it.

        That is one of its operands, or ``home``, which is zero and no operand, where it is given:
        the first operand is added to it and stays as it is.
        """
        if isinstance(value, TensorLoad):
            operand = self._unchanged(self._access(value), 0)
            if home is None:
                return operand
            self.steps.append(AluStep(AluOp.ADD, home, src=operand))
            return home
        row = operation_of(value)
        if row is not None and row.negated:
            amount = self._number(value.b)
            if amount is not None:
                acc = self.evaluate(value.a, home)
                self.immediate(row.op, acc, amount.scale(-1))
                return acc
        return self._binary(value, self._operation(value, row), home)

    def immediate(self, op: AluOp, acc: Access, imm: Linear) -> None:
        """Append ``acc op= imm``."""
        if not imm.terms:
            check_immediate(self._name, op, imm.const)
            if op == AluOp.SHR and not imm.const:
                return
        self.steps.append(AluStep(op, acc, imm=imm))

    def fill(self, acc: Access, value: int) -> None:
        """Append what makes a cleared ``acc`` any int32 ``value``: two halves, as immediates."""
        low = _low_half(value)
        high = _low_half((value - low) >> HALF_BITS)
        if high:
            self.immediate(AluOp.ADD, acc, Linear(high))
            self.immediate(AluOp.SHR, acc, Linear(-HALF_BITS))
        if low:
            self.immediate(AluOp.ADD, acc, Linear(low))

    def _number(self, value: Expr) -> Linear | None:
        """``value`` as an integer or an affine form of loops; None where it reads a tensor."""
        if isinstance(value, tirx.IntImm):
            return Linear(int(value.value))
        return None if loads_of(value) else self._table.linear(value)

    def _operation(self, value: Expr, row: Operation | None) -> Operation:
        if row is None or row.negated:
            *names, last = (op.name for op in AluOp)
            raise CodegenError(
                f"block {self._name} computes {value}; the ALU has {', '.join(names)} and {last} "
                "on int32; rewrite it with those or leave it to the CPU"
            )
        lacks = missing(self._config, row.op)
        if lacks:
            raise CodegenError(
                f"block {self._name} computes {row.op.name}; this machine has no {row.op.name} "
                f"(CAPABILITIES.{lacks} is false); use other operations, such as shifts, or leave "
                "it to the CPU"
            )
        return row

    def _binary(self, value: Expr, row: Operation, home: Access | None) -> Access:
        op, left, right = row.op, value.a, value.b
        if loads_of(left) and structural_equal(left, right):
            acc = self.evaluate(left, home)
            self.steps.append(AluStep(op, acc, src=acc))
            return acc
        # constants to the right; what is computed at home need not change an operand
        computed = home is not None and isinstance(left, TensorLoad)
        if row.commutes and (not loads_of(left) or (computed and _deep(right))):
            left, right = right, left
        acc = self.evaluate(left, home)
        amount = self._number(right)
        if amount is not None:
            self.immediate(op, acc, amount)
            return acc
        before = len(self.steps)
        other = self.evaluate(right)
        self._unchanged(acc, before)
        if row.commutes and home is None and self._keep_right(acc, other):
            acc, other = other, acc
        self.steps.append(AluStep(op, acc, src=other))
        return acc

    def _unchanged(self, access: Access, since: int) -> Access:
        """``access``, which no step from number ``since`` on may have changed."""
        if any(step.dst is access for step in self.steps[since:]):
            raise CodegenError(
                f"block {self._name} reads {access.buffer.name} again after changing it in place; "
                "the ALU overwrites its first operand; stage a second copy"
            )
        return access

    def _keep_right(self, left: Access, right: Access) -> bool:
        """Whether the right operand is the one to overwrite.

        The destination itself comes first; an operand that varies over fewer loops than the other
        is read again and must stay.
        """
        if self._into in (left, right):
            return right is self._into
        return {v for v, _ in left.flat.terms} < {v for v, _ in right.flat.terms}


def loads_of(expr: Expr) -> list[TensorLoad]:
    """Every tensor read of an expression."""
    found: list[TensorLoad] = []
    structural_walk(expr, (TensorLoad, found.append))
    return found


def check_immediate(name: str, op: AluOp, value: int) -> None:
    """Refuse an operand of block ``name`` that no instruction, or no row of shifts, can hold."""
    if op == AluOp.SHR:
        if not -31 <= value <= 31:
            raise CodegenError(
                f"block {name} shifts by {value}; int32 shifts are -31 to 31; shift by less"
            )
    elif not IMMEDIATE_LOW <= value <= IMMEDIATE_HIGH:
        raise CodegenError(
            f"block {name}: {op.name} by {value}; an immediate holds {IMMEDIATE_LOW} to "
            f"{IMMEDIATE_HIGH}; fold the constant into the bias or load it as a tensor"
        )


def shift_parts(amount: int, limit: int) -> list[int]:
    """Shifts of at most ``limit`` that together shift by ``amount`` (to the left: negative)."""
    whole, rest = divmod(abs(amount), limit)
    sign = 1 if amount >= 0 else -1
    return [sign * limit] * whole + ([sign * rest] if rest else [])


def _deep(value: Expr) -> bool:
    return not isinstance(value, TensorLoad) and bool(loads_of(value))


def _low_half(value: int) -> int:
    """The low bits of ``value`` that an immediate holds, as a signed number."""
    return (value - IMMEDIATE_LOW) % (1 << HALF_BITS) + IMMEDIATE_LOW
