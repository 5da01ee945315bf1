"""Masks that a model computes while it runs: which keys they hide, as int8 for `vta.attention`.

The host compares what a model adds to its scores with `LEAST_FILL` / 2, or takes its condition;
the mask is HIDDEN where a key is hidden and 0 elsewhere, once for all layers that share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.ir.attention import HALF, HIDDEN
from vta_byoc.ir.bindings import SEPARATOR, is_constant, is_float32, op_name, static_shape
from vta_byoc.quantization.quantizer import Quantizer

LEAST_FILL = -1e3
"""What is added to a score, or replaces it, and is no larger hides it."""
VIEWS = (
    "relax.reshape",
    "relax.squeeze",
    "relax.expand_dims",
    "relax.broadcast_to",
    "relax.permute_dims",
    "relax.strided_slice",
    "relax.astype",
    "relax.repeat",
    "relax.tile",
)
JOINS = ("relax.add", "relax.minimum", "relax.maximum")


@dataclass(frozen=True)
class Hiding:
    """A mask of run time.

    Attributes:
        value: what is added to the scores, float32, or the condition by which they are replaced.
        where: whether a condition hides where it is true; None of what is added.
        shape: of the scores that it meets.
    """

    value: relax.Expr
    where: bool | None
    shape: tuple[int, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal ones are one mask."""
        return self.value, self.where, self.shape


def hidden_by(q: Quantizer, binding: relax.VarBinding, data: relax.Var) -> Hiding | None:
    """What `binding` hides of the scores `data`; None where it does something else."""
    call, kind = binding.value, op_name(binding.value)
    if kind not in ("relax.add", "relax.where"):
        return None
    shape = static_shape(data)
    if static_shape(binding.var) != shape:
        return None
    if kind == "relax.add":
        others = [arg for arg in call.args if not arg.same_as(data)]
        if len(others) != 1 or is_constant(others[0]) or not is_mask(q, others[0]):
            return None
        return Hiding(others[0], None, shape)
    if is_constant(call.args[0]):
        return None
    condition, *sides = call.args
    fills = [side for side in sides if _hides(side)]
    kept = [side for side in sides if side.same_as(data)]
    if len(fills) != 1 or len(kept) != 1:
        return None
    return Hiding(condition, not sides[0].same_as(data), shape)


def _hides(value: relax.Expr) -> bool:
    """Whether a constant, or one that is spread over a shape, hides wherever it stands."""
    return is_constant(value) and bool((value.value.numpy() <= LEAST_FILL).all())


def is_mask(q: Quantizer, value: relax.Expr) -> bool:
    """Whether each element of a float tensor is about 0, or hides what it is added to.

    It is by how the model computes it: a number of at least 1,000 times what is left of a mask,
    or a choice between such constants. An input is one where a sample of it hides something.
    """
    if is_constant(value):
        array = value.value.numpy()
        return bool(((array == 0) | (array <= LEAST_FILL)).all())
    if value not in q.places:
        return is_float32(value) and q.ranges.get(value, 0.0) >= -LEAST_FILL
    call = q.bindings[q.places[value]].value
    kind = op_name(call)
    if kind in VIEWS:
        return is_mask(q, call.args[0])
    if kind == "relax.full_like":
        return is_mask(q, call.args[1])
    if kind in JOINS:
        return all(is_mask(q, arg) for arg in call.args)
    if kind == "relax.where":
        return all(is_mask(q, arg) for arg in call.args[1:])
    return kind == "relax.multiply" and _is_far(q, call)


def _is_far(q: Quantizer, call: relax.Call) -> bool:
    """Whether a product is of a number of 1,000 or more and of 1 - mask, or of mask - 1."""
    for factor, other in (call.args, reversed(call.args)):
        if not is_constant(factor) or factor.value.numpy().size != 1 or other not in q.places:
            continue
        number, made = float(factor.value.numpy().item()), q.bindings[q.places[other]].value
        if op_name(made) == "relax.subtract":
            ones = made.args[0 if number < 0 else 1]
            is_one = is_constant(ones) and bool((ones.value.numpy() == 1).all())
            return is_one and abs(number) >= -LEAST_FILL
        return number <= LEAST_FILL and _is_whole(q, other)
    return False


def _is_whole(q: Quantizer, value: relax.Expr) -> bool:
    """Whether a float tensor was integers or booleans."""
    while value in q.places:
        call = q.bindings[q.places[value]].value
        if op_name(call) not in VIEWS:
            return False
        value = call.args[0]
        if not is_float32(value):
            return True
    return False


def sources_of(q: Quantizer, masks: Iterable[relax.Expr], users: set[relax.Var]) -> set[relax.Var]:
    """What is computed for `masks` alone, which `users` read: it stays as the model has it."""
    wanted = {mask for mask in masks if isinstance(mask, relax.Var)}
    found: set[relax.Var] = set()
    for binding in reversed(q.bindings):
        read = q.users.get(binding.var, [])
        inside = found | users
        is_alone = bool(read) and all(user is not None and user.var in inside for user in read)
        begins = binding.var in wanted or any(
            user is not None and user.var in found for user in read
        )
        if begins and is_alone and isinstance(binding.value, relax.Call):
            found.add(binding.var)
    return found


def written_mask(
    q: Quantizer, hiding: Sequence[Hiding], scores: Sequence[int], name: str
) -> relax.Var:
    """The mask of scores of a shape: int8 [..., 1 or T, S], one for all groups or one of each."""
    key = (tuple(each.key for each in hiding), tuple(scores))
    if key not in q.masks:
        q.masks[key] = _written(q, hiding, scores, f"{name}{SEPARATOR}hidden")
    return q.masks[key]


def _written(q: Quantizer, hiding: Sequence[Hiding], scores: Sequence[int], name: str) -> relax.Var:
    emit = q.write.emit
    whole: relax.Expr | None = None
    for each in hiding:
        value = q.plain(each.value)
        if each.where is None:
            value = emit(relax.op.less(value, relax.const(np.float32(LEAST_FILL / 2))), name)
        elif not each.where:
            value = emit(relax.op.logical_not(value), name)
        value = emit(relax.op.reshape(value, _shaped(static_shape(value), each.shape)), name)
        if whole is not None:
            value = emit(relax.op.logical_or(whole, value), name)
        whole = value
    assert whole is not None, "there is a mask"
    shape = mask_shape(hiding, scores)
    spread = [*hiding[0].shape[:-2], *shape[-2:]] if math.prod(shape[:-2]) > 1 else shape
    if math.prod(static_shape(whole)) != math.prod(shape):
        whole = emit(relax.op.broadcast_to(whole, spread), name)
    whole = emit(relax.op.reshape(whole, shape), name)
    ends = (relax.const(np.int8(end)) for end in (HIDDEN, 0))
    return emit(relax.op.where(whole, *ends), name)


def _shaped(shape: tuple[int, ...], scores: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with all axes of the scores."""
    return (1,) * (len(scores) - len(shape)) + shape


def mask_shape(hiding: Sequence[Hiding], scores: Sequence[int]) -> tuple[int, ...]:
    """What `written_mask` has."""
    shapes = [_shaped(static_shape(each.value), each.shape) for each in hiding]
    whole = np.broadcast_shapes(*shapes)
    leading = scores[:-2] if math.prod(whole[:-2]) > 1 else (1,) * (len(scores) - 2)
    return (*leading, whole[-2], scores[-1])


def raised_by(far: int) -> int:
    """The left shift at which HIDDEN is at least `far` below 0."""
    return math.ceil(math.log2(max(far, HALF) / HALF))
