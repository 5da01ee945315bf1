"""The timing simulator: cycles of a program, event by event.

It is exact for the rules of docs/timing.md and the parameters of the configuration.  Four units
(fetch and the three queues) work side by side and share one memory port; what happens in a cycle
happens in a fixed order: something ends, fetched instructions enter queues, queues start
instructions, the port takes a row.  `hw/reference/cycle_model.py` says the same cycle by cycle.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.disassembly import format_instruction
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.isa import ISA, Queue
from vta_byoc.hw.program.program import Layer, Program
from vta_byoc.hw.timing.result import (
    FETCH,
    FULL,
    PORT,
    REQUESTERS,
    TOKEN,
    InsnTime,
    PortRow,
    TimingResult,
    by_queue,
    layer_time,
)
from vta_byoc.hw.timing.work import Job, Work, fetch_work, jobs_of
from vta_byoc.hw.timing_parameters import Timing

_FETCH_UNIT = 0  # the units, in port priority: fetch, then the queues
_WAKE = 4  # an event that only makes the machine look again


def simulate(program: Program, timing: Timing | None = None) -> TimingResult:
    """Cycles of ``program``, under other parameters than its configuration's where given.

    A program that waits for ever raises VTAError with what each queue waits for.
    """
    return simulate_stream(program.config, program.insns, timing, program.layers)


def simulate_stream(
    config: VTAConfig,
    insns: np.ndarray,
    timing: Timing | None = None,
    layers: Sequence[Layer] = (),
) -> TimingResult:
    """:func:`simulate` for a raw stream, (n, 2) uint64."""
    timing = timing or config.timing
    jobs = jobs_of(config, insns, timing)
    machine = _Machine(timing, jobs)
    machine.run()
    if len(machine.done) < len(jobs):
        raise _deadlock(config, insns, machine)
    return machine.result(layers)


class _Unit:
    """A sequencer of :class:`Work`; at most one event of it is due."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self.index = 0
        self.rows_left = 0
        self.on_port = False
        self.asked = 0
        self.port_wait = 0


class _QueueUnit(_Unit):
    """A command queue; its head is the instruction that runs or starts next."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[int] = deque()
        self.free_at = 0
        self.blocked_at_free = 0
        self.started = 0
        self.stalls: dict[str, int] = {}


class _Machine:
    """Fetch, queues, tokens and port of one run."""

    def __init__(self, timing: Timing, jobs: list[Job]):
        self.timing = timing
        self.jobs = jobs
        self.now = 0
        self.fetch = _Unit()
        self.queues = {q: _QueueUnit() for q in Queue}
        self.units: list[_Unit] = [self.fetch, *self.queues.values()]
        self.tokens: dict[tuple[Queue, Queue], deque[int]] = {
            (a, b): deque() for a in Queue for b in Queue if abs(a - b) == 1
        }
        self.fetched: deque[int] = deque()
        self.next_fetch = 0
        self.blocked_since: int | None = None
        self.blocked = 0
        # the channels of the port: what is read, and what STORE writes where that is apart
        self.channel = [0, 0, 0, int(timing.splits_channels)]
        self.port_free_at = [0, 0]
        self.requests: tuple[list[tuple[int, int]], ...] = ([], [])
        self.events: list[tuple[int, int]] = [(0, _WAKE)]
        self.arrive = [0] * len(jobs)
        self.blocked_at_arrival = [0] * len(jobs)
        self.done: list[InsnTime] = []
        self.rows: list[PortRow] = []

    def run(self) -> None:
        """Until no event is left."""
        events = self.events
        while events:
            self.now = now = events[0][0]
            while events and events[0][0] == now:
                self._expired(heapq.heappop(events)[1])
            self._dispatch()
            self._start()
            self._grant()

    # ---------------------------------------------------------------- one unit's work
    def _after(self, cycles: int, unit: int) -> None:
        heapq.heappush(self.events, (self.now + cycles, unit))

    def _begin(self, number: int, index: int, work: Work) -> None:
        unit = self.units[number]
        unit.work, unit.index, unit.rows_left, unit.port_wait = (
            work,
            index,
            work.rows * work.bursts,
            0,
        )
        if work.before:
            self._after(work.before, number)
        else:
            self._ask(number)

    def _ask(self, number: int) -> None:
        self.units[number].asked = self.now
        heapq.heappush(self.requests[self.channel[number]], (self.now, number))

    def _expired(self, number: int) -> None:
        """What unit ``number`` did is done: its next part begins or its work ends."""
        if number == _WAKE:
            return
        unit = self.units[number]
        work = unit.work
        assert work is not None
        if unit.on_port:
            unit.on_port = False
            unit.rows_left -= 1
            whole = unit.rows_left % work.bursts == 0
            rest = (work.gap if unit.rows_left else work.after) if whole else 0
            if rest:
                self._after(rest, number)
                return
        if unit.rows_left:
            self._ask(number)
        elif number == _FETCH_UNIT:
            self._burst_done()
        else:
            self._insn_done(Queue(number - 1))

    def _grant(self) -> None:
        """Each channel takes the oldest request; ties go to the lower unit."""
        for channel, requests in enumerate(self.requests):
            if not requests or self.now < self.port_free_at[channel]:
                continue
            asked, number = heapq.heappop(requests)
            unit = self.units[number]
            assert unit.work is not None
            unit.on_port = True
            unit.port_wait += self.now - asked
            end = self.port_free_at[channel] = self.now + unit.work.row
            self.rows.append(PortRow(self.now, end, REQUESTERS[number], unit.index))
            self._after(unit.work.row, number)

    # ---------------------------------------------------------------- fetch
    def _burst_done(self) -> None:
        last = min(self.next_fetch + self.timing.fetch_burst, len(self.jobs))
        self.fetched.extend(range(self.next_fetch, last))
        self.next_fetch = last
        self.fetch.work = None

    def _dispatch(self) -> None:
        """Fetched instructions enter their queues in order; then the next burst begins."""
        while self.fetched:
            index = self.fetched[0]
            waiting = self.queues[self.jobs[index].queue].waiting
            if len(waiting) >= self.timing.queue_depth:
                if self.blocked_since is None:
                    self.blocked_since = self.now
                return
            if self.blocked_since is not None:
                self.blocked += self.now - self.blocked_since
                self.blocked_since = None
            waiting.append(self.fetched.popleft())
            self.arrive[index] = self.now
            self.blocked_at_arrival[index] = self.blocked
        if self.fetch.work is None and self.next_fetch < len(self.jobs):
            count = min(self.timing.fetch_burst, len(self.jobs) - self.next_fetch)
            self._begin(_FETCH_UNIT, self.next_fetch, fetch_work(count, self.timing))

    def _blocked_now(self) -> int:
        """Cycles so far in which a full queue held up the fetched instructions."""
        since = self.now if self.blocked_since is None else self.blocked_since
        return self.blocked + self.now - since

    # ---------------------------------------------------------------- queues
    def _start(self) -> None:
        for queue, unit in self.queues.items():
            if unit.work is not None or not unit.waiting:
                continue
            index = unit.waiting[0]
            job = self.jobs[index]
            if not all(self.visible(source, queue) for source in job.pops):
                continue
            unit.started, unit.stalls = self.now, self._stalls(queue, unit, index, job)
            self._begin(queue + 1, index, job.work)

    def visible(self, source: Queue, queue: Queue) -> bool:
        tokens = self.tokens[source, queue]
        return bool(tokens) and tokens[0] <= self.now

    def _stalls(self, queue: Queue, unit: _QueueUnit, index: int, job: Job) -> dict[str, int]:
        """Split the wait: first for the instruction, then for each token in turn; takes them."""
        stalls: dict[str, int] = {}
        at, arrive = unit.free_at, self.arrive[index]
        if arrive > at:
            full = self.blocked_at_arrival[index] - unit.blocked_at_free
            stalls = {FETCH: arrive - at - full, FULL: full}
            at = arrive
        for source in job.pops:
            seen = self.tokens[source, queue].popleft()
            if seen > at:
                stalls[TOKEN[source]] = seen - at
                at = seen
        return {reason: count for reason, count in stalls.items() if count}

    def _insn_done(self, queue: Queue) -> None:
        unit = self.queues[queue]
        index = unit.waiting.popleft()
        if unit.port_wait:
            unit.stalls[PORT] = unit.port_wait
        job, arrive, span = self.jobs[index], self.arrive[index], (unit.started, self.now)
        self.done.append(
            InsnTime(index, queue, arrive, unit.free_at, *span, job.work.startup, unit.stalls)
        )
        unit.work = None
        unit.free_at, unit.blocked_at_free = self.now, self._blocked_now()
        for target in job.pushes:
            self.tokens[queue, target].append(self.now + self.timing.token_latency)
            self._after(self.timing.token_latency, _WAKE)

    # ---------------------------------------------------------------- result
    def result(self, layers: Sequence[Layer]) -> TimingResult:
        insns = tuple(sorted(self.done, key=lambda i: i.index))
        total = max(i.end for i in insns)
        port = dict.fromkeys(REQUESTERS, 0)
        for row in self.rows:
            port[row.requester] += row.end - row.start
        nbytes = dict.fromkeys(REQUESTERS, 0)
        for job in self.jobs:
            nbytes[REQUESTERS[job.queue + 1]] += job.work.nbytes
        nbytes["fetch"] = fetch_work(len(self.jobs), self.timing).nbytes
        return TimingResult(
            self.timing,
            total,
            by_queue(insns, total),
            port,
            nbytes,
            tuple(layer_time(x.name, x.begin, x.end, insns) for x in layers),
            insns,
            tuple(self.rows),
        )


# -------------------------------------------------------------------- deadlock
def _deadlock(config: VTAConfig, insns: np.ndarray, machine: _Machine) -> VTAError:
    waits = [_wait_of(config, insns, machine, queue) for queue in Queue]
    return VTAError(
        f"the program deadlocks after cycle {machine.now}: {', '.join(waits)}; every pop needs a "
        "push that runs before it; correct the tokens"
    )


def _wait_of(config: VTAConfig, insns: np.ndarray, machine: _Machine, queue: Queue) -> str:
    """What ``queue`` waits for in a machine where nothing will happen any more."""
    name, unit = queue.name.lower(), machine.queues[queue]
    if unit.waiting:
        index = unit.waiting[0]
        missing = [s for s in machine.jobs[index].pops if not machine.visible(s, queue)]
        return f"{name} waits at {_text(config, insns, index)} for a {TOKEN[missing[0]]}"
    outside = [*machine.fetched, *range(machine.next_fetch, len(machine.jobs))]
    later = [i for i in outside if machine.jobs[i].queue == queue]
    if not later:
        return f"{name} is done"
    head = machine.fetched[0]
    full = machine.jobs[head].queue.name.lower()
    return (
        f"{name} waits for {_text(config, insns, later[0])} to be fetched, behind instruction "
        f"{head} for the full {full} queue"
    )


def _text(config: VTAConfig, insns: np.ndarray, index: int) -> str:
    text = format_instruction(ISA.of(config).decode(*insns[index].tolist()))
    return f"instruction {index} ({' '.join(text.split())})"
