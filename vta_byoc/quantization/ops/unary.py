"""Functions of one operand: whatever groups of operators compute from a single int8 tensor.

A group reads one tensor and numbers, and only its last operator is read outside of it: `silu`, or
the sigmoid and the product that it is made of.  What it computes of each of the 256 int8 values is
evaluated once; a program that is near enough to these results (`vta_byoc.unary`) stands for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.ir.bindings import (
    is_constant,
    is_float32,
    known_shape,
    op_name,
    source_name,
)
from vta_byoc.quantization.fused_ops import FusedOperators, follow
from vta_byoc.quantization.groups import moves_as_int8
from vta_byoc.quantization.ops.curves import ACTIVATIONS, CURVES, SIMPLE, evaluate, is_evaluated
from vta_byoc.quantization.quantizer import GROUP_ENDS, OPERATORS, Quantizer, integer_op
from vta_byoc.quantization.scales import (
    INT8_HIGH,
    INT8_LOW,
    AccumulatorBound,
    Scale,
    Unscalable,
)
from vta_byoc.unary.functions import table_of
from vta_byoc.unary.program import VALUES, Program
from vta_byoc.unary.search import NEAR, Found, found_for
from vta_byoc.unary.target import counted

MOST_OPERATORS = 24
COARSER = (1.125, 1.25)
"""Where no program is near enough, results are tried in steps so much coarser: up to a third of a
bit is given up for a round trip to the host."""
MOST_COARSER = 1.25
"""Results are in steps so much coarser at most for being the operand's values where they can."""
FLATTEST = 4.0
"""A line makes of a step of the operand at least so much of a step of the result, or nothing is
gained."""
SAME_SLOPE = 1e-3
"""Two slopes of which one is larger by no more than this part are those of a line."""
UNCHANGED = Program(after=(("min", INT8_HIGH),))
"""What stands for a function that gives every int8 value back: a program has one step at least."""
SILENT = 1e-300
"""The least noise that a price tells from none."""
TOO_FAR = "no program of the ALU was found for it within so many steps of its exact results"
NEEDS_MUL = (
    "its program would multiply, and the machine's ALU has no MUL (CAPABILITIES.mul is false)"
)


@dataclass(frozen=True)
class Group:
    """Operators that compute a function of `data`, in order; the last one's result is read."""

    data: relax.Var
    bindings: tuple[relax.VarBinding, ...]

    @property
    def last(self) -> relax.Var:
        """The result."""
        return self.bindings[-1].var

    def of(self, values: np.ndarray) -> np.ndarray:
        """What the group computes of real `values`, float64."""
        known = {self.data: values}
        for binding in self.bindings:
            args = [
                known[a] if isinstance(a, relax.Var) else _number(a) for a in _operands(binding)
            ]
            known[binding.var] = np.broadcast_to(evaluate(binding.value, args), values.shape)
        return known[self.last]


def _operands(binding: relax.VarBinding) -> list[relax.Expr]:
    """The tensors that an operator reads."""
    return [a for a in binding.value.args if isinstance(a, relax.Var) or is_constant(a)]


def _number(constant: relax.Expr) -> np.ndarray:
    return np.asarray(constant.value.numpy(), np.float64).reshape(())


def _belongs(binding: relax.VarBinding, known: set[relax.Var], shape: tuple[int, ...]) -> bool:
    """Whether an operator reads nothing but numbers and what is known, element by element."""
    name = op_name(binding.value)
    if name in OPERATORS and not OPERATORS.is_built_in(name):
        return False  # a plug-in has a rule of its own for it
    if not is_evaluated(binding) or known_shape(binding.var.ty) != shape:
        return False
    operands = _operands(binding)
    numbers = [a for a in operands if not isinstance(a, relax.Var)]
    reads = [a for a in operands if isinstance(a, relax.Var)]
    return (
        bool(reads)
        and all(a in known for a in reads)
        and all(np.prod(a.value.shape, dtype=int) == 1 for a in numbers)
    )


def group_of(q: Quantizer, binding: relax.VarBinding) -> Group | None:
    """The largest group that begins with `binding`; None where it is none or holds no curve."""
    return next((group for group in _groups(q, binding) if _is_curve(group)), None)


def function_of(q: Quantizer, binding: relax.VarBinding) -> Group | None:
    """The same whether it holds a curve or not: a clamp is a function, too."""
    return next(_groups(q, binding), None)


def group_with(
    q: Quantizer,
    user: relax.VarBinding,
    data: relax.Var,
    find: Callable[[Quantizer, relax.VarBinding], Group | None] = group_of,
) -> Group | None:
    """The group of `data` alone that `user`, which reads it, belongs to; None where it does not.

    `find` is `group_of` or `function_of`.
    """
    found = (find(q, other) for other in q.users[data] if other is not None)
    groups = (group for group in found if group is not None and group.data.same_as(data))
    return next((group for group in groups if user in group.bindings), None)


def _end_of_group(q: Quantizer, user: relax.VarBinding) -> relax.Var | None:
    """The result of the function of one operand that `user` belongs to.

    None where only floats read it, or no program stands for it: its operand then stays as exact as
    floats are.
    """
    tensors = [a for a in _operands(user) if isinstance(a, relax.Var)]
    found = (group_with(q, user, data) for data in tensors)
    group = next((group for group in found if group is not None), None)
    if group is None or q.leaves_as_float(group.last) or _ends_in_floats(q, group, group.last):
        return None
    try:
        made = _made(q, group, q.chosen_scale(group.data), follow(q, group.last))
    except Unscalable:
        return None
    return None if made is None else group.last


GROUP_ENDS.append(_end_of_group)


def _ends_in_floats(q: Quantizer, group: Group, last: relax.Var) -> bool:
    """Whether `last` is made for operators that have no integer form, as the squares of a norm are.

    Those of elements between them and `last` count as theirs. A square before a root on the host
    would lose there what int8 does not hold of it; an activation is a curve of its own.
    """
    if any(op_name(binding.value) in ACTIVATIONS for binding in group.bindings):
        return False
    waiting, seen = [last], {last}
    while waiting:
        users = q.users.get(waiting.pop(), [])
        for user in users:
            if user is None or not (q.stays_float(user) or op_name(user.value) in SIMPLE):
                return False
            if not q.stays_float(user) and user.var not in seen:
                seen.add(user.var)
                waiting.append(user.var)
        if not users:
            return False
    return True


def _groups(q: Quantizer, binding: relax.VarBinding) -> Iterator[Group]:
    """All groups that begin with `binding`, the largest first."""
    if not isinstance(binding.value, relax.Call):
        return
    data = next((a for a in binding.value.args if isinstance(a, relax.Var)), None)
    shape = None if data is None else known_shape(data.ty)
    if (
        data is None
        or shape is None
        or not is_float32(data)
        or not _belongs(binding, {data}, shape)
    ):
        return
    found = _closure(q, binding, data, shape)
    for last in (binding for binding in reversed(found) if is_float32(binding.var)):
        group = _up_to(q, found, last, data)
        if group is not None and group.bindings[0] == binding:
            yield group


def _closure(
    q: Quantizer, first: relax.VarBinding, data: relax.Var, shape: tuple[int, ...]
) -> list[relax.VarBinding]:
    """All operators from `first` on that compute something of `data` alone, in order."""
    found: dict[relax.Var, relax.VarBinding] = {}
    waiting = _readers(q, data, q.places[first.var])
    while waiting and len(found) < MOST_OPERATORS:
        binding = q.bindings[waiting.pop(0)]
        is_free = binding.var not in q.keep_float and binding.var not in q.absorbed
        if is_free and binding.var not in found and _belongs(binding, {data, *found}, shape):
            found[binding.var] = binding
            waiting = sorted({*waiting, *_readers(q, binding.var, 0)})
    return sorted(found.values(), key=lambda binding: q.places[binding.var])


def _readers(q: Quantizer, var: relax.Var, since: int) -> list[int]:
    """The places of the operators that read `var`, from place `since` on."""
    places = {q.places[user.var] for user in q.users.get(var, []) if user is not None}
    return sorted(place for place in places if place >= since)


def _up_to(
    q: Quantizer, found: list[relax.VarBinding], last: relax.VarBinding, data: relax.Var
) -> Group | None:
    """The operators that `last` needs; None where one of the others is read elsewhere."""
    needed, inside = {last.var}, [last]
    for binding in reversed(found[: found.index(last)]):
        users = q.users.get(binding.var, [])
        if any(u is not None and u.var in needed for u in users):
            if any(u is None or u.var not in needed for u in users):
                return None
            needed.add(binding.var)
            inside.append(binding)
    reads = {a for b in inside for a in _operands(b) if isinstance(a, relax.Var)}
    return Group(data, tuple(inside[::-1])) if reads <= needed | {data} else None


def _is_curve(group: Group) -> bool:
    """Whether it holds a curve, or a product or quotient of two of its values."""

    def bends(binding: relax.VarBinding) -> bool:
        reads = [a for a in _operands(binding) if isinstance(a, relax.Var)]
        name = op_name(binding.value)
        return name in CURVES or (name in ("relax.multiply", "relax.divide") and len(reads) == 2)

    return any(bends(binding) for binding in group.bindings)


@integer_op(*ACTIVATIONS, if_read=True, zero=lambda q, binding: True)
def convert_curve(q: Quantizer, binding: relax.VarBinding) -> bool:
    """A curve that begins a group was converted with it; any other stays float."""
    return False


def _made(
    q: Quantizer, group: Group, scale: Scale, end: FusedOperators
) -> tuple[Found, Scale] | None:
    """The program of a group of operands at `scale`, and the scale of its result.

    A zero point makes the steps of the result finer, and its program harder to find: where that is
    not near enough, a result without one may be worth more.  Where no program is near enough,
    somewhat coarser steps are tried.
    """

    def program_for(target: Scale) -> Found | None:
        limits = end.limits(target)
        table = table_of(group.of, scale.step, scale.zero, target.step, target.zero, *limits)
        policy = q.policy
        return found_for(table, policy.tolerance, policy.multiplies, policy.worth, beyond)

    beyond = _beyond(q, group.data, scale)
    chosen = end.scale or q.chosen_scale(end.last)
    targets = [chosen, *_aligned(q, end, group, scale, chosen)]
    made = [(found, target) for target in targets if (found := program_for(target)) is not None]
    is_near = any(found.noise <= NEAR for found, _ in made)
    others = [_symmetric(q, end)] if end.scale is None and chosen.zero and not is_near else []
    made += [(found, target) for target in others if (found := program_for(target)) is not None]
    for target in [] if made else _coarser(q, end, [*targets, *others][-1].step):
        found = program_for(target)
        if found is not None:
            return found, target
    with np.errstate(all="ignore"):
        exact = np.nan_to_num(group.of(scale.step * (VALUES - scale.zero))).clip(end.low, end.high)
    price = functools.partial(_price, exact, counted(beyond), q.policy.worth)
    return min(made, key=lambda each: price(*each), default=None)


def _aligned(
    q: Quantizer, end: FusedOperators, group: Group, scale: Scale, chosen: Scale
) -> list[Scale]:
    """For a function that is a line at an end: steps a power of two from what it makes of one.

    Results there are then the operand's values, or these shifted: nothing is rounded twice.
    """
    unit = _slope(group, scale) * scale.step
    if end.scale is not None or not q.policy.has_zero_points or unit < chosen.step / FLATTEST:
        return []
    step = float(np.float32(unit * 2.0 ** math.ceil(math.log2(chosen.step / unit))))
    if not chosen.step < step <= MOST_COARSER * chosen.step:
        return []
    least = (INT8_LOW - chosen.zero) * chosen.step
    return [Scale(step, round(INT8_LOW - least / step) if chosen.zero else 0)]


def _slope(group: Group, scale: Scale) -> float:
    """The steeper slope of those that do not change at either end of int8, without its sign."""
    ends = np.stack([VALUES[:3], VALUES[-3:]])
    with np.errstate(all="ignore"):
        slopes = np.abs(np.diff(group.of((ends - scale.zero) * scale.step))) / scale.step
        change = np.abs(slopes[:, 1] - slopes[:, 0])
    is_line = np.isfinite(change) & (change <= SAME_SLOPE * slopes.max(axis=1))
    return float(slopes[is_line].max(initial=0.0))


def _symmetric(q: Quantizer, end: FusedOperators, factor: float = 1.0) -> Scale:
    """The scale without a zero point of a result `factor` times as large as the group's."""
    return q.policy.scale(factor * q.ranges[end.last], source_name(end.last))


def _coarser(q: Quantizer, end: FusedOperators, step: float) -> list[Scale]:
    """Scales of steps that are somewhat coarser than `step`, where that may help."""
    if end.scale is not None or not q.policy.tolerance or not q.policy.multiplies:
        return []
    found = [_symmetric(q, end, factor) for factor in COARSER]
    return [scale for scale in found if step < scale.step < 1.5 * step]


def _beyond(q: Quantizer, data: relax.Var, scale: Scale) -> tuple[int, int]:
    """How many steps beyond both ends of int8 an operand at `scale` reached in calibration."""
    low, high = (end / scale.step + scale.zero for end in q.seen.get(data, (0.0, 0.0)))
    return max(0, int(INT8_LOW - low)), max(0, int(high - INT8_HIGH))


def _price(
    exact: np.ndarray, counts: np.ndarray, worth: float, found: Found, target: Scale
) -> float:
    """The cycles of a program, and what the noise of its results is worth, at steps of any size.

    It is that of the operand's rounding and that of the program: what it makes of the 256 values
    less the `exact` real results, float64 [256], each of which counts as often as `counts` says.
    """
    low, high = (target.step * (bound - target.zero) for bound in (INT8_LOW, INT8_HIGH))
    wanted = exact.clip(low, high)
    off = target.step * (found.program.results() - target.zero) - wanted
    noise = np.average(np.square(off), weights=counts)
    inherited = np.square(np.diff(wanted)).sum() / 12 / counts.sum()
    return float(found.program.cycles() + worth * math.log2(max(noise + inherited, SILENT)))


def convert_group(q: Quantizer, binding: relax.VarBinding) -> bool:
    """The group that begins with `binding`, as a program of the ALU.

    Raises:
        Unscalable: no program is near enough, or the machine cannot multiply.
    """
    group = group_of(q, binding)
    if group is None or group.data not in q.values:
        return False
    value = q.value(group.data)
    if value.fields is not None or not moves_as_int8(q, group.bindings[-1], value):
        return False
    end = follow(q, group.last)
    is_open = end.scale is None
    if is_open and (q.leaves_as_float(end.last) or _ends_in_floats(q, group, end.last)):
        return False
    name = source_name(binding.var)
    made = _made(q, group, q.scale(value), end)
    if made is None:
        reason = TOO_FAR if q.policy.multiplies else NEEDS_MUL
        raise Unscalable(name, f"{reason} (tolerance {q.policy.tolerance})")
    found, target = made
    program = found.program if found.program.steps else UNCHANGED
    out = q.write.program(q.int8(value), program, name)
    absorbed = (*(b.var for b in group.bindings[1:]), *end.absorbed)
    proof = AccumulatorBound(name, program.bound, 0, "use other scales").checked()
    q.close_group(binding.var, absorbed, out, target, proof)
    q.record.functions[out.name] = {
        "error": found.error,
        "exact": found.exact,
        "cycles": program.cycles(),
        "program": str(program),
    }
    return True
