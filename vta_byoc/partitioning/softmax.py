"""A softmax that stands alone, as the integer dialect writes it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.attention import RESULT, SCORE, SHARE, TOP, TOTAL, room, whole_rates, whole_shares
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of, is_narrowing, is_widening
from vta_byoc.ir.programs import Instructions
from vta_byoc.ir.softmax import softmax_results
from vta_byoc.ir.views import RESHAPES
from vta_byoc.partitioning.attention import SHIFTS
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import check_sizes, refusal_of, simple_plan
from vta_byoc.partitioning.program_walk import Users, Walk, kept_axis, only_reader, readers_in
from vta_byoc.partitioning.steps import NO_MUL
from vta_byoc.workload.layout import NCHW, canonical, tokens
from vta_byoc.workload.softmax import SoftmaxWorkload

MAX, SUM = "relax.max", "relax.sum"
IMAGE, GROUPS = 4, 3
"""Ranks: planes of channels, and groups of tokens, whose last axis lies in lanes."""


@dataclass(frozen=True)
class _Found:
    """What the bindings of a softmax compute.

    Attributes:
        bindings: all of them, those that read the data first and the result last.
        data: the int8 operand.
        axis: along which its sums are.
        numbers: of `ir.attention.Attention`, from `shift` on.
    """

    bindings: list[Binding]
    data: relax.Expr
    axis: int
    numbers: tuple[int, ...]


class _Reader:
    """Reads the bindings around the largest score."""

    def __init__(self, users: Users, defined: dict[relax.Var, Binding], top: Binding) -> None:
        self.users, self.defined, self.top = users, defined, top

    def found(self) -> _Found | None:
        """All of it; None where the bindings compute something else."""
        axis, score = kept_axis(self.top.value), self.top.value.args[0]
        before, shift = self._before(score)
        if axis is None or not before:
            return None
        self.walk = Walk(self.users, {SCORE: score, TOP: self.top.var}, [*before, self.top])
        halves = self.walk.follow(room(2), (1, 2))
        curve = self.walk.follow(whole_shares(1, 1, 1, 1, 1), (3, 4, 6, 8, 10)) if halves else None
        total = self._total(axis) if curve else None
        if halves is None or curve is None or total is None:
            return None
        self.walk.values[TOTAL] = total.var
        self.walk.bindings.append(total)
        last, values = self._rate_and_result(static_shape(score)[axis]), self.walk.values
        end = None if last is None else only_reader(self.users, values[RESULT], "relax.astype")
        if last is None or end is None or not is_narrowing(end.value):
            return None
        data = before[0].value.args[0]
        numbers = (shift, sum(halves), *curve, *last)
        return _Found([*self.walk.bindings, end], data, axis, numbers)

    def _before(self, score: relax.Expr) -> tuple[list[Binding], int]:
        """What widens the data, and what shifts it, to the score; the shift."""
        made, shift = self.defined.get(score), 0
        found: list[Binding] = []
        if made is not None and op_name(made.value) in SHIFTS:
            by = made.value.args[1]
            if not is_constant(by) or by.ty.ndim:
                return [], 0
            found.append(made)
            shift = SHIFTS[op_name(made.value)] * int(by.value.numpy())
            made = self.defined.get(made.value.args[0])
        if made is None or not is_widening(made.value):
            return [], 0
        return [made, *found], shift

    def _total(self, axis: int) -> Binding | None:
        found = only_reader(self.users, self.walk.values[SHARE], SUM)
        return found if found is not None and kept_axis(found.value) == axis else None

    def _rate_and_result(self, keys: int) -> list[int] | None:
        """Numbers from `multiplier` on."""
        form = whole_rates(keys, 1, 1)
        rate = self.walk.follow(form, (len(form) - 4, len(form) - 1))
        form = softmax_results(0, 3, 0, 0, 0)
        found = None if rate is None else self.walk.follow(form, free_of(form))
        if rate is None or found is None:
            return None
        raised, behind, offset, low, high = found
        (lift, *_), (zero, odd) = form, divmod(offset - 1, 2)
        return None if odd else [*rate, int(lift.right) - raised, behind + 1, zero, low, high]


def free_of(form: Instructions) -> Collection[int]:
    """The immediates of a result that differ: all but the shift by one."""
    return [
        place
        for place, each in enumerate(form)
        if isinstance(each.right, int) and not (each.op == "shr" and each.right == 1)
    ]


def match_softmax(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """The largest of int8 scores, their exponentials and these by their sum."""
    if dtype_of(anchor.var) != "int32":
        return None
    found = _Reader(graph.users, graph.defined, anchor).found()
    if found is None:
        return None
    own = {b.var for b in found.bindings}
    read = [user for b in found.bindings[:-1] for user in graph.users.get(b.var, ())]
    is_hidden = all(user is not None and user.var in own for user in read)
    return graph.in_order(found.bindings) if is_hidden else None


def read_softmax(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """Planes of channels along rows or columns; groups of tokens along the tokens."""
    top = next(b for b in bindings if op_name(b.value) == MAX)
    found = _Reader(readers_in(bindings), {b.var: b for b in bindings}, top).found()
    assert found is not None, "the bindings were matched"
    shape = static_shape(found.data)
    work = softmax_work(shape, found.axis, found.numbers, config)
    layout = NCHW if len(shape) == IMAGE else tokens(config.block)
    return Parsed(work, (found.data,), {}, layout)


def softmax_work(
    shape: Sequence[int], axis: int, numbers: tuple[int, ...], config: VTAConfig
) -> SoftmaxWorkload:
    """The workload of a softmax.

    Args:
        shape: of the scores, four axes of an image or three of groups of tokens.
        axis: along which the sums are: 2 or 3 of an image, 1 of groups.
        numbers: of `ir.attention.Attention`, from `shift` on.
        config: the machine.

    Raises:
        VTAError: why the machine does not compute it.
    """
    if not config.capabilities.mul:
        raise VTAError(
            Refusal(
                "the exponential of a softmax multiplies; the machine has",
                NO_MUL,
                remedy="use a machine with MUL or leave the softmax to the CPU",
            )
        )
    if len(shape) == IMAGE and axis >= 2:
        n, c, h, w = shape
        work = SoftmaxWorkload(n, c, h, w, axis, shape[axis], numbers)
    elif len(shape) == GROUPS and axis == 1 and _are_tokens(shape, config):
        view = canonical(shape, tokens(config.block))
        assert view is not None, "it has three axes"
        work = SoftmaxWorkload(*view, IMAGE - 1, shape[1], numbers)
    else:
        raise VTAError(
            Refusal(
                f"a softmax of a tensor of shape {tuple(shape)} is along axis",
                f"{axis}",
                "the last two axes of (N, C, H, W) are taken, and the second of (groups, T, C) "
                "whose tokens fill blocks of a machine with BATCH 1",
                "leave the softmax to the CPU",
            )
        )
    check_sizes(work)
    return work


def _are_tokens(shape: Sequence[int], config: VTAConfig) -> bool:
    """Whether layers hold such groups as tokens: those of one group alone fill a block."""
    return config.batch == 1 and (shape[0] > 1 or min(shape[1:]) >= config.block)


def softmax_refusal(
    shape: Sequence[int], axis: int, numbers: tuple[int, ...], config: VTAConfig
) -> Refusal | None:
    """Why the machine does not take a softmax; None where it does.

    Arguments are as of `softmax_work`.
    """
    return refusal_of("softmax", lambda: softmax_work(shape, axis, numbers, config), config)


def plan_softmax(parsed: Parsed, config: VTAConfig) -> Plan:
    """On the ALU."""
    how = "exponential and reciprocal by the ALU"
    return simple_plan("softmax", parsed.work, parsed.constants, config, how)


# ---------------------------------------------------------------- what it is turned for
def begins_softmax(graph: Graph, value: relax.Var) -> bool:
    """Whether all that reads `value`, a view of which may be taken first, is a softmax."""
    user = graph.only_user(value)
    while user is not None and op_name(user.value) in RESHAPES:
        user = graph.only_user(user.var)
    return user is not None and is_widening(user.value) and _is_scored(graph, user)


def ends_softmax(graph: Graph, narrow: Binding) -> bool:
    """Whether `narrow` is the result of a softmax."""
    made: Binding | None = narrow
    while made is not None and not is_widening(made.value):
        made = graph.defined.get(made.value.args[0])
    return made is not None and _is_scored(graph, made)


def _is_scored(graph: Graph, wide: Binding) -> bool:
    """Whether a softmax reads what `wide` makes."""
    readers = [user for user in graph.users.get(wide.var, ()) if user is not None]
    for user in readers:
        if op_name(user.value) in SHIFTS:
            readers += [again for again in graph.users.get(user.var, ()) if again is not None]
    tops = [user for user in readers if op_name(user.value) == MAX]
    return any(match_softmax(graph, top) is not None for top in tops)


ENTRIES = (PatternEntry("vta.softmax", (MAX,), match_softmax, read_softmax, plan_softmax),)
