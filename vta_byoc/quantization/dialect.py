"""The integer dialect: the operators a quantized module may hold, and their exact arithmetic.

This is the numerics contract.  Activations are int8, `real = step * (int8 - zero)`, weights int8
with one step per tensor or per output channel; accumulators are int32 and provably never overflow.
`policy` chooses the steps; how a factor between two steps is written does not depend on
who chose them.  A factor that is a power of two is a shift:

    shift > 0   (x + (1 << (shift - 1))) >> shift      rounds half up
    shift = 0   x
    shift < 0   x << -shift

followed by maximum(low) and minimum(high).  `clip` is never used on integers: TVM's does not
saturate as documented.  Everything is a plain Relax operator; a constant is a scalar (), one value
per channel, or one per element where it says so.

For any other factor f, per tensor or per channel, and for zero points `requantize` chooses
constants:

fixed     an accumulator a becomes round(f * a) + zero by
          a + offset (in the bias; for layers with a zero point and padding one value per position,
          as padding writes 0); right_shift(pre); maximum, minimum (to 15 bits, or 16 where the
          result uses more than half of int8) unless proven needless (what they cut saturates
          anyway); multiply (15 bits or more, as int32 allows); right_shift, add(rounding and zero
          point), right_shift (one shift in two parts, so that the constant is small).
          Where f is a power of two: offset and one right_shift (or left_shift); per channel a
          right_shift for each, behind a left_shift of all if one would be negative.
linear    int8 operands become (sum of factor * operand + offset) >> shift with factors of up to 21
          bits: both sides of a sum, maximum, minimum or leaky relu, a scale and offset, a change of
          scale; and sums of values become means.  A factor that is a power of two is a left_shift,
          and what two of them have in common is a left_shift behind their sum.  With power-of-two
          steps factors that multiply have at most 15 bits, and a constant 12 fraction bits (8 where
          nothing multiplies), so that they are immediates.
Less than 0.1 % of the results differ from exact rounding, by one.

With `exact_rescale` the results are those of the runtime that a model came from (`exact_point`,
`exact_sum`):

exact       an accumulator a: add offset (in the bias), [maximum, minimum], multiply, [add], v;
            [right_shift(v, 31), multiply, add(that, v)]; right_shift, multiply, right_shift,
            add(that, v), right_shift, [add, right_shift].
sum         of two tensors: multiply each, [right_shift each], add, add(offset), right_shift.

Without a multiplier `layer_factor` puts the factor of a layer elsewhere (15-bit factors in linear):

digits    into the weights: round(f * w * 2**s) = (high << 8) + low, both int8, one for each product
          of the same data: left_shift(high product, 8), add(low product) is the accumulator; bias;
          right_shift(s).
shifts    v = [left_shift](accumulator); right_shift(v, a), add(that, v), right_shift(that, b),
          add(that, v) and so on: v times a sum of powers of two; add(bias), right_shift.
one digit round(f * w * 2**s) in int8, a right_shift for each channel: an approximation.

The forms (`[...]` is left out where it changes nothing; `end` is maximum(low), minimum(high),
astype int8; `rescale` is [add(rounding)], right_shift | left_shift | nothing):

layer       acc = conv1d | conv2d | conv2d_transpose | matmul (int8, int8 constant -> int32)
            add(bias per channel; the rounding constant is part of it), right_shift | left_shift,
            end.  Without shift and end if only floats read the result: int32 to dequantize.
            Layouts NCW/OIW, NCHW/OIHW, NCHW/IOHW; any strides, padding, dilation, groups,
            output_padding.  matmul: x [..., K] times [K, M].
product     acc = matmul (int8 [..., M, K], int8 [..., K, S] -> int32) of two computed tensors with
            equal leading dimensions and zero points 0; fixed, end.  The second operand is a
            permutation of [..., S, K]; where the model has none, its last two axes are exchanged
            twice.
two tensors lhs = astype(x), [multiply(factor) | left_shift], [add(moved)]; rhs the same; add |
            subtract | maximum | minimum (lhs, rhs); [add(offset)], [right_shift | left_shift], end.
            Factors bring both sides to one scale; `moved` takes the zero point off where the larger
            or smaller side is wanted.  A product: multiply(lhs, rhs), each less its zero point;
            fixed, end.  Shapes broadcast.
constants   wide = astype(x); multiply(factor) | [left_shift]; [add(offset)]; [right_shift]; end.
            Scale and offset of any shape that broadcasts to x.
leaky relu  as maximum of two tensors that are the same x, with factors for 1 and for the slope.
            With power-of-two steps the slope is m / 2**n, rounded to n <= 12.
clamp       maximum(low) and minimum(high) on int8, each only where it can change a value.
mean, sum   wide = astype(x); sum(wide, axes); linear or (any steps, with MUL) fixed; end.
avg_pool2d  acc = conv2d(x, ones (C, 1, KH, KW), groups C); linear; end.  Where the padding does not
            count, the factor is (1, 1, OH, OW): one per position, one shift.  Ceil mode is padding
            at the bottom and on the right.
            factor / 2**shift is 1 / count times the change of scale.
norm        wide = astype(x); [sum(wide, axis)]; sum(wide * wide, axis), both with keepdims; the
            steps of `ir.norms`: mean and rate of each token from its sums, then the result
            of each element; astype int8. For machines with MUL. Of groups of channels between
            reshapes to (N, groups, channels, positions) and back, over the last two axes.
attention   scores = matmul (int8 [..., T, E], int8 [..., E, S] -> int32), [add(mask)], [add(int8
            [..., T or 1, S], HIDDEN or 0, widened and shifted to the left)]; max over the last
            axis; the steps of `ir.attention`: shares, astype int8; their sums and those of the
            values (widened, keepdims); matmul (shares, int8 [..., S, D] -> int32); the steps of a
            rate and a result; astype int8. For machines with MUL.
softmax     wide = astype(x), [left_shift | right_shift]; max over one axis, keepdims; the steps of
            `ir.softmax`: shares, their sum (keepdims), its rate and the results; astype int8. Of
            (N, C, H, W) along rows or columns, or of (groups, T, C) along T; where a tensor has
            its axis in lanes, its last two axes are exchanged before and behind it. With MUL.
requantize  astype(x), linear, end: before a concat whose inputs have other scales.
movement    max_pool2d, concat, split, strided_slice, pad with 0 (with a zero point: pad with 0,
            then add a constant that is 0 inside), reshape, permute_dims, expand_dims, squeeze,
            flatten, broadcast_to, repeat (nearest upsampling is a repeat of rows, then of
            columns), take, tile, flip, pixel_shuffle, max, min: on int8.
floats      quantize (half to even, saturates) and dequantize at the borders of float regions.
uint8       inputs and results of models that have them: int8 is 128 less, on the host.

The last variable of a group carries the name of the source operator, the others
`<name>__<part>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax
from tvm.ir import Attrs

from vta_byoc.base.int8_digits import DIGIT_SHIFT, split
from vta_byoc.ir.bindings import SEPARATOR
from vta_byoc.quantization.dialect_builder import StepWriter, const, planes
from vta_byoc.quantization.requantize import FixedPoint
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, Rescale

__all__ = ["DialectWriter", "Rescale"]


class DialectWriter(StepWriter):
    """Writes groups of the dialect. `name` is the source operator; its variable is returned."""

    def conv2d(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        attrs: Attrs,
        rescale: Rescale | FixedPoint | None,
        name: str,
    ) -> relax.Var:
        """A layer group of conv2d: data int8 NCHW, weight int8 OIHW, bias int32 [O].

        For `bias` and `rescale` see `layer`; `attrs` has strides, padding, dilation and groups.
        """
        product = self._convolved(relax.op.nn.conv2d, data, weight, attrs, name)
        return self.layer(product, planes(bias, 4), rescale, name, (1, -1, 1, 1))

    def conv1d(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        attrs: Attrs,
        rescale: Rescale | FixedPoint | None,
        name: str,
    ) -> relax.Var:
        """A layer group of conv1d: data int8 NCW, weight int8 OIW, bias int32 [O]."""
        product = self._convolved(relax.op.nn.conv1d, data, weight, attrs, name)
        return self.layer(product, planes(bias, 3), rescale, name, (1, -1, 1))

    def conv2d_transpose(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        attrs: Attrs,
        rescale: Rescale | FixedPoint | None,
        name: str,
    ) -> relax.Var:
        """A layer group of conv2d_transpose: data int8 NCHW, bias int32 [O].

        The weight is int8 (I, O / groups, KH, KW); `attrs` has output_padding too.
        """
        product = self._convolved(
            relax.op.nn.conv2d_transpose,
            data,
            weight,
            attrs,
            name,
            output_padding=attrs.output_padding,
        )
        return self.layer(product, planes(bias, 4), rescale, name, (1, -1, 1, 1))

    def matmul(
        self,
        data: relax.Expr,
        weight: np.ndarray,
        bias: np.ndarray,
        rescale: Rescale | FixedPoint | None,
        name: str,
    ) -> relax.Var:
        """A layer group of matmul: data int8 [..., K], weight int8 [K, M], bias int32 [M]."""
        product = self.product_of(
            lambda digit: relax.op.matmul(data, const(digit, "int8"), out_dtype="int32"),
            weight,
            name,
        )
        return self.layer(product, bias, rescale, name)

    def product_of_two(
        self, left: relax.Expr, right: relax.Expr, rescale: FixedPoint, name: str
    ) -> relax.Var:
        """int8 [..., M, K] times int8 [..., K, S], both of zero point 0, rescaled to int8."""
        product = relax.op.matmul(left, right, out_dtype="int32")
        acc = self.emit(product, f"{name}{SEPARATOR}acc")
        return self.fixed_point(acc, rescale, (), name)

    def turned_twice(self, value: relax.Expr, name: str) -> relax.Var:
        """int8 [..., K, S] with its last two axes exchanged, and exchanged again.

        The first exchange is the form that a machine multiplies by; the second is its view.
        """
        axes = list(range(value.ty.ndim))
        axes[-2:] = axes[:-3:-1]
        there = self.emit(relax.op.permute_dims(value, axes), f"{name}{SEPARATOR}turned")
        return self.emit(relax.op.permute_dims(there, axes), f"{name}{SEPARATOR}weight")

    def _convolved(
        self,
        convolution: Callable[..., relax.Expr],
        data: relax.Expr,
        weight: np.ndarray,
        attrs: Attrs,
        name: str,
        **more: Sequence[int],
    ) -> relax.Expr:
        """The int32 product of a convolution with `attrs`, and with what only some have."""
        return self.product_of(
            lambda digit: convolution(
                data,
                const(digit, "int8"),
                strides=attrs.strides,
                padding=attrs.padding,
                dilation=attrs.dilation,
                groups=attrs.groups,
                out_dtype="int32",
                **more,
            ),
            weight,
            name,
        )

    def product_of(
        self, make: Callable[[np.ndarray], relax.Expr], weight: np.ndarray, name: str
    ) -> relax.Expr:
        """What `make` multiplies data by: int8 weights, or integers of two digits."""
        if weight.min(initial=0) >= INT8_LOW and weight.max(initial=0) <= INT8_HIGH:
            return make(weight)
        high, low = split(weight)
        upper = self.emit(make(high), f"{name}{SEPARATOR}high")
        raised = relax.op.left_shift(upper, const(DIGIT_SHIFT, "int32"))
        raised = self.emit(raised, f"{name}{SEPARATOR}raised")
        return relax.op.add(raised, self.emit(make(low), f"{name}{SEPARATOR}low"))

    def layer(
        self,
        product: relax.Expr,
        bias: np.ndarray,
        rescale: Rescale | FixedPoint | None,
        name: str,
        channels: tuple[int, ...] = (-1,),
    ) -> relax.Var:
        """int32 `product` + `bias`, rescaled to int8; int32 `<name>__bias` without `rescale`.

        Args:
            product: the int32 sums, not yet bound to a variable.
            bias: int32, broadcasts; the rounding constant is already in it.
            rescale: what follows.
            name: the source operator.
            channels: the shape in which constants of one value per channel broadcast.
        """
        acc = self.emit(product, f"{name}{SEPARATOR}acc")
        biased = self.emit(relax.op.add(acc, const(bias, "int32")), f"{name}{SEPARATOR}bias")
        if rescale is None:
            return biased
        if isinstance(rescale, FixedPoint):
            return self._saturated(self._stepped(biased, rescale, channels, name), rescale, name)
        return self._saturated(self._shifted(biased, rescale.shift, name), rescale, name)

    def sum(self, value: relax.Expr, axes: list[int], keepdims: bool, name: str) -> relax.Var:
        """int8 -> int32 sums over `axes`."""
        wide = self.emit(relax.op.astype(value, "int32"), f"{name}{SEPARATOR}int32")
        return self.emit(relax.op.sum(wide, axes, keepdims), f"{name}{SEPARATOR}acc")

    def window_sums(
        self, value: relax.Expr, window: Attrs, padding: Sequence[int], name: str
    ) -> relax.Var:
        """int8 NCHW -> int32 sums of windows; what is padded counts as 0."""
        channels = int(value.ty.shape[1])
        ones = np.ones((channels, 1, *(int(size) for size in window.pool_size)))
        product = relax.op.nn.conv2d(
            value,
            const(ones, "int8"),
            strides=window.strides,
            padding=list(padding),
            dilation=window.dilation,
            groups=channels,
            out_dtype="int32",
        )
        return self.emit(product, f"{name}{SEPARATOR}acc")

    def clamp(self, value: relax.Expr, low: int, high: int, name: str) -> relax.Var:
        """Write maximum and minimum on int8, each only if it can change a value."""
        bounds = [(relax.op.maximum, low)] if low > INT8_LOW else []
        bounds += [(relax.op.minimum, high)] if high < INT8_HIGH else []
        for op, bound in bounds[:-1]:
            value = self.emit(op(value, const(bound, "int8")), f"{name}{SEPARATOR}max")
        for op, bound in bounds[-1:]:
            value = self.emit(op(value, const(bound, "int8")), name)
        return value
