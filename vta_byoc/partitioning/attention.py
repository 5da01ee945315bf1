"""Attention, as the integer dialect writes it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.ir.attention import (
    HALF,
    PRODUCT,
    RESULT,
    SCORE,
    SHARE,
    TOP,
    TOTAL,
    VALUES,
    Attention,
    lifts,
    never_seen,
    rates,
    results,
    room,
    shares,
)
from vta_byoc.ir.bindings import is_constant, op_name, static_shape
from vta_byoc.ir.chains import Binding, Graph, dtype_of, is_narrowing, is_widening
from vta_byoc.ir.programs import Instructions
from vta_byoc.partitioning.causal import seen_blocks
from vta_byoc.partitioning.entry import Parsed, PatternEntry, Plan
from vta_byoc.partitioning.layers import MATMUL, refusal_of, simple_plan
from vta_byoc.partitioning.program_walk import Users, Walk, kept_axis, only_reader, readers_in
from vta_byoc.partitioning.steps import NO_MUL
from vta_byoc.workload.attention import AttentionWorkload
from vta_byoc.workload.layout import tokens, turned
from vta_byoc.workload.packing import blocks

MASK = "mask"
SHIFTS = {"relax.right_shift": 1, "relax.left_shift": -1}


@dataclass(frozen=True)
class _Found:
    """What the bindings of an attention compute.

    Attributes:
        bindings: all of them, in order.
        operands: queries, keys as columns, values.
        numbers: of `ir.attention.Attention`, from `shift` on.
        mask: what is added to the scores, int64 [..., T, S].
        hidden: a mask of run time, int8 [..., 1 or T, S]; None without one.
        raised: the left shift of it.
    """

    bindings: list[Binding]
    operands: tuple[relax.Expr, ...]
    numbers: tuple[int, ...]
    mask: np.ndarray | None
    hidden: relax.Expr | None = None
    raised: int = 0


class _Reader:
    """Reads the bindings that follow the product of queries and keys."""

    def __init__(self, users: Users, defined: Mapping[relax.Var, Binding], scores: Binding) -> None:
        self.users, self.defined, self.scores = users, defined, scores
        self.walk = Walk(users, {})
        self.walk.bindings.append(scores)

    def found(self) -> _Found | None:
        """All of it; None where the bindings compute something else."""
        value, mask = self._masked(self.scores.var)
        value, hidden, raised = self._hidden(value)
        value, shift = self._shifted(value)
        top = self._only(value, "relax.max")
        if top is None or not _keeps_last(top.value):
            return None
        self.walk.bindings.append(top)
        self.walk.values |= {SCORE: value, TOP: top.var}
        halves = self._followed(room(2), (1, 2))
        curve = self._followed(shares(1, 1, 1, 1, 1), (3, 4, 6, 8, 10)) if halves else None
        narrow = self._only(self.walk.values[SHARE], "relax.astype") if curve else None
        if halves is None or curve is None or narrow is None or not is_narrowing(narrow.value):
            return None
        self.walk.bindings.append(narrow)
        ends = self._ends(narrow.var)
        if ends is None:
            return None
        operands, last, mixed = ends
        numbers = (shift, sum(halves), *curve, *last)
        every = self._in_order([*self.walk.bindings, *mixed])
        given = (*self.scores.value.args, operands)
        return _Found(every, given, numbers, mask, hidden, raised)

    def _masked(self, var: relax.Var) -> tuple[relax.Var, np.ndarray | None]:
        """Behind the sum with a mask, if there is one."""
        users = [user for user in self.users.get(var, ()) if user is not None]
        if len(users) != 1 or op_name(users[0].value) != "relax.add":
            return var, None
        left, right = users[0].value.args
        if not left.same_as(var) or not is_constant(right) or right.ty.ndim < 2:
            return var, None
        self.walk.bindings.append(users[0])
        return users[0].var, np.asarray(right.value.numpy(), np.int64)

    def _hidden(self, var: relax.Var) -> tuple[relax.Var, relax.Expr | None, int]:
        """Behind the sum with a mask of run time, if there is one: int8, widened and raised."""
        users = [user for user in self.users.get(var, ()) if user is not None]
        if len(users) != 1 or op_name(users[0].value) != "relax.add":
            return var, None, 0
        left, right = users[0].value.args
        far = self.defined.get(right)
        if not left.same_as(var) or far is None or op_name(far.value) != "relax.left_shift":
            return var, None, 0
        wide, by = self.defined.get(far.value.args[0]), far.value.args[1]
        if wide is None or not is_widening(wide.value) or not is_constant(by) or by.ty.ndim:
            return var, None, 0
        self.walk.bindings += [wide, far, users[0]]
        return users[0].var, wide.value.args[0], int(by.value.numpy())

    def _shifted(self, var: relax.Var) -> tuple[relax.Var, int]:
        """Behind the shift of the scores, if there is one."""
        users = [user for user in self.users.get(var, ()) if user is not None]
        if len(users) != 1 or op_name(users[0].value) not in SHIFTS:
            return var, 0
        by = users[0].value.args[1]
        if not is_constant(by) or by.ty.ndim:
            return var, 0
        self.walk.bindings.append(users[0])
        return users[0].var, SHIFTS[op_name(users[0].value)] * int(by.value.numpy())

    def _ends(self, share: relax.Var) -> tuple[relax.Expr, list[int], list[Binding]] | None:
        """The values, the numbers of rate and result, and what computes their sums."""
        product = self._only(share, MATMUL)
        wide = self._only(share, "relax.astype")
        total = None if wide is None else self._only(wide.var, "relax.sum")
        if product is None or wide is None or total is None or not is_widening(wide.value):
            return None
        weight = product.value.args[1]
        wide_values = self._widened(weight)
        lifted = None if wide_values is None else self._only(wide_values.var, "relax.sum")
        if wide_values is None or lifted is None or not product.value.args[0].same_as(share):
            return None
        if not (_keeps_last(total.value) and _keeps_last(lifted.value, -2)):
            return None
        values = {TOTAL: total.var, VALUES: lifted.var, PRODUCT: product.var}
        self.walk.values |= values
        keys = static_shape(share)[-1]
        last = self._rate_and_result(keys)
        if last is None:
            return None
        end = self._only(self.walk.values[RESULT], "relax.astype")
        if end is None or not is_narrowing(end.value):
            return None
        return weight, last, [product, wide, total, wide_values, lifted, end]

    def _rate_and_result(self, keys: int) -> list[int] | None:
        """Numbers from `multiplier` on."""
        form = rates(keys, 1, 1)
        rate = self._followed(form, (len(form) - 4, len(form) - 1))
        if rate is None or self._followed(lifts(), ()) is None:
            return None
        for before in (0, 1):
            form = results(before, 3, 0, 0, 0)
            free = [i for i, each in enumerate(form) if isinstance(each.right, int)]
            fixed = next(i for i in free if form[i].op == "shr" and form[i].right == 1 and i > 2)
            free.remove(fixed)
            found = self._followed(form, free)
            if found is not None:
                first, behind, offset, low, high = found if before else (0, *found)
                zero, odd = divmod(offset - 1, 2)
                return None if odd else [*rate, first, behind + 1, zero, low, high]
        return None

    def _followed(self, program: Instructions, free: Collection[int]) -> list[int] | None:
        """`Walk.follow` that leaves everything as it was where it does not succeed."""
        values, count = dict(self.walk.values), len(self.walk.bindings)
        found = self.walk.follow(program, free)
        if found is None:
            self.walk.values = values
            del self.walk.bindings[count:]
        return found

    def _only(self, var: relax.Expr, kind: str) -> Binding | None:
        return only_reader(self.users, var, kind)

    def _widened(self, var: relax.Expr) -> Binding | None:
        found = self._only(var, "relax.astype")
        return found if found is not None and is_widening(found.value) else None

    def _in_order(self, bindings: Sequence[Binding]) -> list[Binding]:
        """As the function has them."""
        own = {b.var for b in bindings}
        return [binding for var, binding in self.defined.items() if var in own]


def _keeps_last(call: relax.Call, axis: int = -1) -> bool:
    """Whether a reduction keeps its one axis."""
    return kept_axis(call) == axis % call.ty.ndim


def match_attention(graph: Graph, anchor: Binding) -> list[Binding] | None:
    """An int8 product of two computed tensors, its softmax and the product with a third."""
    args = anchor.value.args
    if dtype_of(anchor.var) != "int32" or any(dtype_of(a) != "int8" for a in args):
        return None
    if any(is_constant(a) for a in args):
        return None
    found = _Reader(graph.users, graph.defined, anchor).found()
    if found is None:
        return None
    own = {b.var for b in found.bindings}
    read = [user for b in found.bindings[:-1] for user in graph.users.get(b.var, ())]
    hidden = all(user is not None and user.var in own for user in read)
    return found.bindings if hidden else None


def read_attention(bindings: Sequence[Binding], config: VTAConfig) -> Parsed:
    """(..., T, E), (..., E, S) and (..., S, D): tokens are columns, leading axes the groups."""
    defined = {b.var: b for b in bindings}
    scores = next(
        b for b in bindings if op_name(b.value) == MATMUL and b.value.args[0] not in defined
    )
    found = _Reader(readers_in(bindings), defined, scores).found()
    assert found is not None, "the bindings were matched"
    k, (query, key, value) = config.block, found.operands
    *leading, queries, depth = static_shape(query)
    keys, width = static_shape(value)[-2:]
    masks = 0 if found.mask is None else math.prod(found.mask.shape[:-2])
    groups = math.prod(leading)
    hiding = () if found.hidden is None else _hiding(found.hidden, found.raised, leading)
    sizes = groups, queries, keys, depth, width, masks
    given = {} if found.mask is None else {MASK: found.mask.reshape(masks, queries, keys)}
    numbers, late = Attention(keys, *found.numbers), HALF << found.raised
    causal: tuple[int, ...] = ()
    if given:
        hidden = never_seen(given[MASK], numbers, depth, late if hiding else 0)
        causal = seen_blocks(given[MASK], hidden, k)
    work = attention_work(sizes, found.numbers, config, hiding, causal)
    operands, layouts = [query, key, value], [tokens(k), turned(k), turned(k)]
    if found.hidden is not None:
        operands, layouts = [*operands, found.hidden], [*layouts, turned(k)]
    return Parsed(work, tuple(operands), given, tokens(k), tuple(layouts))


def _hiding(hidden: relax.Expr, raised: int, leading: Sequence[int]) -> tuple[int, int, int]:
    """`AttentionWorkload.hiding`."""
    *own, rows, _keys = static_shape(hidden)
    assert math.prod(own) in (1, math.prod(leading)), "a mask is of one group or of all"
    return math.prod(own), int(rows > 1), raised


def attention_work(
    sizes: tuple[int, int, int, int, int, int],
    numbers: tuple[int, ...],
    config: VTAConfig,
    hiding: tuple[int, ...] = (),
    causal: tuple[int, ...] = (),
) -> AttentionWorkload:
    """The workload of an attention.

    Args:
        sizes: groups, queries, keys, channels of a query, channels of a value, masks.
        numbers: of `ir.attention.Attention`, from `shift` on.
        config: the machine.
        hiding: of a mask of run time, see `AttentionWorkload`.
        causal: what no query sees, likewise.

    Raises:
        VTAError: why the machine does not compute it.
    """
    groups, queries, keys, depth, width, masks = sizes
    _check_machine(config)
    k = config.block
    depth, width = (blocks(size, k) * k for size in (depth, width))
    sizes = groups, queries, keys, depth, width, masks
    return AttentionWorkload(*sizes[:5], numbers, masks, k, hiding=hiding, causal=causal)


def _check_machine(config: VTAConfig) -> None:
    if not config.capabilities.mul:
        raise VTAError(
            Refusal(
                "the exponential of attention multiplies; the machine has",
                NO_MUL,
                remedy="use a machine with MUL or leave the softmax to the CPU",
            )
        )
    if config.batch != 1:
        raise VTAError(
            Refusal(
                "the machine has BATCH",
                f"{config.batch}",
                "attention takes 1: a weight serves all images of a batch",
                "use a machine with BATCH 1 or leave the softmax to the CPU",
            )
        )


def attention_refusal(
    sizes: tuple[int, int, int, int, int, int],
    numbers: tuple[int, ...],
    config: VTAConfig,
    hiding: tuple[int, ...] = (),
) -> Refusal | None:
    """Why the machine does not take an attention; None where it does.

    Arguments are as of `attention_work`.
    """
    return refusal_of("attention", lambda: attention_work(sizes, numbers, config, hiding), config)


def plan_attention(parsed: Parsed, config: VTAConfig) -> Plan:
    """Products on the GEMM core, the rest on the ALU."""
    how = "products by GEMM, softmax by the ALU"
    return simple_plan("attention", parsed.work, parsed.constants, config, how)


ENTRIES = (
    PatternEntry("vta.attention", (MATMUL,), match_attention, read_attention, plan_attention),
)
