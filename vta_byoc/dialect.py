"""The integer dialect: the operators a quantized module may hold, and their exact arithmetic.

This is the numerics contract.  Activations and weights are int8 with one power-of-two scale per
tensor (`real = int8 * 2**exponent`, no zero point); accumulators are int32 and provably never
overflow.  A rescale by `shift` is

    shift > 0   (x + (1 << (shift - 1))) >> shift      rounds half up
    shift = 0   x
    shift < 0   x << -shift

followed by maximum(low) and minimum(high).  Where a bias is added, the rounding constant is part
of it.  `clip` is never used on integers: TVM's does not saturate as documented.

The last variable of a group carries the name of the source operator, the others
`<name>__<part>`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import relax

from vta_byoc.bindings import SEPARATOR, FunctionWriter
from vta_byoc.hw.errors import VTAError

INT8_LOW, INT8_HIGH = -128, 127
WEIGHT_HIGH = 127
"""Weights use -127..127, so that a weight and its negation both exist."""
INT32_HIGH = 2**31 - 1
MAX_SHIFT = 31
SILENT_EXPONENT = -7
"""Exponent of a tensor that calibration only ever saw as zero: the scale is 1/128."""
EXPONENT_LOW, EXPONENT_HIGH = -60, 60
ALIGN_BITS = 16
"""The coarser operand of an addition is shifted left by at most this much."""
MULTIPLIER_HIGH = 2**15 - 1
"""Multipliers fit the machine's 16-bit immediate."""
MULTIPLIER_BITS = 8
"""A multiplier with fewer bits that is not exact is refused (error above 0.4 %)."""


def scale_exponent(amax: float, name: str) -> int:
    """The smallest e with 127 * 2**e >= amax, at least -60; -7 if amax is 0.

    Raises:
        VTAError: amax needs an exponent above 60.
    """
    if amax == 0:
        return SILENT_EXPONENT
    exponent = math.frexp(amax)[1] - 7
    if INT8_HIGH * 2.0**exponent < amax:
        exponent += 1
    if exponent > EXPONENT_HIGH:
        raise VTAError(
            f'"{name}" reaches {amax:g}; values up to {INT8_HIGH * 2.0**EXPONENT_HIGH:g} can be '
            "quantized; scale the model's inputs or weights down"
        )
    return max(exponent, EXPONENT_LOW)


def quantized(values: np.ndarray, exponent: int, low: int, high: int) -> np.ndarray:
    """`values / 2**exponent` rounded half to even and saturated, as int64."""
    return np.clip(np.rint(np.float64(values) * 2.0**-exponent), low, high).astype("int64")


@dataclass(frozen=True)
class Rescale:
    """From an int32 accumulator to int8: shift, then saturate to low..high."""

    shift: int
    low: int = INT8_LOW
    high: int = INT8_HIGH

    @property
    def rounding(self) -> int:
        """What is added before a right shift."""
        return 1 << (self.shift - 1) if self.shift > 0 else 0


@dataclass(frozen=True)
class Accumulator:
    """The proof that an int32 accumulator cannot overflow.

    Attributes:
        name: the layer.
        bound: the largest magnitude its value can take, rounding constant included, for any
            int8 input.
        shift: the rescale that follows.
        fix: what the user can do if the bound is too large.
    """

    name: str
    bound: int
    shift: int
    fix: str

    def checked(self) -> Accumulator:
        largest = self.bound << max(-self.shift, 0)
        if largest > INT32_HIGH:
            raise VTAError(
                f'layer "{self.name}" can accumulate {largest}; int32 holds {INT32_HIGH}; '
                f"{self.fix}"
            )
        return self


def shift_to(acc_exponent: int, amax: float, bound: int, name: str) -> tuple[int, int]:
    """Exponent of the int8 result and the shift that takes an accumulator there.

    The exponent is that of `amax`, with two exceptions that lose nothing: a left shift stops
    before `bound` would leave int32, and a tensor that was always zero is not shifted right by
    more than 15.
    """
    shift = scale_exponent(amax, name) - acc_exponent
    if amax == 0:
        shift = min(shift, 15)
    shift = max(shift, -MAX_SHIFT)
    while shift < 0 and bound << -shift > INT32_HIGH:
        shift += 1
    assert shift <= MAX_SHIFT, f"{name}: amax {amax} is far beyond the bound {bound}"
    return acc_exponent + shift, shift


@dataclass(frozen=True)
class MeanScale:
    """sum of n int8 values -> their mean: multiply, then rescale."""

    multiplier: int
    rescale: Rescale
    exponent: int
    bound: int


def mean_scale(count: int, exponent: int, amax: float, name: str) -> MeanScale | None:
    """The most precise multiplier and shift for the mean of `count` values.

    The product stays within int32 for any input (`bound`), the multiplier within 15 bits.
    None if fewer than 8 significant bits are left and the multiplier is not exact: then an
    integer mean would be worse than a float one.
    """
    out_exponent = max(scale_exponent(amax, name), exponent - 14)
    ratio = Fraction(2) ** (exponent - out_exponent) / count
    for shift in range(MAX_SHIFT, -1, -1):
        multiplier = math.floor(ratio * 2**shift + Fraction(1, 2))
        rescale = Rescale(shift)
        bound = 128 * count * multiplier + rescale.rounding
        if multiplier <= MULTIPLIER_HIGH and bound <= INT32_HIGH:
            break
    else:
        return None
    if multiplier < 2 ** (MULTIPLIER_BITS - 1) and multiplier != ratio * 2**shift:
        return None
    while multiplier and multiplier % 2 == 0 and shift > 0:
        multiplier, shift = multiplier // 2, shift - 1
    bound = 128 * count * multiplier + Rescale(shift).rounding
    return MeanScale(multiplier, Rescale(shift), out_exponent, bound)


class DialectWriter(FunctionWriter):
    """Writes groups of the dialect. `name` is the source operator; its variable is returned."""

    def quantize(self, value: relax.Expr, exponent: int, name: str) -> relax.Var:
        """float32 -> int8, rounding half to even."""
        scale, zero = _const(2.0**exponent, "float32"), _const(0, "int8")
        return self.emit(relax.op.quantize(value, scale, zero, axis=0, out_dtype="int8"), name)

    def dequantize(self, value: relax.Expr, exponent: int, name: str) -> relax.Var:
        """int8 or int32 -> float32."""
        scale, zero = _const(2.0**exponent, "float32"), _const(0, str(value.ty.dtype))
        return self.emit(relax.op.dequantize(value, scale, zero, axis=0), name)

    def conv2d(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        attrs: Any,
        rescale: Rescale,
        name: str,
    ) -> relax.Var:
        """conv2d + bias + rescale. data int8 NCHW, weight int8 OIHW, bias int32 [O] with the
        rounding constant already in it."""
        product = relax.op.nn.conv2d(
            data,
            _const(weight, "int8"),
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            out_dtype="int32",
        )
        biased = self._biased(product, bias.reshape(1, -1, 1, 1), name)
        return self._saturated(self._shifted(biased, rescale.shift, name), rescale, name)

    def matmul(
        self, data: relax.Expr, weight: np.ndarray, bias: np.ndarray, rescale: Rescale, name: str
    ) -> relax.Var:
        """matmul + bias + rescale. data int8 [..., K], weight int8 [K, M], bias int32 [M] with
        the rounding constant already in it."""
        product = relax.op.matmul(data, _const(weight, "int8"), out_dtype="int32")
        biased = self._biased(product, bias, name)
        return self._saturated(self._shifted(biased, rescale.shift, name), rescale, name)

    def matmul_to_float(
        self, data: relax.Expr, weight: np.ndarray, bias: np.ndarray, exponent: int, name: str
    ) -> relax.Var:
        """matmul + bias, dequantized straight from int32 to float32."""
        product = relax.op.matmul(data, _const(weight, "int8"), out_dtype="int32")
        biased = self._biased(product, bias, name)
        return self.dequantize(biased, exponent, name)

    def add(
        self, operands: Sequence[tuple[relax.Expr, int]], rescale: Rescale, name: str
    ) -> relax.Var:
        """Sum of int8 tensors, each shifted left by its amount (right if negative), rescaled."""
        terms = [
            self._aligned(value, amount, f"{name}{SEPARATOR}{side}")
            for (value, amount), side in zip(operands, ("lhs", "rhs"), strict=True)
        ]
        total = self.emit(relax.op.add(*terms), f"{name}{SEPARATOR}acc")
        return self._saturated(self._rounded(total, rescale, name), rescale, name)

    def rescale(self, value: relax.Expr, rescale: Rescale, name: str) -> relax.Var:
        """int8 -> int8 at another scale."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}acc")
        return self._saturated(self._rounded(wide, rescale, name), rescale, name)

    def mean(
        self, value: relax.Expr, axes: list[int], keepdims: bool, scale: MeanScale, name: str
    ) -> relax.Var:
        """int8 -> int8: sum over `axes` in int32, multiply, rescale."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}int32")
        total = self.emit(relax.op.sum(wide, axes, keepdims), f"{name}{SEPARATOR}acc")
        if scale.multiplier != 1:
            product = relax.op.multiply(total, _const(scale.multiplier, "int32"))
            total = self.emit(product, f"{name}{SEPARATOR}product")
        return self._saturated(self._rounded(total, scale.rescale, name), scale.rescale, name)

    def clamp(self, value: relax.Expr, low: int, high: int, name: str) -> relax.Var:
        """maximum and minimum on int8, each only if it can change a value."""
        bounds = [(relax.op.maximum, low)] if low > INT8_LOW else []
        bounds += [(relax.op.minimum, high)] if high < INT8_HIGH else []
        for op, bound in bounds[:-1]:
            value = self.emit(op(value, _const(bound, "int8")), f"{name}{SEPARATOR}max")
        for op, bound in bounds[-1:]:
            value = self.emit(op(value, _const(bound, "int8")), name)
        return value

    def _biased(self, product: relax.Expr, bias: np.ndarray, name: str) -> relax.Var:
        acc = self.emit(product, f"{name}{SEPARATOR}acc")
        return self.emit(relax.op.add(acc, _const(bias, "int32")), f"{name}{SEPARATOR}bias")

    def _aligned(self, value: relax.Expr, amount: int, name: str) -> relax.Var:
        wide = self.emit(relax.op.astype(value, "int32"), name)
        if amount < 0:
            return self._rounded(wide, Rescale(min(-amount, MAX_SHIFT)), name)
        return self._shifted(wide, -amount, name)

    def _rounded(self, value: relax.Var, rescale: Rescale, name: str) -> relax.Var:
        """The shift of a value whose rounding constant was not added yet."""
        if rescale.rounding:
            rounded = relax.op.add(value, _const(rescale.rounding, "int32"))
            value = self.emit(rounded, f"{name}{SEPARATOR}round")
        return self._shifted(value, rescale.shift, name)

    def _shifted(self, value: relax.Var, shift: int, name: str) -> relax.Var:
        if shift == 0:
            return value
        op = relax.op.right_shift if shift > 0 else relax.op.left_shift
        return self.emit(op(value, _const(abs(shift), "int32")), f"{name}{SEPARATOR}shift")

    def _saturated(self, value: relax.Var, rescale: Rescale, name: str) -> relax.Var:
        floor = relax.op.maximum(value, _const(rescale.low, "int32"))
        value = self.emit(floor, f"{name}{SEPARATOR}max")
        ceiling = relax.op.minimum(value, _const(rescale.high, "int32"))
        value = self.emit(ceiling, f"{name}{SEPARATOR}min")
        return self.emit(relax.op.astype(value, "int8"), name)


def _const(value: Any, dtype: str) -> relax.Expr:
    return relax.const(np.asarray(value, dtype))
