"""Policies: which scales tensors, weights and results get, and how long factors may be.

A conversion (`ops`) is written once, for scales that are any numbers with zero points; the policy
chooses the numbers. `PowersOfTwo` chooses powers of two without zero points, so that
`requantize` writes every change of scale as a shift; `AnyScales` chooses what wastes no level of
int8, or keeps what the model states.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax

from vta_byoc.base.choices import FUNCTION_WORTH, NONE
from vta_byoc.base.int8_digits import MOST_OF_TWO
from vta_byoc.hw.errors import Refusal
from vta_byoc.quantization.dialect import DialectWriter
from vta_byoc.quantization.linear import Precision
from vta_byoc.quantization.requantize import FACTOR_BITS, is_power_of_two
from vta_byoc.quantization.runtime_arithmetic import Arithmetic
from vta_byoc.quantization.scales import (
    ALIGN_BITS,
    EXPONENT_LOW,
    INT8_HIGH,
    INT32_HIGH,
    MAX_SHIFT,
    MULTIPLIER_HIGH,
    SILENT_SHIFT,
    TOO_FAR,
    WEIGHT_HIGH,
    Scale,
    Unscalable,
    scale_exponent,
    slope_factor,
    spanning,
)
from vta_byoc.quantization.value import Span

BIAS_BITS = 29
"""A quantized bias has at most this many bits."""
CONSTANT_BITS = 12
"""Fraction bits that a product with a constant keeps below its int8 result (`PowersOfTwo`)."""
OFFSET_BITS = 8
"""The same of a shift and a sum: the offset of a result still fits a 16-bit immediate."""
SMALLEST_STEP = 2.0**-60

Write = Callable[[DialectWriter, relax.Expr], relax.Var]
"""Writes a layer on its data."""


@dataclass(frozen=True)
class AttentionShape:
    """The sizes of an attention.

    Attributes:
        groups: images times heads.
        queries: of a group.
        keys: of a group.
        depth: channels of a query and a key.
        width: channels of a value.
        masks: how many groups have a mask of their own; 0: there is none.
        hiding: of a mask of run time: how many groups have one of their own, whether queries have,
            and its left shift; empty: there is none.
    """

    groups: int
    queries: int
    keys: int
    depth: int
    width: int
    masks: int = 0
    hiding: tuple[int, ...] = ()


@dataclass(frozen=True)
class Policy(ABC):
    """How scales are chosen.

    Attributes:
        per_channel: whether every output channel of a layer has a weight scale of its own.
        multiplies: whether the machine's ALU has MUL.
        rescale: how layers get their factor, one of `base.choices.RESCALES`; None: multiplied
            where the machine can, else the cheapest form that is exact enough.
        estimate: cycles of a layer that a function writes on int8 data of a shape; None where the
            machine does not take it.
        tolerance: the largest error of a function of one operand, in steps of its result.
        worth: cycles a vector that half of the noise of such a result is worth.
        attention: why the machine does not take an attention with the numbers of
            `ir.attention.Attention` from `shift` on; None where it does.
        softmax: the same of one that stands alone, of its shape, axis and numbers.
        arithmetic: of the runtime whose results are reproduced to the bit; None: none.
        zero_points: one of `base.choices.ZERO_POINTS`; `NONE` where scales have none.
    """

    per_channel: bool = False
    multiplies: bool = True
    rescale: str | None = None
    estimate: Callable[[Write, tuple[int, ...]], float | None] = lambda write, shape: None
    tolerance: int = 1
    worth: float = FUNCTION_WORTH
    attention: Callable[[AttentionShape, tuple[int, ...]], Refusal | None] = lambda *_given: None
    softmax: Callable[[tuple[int, ...], int, tuple[int, ...]], Refusal | None] = (
        lambda *_given: None
    )
    arithmetic: Arithmetic | None = None
    zero_points: str = NONE

    name: ClassVar[str]
    """What `quantize(scales=...)` calls it."""
    keeps_stated: ClassVar[bool]
    """Whether scales that the model states are kept."""
    has_zero_points: ClassVar[bool]
    """Whether its scales may have a zero point."""

    @property
    @abstractmethod
    def terms(self) -> Precision:
        """The precision of tensors that are brought to one scale and joined."""

    @property
    @abstractmethod
    def constants(self) -> Precision:
        """The precision of a tensor that constants scale and move."""

    @property
    @abstractmethod
    def sums(self) -> Precision:
        """The precision of the factors that sums over windows are multiplied by."""

    @property
    @abstractmethod
    def cuts_sums(self) -> bool:
        """Whether sums over a plane are cut to 16 bits before they are multiplied (`requantizer`).

        Else the factor is as long as the sums allow.
        """

    @abstractmethod
    def scale(self, amax: float, name: str, span: Span | None = None) -> Scale:
        """The scale at which int8 reaches `amax`, or all of `span` with a zero point.

        Raises:
            Unscalable: `amax` is infinite or NaN.
            VTAError: `amax` is larger than any scale allows.
        """

    @abstractmethod
    def result(
        self, amax: float, unit: np.ndarray, bound: int, name: str, span: Span | None = None
    ) -> Scale:
        """The scale of a group's result.

        Args:
            amax: largest magnitude of the result in calibration.
            unit: float64 () or [channels]: the real value of one in the accumulator.
            bound: the largest magnitude of the accumulator.
            name: of the group, for errors.
            span: what the result reaches from and to, where it gets a zero point for it.

        Raises:
            Unscalable: the accumulator cannot be brought there.
        """

    def term(self, own: Scale, other: Scale, total: Scale, unit: np.ndarray) -> Scale:
        """The scale of a group's result that only a sum reads: `own`, or one that costs less.

        Args:
            own: what :meth:`result` chose.
            other: of the sum's other operand.
            total: of the sum's result.
            unit: float64 () or [channels], as of :meth:`result`.
        """
        return own

    @abstractmethod
    def weight_steps(
        self, absmax: np.ndarray, bias: np.ndarray, data: float, amax: float | None, name: str
    ) -> np.ndarray:
        """The step of all weights of a layer, float64 (), or of each channel's, [channels].

        Weights too small to matter beside the bias are made coarser, so that the bias fits the
        accumulator.

        Args:
            absmax: float64 [channels]: the largest magnitude of each channel's weights.
            bias: float64 [channels].
            data: step of the data.
            amax: largest magnitude of the result; None where it is not known.
            name: of the layer, for errors.
        """

    def takes_factor(self, _factor: float) -> bool:
        """Whether a constant factor of a product may become part of the product's rescale."""
        return True

    @abstractmethod
    def slopes(self, slopes: np.ndarray) -> np.ndarray | None:
        """The slopes of a leaky relu as they are computed; None where it stays float."""


@dataclass(frozen=True)
class PowersOfTwo(Policy):
    """Every scale is a power of two, every zero point 0; constants fit the ALU's immediates."""

    name = "pow2"
    keeps_stated = has_zero_points = False

    @property
    def terms(self) -> Precision:
        """Shifts to the left of up to 16 bits."""
        return Precision(1 << ALIGN_BITS)

    @property
    def constants(self) -> Precision:
        """Immediates, and offsets that are immediates where nothing is multiplied."""
        return Precision(self._immediate, CONSTANT_BITS, OFFSET_BITS)

    @property
    def sums(self) -> Precision:
        """Factors that are immediates."""
        return Precision(self._immediate)

    @property
    def _immediate(self) -> int:
        """The largest factor: an immediate of MUL, or two digits."""
        return MULTIPLIER_HIGH if self.multiplies else MOST_OF_TWO

    @property
    def cuts_sums(self) -> bool:
        """Never: factors of 15 bits fit int32 beside the sums of all but the largest planes."""
        return False

    def scale(self, amax: float, name: str, _span: Span | None = None) -> Scale:
        """The smallest power of two at which int8 reaches `amax`."""
        return Scale.power(scale_exponent(amax, name))

    def result(
        self, amax: float, unit: np.ndarray, bound: int, name: str, _span: Span | None = None
    ) -> Scale:
        """The scale of `amax`, with two exceptions that lose nothing.

        A left shift stops before `bound` would leave int32, and what was always zero is not shifted
        right by more than 15.
        """
        units = _exponents(unit)
        finest, coarsest = int(units.min()), int(units.max())
        exponent = scale_exponent(amax, name)
        if amax == 0:
            exponent = min(exponent, finest + SILENT_SHIFT)
        exponent = max(exponent, coarsest - MAX_SHIFT)
        room = INT32_HIGH // 2 if units.ndim else INT32_HIGH  # channels are rounded after it
        while exponent < coarsest and bound << (coarsest - exponent) > room:
            exponent += 1
        if exponent - finest > MAX_SHIFT:
            raise Unscalable(name, TOO_FAR)
        return Scale.power(exponent)

    def term(self, own: Scale, other: Scale, total: Scale, unit: np.ndarray) -> Scale:
        """The sum's own, where it is coarser and the other operand has no bits below it.

        The sum would round the finer bits away at its end, after the result was rounded to them:
        rounded once it is nearer, and the sum needs no shifts.
        """
        if not own.step < total.step <= other.step:
            return own
        return total if total.exponent - int(_exponents(unit).min()) <= MAX_SHIFT else own

    def weight_steps(
        self, absmax: np.ndarray, bias: np.ndarray, data: float, amax: float | None, name: str
    ) -> np.ndarray:
        """Those of channels are coarse enough that a shift of 31 bits reaches the result's."""
        exponent = Scale(data).exponent
        if not self.per_channel:
            absmax, bias = absmax.max(initial=0), np.abs(bias).max(initial=0)
        least = np.where(bias != 0, np.frexp(np.abs(bias))[1] - BIAS_BITS - exponent, EXPONENT_LOW)
        found = np.array([scale_exponent(float(a), f"{name} weight") for a in np.ravel(absmax)])
        exponents = np.maximum(found.reshape(np.shape(absmax)), least)
        if exponents.ndim and amax is not None:
            result = scale_exponent(amax, name)
            if exponents.max() + exponent >= result - MAX_SHIFT:
                exponents = np.maximum(exponents, result - MAX_SHIFT - exponent)
        same = exponents.ndim and (exponents == exponents[0]).all()
        return np.ldexp(1.0, exponents[0] if same else exponents)

    def takes_factor(self, factor: float) -> bool:
        """A power of two does not leave the scales."""
        return is_power_of_two(factor)

    def slopes(self, slopes: np.ndarray) -> np.ndarray | None:
        """The slopes with at most 12 fraction bits."""
        found = [slope_factor(float(slope)) for slope in slopes.flat]
        if any(each is None for each in found):
            return None
        exact = [math.ldexp(each[0], -each[1]) for each in found if each is not None]
        return np.array(exact).reshape(slopes.shape)


@dataclass(frozen=True)
class AnyScales(Policy):
    """int8 reaches exactly as far as a tensor does; scales that a model states are kept."""

    name = "mul"
    keeps_stated = has_zero_points = True

    @property
    def terms(self) -> Precision:
        """Factors of 21 bits, or of two digits where the machine has no MUL."""
        return Precision((1 << FACTOR_BITS) - 1 if self.multiplies else MOST_OF_TWO)

    constants = sums = terms

    @property
    def cuts_sums(self) -> bool:
        """Where the machine has MUL, so that 15 bits of the factor are left for any plane."""
        return self.multiplies

    def scale(self, amax: float, name: str, span: Span | None = None) -> Scale:
        """`amax` / 127, float32; with a zero point the length of `span` / 255."""
        exponent = scale_exponent(amax, name)
        if amax == 0 or amax < INT8_HIGH * 2.0**exponent / 2:
            return Scale.power(exponent)
        if span is not None:
            return spanning(*span)
        return Scale(float(np.float32(amax / INT8_HIGH)))

    def result(
        self, amax: float, unit: np.ndarray, bound: int, name: str, span: Span | None = None
    ) -> Scale:
        """The scale of `amax` or of `span`, whatever the accumulator is."""
        return self.scale(amax, name, span)

    def weight_steps(
        self, absmax: np.ndarray, bias: np.ndarray, data: float, amax: float | None, name: str
    ) -> np.ndarray:
        """The largest weight / 127, float32."""
        if not self.per_channel:
            absmax, bias = np.array(absmax.max(initial=0)), np.array(np.abs(bias).max(initial=0))
        least = np.maximum(np.abs(bias) / (data * 2.0**BIAS_BITS), SMALLEST_STEP)
        return np.maximum(np.float64(np.float32(absmax / WEIGHT_HIGH)), least)

    def slopes(self, slopes: np.ndarray) -> np.ndarray | None:
        """The slopes themselves: their precision is that of the factors."""
        return slopes


POLICIES: dict[str, type[Policy]] = {each.name: each for each in (PowersOfTwo, AnyScales)}
"""What `quantize(scales=...)` takes."""


def _exponents(steps: np.ndarray) -> np.ndarray:
    """The exponents of powers of two, int64."""
    mantissa, exponents = np.frexp(np.asarray(steps, np.float64))
    assert (mantissa == 0.5).all(), f"{steps} are not powers of two"
    return exponents.astype(np.int64) - 1
