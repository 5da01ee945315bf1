"""A straight-line function seen as a graph, and the chains of steps in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import is_constant, op_name, static_shape, straight_bindings, users_of

KEPT = "kept"
"""The operand of a step that adds the value again that the step ``keep`` before it has copied."""

SELF = "self"
"""The operand of a step that multiplies a value by itself."""

OTHER = "other"
"""The operand of a step that adds the right operand of the joining operator once more."""

STEP_OPS = {
    "relax.add": "add",
    "relax.multiply": "mul",
    "relax.right_shift": "shr",
    "relax.left_shift": "shl",
    "relax.maximum": "max",
    "relax.minimum": "min",
}
"""Operators that are a step of an epilogue when one operand is a constant."""
COMMUTES = frozenset({"add", "mul", "max", "min"})
KEEPS_LEAST = frozenset({"relax.nn.max_pool2d", "relax.reshape", "relax.permute_dims"})
"""Operators whose result holds no value that their operand does not hold."""
INT8_LOW, INT8_HIGH = -128, 127
INT8_VALUES = np.arange(INT8_LOW, INT8_HIGH + 1, dtype=np.int64)
"""Every int8 value, rising."""
INT32_LOW, INT32_HIGH = -(1 << 31), (1 << 31) - 1
Binding: TypeAlias = relax.VarBinding


class Graph:
    """Bindings of one function with definitions and uses."""

    def __init__(self, func: relax.Function) -> None:
        self.bindings: Sequence[Binding] = straight_bindings(func)
        self.defined: dict[relax.Var, Binding] = {b.var: b for b in self.bindings}
        self.users = users_of(func)
        self._place = {b.var: place for place, b in enumerate(self.bindings)}

    def in_order(self, bindings: Iterable[Binding]) -> list[Binding]:
        """``bindings`` as the function has them."""
        return sorted(bindings, key=lambda binding: self._place[binding.var])

    def only_user(self, var: relax.Var) -> Binding | None:
        """The one binding that reads ``var``, if nothing else does."""
        users = self.users.get(var, [])
        return users[0] if len(users) == 1 else None

    def value(self, expr: relax.Expr) -> relax.Expr | None:
        """What a variable is bound to; None for parameters and constants."""
        binding = self.defined.get(expr) if isinstance(expr, relax.Var) else None
        return None if binding is None else binding.value

    def square_of(self, var: relax.Var) -> Binding | None:
        """The product of ``var`` with itself, if nothing else reads it."""
        users = self.users.get(var, [])
        first = users[0] if len(users) == 2 and users[0] is users[1] else None
        return first if first is not None and is_square(first.value) else None

    def chain(
        self, var: relax.Var, squares: bool = False, other: relax.Var | None = None
    ) -> list[Binding]:
        """The steps that follow ``var``, each value read by one, and the final astype to int8.

        ``squares``: products of a value with itself are steps too; ``other``: so is the sum with
        it.
        """
        found: list[Binding] = []
        while True:
            user = self.only_user(var) or (self.square_of(var) if squares else None)
            if user is None:
                break
            if is_narrowing(user.value):
                return [*found, user]
            joins = other is not None and is_sum_with(user.value, other)
            if as_step(user.value) is None and not is_square(user.value) and not joins:
                break
            found.append(user)
            var = user.var
        return found

    def back(self, var: relax.Expr) -> list[Binding] | None:
        """The steps from a widening astype (first) up to ``var``; None where there is none."""
        found: list[Binding] = []
        while isinstance(var, relax.Var) and var in self.defined:
            binding = self.defined[var]
            found.append(binding)
            if is_widening(binding.value):
                return found[::-1]
            step = as_step(binding.value)
            if step is None and not is_square(binding.value):
                return None
            var = binding.value.args[0] if step is None else step[2]
        return None

    def least(self, var: relax.Expr) -> int:
        """The least value that an int8 tensor can hold, as far as its definition tells."""
        value = self.value(var)
        if value is None:
            return INT8_LOW
        if op_name(value) in KEEPS_LEAST:
            return self.least(value.args[0])
        if is_narrowing(value):
            return max(INT8_LOW, self._clamped(value.args[0]))
        step = as_step(value, "int8")
        if step is not None and step[0] == "max":
            return max(self.least(step[2]), int(step[1].min()))
        return INT8_LOW

    def interval(self, var: relax.Expr) -> tuple[int, int]:
        """The least and the largest value that an int8 tensor can hold, as its definition tells."""
        value = self.value(var)
        if value is None:
            return INT8_LOW, INT8_HIGH
        if op_name(value) in KEEPS_LEAST:
            return self.interval(value.args[0])
        narrows = is_narrowing(value)
        dtype = "int32" if narrows else "int8"
        low, high = (INT32_LOW, INT32_HIGH) if narrows else (INT8_LOW, INT8_HIGH)
        source = self.value(value.args[0]) if narrows else value
        # from the last step back: what a bound before becomes by those behind it
        while source is not None and (step := as_step(source, dtype)) is not None:
            bounds = [min(max(int(end), low), high) for end in (step[1].min(), step[1].max())]
            if step[0] == "max":
                low = bounds[0]
            elif step[0] == "min":
                high = bounds[1]
            else:
                break
            source = self.value(step[2])
        fits = low >= INT8_LOW and high <= INT8_HIGH
        return (low, high) if fits else (INT8_LOW, INT8_HIGH)

    def _clamped(self, var: relax.Expr) -> int:
        """The lower bound of a maximum, where nothing but a minimum above it follows."""
        low, cap = INT8_LOW, INT8_HIGH
        value = self.value(var)
        while value is not None and (step := as_step(value)) is not None:
            if step[0] == "min":
                cap = min(cap, int(step[1].min()))
            elif step[0] == "max":
                return min(int(step[1].min()), cap)
            else:
                break
            value = self.value(step[2])
        return low


def dtype_of(expr: relax.Expr) -> str:
    """Element type of a tensor expression, "" for anything else."""
    return str(expr.ty.dtype) if isinstance(expr.ty, relax.TensorType) else ""


def is_widening(expr: relax.Expr) -> bool:
    """Whether it is astype from int8 to int32."""
    return (
        op_name(expr) == "relax.astype"
        and dtype_of(expr) == "int32"
        and dtype_of(expr.args[0]) == "int8"
    )


def is_narrowing(expr: relax.Expr) -> bool:
    """Whether it is astype from int32 to int8."""
    return (
        op_name(expr) == "relax.astype"
        and dtype_of(expr) == "int8"
        and dtype_of(expr.args[0]) == "int32"
    )


def is_square(expr: relax.Expr) -> bool:
    """Whether it is the product of an int32 value that the model computes with itself."""
    if op_name(expr) != "relax.multiply" or dtype_of(expr) != "int32":
        return False
    left, right = expr.args
    return isinstance(left, relax.Var) and left.same_as(right)


def is_sum_with(expr: relax.Expr, other: relax.Var) -> bool:
    """Whether it is the sum of an int32 value that the model computes and ``other``."""
    if op_name(expr) != "relax.add" or dtype_of(expr) != "int32" or is_square(expr):
        return False
    left, right = expr.args
    return bool(left.same_as(other)) != bool(right.same_as(other)) and not (
        is_constant(left) or is_constant(right)
    )


def as_step(expr: relax.Expr, dtype: str = "int32") -> tuple[str, np.ndarray, relax.Expr] | None:
    """(operation, constant, data) of a step on ``dtype`` values, or None."""
    op = STEP_OPS.get(op_name(expr))
    if op is None or dtype_of(expr) != dtype or len(expr.args) != 2:
        return None
    left, right = expr.args
    if is_constant(left) and op in COMMUTES:
        left, right = right, left
    if not is_constant(right) or is_constant(left):
        return None
    if static_shape(left) != static_shape(expr):  # the constant broadcasts the data
        return None
    return op, np.asarray(right.value.numpy()), left


def steps_of(
    chain: Sequence[Binding], other: relax.Var | None = None
) -> Iterator[tuple[str, np.ndarray | str]]:
    """(operation, constant) of each step in ``chain``.

    The constant of a square is SELF, that of a sum with ``other`` is OTHER.
    """
    for binding in chain:
        if is_square(binding.value):
            yield "mul", SELF
        if other is not None and is_sum_with(binding.value, other):
            yield "add", OTHER
        step = as_step(binding.value)
        if step is not None:
            yield step[0], step[1]
