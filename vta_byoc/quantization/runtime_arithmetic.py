"""What a runtime's own kernels make of integers: the arithmetic that `exact_rescale` reproduces.

Every function here takes whole numbers and returns what the runtime returns for them, before the
layer's clamp: `layer` and `mean` of an int32 sum, `moved` of one int8 value, `added` of two. The
first three rise with their operand, which is what proofs of `exact_point` rest on.

TFLite's reference kernels multiply by an int32 factor of 31 fraction bits, keep the upper half of
twice the product (rounded), and shift that right, halves away from zero; those of dense layers
round once. ONNX Runtime's integer
kernels multiply by a float32 factor and round halves to even; those of two operands are MLAS's for
x86 with AVX2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from vta_byoc.ir.quantization_record import ONNXRUNTIME, TFLITE
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, Scale

FACTOR_BITS = 31
"""Fraction bits of TFLite's factors."""
ADD_SHIFT = 20
"""TFLite adds operands that are shifted left by so much."""
F32 = np.float32
Float: TypeAlias = np.ndarray | np.floating[Any]


@dataclass(frozen=True, eq=False)
class Rounding:
    """What a runtime makes of sums, not clamped.

    Attributes:
        function: int64 [..., channels] (or [...]) to int64 of the same shape; it rises.
        ratio: float64 [channels]: the runtime's own factor, as it is rounded.
    """

    function: Callable[[np.ndarray], np.ndarray]
    ratio: np.ndarray

    def __call__(self, sums: np.ndarray) -> np.ndarray:
        """The runtime's results of `sums`."""
        return self.function(sums)


class Arithmetic(ABC):
    """The arithmetic of one runtime; steps are those of int8 tensors, float64 of float32 values."""

    name: ClassVar[str]

    @abstractmethod
    def layer(self, data: float, weights: np.ndarray, target: Scale, *, is_dense: bool) -> Rounding:
        """Of the sums of a layer.

        Args:
            data: step of the data.
            weights: steps of the weights, () or [channels].
            target: scale of the result.
            is_dense: whether the layer is a matrix product and no convolution.
        """

    @abstractmethod
    def mean(self, source: Scale, target: Scale, count: int) -> Rounding:
        """Of the sums of `count` values less their zero points."""

    @abstractmethod
    def moved(self, source: Scale, target: Scale) -> Rounding:
        """Of int8 values less their zero point, that get another scale."""

    @abstractmethod
    def added(
        self, first: Scale, second: Scale, target: Scale
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Of the sums of two int8 values, zero points not yet taken off."""

    @abstractmethod
    def limit(self, bound: float, scale: Scale) -> int:
        """A bound of a clamp as int8; infinities give -128 and 127."""


# ---------------------------------------------------------------- TFLite
def quantized_factor(real: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`real` as (int32 factor of 31 fraction bits, exponent of two), int64 arrays."""
    mantissa, exponent = np.frexp(np.asarray(real, np.float64))
    factor = np.floor(mantissa * 2.0**FACTOR_BITS + 0.5).astype(np.int64)
    carries = factor == 1 << FACTOR_BITS
    factor, exponent = np.where(carries, factor >> 1, factor), exponent + carries
    is_zero, is_large = exponent < -FACTOR_BITS, exponent > FACTOR_BITS - 1
    factor = np.where(is_zero, 0, np.where(is_large, (1 << FACTOR_BITS) - 1, factor))
    exponent = np.where(is_zero, 0, np.minimum(exponent, FACTOR_BITS - 1))
    return factor, exponent.astype(np.int64)


def factor_of(factor: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """What `quantized_factor` stands for, float64 [channels]."""
    return np.atleast_1d(np.ldexp(factor.astype(np.float64), exponent - FACTOR_BITS))


def multiplied(value: np.ndarray, factor: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """`value * factor * 2**exponent` as TFLite rounds it, int64; |value| << exponent fits int32."""
    value = np.asarray(value, np.int64) << np.maximum(exponent, 0)
    product = value * factor
    nudge = np.where(product >= 0, 1 << (FACTOR_BITS - 1), 1 - (1 << (FACTOR_BITS - 1)))
    high = _toward_zero(product + nudge, FACTOR_BITS)
    shift = np.maximum(-exponent, 0)
    rest = high & ((np.int64(1) << shift) - 1)
    most = (((np.int64(1) << shift) - 1) >> 1) + (high < 0)
    return np.asarray((high >> shift) + (rest > most), np.int64)


def rounded_once(value: np.ndarray, factor: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """`value * factor * 2**exponent` with the one rounding of TFLite's dense layers, int64."""
    shift = np.minimum(FACTOR_BITS - exponent, 62)
    rounding = np.int64(1) << np.maximum(shift - 1, 0)
    return np.asarray((value * factor + rounding) >> shift, np.int64)


def _toward_zero(value: np.ndarray, bits: int) -> np.ndarray:
    return np.where(value >= 0, value >> bits, -(-value >> bits))


class TFLite(Arithmetic):
    """The reference kernels of the TFLite interpreter, int8."""

    name = TFLITE

    def layer(self, data: float, weights: np.ndarray, target: Scale, *, is_dense: bool) -> Rounding:
        """Factors by channel; dense layers round their product once.

        The factor of a dense layer with one scale is of a float32 product.
        """
        product = data * np.asarray(weights, np.float64)
        if is_dense and not np.ndim(weights):
            product = np.asarray(F32(data) * F32(weights), np.float64)
        factor, exponent = quantized_factor(product / target.step)
        product_of = rounded_once if is_dense else multiplied
        ratio = factor_of(factor, exponent)
        return Rounding(lambda sums: product_of(sums, factor, exponent) + target.zero, ratio)

    def mean(self, source: Scale, target: Scale, count: int) -> Rounding:
        """The factor divided by the count, with as many bits as the division leaves."""
        factor, exponent = quantized_factor(np.asarray(source.step / target.step))
        shift = min(int(count).bit_length() - 1, 32, 31 + int(exponent))
        divided = (factor << shift) // count
        rest = exponent - shift
        ratio = factor_of(divided, rest)
        return Rounding(lambda sums: multiplied(sums, divided, rest) + target.zero, ratio)

    def moved(self, source: Scale, target: Scale) -> Rounding:
        """One factor."""
        factor, exponent = quantized_factor(np.asarray(source.step / target.step))
        ratio = factor_of(factor, exponent)
        return Rounding(lambda values: multiplied(values, factor, exponent) + target.zero, ratio)

    def added(
        self, first: Scale, second: Scale, target: Scale
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Both operands to twice the larger step, with 20 bits more; the sum to the result's."""
        twice = 2 * max(first.step, second.step)
        sides = [quantized_factor(np.asarray(scale.step / twice)) for scale in (first, second)]
        last = quantized_factor(np.asarray(twice / ((1 << ADD_SHIFT) * target.step)))

        def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            raised = [(left - first.zero) << ADD_SHIFT, (right - second.zero) << ADD_SHIFT]
            total = sum(multiplied(v, *side) for v, side in zip(raised, sides, strict=True))
            return multiplied(np.asarray(total), *last) + target.zero

        return both

    def limit(self, bound: float, scale: Scale) -> int:
        """Halves away from zero, in float32."""
        if math.isinf(bound):
            return INT8_HIGH if bound > 0 else INT8_LOW
        steps = float(F32(bound) / F32(scale.step))
        whole = math.copysign(math.floor(abs(steps) + 0.5), steps)
        return int(np.clip(whole + scale.zero, INT8_LOW, INT8_HIGH))


# ---------------------------------------------------------------- ONNX Runtime
class OnnxRuntime(Arithmetic):
    """The integer kernels of ONNX Runtime on the CPU (QLinearConv, QGemm, QLinearAdd)."""

    name = ONNXRUNTIME

    def layer(self, data: float, weights: np.ndarray, target: Scale, *, is_dense: bool) -> Rounding:
        """A float32 factor of each channel."""
        return _scaled(F32(F32(data) * F32(weights)) / F32(target.step), target)

    def mean(self, source: Scale, target: Scale, count: int) -> Rounding:
        """The count is part of the factor."""
        return _scaled(F32(source.step) / F32(F32(target.step) * F32(count)), target)

    def moved(self, source: Scale, target: Scale) -> Rounding:
        """Floats in between: a product and a quotient, each rounded."""

        def one(values: np.ndarray) -> np.ndarray:
            real = values.astype(F32) * F32(source.step)
            return np.rint(real / F32(target.step)).astype(np.int64) + target.zero

        return Rounding(one, np.array([source.step / target.step]))

    def added(
        self, first: Scale, second: Scale, target: Scale
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Two multiplications with sum, each rounded once, of values as uint8 or int8 stores them.

        All zero points are one float32 constant.
        """
        ratios = [F32(scale.step) / F32(target.step) for scale in (first, second)]
        zeros = _fused(ratios[0], F32(first.zero), F32(ratios[1] * F32(second.zero)))
        fixed = F32(F32(target.zero) - zeros)

        def both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            inner = _fused(right.astype(F32), ratios[1], fixed)
            return np.rint(_fused(left.astype(F32), ratios[0], inner)).astype(np.int64)

        return both

    def limit(self, bound: float, scale: Scale) -> int:
        """Halves to even, in float32."""
        if math.isinf(bound):
            return INT8_HIGH if bound > 0 else INT8_LOW
        whole = np.rint(F32(bound) / F32(scale.step))
        return int(np.clip(whole + scale.zero, INT8_LOW, INT8_HIGH))


def _scaled(factor: Float, target: Scale) -> Rounding:
    """A float32 product, rounded half to even."""

    def one(sums: np.ndarray) -> np.ndarray:
        real = np.asarray(sums).astype(F32) * factor
        return np.rint(np.clip(real, -512, 512)).astype(np.int64) + target.zero

    return Rounding(one, np.atleast_1d(np.asarray(factor, np.float64)))


def _fused(left: Float, right: Float, more: Float) -> np.ndarray:
    """`left * right + more` rounded to float32 once: the product of two float32 is a float64."""
    return np.asarray((np.float64(left) * np.float64(right) + np.float64(more)), F32)


ARITHMETICS: dict[str, Arithmetic] = {each.name: each for each in (TFLite(), OnnxRuntime())}
"""Runtime -> its arithmetic."""
