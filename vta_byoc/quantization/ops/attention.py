"""Attention as steps on integers: scores, masks, softmax and the product with the values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.hw.errors import Refusal
from vta_byoc.ir.attention import (
    HALF,
    MOST_KEYS,
    PRODUCT,
    RESULT,
    SCORE,
    SHARE,
    TOP,
    TOTAL,
    VALUES,
    Attention,
    bound_of,
    lifts,
    rate_steps,
    result_steps,
    room,
    score_steps,
    share_steps,
)
from vta_byoc.ir.bindings import is_constant, op_name, source_name, static_shape
from vta_byoc.quantization.dialect_builder import const
from vta_byoc.quantization.fused_ops import follow
from vta_byoc.quantization.ops.exponential import REACH, attention_of, exponential_of
from vta_byoc.quantization.ops.guards import guarded_at
from vta_byoc.quantization.ops.hiding import (
    LEAST_FILL,
    Hiding,
    hidden_by,
    mask_shape,
    raised_by,
    sources_of,
    written_mask,
)
from vta_byoc.quantization.ops.lanes import has_summed_lanes
from vta_byoc.quantization.ops.products import scalar_factor
from vta_byoc.quantization.policy import AttentionShape
from vta_byoc.quantization.program_writer import ProgramWriter
from vta_byoc.quantization.quantizer import Quantizer
from vta_byoc.quantization.scales import INT8_LOW, AccumulatorBound, Scale, Unscalable
from vta_byoc.quantization.value import Value

SOFTMAX, MATMUL = "relax.nn.softmax", "relax.matmul"
MASKING = ("relax.add", "relax.where")
OTHER_MASK = Refusal(
    "it adds to its scores what the model computes",
    "and not as masks are, which are 0 or -1,000 and less",
    remedy="hide keys by where, or by (1 - mask) times a number of -1,000 or less",
)
FIX = "attend to fewer keys at a time"
NO_MUL = Refusal(
    "its exponential would multiply",
    "and the machine's ALU has no MUL (CAPABILITIES.mul is false)",
    remedy="use a machine with MUL, or leave the softmax to the CPU",
)


@dataclass(frozen=True)
class AttentionChain:
    """The operators of an attention.

    Attributes:
        scores: the product of queries and keys.
        between: what follows, up to and with the softmax.
        product: of the shares and the values.
        factor: what scores are multiplied by.
        mask: float64, in the shape of the scores or one that broadcasts to it; None without one.
        hiding: masks that the model computes while it runs.
    """

    scores: relax.VarBinding
    between: tuple[relax.VarBinding, ...]
    product: relax.VarBinding
    factor: float
    mask: np.ndarray | None
    hiding: tuple[Hiding, ...] = ()

    @property
    def softmax(self) -> relax.VarBinding:
        """The softmax."""
        return next(b for b in self.between if op_name(b.value) == SOFTMAX)


def attention_at(q: Quantizer, scores: relax.VarBinding) -> AttentionChain | None:
    """The attention whose scores are the product `scores`; None where something else follows."""
    var, factor, mask = scores.var, 1.0, None
    between: list[relax.VarBinding] = []
    hiding: list[Hiding] = []
    while (user := q.only_user(var)) is not None or (guarded := guarded_at(q, var)):
        if user is None:
            between += guarded
            var = guarded[-1].var
            continue
        kind = op_name(user.value)
        if kind == MATMUL and any(op_name(b.value) == SOFTMAX for b in between):
            is_left = user.value.args[0].same_as(var) and not is_constant(user.value.args[1])
            same = static_shape(var) == static_shape(scores.var)
            fits = static_shape(user.value.args[1])[:-2] == static_shape(scores.var)[:-2]
            if not (is_left and same and fits):
                return None
            return AttentionChain(scores, tuple(between), user, factor, mask, tuple(hiding))
        if _is_view(user, var):
            shape = static_shape(user.var)
            mask = None if mask is None else mask.reshape(shape)
        elif kind == SOFTMAX:
            if int(user.value.attrs.axis) % var.ty.ndim != var.ty.ndim - 1:
                return None
        elif (by := scalar_factor(user, var)) is not None and mask is None and not hiding:
            factor *= by
        elif (added := _added(user, var)) is not None:
            mask = added if mask is None else mask + added
        elif (found := hidden_by(q, user, var)) is not None:
            hiding.append(found)
        else:
            _note_other_step(q, user)
            return None
        between.append(user)
        var = user.var
    return None


def _note_other_step(q: Quantizer, step: relax.VarBinding) -> None:
    """Say of the softmax behind `step` why it stays float."""
    user = q.only_user(step.var)
    if user is not None and op_name(user.value) == SOFTMAX and op_name(step.value) in MASKING:
        q.record.note_float(source_name(user.var), OTHER_MASK)


def _is_view(binding: relax.VarBinding, data: relax.Var) -> bool:
    """Whether it reshapes leading axes alone."""
    if op_name(binding.value) not in ("relax.reshape", "relax.squeeze", "relax.expand_dims"):
        return False
    before, behind = static_shape(data), static_shape(binding.var)
    return len(behind) >= 2 and before[-2:] == behind[-2:]


def _added(binding: relax.VarBinding, data: relax.Var) -> np.ndarray | None:
    """The constant that `binding` adds to `data`, in its shape; what it hides is -infinity.

    A number of `LEAST_FILL` or less hides, as in masks of run time.
    """
    call, kind, shape = binding.value, op_name(binding.value), static_shape(data)
    if kind == "relax.add" and static_shape(binding.var) == shape:
        constants = [arg for arg in call.args if is_constant(arg)]
        if len(constants) != 1:
            return None
        added = np.broadcast_to(constants[0].value.numpy().astype(np.float64), shape)
        return np.where(added <= LEAST_FILL, -np.inf, added)
    if kind != "relax.where" or not is_constant(call.args[0]):
        return None
    condition, *sides = call.args
    fills = [side for side in sides if is_constant(side)]
    if len(fills) != 1 or static_shape(binding.var) != shape:
        return None
    hidden = np.broadcast_to(condition.value.numpy(), shape) != sides[0].same_as(data)
    fill = np.broadcast_to(fills[0].value.numpy().astype(np.float64), shape)
    if hidden.any() and fill[hidden].max() > LEAST_FILL:
        return None  # a score, and not a mask
    return np.where(hidden, -np.inf, 0.0)


def in_order(q: Quantizer) -> Iterator[relax.VarBinding]:
    """The bindings of `q`, those of an attention right before its last product.

    All of its operands have been converted then.
    """
    later: dict[relax.Var, tuple[relax.VarBinding, ...]] = {}
    moved: set[relax.Var] = set()
    masks: list[relax.Expr] = []
    for binding in q.bindings:
        if op_name(binding.value) == MATMUL and binding.var not in q.keep_float:
            chain = attention_at(q, binding)
            if chain is not None:
                later[chain.product.var] = (chain.scores, *chain.between)
                moved |= {b.var for b in later[chain.product.var]}
                masks += [each.value for each in chain.hiding]
    q.keep_float |= sources_of(q, masks, moved)
    for binding in q.bindings:
        if binding.var not in moved:
            yield from later.get(binding.var, ())
            yield binding


# ---------------------------------------------------------------- conversion
def convert_attention(q: Quantizer, chain: AttentionChain) -> bool:
    """The attention of `chain` on integers.

    Returns:
        False where the machine computes its products alone; the record says why.
    """
    name = source_name(chain.softmax.var)
    try:
        _convert(q, chain, name)
    except Unscalable as error:
        q.record.note_float(name, error.refusal)
        return False
    return True


def _convert(q: Quantizer, chain: AttentionChain, name: str) -> None:
    call, product = chain.scores.value, chain.product.value
    *leading, queries, depth = static_shape(call.args[0])
    keys, width = static_shape(product.args[1])[-2:]
    shape = AttentionShape(math.prod(leading), queries, keys, depth, width)
    values = [q.value(arg) for arg in (*call.args, product.args[1])]
    scales = [_symmetric(q, value, name) for value in values]
    if not q.policy.multiplies:
        raise Unscalable(name, NO_MUL)
    _check_keys(keys, name)
    unit = scales[0].step * scales[1].step * chain.factor
    bound = depth * INT8_LOW**2
    far = 2 * bound + math.ceil(2 * REACH / unit)
    raised = raised_by(far)
    late = (HALF << raised) * bool(chain.hiding)
    largest = (far + late) * (chain.mask is not None) + late
    exponential = exponential_of(unit, bound + largest, name)
    mask = _integers(chain, unit, far + late, name)
    shape = dataclasses.replace(
        shape,
        masks=0 if mask is None else math.prod(mask.shape[:-2]),
        hiding=_hiding(chain, raised),
    )
    end = follow(q, chain.product.var)
    target = end.scale or q.chosen_scale(end.last)
    limits = end.limits(target)
    numbers = attention_of(keys, exponential, scales[2].step, target, limits, name)
    refusal = q.policy.attention(shape, dataclasses.astuple(numbers)[1:])
    if refusal is not None:
        raise Unscalable(name, refusal)
    proof = AccumulatorBound(name, bound_of(numbers, depth, largest), numbers.behind, FIX).checked()
    operands = [q.int8(value) for value in values]
    written = source_name(chain.product.var)
    for place, arg in ((1, call.args[1]), (2, product.args[1])):
        if not has_summed_lanes(q, arg):
            operands[place] = q.write.turned_twice(operands[place], f"{written}{place}")
    hidden = None
    if chain.hiding:
        hidden = written_mask(q, chain.hiding, static_shape(chain.scores.var), written)
    out = _Writer(q.write, written).written(operands, numbers, mask, hidden, raised)
    absorbed = (chain.scores.var, *(b.var for b in chain.between), *end.absorbed)
    q.close_group(chain.product.var, absorbed, out, target, proof, end.last)
    q.absorbed.add(chain.product.var)


def _hiding(chain: AttentionChain, raised: int) -> tuple[int, ...]:
    """`AttentionShape.hiding`."""
    if not chain.hiding:
        return ()
    *leading, rows, _ = mask_shape(chain.hiding, static_shape(chain.scores.var))
    return math.prod(leading), int(rows > 1), raised


def _symmetric(q: Quantizer, value: Value, name: str) -> Scale:
    scale = q.scale(value)
    if scale.zero:
        refusal = Refusal(
            "an operand of its products has the zero point",
            f"{scale.zero}",
            "attention takes 0",
            "quantize all operands symmetrically",
        )
        raise Unscalable(name, refusal)
    return scale


def _check_keys(keys: int, name: str) -> None:
    if keys > MOST_KEYS:
        refusal = Refusal("it attends to", f"{keys} keys", f"{MOST_KEYS} are taken", FIX)
        raise Unscalable(name, refusal)


def _integers(chain: AttentionChain, unit: float, far: int, name: str) -> np.ndarray | None:
    """The mask in scores, int64 [..., T, S]: one for all groups where they have the same.

    What it hides is `far` below: also below what a mask of run time hides.

    Raises:
        Unscalable: a mask that is no number.
    """
    if chain.mask is None or not chain.mask.any():
        return None
    shape = static_shape(chain.scores.var)
    if np.isnan(chain.mask).any():
        raise Unscalable(name, Refusal("its mask holds", "NaN", remedy="mask with -infinity"))
    scores = np.clip(chain.mask.reshape(shape) / unit, -far, far)
    mask = np.rint(scores).astype(np.int64)
    first = mask.reshape(-1, *shape[-2:])[:1]
    one = first.reshape(*([1] * (len(shape) - 2)), *shape[-2:])
    return one if (mask == one).all() else mask


class _Writer(ProgramWriter):
    """Writes the operators of an attention."""

    def written(
        self,
        operands: Sequence[relax.Expr],
        numbers: Attention,
        mask: np.ndarray | None,
        hidden: relax.Expr | None,
        raised: int,
    ) -> relax.Var:
        """All of them: int8 queries, keys as columns, values; `hidden` is raised and added."""
        query, key, value = operands
        values = self.values
        values[SCORE] = self.emit(relax.op.matmul(query, key, "int32"), "scores")
        if mask is not None:
            masked = relax.op.add(values[SCORE], const(mask, "int32"))
            values[SCORE] = self.emit(masked, "masked")
        if hidden is not None:
            wide = self.emit(relax.op.astype(hidden, "int32"), "hidden_wide")
            far = self.emit(relax.op.left_shift(wide, const(raised, "int32")), "hidden_far")
            values[SCORE] = self.emit(relax.op.add(values[SCORE], far), "hidden")
        self.steps(score_steps(numbers), "score")
        values[TOP] = self.emit(relax.op.max(values[SCORE], -1, True), "top")
        self.steps(room(numbers.width), "room")
        self.steps(share_steps(numbers), "share")
        share = self.emit(relax.op.astype(values[SHARE], "int8"), "shares")
        wide = self.emit(relax.op.astype(share, "int32"), "shares_wide")
        values[TOTAL] = self.emit(relax.op.sum(wide, -1, True), "total")
        self.steps(rate_steps(numbers), "rate")
        wide = self.emit(relax.op.astype(value, "int32"), "values_wide")
        values[VALUES] = self.emit(relax.op.sum(wide, -2, True), "values_total")
        self.steps(lifts(), "lift")
        values[PRODUCT] = self.emit(relax.op.matmul(share, value, "int32"), "product")
        self.steps(result_steps(numbers), "result")
        return self.end(relax.op.astype(values[RESULT], "int8"))
