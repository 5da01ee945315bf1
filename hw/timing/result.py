"""What the timing model finds out: cycles, and for each stalled cycle the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vta_byoc.hw.isa import Queue
from vta_byoc.hw.timing_parameters import Timing

FETCH, FULL, PORT = "fetch", "full queue", "memory port"
TOKEN = {q: f"token from {q.name.lower()}" for q in Queue}
STALLS = (FETCH, FULL, *TOKEN.values(), PORT)
"""Why a queue stalls: its next instruction is not fetched yet; fetch waits at another queue that
is full; a token is missing; the port serves another unit."""
REQUESTERS = ("fetch", "load", "compute", "store")
"""Who uses the memory port, in the order in which ties are broken."""


@dataclass(frozen=True)
class InsnTime:
    """One instruction: it entered its queue at ``arrive`` and occupied cycles [start, end).

    Its queue was free from ``free`` on.  ``stalls`` are cycles of [free, end) by reason (those of
    the port fall between start and end); ``startup`` of the busy rest are DMA latency or pipeline
    fill.
    """

    index: int
    queue: Queue
    arrive: int
    free: int
    start: int
    end: int
    startup: int
    stalls: dict[str, int] = field(default_factory=dict)

    @property
    def busy(self) -> int:
        """Cycles in which it worked."""
        return self.end - self.free - sum(self.stalls.values())


@dataclass(frozen=True)
class QueueTime:
    """Cycles of one queue: ``busy`` (of which ``startup``), ``stalls`` by reason, ``drained``.

    ``drained`` is the time after its last instruction; all of them add up to the total.
    """

    instructions: int
    busy: int
    startup: int
    stalls: dict[str, int]
    drained: int = 0

    @property
    def stalled(self) -> int:
        """Cycles of waiting, over all reasons."""
        return sum(self.stalls.values())

    @property
    def cycles(self) -> int:
        """Cycles from the start of the program until the queue was done and drained."""
        return self.busy + self.stalled + self.drained


@dataclass(frozen=True)
class LayerTime:
    """Instructions [begin, end) of a program: when they ran and what each queue spent on them.

    ``cycles`` is the compute queue's time for the layer, busy and stalled; over all layers it adds
    up to the end of the compute queue.
    """

    name: str
    begin: int
    end: int
    start: int
    finish: int
    queues: dict[Queue, QueueTime]

    @property
    def cycles(self) -> int:
        """Cycles of the whole program: FINISH runs in the compute queue."""
        return self.queues[Queue.COMPUTE].cycles


@dataclass(frozen=True)
class PortRow:
    """The port moved one row in cycles [start, end) for ``requester`` (of REQUESTERS).

    ``index`` is the instruction, for a fetch the first of the burst.
    """

    start: int
    end: int
    requester: str
    index: int


@dataclass(frozen=True, repr=False)
class TimingResult:
    """The time of one program under ``timing``.

    ``cycles`` ends with the last instruction of any queue.  ``port`` are the port's busy cycles by
    requester, ``port_bytes`` the bytes moved in them.
    """

    timing: Timing
    cycles: int
    queues: dict[Queue, QueueTime]
    port: dict[str, int]
    port_bytes: dict[str, int]
    layers: tuple[LayerTime, ...]
    instructions: tuple[InsnTime, ...]
    rows: tuple[PortRow, ...]

    @property
    def milliseconds(self) -> float:
        """The cycles as time at the clock of the timing parameters."""
        return self.cycles / (self.timing.clock_mhz * 1000)

    def __repr__(self) -> str:
        return f"<TimingResult {self.cycles:,} cycles, {self.milliseconds:,.3f} ms>"


def queue_time(insns: Iterable[InsnTime], total: int | None = None) -> QueueTime:
    """Sum over instructions of one queue; with ``total`` the rest of it is ``drained``."""
    insns = list(insns)
    stalls = dict.fromkeys(STALLS, 0)
    for insn in insns:
        for reason, count in insn.stalls.items():
            stalls[reason] += count
    busy = sum(i.busy for i in insns)
    rest = 0 if total is None else total - busy - sum(stalls.values())
    return QueueTime(len(insns), busy, sum(i.startup for i in insns), stalls, rest)


def by_queue(insns: Sequence[InsnTime], total: int | None = None) -> dict[Queue, QueueTime]:
    """:func:`queue_time` of each queue."""
    return {q: queue_time((i for i in insns if i.queue == q), total) for q in Queue}


def layer_time(name: str, begin: int, end: int, insns: Sequence[InsnTime]) -> LayerTime:
    """The time of instructions [begin, end) of ``insns``."""
    part = insns[begin:end]
    start = min((i.start for i in part), default=0)
    finish = max((i.end for i in part), default=0)
    return LayerTime(name, begin, end, start, finish, by_queue(part))
