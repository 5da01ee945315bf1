"""Writing the steps that groups of the integer dialect share (`dialect` says what they mean)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from tvm import relax

from vta_byoc.ir.bindings import SEPARATOR, FunctionWriter
from vta_byoc.ir.chains import OTHER, SELF
from vta_byoc.quantization.exact_sum import ExactSum
from vta_byoc.quantization.linear import LinearCombination
from vta_byoc.quantization.requantize import FixedPoint, is_power_of_two
from vta_byoc.quantization.scales import UINT8_ZERO, Rescale, Scale
from vta_byoc.unary.program import Program

STEP_NAMES = {
    "add": "round",
    "left_shift": "shift",
    "maximum": "floor",
    "minimum": "ceiling",
    "multiply": "product",
    "right_shift": "shift",
}
"""Operator of a fixed-point step -> what its variable is called."""
VALUE_NAMES = {SELF: "square", OTHER: "again"}
"""What a program's variable is called where a step reads two values."""
PROGRAM_OPS: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "add": relax.op.add,
    "mul": relax.op.multiply,
    "shr": relax.op.right_shift,
    "shl": relax.op.left_shift,
    "max": relax.op.maximum,
    "min": relax.op.minimum,
}
"""The operators of a program's steps."""
SIDES = ("lhs", "rhs")
"""What the operands of an operator of two tensors are called."""
ONE = np.array(1)


class StepWriter(FunctionWriter):
    """Writes borders, rescales and saturation. `name` is the source operator."""

    # ------------------------------------------------------------ borders of the dialect
    def quantize(self, value: relax.Expr, scale: Scale, name: str) -> relax.Var:
        """float32 -> int8, rounding half to even."""
        step, zero = const(scale.step, "float32"), const(scale.zero, "int8")
        return self.emit(relax.op.quantize(value, step, zero, axis=0, out_dtype="int8"), name)

    def dequantize(
        self, value: relax.Expr, scale: Scale | np.ndarray, name: str, axis: int = 0
    ) -> relax.Var:
        """int8 or int32 -> float32; an array holds one step for each channel along `axis`."""
        dtype = str(value.ty.dtype)
        if isinstance(scale, Scale):
            step, zero = const(scale.step, "float32"), const(scale.zero, dtype)
        else:
            step, zero = const(scale, "float32"), const(np.zeros(scale.shape), dtype)
        return self.emit(relax.op.dequantize(value, step, zero, axis=axis), name)

    def from_uint8(self, value: relax.Expr, name: str) -> relax.Var:
        """uint8 -> int8, 128 less."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}wide")
        moved = relax.op.subtract(wide, const(UINT8_ZERO, "int32"))
        return self.emit(relax.op.astype(self.emit(moved, f"{name}{SEPARATOR}moved"), "int8"), name)

    def to_uint8(self, value: relax.Expr, name: str) -> relax.Var:
        """int8 -> uint8, 128 more."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}wide")
        moved = relax.op.add(wide, const(UINT8_ZERO, "int32"))
        return self.emit(
            relax.op.astype(self.emit(moved, f"{name}{SEPARATOR}moved"), "uint8"), name
        )

    # ------------------------------------------------------------ any scale
    def fixed_point(
        self, value: relax.Var, rescale: FixedPoint, channels: tuple[int, ...], name: str
    ) -> relax.Var:
        """An int32 `value`, offset not yet added, rescaled to int8."""
        if rescale.offset.any():
            offset = const(_spread(rescale.offset, channels), "int32")
            value = self.emit(relax.op.add(value, offset), f"{name}{SEPARATOR}bias")
        return self._saturated(self._stepped(value, rescale, channels, name), rescale, name)

    def _stepped(
        self, value: relax.Var, rescale: FixedPoint, channels: tuple[int, ...], name: str
    ) -> relax.Var:
        kept = value
        for op, by in rescale.steps:
            if isinstance(by, str):
                if op == "keep":
                    kept = value
                else:
                    value = self.emit(relax.op.add(value, kept), f"{name}{SEPARATOR}sum")
                continue
            constant = const(_spread(by, channels), "int32")
            call = getattr(relax.op, op)(value, constant)
            value = self.emit(call, f"{name}{SEPARATOR}{STEP_NAMES[op]}")
        return value

    def linear(
        self,
        op: Callable[[relax.Expr, relax.Expr], relax.Expr] | None,
        operands: Sequence[relax.Expr],
        scale: LinearCombination,
        name: str,
    ) -> relax.Var:
        """int8 operands times the factors of `scale`, joined by `op`; then its offset and shift.

        `scale` has a factor for each of two operands, two for one (`op` joins both products of it),
        or one for one without `op`.
        """
        sides = [name] if op is None else [f"{name}{SEPARATOR}{side}" for side in SIDES]
        terms = []
        shared = self._wide(operands[0], f"{name}{SEPARATOR}wide") if len(operands) == 1 else None
        for i, side in enumerate(sides):
            value = self._wide(operands[i], side) if shared is None else shared
            terms.append(self._term(value, scale.factors[i], scale.moved[i], side))
        total = terms[0] if op is None else self.emit(op(*terms), f"{name}{SEPARATOR}acc")
        return self._shifted_down(total, scale, name)

    def program(self, value: relax.Expr, program: Program, name: str) -> relax.Var:
        """What `program` makes of int8 `value`, operator by operator; int8."""
        wide = self._wide(value, f"{name}{SEPARATOR}wide")
        sides = [name] if program.op is None else [f"{name}{SEPARATOR}{side}" for side in SIDES]
        total, other = self._program_steps(wide, program.left, sides[0]), None
        if program.op is not None:
            other = self._program_steps(wide, program.right, sides[1])
            joined = PROGRAM_OPS[program.op](total, other)
            total = self.emit(joined, f"{name}{SEPARATOR}acc")
        total = self._program_steps(total, program.after, name, other)
        return self.emit(relax.op.astype(total, "int8"), name)

    def _program_steps(
        self,
        value: relax.Var,
        steps: Sequence[tuple[str, int | str]],
        name: str,
        other: relax.Var | None = None,
    ) -> relax.Var:
        for op, by in steps:
            named = {SELF: value, OTHER: other}
            operand = named[by] if isinstance(by, str) else const(by, "int32")
            call = PROGRAM_OPS[op](value, operand)
            part = VALUE_NAMES.get(str(by), STEP_NAMES[call.op.name.split(".")[-1]])
            value = self.emit(call, f"{name}{SEPARATOR}{part}")
        return value

    def changed(self, value: relax.Expr, rescale: FixedPoint, name: str) -> relax.Var:
        """int8 at another scale, as a rescale of its int32 value."""
        return self.fixed_point(self._wide(value, f"{name}{SEPARATOR}wide"), rescale, (), name)

    def exact_sum(self, operands: Sequence[relax.Expr], found: ExactSum, name: str) -> relax.Var:
        """The sum of two int8 tensors as `found` says."""
        terms = []
        for value, factor, side in zip(operands, found.factors, SIDES, strict=True):
            side = f"{name}{SEPARATOR}{side}"
            wide = self._term(self._wide(value, side), np.array(factor), np.array(0), side)
            terms.append(self._shifted(wide, found.cut, f"{side}{SEPARATOR}cut"))
        total = self.emit(relax.op.add(*terms), f"{name}{SEPARATOR}acc")
        moved = relax.op.add(total, const(found.offset, "int32"))
        total = self._shifted(self.emit(moved, f"{name}{SEPARATOR}bias"), found.shift, name)
        return self._saturated(total, found, name)

    def scaled_sums(self, total: relax.Var, scale: LinearCombination, name: str) -> relax.Var:
        """int32 sums times a factor, plus an offset, shifted and saturated."""
        if (scale.factors[0] != 1).any():
            product = relax.op.multiply(total, const(scale.factors[0], "int32"))
            total = self.emit(product, f"{name}{SEPARATOR}product")
        return self._shifted_down(total, scale, name)

    def offset(self, value: relax.Expr, constant: np.ndarray, name: str) -> relax.Var:
        """int8 plus a constant that broadcasts; the sum fits int8."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}wide")
        total = self.emit(relax.op.add(wide, const(constant, "int32")), f"{name}{SEPARATOR}sum")
        return self._saturated(total, Rescale(0), name)

    def product(
        self,
        operands: Sequence[tuple[relax.Expr, int]],
        rescale: FixedPoint,
        name: str,
    ) -> relax.Var:
        """The product of two int8 tensors, each less its zero point, rescaled to int8."""
        terms = [
            self._term(self._wide(value, side), ONE, np.array(-zero), side)
            for (value, zero), side in zip(
                operands, (f"{name}{SEPARATOR}{side}" for side in SIDES), strict=True
            )
        ]
        total = self.emit(relax.op.multiply(*terms), f"{name}{SEPARATOR}acc")
        return self.fixed_point(total, rescale, (), name)

    def _wide(self, value: relax.Expr, name: str) -> relax.Var:
        """int8 -> int32."""
        return self.emit(relax.op.astype(value, "int32"), name)

    def _term(self, wide: relax.Var, factor: np.ndarray, moved: np.ndarray, name: str) -> relax.Var:
        """An int32 value times a factor, plus a constant."""
        if factor.ndim == 0 and is_power_of_two(float(factor)):
            wide = self._shifted(wide, -(int(factor).bit_length() - 1), name)
        else:
            product = relax.op.multiply(wide, const(factor, "int32"))
            wide = self.emit(product, f"{name}{SEPARATOR}product")
        if np.any(moved):
            total = relax.op.add(wide, const(moved, "int32"))
            wide = self.emit(total, f"{name}{SEPARATOR}moved")
        return wide

    def _shifted_down(self, total: relax.Var, scale: LinearCombination, name: str) -> relax.Var:
        if scale.offset.any():
            part = "round" if (scale.offset == scale.rounding).all() else "bias"
            rounded = relax.op.add(total, const(scale.offset, "int32"))
            total = self.emit(rounded, f"{name}{SEPARATOR}{part}")
        return self._saturated(self._shifted(total, scale.shift, name), scale, name)

    # ------------------------------------------------------------ shifts and saturation
    def _shifted(self, value: relax.Var, shift: int, name: str) -> relax.Var:
        if shift == 0:
            return value
        op = relax.op.right_shift if shift > 0 else relax.op.left_shift
        return self.emit(op(value, const(abs(shift), "int32")), f"{name}{SEPARATOR}shift")

    def _saturated(self, value: relax.Var, rescale: _Limits, name: str) -> relax.Var:
        floor = relax.op.maximum(value, const(rescale.low, "int32"))
        value = self.emit(floor, f"{name}{SEPARATOR}max")
        ceiling = relax.op.minimum(value, const(rescale.high, "int32"))
        value = self.emit(ceiling, f"{name}{SEPARATOR}min")
        return self.emit(relax.op.astype(value, "int8"), name)


class _Limits(Protocol):
    """What a result saturates to."""

    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...


def planes(bias: np.ndarray, rank: int) -> np.ndarray:
    """A bias [O] for a result of `rank`; one with positions [O, ...] for every image."""
    return bias.reshape(1, -1, *[1] * (rank - 2)) if bias.ndim == 1 else bias[None]


def _spread(constant: np.ndarray, channels: tuple[int, ...]) -> np.ndarray:
    """One value per channel in the shape that broadcasts."""
    return constant.reshape(channels) if constant.ndim == 1 else constant


def const(value: ArrayLike, dtype: str) -> relax.Expr:
    """`value` as a constant of `dtype`."""
    return relax.const(np.asarray(value, dtype))
