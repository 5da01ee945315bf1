"""Operand prologues of an elementwise operator as sums that the GEMM core computes.

A prologue that only scales and shifts its int8 operand is one weight: ``acc += scale * x``, a GEMM
with a diagonal element.  What is left of it (clamps, right shifts) the ALU does in place.  A
subtraction is the sum with the right operand negated; the sign moves through the steps to the
scale:

    -(x << s)    = (-x) << s         -max(x, c) = min(-x, -c)
    -(x + c)     = (-x) + (-c)       -(x >> s)  = (-x + 2**s - 1) >> s

On a machine without MUL a scale may have several int8 digits: all operands times their upper
digits, a left shift, all times their lower digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vta_byoc.base.int8_digits import horner
from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.strategies.te.int8_function import bend_of, results_of
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.workloads import ElementwiseWorkload, Step

INT8, INT16 = range(-(1 << 7), 1 << 7), range(IMMEDIATE_LOW, IMMEDIATE_HIGH + 1)
WIDE = range(-(1 << 22), 1 << 22)
"""Scales of several digits; an int8 operand times one leaves int32 room."""
SUMS = ("add", "sub")


@dataclass(frozen=True)
class Term:
    """``steps(scale * operand)``; ``first`` is the number of its first tensor operand.

    ``spread``: the operand has one channel, which its weight writes to every lane.
    """

    operand: int
    scale: int = 1
    steps: tuple[Step, ...] = ()
    first: int = 0
    spread: bool = False

    @property
    def digits(self) -> tuple[int, ...]:
        """Of the scale, the upper one first."""
        return horner(self.scale)


def passes(terms: Sequence[Term]) -> list[list[tuple[int, int]]]:
    """The sum of ``terms`` as (number of the term, digit), by levels.

    Between two levels the sum is shifted left by DIGIT_SHIFT.
    """
    count = max(len(term.digits) for term in terms)
    levels: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for number, term in enumerate(terms):
        for level, digit in enumerate(term.digits, count - len(term.digits)):
            if digit or len(term.digits) == 1:
                levels[level].append((number, digit))
    return levels


@dataclass(frozen=True)
class ProloguePlan:
    """What the machine computes: ``steps(term op term ...)``.

    The first of ``terms`` has an accumulator of its own.  Those of ``summed`` have no steps and are
    added into it by GEMM after its steps; ``other`` has an accumulator too, joined by ``op``.
    """

    head: Term
    summed: tuple[Term, ...] = ()
    other: Term | None = None
    op: str | None = None
    steps: tuple[Step, ...] = ()
    first: int = 0

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of both accumulators, the first one's at first."""
        rest = (self.other,) if self.other else ()
        return (self.head, *self.summed, *rest)

    @property
    def scales(self) -> tuple[int, ...]:
        """The different diagonal weights, in order."""
        return self._digits(spread=False)

    @property
    def spread_scales(self) -> tuple[int, ...]:
        """The different weights that write the first lane to all, in order."""
        return self._digits(spread=True)

    def _digits(self, spread: bool) -> tuple[int, ...]:
        terms = [term for term in self.terms if term.spread == spread]
        return tuple(dict.fromkeys(digit for term in terms for digit in term.digits))

    @property
    def sums(self) -> list[Sequence[Term]]:
        """The terms that one accumulator sums up before any steps, of both accumulators."""
        joint = self.head.steps == () and bool(self.summed)
        own: list[Sequence[Term]] = [(self.head, *self.summed) if joint else (self.head,)]
        return own + ([(self.other,)] if self.other else [])

    @property
    def late(self) -> Sequence[Term]:
        """The terms that are summed up after the steps of the first, of one digit each."""
        return self.summed if self.head.steps else ()


def plan_of(work: ElementwiseWorkload, config: VTAConfig) -> ProloguePlan:
    """How ``work`` is computed from operands in DRAM.  A step that the machine cannot do: VTAError.

    A function of one operand with a slope for each sign is summed up in one accumulator where that
    takes fewer cycles (rewrite `short_chains`).
    """
    bend = None
    if is_on("short_chains") and work.op is not None and work.operands == 1:
        results = results_of(work)
        bend = None if results is None else bend_of(results)
    if bend is None:
        return plain_plan_of(work, config)
    head, rest = Term(0, bend.rise, bend.head_steps), Term(0, bend.factor)
    bent = ProloguePlan(head, (rest,), steps=bend.last_steps)
    try:
        plain = plain_plan_of(work, config)
    except VTAError:
        return bent
    return min(plain, bent, key=lambda plan: _cycles(plan, config))


def _cycles(plan: ProloguePlan, config: VTAConfig) -> int:
    """Cycles a vector: resets and products, then the ALU's, all steps by immediates."""
    levels = [passes(terms) for terms in plan.sums]
    products = sum(len(digits) for each in levels for digits in each) + len(plan.late)
    steps = sum(len(each) - 1 for each in levels) + len(plan.steps)
    steps += sum(len(term.steps) for term in plan.terms)
    time, other = config.timing, plan.other is not None
    joins = other * time.alu_tensor_cycles
    return 1 + other + products + steps * time.alu_imm_cycles + joins


def plain_plan_of(work: ElementwiseWorkload, config: VTAConfig) -> ProloguePlan:
    """How ``work`` is computed step by step.  A step that the machine cannot do: VTAError."""
    terms, first = [], 0
    for prologue in work.prologues:
        spread = "c" in work.repeated(prologue.operand)
        terms.append(Term(prologue.operand, 1, _plain(prologue.steps), first, spread))
        first += sum(step.is_tensor for step in prologue.steps)
    if work.op == "sub":
        terms[1] = _negated(terms[1], config)
    fit = INT8 if config.capabilities.mul else WIDE
    terms, steps = [_scaled(term, fit) for term in terms], _plain(work.epilogue.steps)
    if work.op is None and fit is WIDE and not terms[0].steps:
        whole = _scaled(replace(terms[0], steps=steps), fit)
        terms, steps = [replace(whole, steps=())], whole.steps
    if any(step.is_other for step in steps):
        plan = ProloguePlan(terms[0], other=terms[1], op=work.op, steps=steps, first=first)
    else:
        if work.op not in SUMS and len(terms) > 1 and work.repeated(terms[0].operand):
            terms.reverse()  # the second has an accumulator of its own size
        plan = _joined(terms, work.op, steps, first, fit)
    _check_mul(plan, config)
    return plan


def _joined(
    terms: list[Term], op: str | None, steps: tuple[Step, ...], first: int, fit: range
) -> ProloguePlan:
    if op is None:
        return ProloguePlan(terms[0], steps=steps, first=first)
    if op not in SUMS:
        return ProloguePlan(terms[0], other=terms[1], op=op, steps=steps, first=first)
    sums = [_affine(term, fit) for term in terms]
    if sums[1] is None:  # the term with steps comes first
        terms, sums = terms[::-1], sums[::-1]
    # behind the steps of the first there is no position for another's digits
    if sums[1] is None or (sums[0] is None and sums[1][0].scale not in INT8):
        return ProloguePlan(terms[0], other=terms[1], op="add", steps=steps, first=first)
    offset = sums[1][1]
    head = terms[0]
    if sums[0] is not None:
        head, offset = sums[0][0], offset + sums[0][1]
    return ProloguePlan(head, (sums[1][0],), steps=(*_plus(offset), *steps), first=first)


def _plain(steps: Sequence[Step]) -> tuple[Step, ...]:
    """``steps`` with a product by 0, which TIR would fold away with its tensor, as clamps."""
    zero = (Step("min", 0), Step("max", 0))
    return tuple(s for step in steps for s in (zero if step == Step("mul", 0) else (step,)))


def _plus(offset: int) -> tuple[Step, ...]:
    """Immediate steps that add ``offset``, of at most 16 bits and a sign."""
    if not offset:
        return ()
    if offset in INT16:
        return (Step("add", offset),)
    half = offset // 2
    return Step("add", half), Step("add", offset - half)


def _scaled(term: Term, fit: range) -> Term:
    """The first steps of ``term`` in its scale, as far as that is one of ``fit``."""
    scale, steps = term.scale, list(term.steps)
    while steps and (factor := _factor(steps[0])) is not None and scale * factor in fit:
        scale *= factor
        steps.pop(0)
    return replace(term, scale=scale, steps=tuple(steps))


def _factor(step: Step) -> int | None:
    """What an immediate step multiplies by, or None where it does something else."""
    if isinstance(step.operand, str):
        return None
    if step.op == "mul":
        return step.operand
    return 1 << step.operand if step.op == "shl" and 0 <= step.operand < 8 else None


def _affine(term: Term, fit: range) -> tuple[Term, int] | None:
    """``term`` without steps and a constant to add, where it is no more than that."""
    scale, offset = term.scale, 0
    for step in term.steps:
        factor = _factor(step)
        if factor is not None:
            scale, offset = scale * factor, offset * factor
        elif step.op == "add" and not isinstance(step.operand, str):
            offset += step.operand
        else:
            return None
    fits = scale in fit and offset in INT16
    return (replace(term, scale=scale, steps=()), offset) if fits else None


def _negated(term: Term, config: VTAConfig) -> Term:
    """``-term``; the sign goes into the scale, or is a multiplication where it cannot."""
    if _movable(term.steps):
        steps = [s for step in term.steps for s in _opposite(step)]
        return replace(term, scale=-term.scale, steps=tuple(steps))
    if not config.capabilities.mul:
        raise VTAError(
            Refusal(
                "a subtraction whose right operand has tensor operands or wide immediates "
                "multiplies by",
                "-1",
                "this machine has no MUL (CAPABILITIES.mul is false)",
                "leave it to the CPU",
            )
        )
    return replace(term, steps=(*term.steps, Step("mul", -1)))


def _movable(steps: Sequence[Step]) -> bool:
    """Whether the opposites of ``steps`` fit immediates and cannot overflow where these do not."""
    most = -INT8.start
    for step in steps:
        if isinstance(step.operand, str) or any(s.operand not in INT16 for s in _opposite(step)):
            return False
        value = abs(int(step.operand))
        most = max(most, *map(abs, OPERATIONS[step.op].bounds(-most, most, value, value)))
        if most > 1 << 30:
            return False
    return True


def _opposite(step: Step) -> tuple[Step, ...]:
    """Immediate steps that give ``-step(x)`` of ``-x``."""
    value = int(step.operand)
    if step.op == "shr":
        parts = [min(15, value - at) for at in range(0, value, 15)]
        return tuple(s for p in parts for s in (Step("add", (1 << p) - 1), Step("shr", p)))
    if step.op in ("shl", "mul"):
        return (step,)
    swapped = {"add": "add", "max": "min", "min": "max"}
    return (Step(swapped[step.op], -value),)


def _check_mul(plan: ProloguePlan, config: VTAConfig) -> None:
    steps: Sequence[Step] = [s for t in plan.terms for s in t.steps] + list(plan.steps)
    if config.capabilities.mul or (plan.op != "mul" and all(s.op != "mul" for s in steps)):
        return
    raise VTAError(
        Refusal(
            "an elementwise multiplication needs the ALU's MUL",
            limit="this machine has none (CAPABILITIES.mul is false)",
            remedy="use shifts or leave it to the CPU",
        )
    )
