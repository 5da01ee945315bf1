"""The integer dialect: the operators a quantized module may hold, and their exact arithmetic.

This is the numerics contract.  Activations and weights are int8 with one power-of-two scale per
tensor (`real = int8 * 2**exponent`, no zero point); accumulators are int32 and provably never
overflow.  A rescale by `shift` is

    shift > 0   (x + (1 << (shift - 1))) >> shift      rounds half up
    shift = 0   x
    shift < 0   x << -shift

followed by maximum(low) and minimum(high).  `clip` is never used on integers: TVM's does not
saturate as documented.  Everything is a plain Relax operator; a constant is a scalar (), one value
per channel, or one per element where it says so.

The forms (`[...]` is left out where it changes nothing; `end` is maximum(low), minimum(high),
astype int8; `rescale` is [add(rounding)], right_shift | left_shift | nothing):

layer       acc = conv1d | conv2d | conv2d_transpose | matmul (int8, int8 constant -> int32)
            add(bias per channel; the rounding constant is part of it), right_shift | left_shift,
            end.  Without shift and end if only floats read the result: int32 to dequantize.
            Layouts NCW/OIW, NCHW/OIHW, NCHW/IOHW; any strides, padding, dilation, groups,
            output_padding.  matmul: x [..., K] times [K, M].
two tensors lhs = astype(x), [left_shift | rescale]; rhs the same; add | subtract | maximum |
            minimum | multiply (lhs, rhs); rescale, end.  Shifts bring both sides to one scale (a
            product needs none).  Shapes broadcast.
constants   wide = astype(x); multiply(factor) | [left_shift]; [add(offset, rounding constant in
            it)]; [right_shift]; end.  Scale and offset of any shape that broadcasts to x; factors
            have at most 15 bits, the result has 12 fraction bits before the shift (8 without
            multiply).
leaky relu  wide = astype(x); kept = [left_shift(wide, n)]; scaled = [multiply(wide, m)];
            maximum(kept, scaled); rescale, end.  The slope is m / 2**n, rounded to n <= 12.
clamp       maximum(low) and minimum(high) on int8, each only where it can change a value.
mean        wide = astype(x); sum(wide, axes); [multiply(m)]; rescale, end.
avg_pool2d  acc = conv2d(x, ones (C, 1, KH, KW), groups C); [multiply(m)]; rescale, end.  Where the
            padding does not count, m is (1, 1, OH, OW): one multiplier per position, one shift.
            Ceil mode is padding at the bottom and on the right.
            Means and averages: m / 2**shift is 1 / count times the change of scale, m rounded half
            up to at most 15 bits; a half is rounded up by the rescale.
requantize  astype(x), rescale, end: before a concat whose inputs have other scales.
movement    max_pool2d, concat, split, strided_slice, pad with 0, reshape, permute_dims,
            expand_dims, squeeze, flatten, broadcast_to, repeat (nearest upsampling is a repeat
            of rows, then of columns), take, tile, flip, pixel_shuffle, max, min: on int8.
floats      quantize (half to even, saturates) and dequantize at the borders of float islands.

The last variable of a group carries the name of the source operator, the others
`<name>__<part>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from vta_byoc.bindings import SEPARATOR, FunctionWriter
from vta_byoc.scales import INT8_HIGH, INT8_LOW, MAX_SHIFT, AffineScale, MeanScale, Rescale

__all__ = ["DialectWriter", "Rescale"]


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
        rescale: Rescale | None,
        name: str,
    ) -> relax.Var:
        """A layer group of conv2d. data int8 NCHW, weight int8 OIHW, bias int32 [O]; for `bias`
        and `rescale` see `layer`. `attrs` has strides, padding, dilation and groups."""
        product = relax.op.nn.conv2d(
            data,
            _const(weight, "int8"),
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            out_dtype="int32",
        )
        return self.layer(product, bias.reshape(1, -1, 1, 1), rescale, name)

    def conv1d(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        attrs: Any,
        rescale: Rescale | None,
        name: str,
    ) -> relax.Var:
        """A layer group of conv1d. data int8 NCW, weight int8 OIW, bias int32 [O]."""
        product = relax.op.nn.conv1d(
            data,
            _const(weight, "int8"),
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            out_dtype="int32",
        )
        return self.layer(product, bias.reshape(1, -1, 1), rescale, name)

    def conv2d_transpose(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        attrs: Any,
        rescale: Rescale | None,
        name: str,
    ) -> relax.Var:
        """A layer group of conv2d_transpose. data int8 NCHW, weight int8 (I, O / groups, KH, KW),
        bias int32 [O]; `attrs` has output_padding too."""
        product = relax.op.nn.conv2d_transpose(
            data,
            _const(weight, "int8"),
            strides=attrs.strides,
            padding=attrs.padding,
            output_padding=attrs.output_padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            out_dtype="int32",
        )
        return self.layer(product, bias.reshape(1, -1, 1, 1), rescale, name)

    def matmul(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        rescale: Rescale | None,
        name: str,
    ) -> relax.Var:
        """A layer group of matmul. data int8 [..., K], weight int8 [K, M], bias int32 [M]."""
        product = relax.op.matmul(data, _const(weight, "int8"), out_dtype="int32")
        return self.layer(product, bias, rescale, name)

    def layer(
        self, product: relax.Expr, bias: np.ndarray, rescale: Rescale | None, name: str
    ) -> relax.Var:
        """int32 `product` + `bias` (int32, broadcasts; the rounding constant is already in it),
        rescaled to int8; int32 `<name>__bias` without `rescale`."""
        acc = self.emit(product, f"{name}{SEPARATOR}acc")
        biased = self.emit(relax.op.add(acc, _const(bias, "int32")), f"{name}{SEPARATOR}bias")
        if rescale is None:
            return biased
        return self._saturated(self._shifted(biased, rescale.shift, name), rescale, name)

    def add(
        self, operands: Sequence[tuple[relax.Expr, int]], rescale: Rescale, name: str
    ) -> relax.Var:
        """Sum of two int8 tensors, see `binary`."""
        return self.binary(relax.op.add, operands, rescale, name)

    def binary(
        self,
        op: Callable[[relax.Expr, relax.Expr], relax.Expr],
        operands: Sequence[tuple[relax.Expr, int]],
        rescale: Rescale,
        name: str,
    ) -> relax.Var:
        """`op` of two int8 tensors, each widened and shifted left by its amount (right if
        negative), rescaled to int8."""
        terms = [
            self._aligned(value, amount, f"{name}{SEPARATOR}{side}")
            for (value, amount), side in zip(operands, ("lhs", "rhs"), strict=True)
        ]
        total = self.emit(op(*terms), f"{name}{SEPARATOR}acc")
        return self._saturated(self._rounded(total, rescale, name), rescale, name)

    def affine(
        self, value: relax.Expr, scale: AffineScale, rescale: Rescale, name: str
    ) -> relax.Var:
        """int8 -> int8: widened, multiplied or shifted left, offset added, rescaled."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}wide")
        if scale.left is None:
            product = relax.op.multiply(wide, _const(scale.factor, "int32"))
            wide = self.emit(product, f"{name}{SEPARATOR}product")
        elif scale.left:
            scaled = relax.op.left_shift(wide, _const(scale.left, "int32"))
            wide = self.emit(scaled, f"{name}{SEPARATOR}scaled")
        offset = scale.offset + rescale.rounding
        if offset.any():
            wide = self.emit(relax.op.add(wide, _const(offset, "int32")), f"{name}{SEPARATOR}bias")
        return self._saturated(self._shifted(wide, rescale.shift, name), rescale, name)

    def leaky_relu(
        self, value: relax.Expr, factor: int, bits: int, rescale: Rescale, name: str
    ) -> relax.Var:
        """int8 -> int8: the larger of x and x * factor / 2**bits, both times 2**bits, rescaled."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}wide")
        kept = self._shifted(wide, -bits, f"{name}{SEPARATOR}kept")
        scaled = wide
        if factor != 1:
            product = relax.op.multiply(wide, _const(factor, "int32"))
            scaled = self.emit(product, f"{name}{SEPARATOR}product")
        larger = self.emit(relax.op.maximum(kept, scaled), f"{name}{SEPARATOR}acc")
        return self._saturated(self._rounded(larger, rescale, name), rescale, name)

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
        return self._averaged(total, np.array(scale.multipliers[0]), scale.rescale, name)

    def avg_pool2d(
        self,
        value: relax.Expr,
        window: Any,
        padding: Sequence[int],
        multipliers: np.ndarray,
        rescale: Rescale,
        name: str,
    ) -> relax.Var:
        """int8 NCHW -> int8: sums of windows by a depthwise conv2d of ones, multiply, rescale.

        `window` has pool_size, strides and dilation; `multipliers` is () or (1, 1, OH, OW).
        """
        channels = int(value.ty.shape[1])
        ones = np.ones((channels, 1, *(int(size) for size in window.pool_size)))
        product = relax.op.nn.conv2d(
            value,
            _const(ones, "int8"),
            strides=window.strides,
            padding=list(padding),
            dilation=window.dilation,
            groups=channels,
            out_dtype="int32",
        )
        total = self.emit(product, f"{name}{SEPARATOR}acc")
        return self._averaged(total, multipliers, rescale, name)

    def _averaged(
        self, total: relax.Var, multipliers: np.ndarray, rescale: Rescale, name: str
    ) -> relax.Var:
        if (multipliers != 1).any():
            product = relax.op.multiply(total, _const(multipliers, "int32"))
            total = self.emit(product, f"{name}{SEPARATOR}product")
        return self._saturated(self._rounded(total, rescale, name), rescale, name)

    def clamp(self, value: relax.Expr, low: int, high: int, name: str) -> relax.Var:
        """maximum and minimum on int8, each only if it can change a value."""
        bounds = [(relax.op.maximum, low)] if low > INT8_LOW else []
        bounds += [(relax.op.minimum, high)] if high < INT8_HIGH else []
        for op, bound in bounds[:-1]:
            value = self.emit(op(value, _const(bound, "int8")), f"{name}{SEPARATOR}max")
        for op, bound in bounds[-1:]:
            value = self.emit(op(value, _const(bound, "int8")), name)
        return value

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
