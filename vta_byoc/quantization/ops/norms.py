"""Normalizations over one axis, or of groups of channels, as steps on integers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import Refusal
from vta_byoc.hw.isa import IMMEDIATE_HIGH
from vta_byoc.ir.bindings import (
    is_constant,
    is_float32,
    op_name,
    source_name,
    static_shape,
)
from vta_byoc.ir.norms import (
    FACTOR,
    MEAN,
    OFFSET,
    PEAK,
    RATE,
    SQUARES,
    SUM,
    UNIT_BITS,
    Norm,
    X,
    elements,
    most_elements,
    statistics,
)
from vta_byoc.quantization.dialect_builder import const
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.program_writer import ProgramWriter
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.scales import INT32_HIGH, AccumulatorBound, Scale, Unscalable

LAYER_NORM, RMS_NORM = "relax.nn.layer_norm", "relax.nn.rms_norm"
GROUP_NORM = "relax.nn.group_norm"
TOKEN, CHANNELS = "a token", "channels"
MOST_SHIFT, ONE_SHIFT = 30, 15
"""A result is shifted by no more; of so many bits the ALU's shift is one instruction."""
ENOUGH = 384
"""The largest factor is rounded by no more than a part of twice this, int32 permitting."""
FIX = "scale the normalization's weight down"
NO_MUL = Refusal(
    "its squares and its reciprocal root would multiply",
    "and the machine's ALU has no MUL (CAPABILITIES.mul is false)",
    remedy="choose a machine that has one",
)


@dataclass(frozen=True)
class Elements:
    """What a normalization reads at a time.

    Attributes:
        shape: what the operand is seen as.
        axes: those over which the sums are.
        channels: the shape in which weight and bias broadcast to it.
        who: what has the elements of a sum, in words.
        unit: what they are, in words.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    channels: tuple[int, ...]
    who: str = TOKEN
    unit: str = CHANNELS

    @property
    def count(self) -> int:
        """How many elements a sum reads."""
        return math.prod(self.shape[axis] for axis in self.axes)


def elements_of(call: relax.Call) -> Elements | None:
    """What a normalization reads at a time; None of several axes, or of other than channels."""
    shape, axes = static_shape(call.args[0]), [int(a) % call.ty.ndim for a in call.attrs.axes]
    if op_name(call) != GROUP_NORM:
        if len(axes) != 1:
            return None
        along = tuple(-1 if axis == axes[0] else 1 for axis in range(len(shape)))
        return Elements(shape, (axes[0],), along)
    if int(call.attrs.channel_axis) % len(shape) != 1 or sorted(axes) != [*range(2, len(shape))]:
        return None
    images, channels, *plane = shape
    groups, size = int(call.attrs.num_groups), channels // int(call.attrs.num_groups)
    parted = (images, groups, size, math.prod(plane))
    who = f"a group of {size} channels"
    return Elements(parted, (2, 3), (1, groups, size, 1), who, "elements")


def takes_norm(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Whether a normalization of one axis or of groups, by constants, is computed on integers."""
    call = binding.value
    return (
        q.policy.multiplies
        and is_float32(call.args[0])
        and elements_of(call) is not None
        and all(is_constant(arg) for arg in call.args[1:])
    )


@integer_op(LAYER_NORM, RMS_NORM, GROUP_NORM, asks=takes_norm)
def convert_norm(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A normalization of tokens or of groups of channels, its weight and bias included.

    Raises:
        Unscalable: the machine has no MUL, or the numbers do not fit int32.
    """
    call, name = binding.value, source_name(binding.var)
    if not q.policy.multiplies:
        raise Unscalable(name, NO_MUL)
    over = elements_of(call)
    if over is None or not takes_norm(q, binding):
        return False
    data, centred = q.value(call.args[0]), op_name(call) != RMS_NORM
    scale = q.scale(data)
    if scale.zero and not centred:
        raise Unscalable(name, _zero_point(scale))
    end = follow(q, binding.var)
    target = end.scale or q.chosen_scale(end.last)
    most, given = most_elements(centred=centred), float(call.attrs.epsilon)
    epsilon = epsilon_of(given, over.count, scale, name, most, who=over.who, unit=over.unit)
    weight, bias = _constants(call)
    norm = norm_of(over.count, centred, epsilon, weight, bias, target, end.limits(target), name)
    out = write_norm(q, q.int8(data), norm, over, name)
    proof = AccumulatorBound(name, norm.bound, norm.shift, FIX).checked()
    q.close_group(binding.var, end.absorbed, out, target, proof)
    return True


def _zero_point(scale: Scale) -> Refusal:
    return Refusal(
        "its operand has the zero point",
        f"{scale.zero}",
        "a root-mean-square normalization takes 0",
        "quantize the operand symmetrically",
    )


def epsilon_of(
    epsilon: float,
    count: int,
    scale: Scale,
    name: str,
    most: int,
    *,
    who: str = TOKEN,
    unit: str = CHANNELS,
) -> int:
    """Epsilon in squared steps of `scale`, summed over what is normalized.

    Args:
        epsilon: as the model has it.
        count: how many elements a sum reads.
        scale: of the operand.
        name: of the operator, for errors.
        most: elements that are taken.
        who: what has the elements, for errors.
        unit: what they are, for errors.

    Raises:
        Unscalable: too many elements, or no immediate holds it.
    """
    if count > most:
        refusal = Refusal(
            f"{who} has",
            f"{count} {unit}",
            f"sums of squares of {most} fit int32",
            "normalize fewer at a time",
        )
        raise Unscalable(name, refusal)
    found = round(epsilon * count / scale.step**2)
    if found > IMMEDIATE_HIGH:
        refusal = Refusal(
            "epsilon is, in steps of the operand and summed over the channels,",
            f"{found}",
            f"an immediate holds {IMMEDIATE_HIGH}",
            "scale the operand up",
        )
        raise Unscalable(name, refusal)
    return found


def _constants(call: relax.Call) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias, float64 [channels]; the bias of a root-mean-square one is 0."""
    weight, *bias = (np.float64(arg.value.numpy()).reshape(-1) for arg in call.args[1:])
    if op_name(call) == RMS_NORM:
        return weight, np.zeros_like(weight)
    weight = weight if call.attrs.scale else np.ones_like(weight)
    return weight, bias[0] if call.attrs.center else np.zeros_like(weight)


def norm_of(
    channels: int,
    centred: bool,
    epsilon: int,
    weight: np.ndarray,
    bias: np.ndarray,
    target: Scale,
    limits: tuple[int, int],
    name: str,
) -> Norm:
    """The normalization in integers, as exact as one shift of 15 bits or `ENOUGH` lets it be.

    Args:
        channels: of a token.
        centred: whether the mean is taken off.
        epsilon: as `epsilon_of` gives it.
        weight: float64 [channels].
        bias: float64 [channels].
        target: the scale of the result.
        limits: the least and the largest result.
        name: of the operator, for errors.

    Raises:
        Unscalable: no right shift brings the factors into an immediate.
    """
    ratio = weight * math.sqrt(channels) / (target.step * (1 << UNIT_BITS))
    level = bias / target.step + target.zero + 0.5
    largest = float(np.abs(ratio).max(initial=0))
    enough = math.ceil(math.log2(ENOUGH / largest)) if largest else 0
    for shift in range(min(MOST_SHIFT, max(enough, ONE_SHIFT)), -1, -1):
        factor, offset = np.rint(np.ldexp(ratio, shift)), np.floor(np.ldexp(level, shift))
        most = float(np.abs(factor).max(initial=0))
        reach = most * PEAK + float(np.abs(offset).max(initial=0))
        if most <= IMMEDIATE_HIGH and reach <= INT32_HIGH:
            one = [_alike(values.astype(np.int64)) for values in (factor, offset)]
            return Norm(channels, centred, epsilon, one[0], one[1], shift, *limits)
    refusal = Refusal(
        "its results reach",
        f"{largest * PEAK:.3g} steps",
        "factors of 15 bits are taken",
        "calibrate it on inputs like those of the model",
    )
    raise Unscalable(name, refusal)


def _alike(values: np.ndarray) -> np.ndarray:
    """One number, where all are the same."""
    return values[0] if (values == values[:1]).all() else values


def write_norm(q: Quantizer, x: relax.Expr, norm: Norm, over: Elements, name: str) -> relax.Var:
    """The steps of `norm` on int8 `x`, seen as `over` says; gives the int8 result."""
    write, own, axes = ProgramWriter(q.write, name), static_shape(x), list(over.axes)
    values, is_parted = write.values, len(axes) > 1
    if is_parted:
        x = write.emit(relax.op.reshape(x, over.shape), "groups")
    values[X] = wide = write.emit(relax.op.astype(x, "int32"), "wide")
    if norm.centred:
        values[SUM] = write.emit(relax.op.sum(wide, axes, True), SUM)
    squared = write.emit(relax.op.multiply(wide, wide), "squared")
    values[SQUARES] = write.emit(relax.op.sum(squared, axes, True), SQUARES)
    for kind, number in ((FACTOR, norm.factor), (OFFSET, norm.offset)):
        values[kind] = const(number.reshape(over.channels) if number.ndim else number, "int32")
    token = statistics(norm.channels, norm.epsilon, centred=norm.centred)
    element = elements(norm.shift, norm.low, norm.high, centred=norm.centred)
    write.steps(token, "token", (MEAN, RATE))
    write.steps(element, "element", (MEAN, RATE))
    narrow = relax.op.astype(values[element[-1].name], "int8")
    if not is_parted:
        return write.end(narrow)
    return write.end(relax.op.reshape(write.emit(narrow, "narrow"), own))
