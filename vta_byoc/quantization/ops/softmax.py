"""A softmax that stands alone, as steps on integers."""

from __future__ import annotations

import dataclasses
import math

from tvm import relax

from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.attention import HALF, RESULT, SCORE, SHARE, TOP, TOTAL
from vta_byoc.ir.bindings import is_float32, source_name, static_shape
from vta_byoc.ir.softmax import MOST_KEYS, MOST_SCORE, Softmax, softmax_bound
from vta_byoc.ir.views import exchange
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.ops.attention import NO_MUL, SOFTMAX
from vta_byoc.quantization.ops.exponential import attention_of, exponential_of
from vta_byoc.quantization.ops.lanes import lane_axis
from vta_byoc.quantization.program_writer import ProgramWriter
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.scales import AccumulatorBound, Unscalable

FIX, FEWER = "use other scales", "leave it to the CPU"
GROUPS, IMAGE = 3, 4
"""Ranks: groups of tokens at the least, and planes of channels at the most."""
MOST_REACH = 64.0
"""Scores that reach farther are those that a mask hides; int8 holds nothing of the others then."""


@dataclasses.dataclass(frozen=True)
class Turned:
    """How the scores of a softmax are seen so that its axis is one of positions.

    Attributes:
        exchanged: whether the last two axes are exchanged.
        shape: then: (N, C, H, W), or (groups, T, C) whose last axis lies in lanes.
        axis: of `shape`, along which the sums are.
    """

    exchanged: bool
    shape: tuple[int, ...]
    axis: int


def turned_for(q: Quantizer, binding: relax.VarBinding) -> Turned | None:
    """How an image's rows or columns, or a group's tokens, are seen; None of any other axis."""
    data, shape = binding.value.args[0], static_shape(binding.var)
    rank, lanes = len(shape), lane_axis(q, data)
    axis = int(binding.value.attrs.axis) % rank
    if lanes == 1 and axis >= 2 and rank in (IMAGE - 1, IMAGE):
        image = shape if rank == IMAGE else (*shape[:2], 1, shape[2])
        return Turned(False, image, axis + IMAGE - rank)
    if rank < GROUPS or lanes != rank - 1 or axis < rank - 2:
        return None
    groups, (rows, columns) = math.prod(shape[:-2]), shape[-2:]
    if axis == rank - 2:
        return Turned(False, (groups, rows, columns), 1)
    return Turned(True, (groups, columns, rows), 1)


def softmax_refusal(q: Quantizer, binding: relax.VarBinding) -> Refusal | None:
    """Why a softmax is none of floats along positions or tokens; None where it is one."""
    if not is_float32(binding.var):
        return Refusal("its scores are", str(binding.var.ty.dtype), "float32 is taken", FEWER)
    if q.policy.arithmetic is not None:
        return Refusal(
            "it is computed as the runtime of the quantized model does",
            remedy=f"quantize the float model, or {FEWER}",
        )
    if not q.policy.multiplies:
        return NO_MUL
    if turned_for(q, binding) is None:
        shape = static_shape(binding.var)
        return Refusal(
            "it is along axis",
            f"{int(binding.value.attrs.axis) % len(shape)} of a tensor of shape {shape}",
            "rows or columns of an image are taken, and the last two axes of (..., T, C)",
            FEWER,
        )
    reach = q.ranges.get(binding.value.args[0], 0.0)
    if reach > MOST_REACH:
        return Refusal("its scores reach", f"{reach:g}", f"{MOST_REACH:g} is taken", FEWER)
    return None


@integer_op(SOFTMAX, if_read=True, refuses=softmax_refusal, zero=lambda q, binding: True)
def convert_softmax(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A softmax of int8 scores that integers read, also one that is none of an attention.

    Raises:
        Unscalable: the machine does not take it, or its scores are too coarse; why it is none of an
            attention, where that is known.
    """
    name = source_name(binding.var)
    try:
        done = _converted(q, binding, name)
    except Unscalable as error:
        if name in q.record.float_regions:
            return False
        raise error
    if done:
        q.record.float_regions.pop(name, None)
    return done


def _converted(q: Quantizer, binding: relax.VarBinding, name: str) -> bool:
    data = q.value(binding.value.args[0])
    end, seen = follow(q, binding.var), turned_for(q, binding)
    if seen is None or not q.is_ready(data) or (end.scale is None and q.leaves_as_float(end.last)):
        return False
    keys, target = seen.shape[seen.axis], end.scale or q.chosen_scale(end.last)
    if keys > MOST_KEYS:
        refusal = Refusal("its sums have", f"{keys} scores", f"{MOST_KEYS} are taken", FEWER)
        raise Unscalable(name, refusal)
    exponential = exponential_of(q.scale(data).step, MOST_SCORE, name)
    limits = end.limits(target)
    numbers = attention_of(keys, exponential, 1 / HALF, target, limits, name)
    softmax = Softmax(keys, dataclasses.astuple(numbers)[1:])
    refused = q.policy.softmax(seen.shape, seen.axis, softmax.numbers)
    if refused is not None:
        raise Unscalable(name, refused)
    proof = AccumulatorBound(name, softmax_bound(softmax), numbers.behind, FIX).checked()
    out = _Writer(q.write, name).written(q.int8(data), softmax, seen)
    q.close_group(binding.var, end.absorbed, out, target, proof)
    return True


class _Writer(ProgramWriter):
    """Writes the operators of a softmax."""

    def written(self, scores: relax.Expr, softmax: Softmax, seen: Turned) -> relax.Var:
        """All of them, on int8 scores."""
        order = exchange(scores.ty.ndim)
        if seen.exchanged:
            scores = self.emit(relax.op.permute_dims(scores, order), "turned")
        between = static_shape(scores)
        if between != seen.shape:
            scores = self.emit(relax.op.reshape(scores, seen.shape), "groups")
        result = self._shares(scores, softmax, seen.axis)
        if between != seen.shape:
            result = relax.op.reshape(self.emit(result, "shares"), between)
        if seen.exchanged:
            result = relax.op.permute_dims(self.emit(result, "back"), order)
        return self.end(result)

    def _shares(self, scores: relax.Expr, softmax: Softmax, axis: int) -> relax.Expr:
        """The last operator of those along an axis of positions."""
        values, axes = self.values, [axis]
        values[SCORE] = self.emit(relax.op.astype(scores, "int32"), "wide")
        self.steps(softmax.raised, "score")
        values[TOP] = self.emit(relax.op.max(values[SCORE], axes, True), "top")
        self.steps(softmax.room, "room")
        self.steps(softmax.share, "share")
        values[TOTAL] = self.emit(relax.op.sum(values[SHARE], axes, True), "total")
        self.steps(softmax.rate, "rate")
        self.steps(softmax.result, "result")
        return relax.op.astype(values[RESULT], "int8")
