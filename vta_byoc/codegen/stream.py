"""The instruction stream: what each instruction reads and writes, and the tokens that order it.

Three queues run at their own pace.  Tokens are derived from read and write intervals over SRAM and
DRAM: where an instruction depends on one of another queue, that producer pushes and it pops.  Each
queue remembers what it already knows to be finished (a vector clock), so an edge is added only
when it tells something new; indices rise strictly, hence the k-th push meets the k-th pop.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from vta_byoc.codegen.uops import Kernel
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import MemType, Opcode, Queue

Lane = TypeVar("Lane", bound=Hashable)
Interval = tuple[str, int, int]
DRAM = "dram."
"""Begins the name of the space that is a DRAM symbol."""
QUEUES = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)
OTHERS = {queue: tuple(q for q in QUEUES if q != queue) for queue in QUEUES}


@dataclass
class Insn:
    """One instruction before linking.

    ``reads`` and ``writes`` are (space, low, high): SRAM spaces in elements, DRAM symbols in bytes.
    ``symbol`` and ``addend`` (elements) give the DRAM address.  ``block`` is the block that it
    executes a part of, "" for one that moves tokens only.  ``kernel`` are the micro-ops of a
    computation, whose place in SRAM is chosen later, ``site`` is where in the layer it comes from.
    """

    opcode: Opcode
    queue: Queue
    fields: dict[str, int]
    reads: list[Interval] = field(default_factory=list)
    writes: list[Interval] = field(default_factory=list)
    symbol: str | None = None
    addend: int = 0
    layer: int = 0
    block: str = ""
    kernel: Kernel | None = None
    site: object = None

    def push(self, to: Queue) -> None:
        """Push a token to queue `to` when done."""
        self.fields["push_next" if to > self.queue else "push_prev"] = 1

    def pop(self, source: Queue) -> None:
        """Wait for a token of queue `source` before the start."""
        self.fields["pop_next" if source > self.queue else "pop_prev"] = 1


def no_op(layer: int) -> Insn:
    """A compute-queue instruction that moves tokens only."""
    return Insn(Opcode.LOAD, Queue.COMPUTE, {"mem_type": int(MemType.UOP)}, layer=layer)


class _Latest:
    """The last instruction of one queue that touched each point of a space.

    Points between two neighbours of ``_starts`` were last touched by the same instruction; they are
    few, however large the space is.
    """

    def __init__(self) -> None:
        self._starts = [-1]
        self._last = [-1]

    def touch(self, low: int, high: int, index: int) -> None:
        """Instruction ``index``, later than all before, touched [low, high)."""
        starts, last = self._starts, self._last
        i, j = bisect.bisect_left(starts, low), bisect.bisect_left(starts, high)
        if j < len(starts) and starts[j] == high:
            starts[i:j], last[i:j] = [low], [index]
        else:
            starts[i:j], last[i:j] = [low, high], [index, last[j - 1]]

    def within(self, low: int, high: int) -> int:
        """The latest instruction that touched [low, high); -1 when none did."""
        starts = self._starts
        first = bisect.bisect_right(starts, low) - 1
        return max(self._last[first : bisect.bisect_left(starts, high)])


class LastTouches(Generic[Lane]):
    """The last reads and writes of instructions in lanes, each of which keeps its order.

    Most spaces are touched by few lanes, and only these are looked at.
    """

    def __init__(self) -> None:
        self._reads: dict[str, dict[Lane, _Latest]] = {}
        self._writes: dict[str, dict[Lane, _Latest]] = {}

    def touch(self, lane: Lane, insn: Insn, number: int) -> None:
        """``insn`` is the instruction ``number`` of ``lane``, later than all before."""
        for kind, touched in ((self._reads, insn.reads), (self._writes, insn.writes)):
            for space, low, high in touched:
                lanes = kind.setdefault(space, {})
                if lane not in lanes:
                    lanes[lane] = _Latest()
                lanes[lane].touch(low, high, number)

    def conflicts(self, lane: Lane, insn: Insn) -> dict[Lane, int]:
        """Of every other lane than ``lane`` the last one that must come before ``insn``, if any."""
        found: dict[Lane, int] = {}
        for kind, touched in (
            (self._writes, insn.reads),
            (self._reads, insn.writes),
            (self._writes, insn.writes),
        ):
            for space, low, high in touched:
                for other, latest in kind.get(space, {}).items():
                    if other != lane:
                        last = latest.within(low, high)
                        if last > found.get(other, -1):
                            found[other] = last
        return found


class TokenAssigner:
    """Feeds instructions in program order; ``out`` holds them with tokens and needed no-ops."""

    def __init__(self, max_tokens: int):
        self.out: list[Insn] = []
        self._max_tokens = max_tokens
        self._queues: dict[Queue, list[Insn]] = {q: [] for q in QUEUES}
        self._clock: dict[Queue, list[int]] = {q: [-1, -1, -1] for q in QUEUES}
        self._seen: dict[Queue, list[tuple[int, ...]]] = {q: [] for q in QUEUES}
        self._touched: LastTouches[Queue] = LastTouches()
        self._edges: dict[tuple[Queue, Queue], list[tuple[int, int]]] = {}

    def add(self, insn: Insn) -> None:
        """Append ``insn`` with the tokens that its hazards need."""
        self._require(self._hazards(insn), insn)
        self._issue(insn)
        self._touched.touch(insn.queue, insn, self._last(insn.queue))

    def finish(self, layer: int) -> None:
        """Wait for every queue, then FINISH (which itself waits for nothing)."""
        barrier = no_op(layer)
        ends = {q: self._last(q) for q in (Queue.LOAD, Queue.STORE)}
        self._require({q: i for q, i in ends.items() if i >= 0}, barrier)
        self._issue(barrier)
        self._issue(Insn(Opcode.FINISH, Queue.COMPUTE, {}, layer=layer))
        self._check_outstanding()

    # ---------------------------------------------------------------- hazards
    def _last(self, queue: Queue) -> int:
        return len(self._queues[queue]) - 1

    def _hazards(self, insn: Insn) -> dict[Queue, int]:
        """The last instruction of every other queue that ``insn`` must wait for."""
        found = self._touched.conflicts(insn.queue, insn)
        return {queue: found[queue] for queue in OTHERS[insn.queue] if queue in found}

    # ---------------------------------------------------------------- tokens
    def _require(self, needs: dict[Queue, int], insn: Insn) -> None:
        """Make ``insn`` wait for an instruction of each queue in ``needs``.

        Load and store queues have no tokens between them: what one needs of the other it takes from
        the compute queue, in the one token that an instruction can pop there.
        """
        known = self._clock[insn.queue]
        needs = {producer: index for producer, index in needs.items() if index > known[producer]}
        far = [q for q in needs if Queue.COMPUTE not in (q, insn.queue)]
        for producer in far:
            after = self._compute_after(producer, needs.pop(producer), insn.layer)
            needs[Queue.COMPUTE] = max(after, needs.get(Queue.COMPUTE, -1))
        for producer, index in needs.items():
            self._edge(producer, index, insn)

    def _compute_after(self, producer: Queue, index: int, layer: int) -> int:
        """Index of a compute instruction that runs after ``index`` of ``producer``."""
        if self._clock[Queue.COMPUTE][producer] < index:
            relay = no_op(layer)
            self._edge(producer, index, relay)
            self._issue(relay)
            return self._last(Queue.COMPUTE)
        seen = self._seen[Queue.COMPUTE]
        return bisect.bisect_left(seen, index, key=lambda clock: clock[producer])

    def _edge(self, producer: Queue, index: int, insn: Insn) -> None:
        if self._clock[insn.queue][producer] >= index:
            return
        self._queues[producer][index].push(insn.queue)
        insn.pop(producer)
        edges = self._edges.setdefault((producer, insn.queue), [])
        edges.append((index, len(self._queues[insn.queue])))
        mine, theirs = self._clock[insn.queue], self._seen[producer][index]
        self._clock[insn.queue] = [max(a, b) for a, b in zip(mine, theirs, strict=True)]

    def _issue(self, insn: Insn) -> None:
        self._queues[insn.queue].append(insn)
        self._clock[insn.queue][insn.queue] = self._last(insn.queue)
        self._seen[insn.queue].append(tuple(self._clock[insn.queue]))
        self.out.append(insn)

    def _check_outstanding(self) -> None:
        """At most ``max_tokens`` pushed and not certainly popped, on every pair.

        Raises:
            VTAError: the machine counts to less than the program needs.
        """
        most, where = 0, ""
        for (producer, consumer), edges in self._edges.items():
            pops = [pop for _, pop in edges]
            for k, (push, _) in enumerate(edges):
                done = bisect.bisect_right(pops, self._seen[producer][push][consumer])
                if k + 1 - done > most:
                    most, where = k + 1 - done, f"{producer.name} to {consumer.name}"
        if most > self._max_tokens:
            raise VTAError(
                f"{most} tokens from {where} may be outstanding; the machine counts to "
                f"{self._max_tokens}; raise CAPABILITIES.max_tokens to {most} or more in the "
                "configuration file"
            )


def layer_spans(insns: Iterable[Insn]) -> list[tuple[int, int, int]]:
    """(layer, begin, end) of each run of instructions of one layer, in stream order."""
    spans: list[tuple[int, int, int]] = []
    for i, insn in enumerate(insns):
        if spans and spans[-1][0] == insn.layer:
            spans[-1] = (insn.layer, spans[-1][1], i + 1)
        else:
            spans.append((insn.layer, i, i + 1))
    return spans
