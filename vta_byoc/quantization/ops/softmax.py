"""A softmax that stands alone, as steps on integers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from tvm import relax

from vta_byoc.ir.attention import HALF, RESULT, SCORE, SHARE, TOP, TOTAL
from vta_byoc.ir.bindings import SEPARATOR, is_float32, source_name, static_shape
from vta_byoc.ir.programs import Instructions
from vta_byoc.ir.softmax import MOST_SCORE, Softmax, softmax_bound
from vta_byoc.ir.views import exchange
from vta_byoc.quantization.dialect_builder import const
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.ops.attention import SOFTMAX, check_keys
from vta_byoc.quantization.ops.exponential import attention_of, exponential_of
from vta_byoc.quantization.ops.lanes import lane_axis
from vta_byoc.quantization.ops.norms import OPS
from vta_byoc.quantization.quantizer import Quantizer, integer_op
from vta_byoc.quantization.scales import AccumulatorBound, Unscalable

FIX = "use other scales"
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


def takes_softmax(q: Quantizer, binding: relax.VarBinding) -> bool:
    """Whether a softmax is along an axis of positions, or of tokens, and computed anew anyway."""
    return (
        is_float32(binding.var)
        and q.policy.multiplies
        and q.policy.arithmetic is None
        and turned_for(q, binding) is not None
        and q.ranges.get(binding.value.args[0], 0.0) <= MOST_REACH
    )


@integer_op(SOFTMAX, if_read=True, takes=takes_softmax, zero=lambda q, binding: True)
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
    check_keys(keys, name)
    exponential = exponential_of(q.scale(data).step, MOST_SCORE, name)
    limits = end.limits(target)
    numbers = attention_of(keys, exponential, 1 / HALF, target, limits, name)
    softmax = Softmax(keys, dataclasses.astuple(numbers)[1:])
    refusal = q.policy.softmax(seen.shape, seen.axis, softmax.numbers)
    if refusal is not None:
        raise Unscalable(name, refusal)
    proof = AccumulatorBound(name, softmax_bound(softmax), numbers.behind, FIX).checked()
    out = _Emitter(q, name).written(q.int8(data), softmax, seen)
    q.close_group(binding.var, end.absorbed, out, target, proof)
    return True


class _Emitter:
    """Writes the operators of a softmax, the last one with its name."""

    def __init__(self, q: Quantizer, name: str) -> None:
        self.q, self.name = q, name
        self.values: dict[str, relax.Expr] = {}

    def emit(self, call: relax.Expr, part: str) -> relax.Var:
        """One operator."""
        return self.q.write.emit(call, f"{self.name}{SEPARATOR}{part}")

    def written(self, scores: relax.Expr, softmax: Softmax, seen: Turned) -> relax.Var:
        """All of them, on int8 scores."""
        own = static_shape(scores)
        order = exchange(len(own))
        if seen.exchanged:
            scores = self.emit(relax.op.permute_dims(scores, order), "turned")
        between = static_shape(scores)
        if between != seen.shape:
            scores = self.emit(relax.op.reshape(scores, seen.shape), "groups")
        result = relax.op.astype(self._steps_of(scores, softmax, seen.axis), "int8")
        back: list[tuple[str, Callable[[relax.Expr], relax.Expr]]] = []
        if between != seen.shape:
            back.append(("shares", lambda x: relax.op.reshape(x, between)))
        if seen.exchanged:
            back.append(("back", lambda x: relax.op.permute_dims(x, order)))
        for part, step in back:
            result = step(self.emit(result, part))
        return self.q.write.emit(result, self.name)

    def _steps_of(self, scores: relax.Expr, softmax: Softmax, axis: int) -> relax.Expr:
        values, axes = self.values, [axis]
        values[SCORE] = self.emit(relax.op.astype(scores, "int32"), "wide")
        self._steps(softmax.raised, "score")
        values[TOP] = self.emit(relax.op.max(values[SCORE], axes, True), "top")
        self._steps(softmax.room, "room")
        self._steps(softmax.share, "share")
        values[TOTAL] = self.emit(relax.op.sum(values[SHARE], axes, True), "total")
        self._steps(softmax.rate, "rate")
        self._steps(softmax.result, "result")
        return values[RESULT]

    def _steps(self, program: Instructions, prefix: str) -> None:
        """The operators of a program."""
        for each in program:
            right: relax.Expr = (
                self.values[each.right]
                if isinstance(each.right, str)
                else const(each.right, "int32")
            )
            call = OPS[each.op](self.values[each.left], right)
            self.values[each.name] = self.emit(call, f"{prefix}_{each.op}")
