"""Tokens: who waits for whom, and what every instruction knows to be finished when it starts.

A queue executes in order and a token pair is a counter, so the k-th pop of a pair waits for its
k-th push whatever the order of execution.  From these edges follow deadlocks, vector clocks and
the most tokens that can ever be outstanding.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vta_byoc.hw.faults import TOKEN_PAIRS, Fault
from vta_byoc.hw.isa import Instruction, Queue
from vta_byoc.hw.verify.rules import Report, of_each

Pair = tuple[Queue, Queue]
PAIRS: tuple[Pair, ...] = (
    (Queue.LOAD, Queue.COMPUTE),
    (Queue.COMPUTE, Queue.LOAD),
    (Queue.COMPUTE, Queue.STORE),
    (Queue.STORE, Queue.COMPUTE),
)
"""(from, to), in the order of ``faults.TOKEN_PAIRS``."""
Clock = tuple[int, ...]
"""The last instruction of each queue that is finished: a tuple, as Python's collector skips it."""
_NONE: Clock = tuple(-1 for _ in Queue)
Stuck = Mapping[Queue, tuple[int, Sequence[Pair]]]
"""Queues that wait for ever: their next instruction, and the pairs that have no token for it."""
_FLAGS: Mapping[tuple[str, Queue], Sequence[tuple[str, Pair]]] = {
    (action, here): [
        (f"{action}_{side}", (there, here) if action == "pop" else (here, there))
        for side, step in (("prev", -1), ("next", 1))
        for there in Queue
        if there == here + step
    ]
    for action in ("pop", "push")
    for here in Queue
}


def pairs_of(insn: Instruction, action: str) -> list[Pair]:
    """The pairs that ``insn`` pops from or pushes to (``action``); absent queues are left out."""
    return [PAIRS[number] for number in numbers_of(insn, action)]


def numbers_of(insn: Instruction, action: str) -> tuple[int, ...]:
    """The places in PAIRS of the pairs that :func:`pairs_of` names."""
    before, after = _SIDES[action]
    return _numbers(action, int(insn.queue), insn.fields[before], insn.fields[after])


_SIDES = {action: (f"{action}_prev", f"{action}_next") for action in ("pop", "push")}


@functools.cache
def _numbers(action: str, queue: int, before: int, after: int) -> tuple[int, ...]:
    set_ = dict(zip(_SIDES[action], (before, after), strict=True))
    return tuple(PAIRS.index(pair) for flag, pair in _FLAGS[action, Queue(queue)] if set_[flag])


def bad_flags(insn: Instruction) -> bool:
    """Whether a token flag points at a queue that does not exist."""
    if insn.queue == Queue.COMPUTE:
        return False
    side = "prev" if insn.queue == Queue.LOAD else "next"
    return bool(insn[f"pop_{side}"] or insn[f"push_{side}"])


@dataclass
class _Schedule:
    """One execution of the token network; every other one matches the same pushes and pops."""

    insns: Sequence[Instruction | None]
    clocks: list[Clock] = field(default_factory=list)
    pushes: dict[Pair, list[int]] = field(default_factory=lambda: {p: [] for p in PAIRS})
    pops: dict[Pair, list[int]] = field(default_factory=lambda: {p: [] for p in PAIRS})
    stuck: dict[Queue, tuple[int, list[Pair]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clocks = [_NONE] * len(self.insns)
        self._now = [_NONE for _ in Queue]
        self._pushed, self._popped = list(self.pushes.values()), list(self.pops.values())
        self._lines: dict[Queue, list[int]] = {q: [] for q in Queue}
        for index, insn in enumerate(self.insns):
            if insn is not None:
                self._lines[insn.queue].append(index)
        self._next = [0 for _ in Queue]
        self._pops = of_each(self.insns, lambda insn: numbers_of(insn, "pop"))
        self._pushes = of_each(self.insns, lambda insn: numbers_of(insn, "push"))
        self._run()

    def _heads(self) -> dict[Queue, int]:
        """The next instruction of every queue that is not done."""
        at = self._next
        return {q: line[at[q]] for q, line in self._lines.items() if at[q] < len(line)}

    def _run(self) -> None:
        """Run to the end; after a deadlock as if the missing tokens had come.

        So one run finds what else is wrong.  The first queue that can goes on: program order is
        kept while it is legal.
        """
        for index, insn in enumerate(self.insns):
            if insn is None:
                continue
            if self._lacking(index):
                break
            self._execute(index, insn.queue)
        while heads := self._heads():
            lacking = {q: self._lacking(heads[q]) for q in heads}
            ready = [q for q in heads if not lacking[q]]
            if not ready and not self.stuck:
                self.stuck = {q: (heads[q], lacking[q]) for q in heads}
            queue = min(ready or heads, key=lambda q: heads[q])
            self._execute(heads[queue], queue)

    def _lacking(self, index: int) -> list[Pair]:
        """The pairs that have no token for instruction ``index``."""
        numbers = self._pops[index] or ()
        return [PAIRS[n] for n in numbers if len(self._popped[n]) >= len(self._pushed[n])]

    def _execute(self, index: int, queue: Queue) -> None:
        clock = self._now[queue]
        for number in self._pops[index] or ():
            count = len(self._popped[number])
            self._popped[number].append(index)
            if count < len(self._pushed[number]):
                pusher = self._pushed[number][count]
                known = _moved(self.clocks[pusher], PAIRS[number][0], pusher)
                clock = (*map(max, clock, known),)
        self.clocks[index] = clock
        self._now[queue] = _moved(clock, queue, index)
        for number in self._pushes[index] or ():
            self._pushed[number].append(index)
        self._next[queue] += 1


def _moved(clock: Clock, queue: Queue, index: int) -> Clock:
    """``clock`` when instruction ``index`` of ``queue`` is finished too."""
    after = [*clock]
    after[queue] = index
    return (*after,)


def check_tokens(report: Report) -> list[Clock]:
    """Check every token rule.

    Returns for each instruction the last instruction of each queue (load, compute, store) that is
    certainly finished when it starts; -1 where there is none.
    """
    for index, bad in enumerate(of_each(report.insns, bad_flags)):
        if bad:
            report.fault("token-flag", index, Fault.TOKEN_FLAG)
    schedule = _Schedule(report.insns)
    _check_deadlock(report, schedule)
    for number, pair in enumerate(PAIRS):
        _check_order(report, number, schedule.pushes[pair], schedule.pops[pair])
        _check_left(report, number, schedule.pushes[pair], schedule.pops[pair])
        _check_limit(report, number, pair, schedule)
    return schedule.clocks


def _check_deadlock(report: Report, schedule: _Schedule) -> None:
    if schedule.stuck:
        first = min(i for i, _ in schedule.stuck.values())
        report.add("deadlock", first, waiting(schedule.stuck, report.named))


def waiting(stuck: Stuck, named: Callable[[int], str]) -> str:
    """Message of a deadlock: what waits in each queue, and for whom."""
    lines = [
        f"{queue.name} waits for {' and '.join(p[0].name for p in pairs)} at {named(index)}"
        for queue, (index, pairs) in sorted(stuck.items())
    ]
    return (
        f"{', '.join(lines)}; every pop needs a push that can come before it; correct the "
        "dependencies"
    )


def _check_order(report: Report, number: int, pushes: list[int], pops: list[int]) -> None:
    for push, pop in zip(pushes, pops, strict=False):
        if push > pop:
            report.add(
                "token-order",
                pop,
                f"the token that it pops from {TOKEN_PAIRS[number]} is pushed later, by "
                f"{report.named(push)}; program order must be a legal order; push before the pop",
                push,
            )


def _check_left(report: Report, number: int, pushes: list[int], pops: list[int]) -> None:
    left = len(pushes) - len(pops)
    if left > 0:
        report.add(
            "token-left",
            pushes[len(pops)],
            f"the pushes of {TOKEN_PAIRS[number]} exceed its pops by {left}; no token may be left "
            "at FINISH; pop each or do not push it",
        )


def _check_limit(report: Report, number: int, pair: Pair, schedule: _Schedule) -> None:
    """A producer may run ahead of every pop that it does not know to be done."""
    limit, pops = report.program.config.capabilities.max_tokens, schedule.pops[pair]
    worst, at = 0, -1
    for count, push in enumerate(schedule.pushes[pair], 1):
        outstanding = count - bisect.bisect_right(pops, schedule.clocks[push][pair[1]])
        if outstanding > worst:
            worst, at = outstanding, push
    if worst > limit:
        report.add(
            "token-limit",
            at,
            f"{worst} tokens may be outstanding from {TOKEN_PAIRS[number]}; the machine counts to "
            f"{limit}; let the producer wait for the consumer sooner",
        )
