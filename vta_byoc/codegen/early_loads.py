"""The order of loads: what does not wait for a result is loaded while others wait for theirs.

The load queue is in order.  At the border of two layers its next LOAD is one of inputs that the
layer before has not stored yet, and the weights behind it wait too, although nothing holds them.
Here the stream is played through with the cycles of its instructions, and each time the load queue
is free it takes one of these: the next LOAD of what the stream stores itself, or the next one of
anything else (constants, the inputs of the program) of a layer or of one of two that follow.  Each
kind keeps its order, and so do computations and stores.  SRAM alone limits how far ahead a LOAD
goes.  Large LOADs of weights are played in parts; those that come one after the other are one LOAD
again.

A new order is as good as the old one for whoever runs it from first to last: no two instructions
of which one writes what the other touches change places.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from vta_byoc.codegen.load_parts import Part, parts
from vta_byoc.codegen.stream import DRAM, Insn, LastTouches
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import MemType, Opcode, Queue
from vta_byoc.hw.timing.work import cycles_alone
from vta_byoc.hw.timing_parameters import Timing

LATER_SHARE = 4
"""A LOAD goes ahead of one that could start before its end, if it holds that up for no more than
this part of its own time."""
PART_CYCLES, AHEAD_CYCLES = 1024, 256
"""About the cycles of a part of weights; of one that is loaded ahead between others."""
PLACES = ("sram_base", "uop_bgn", "uop_end")
"""Fields that say where something is, which takes no time."""


class Lane(IntEnum):
    """Instructions that keep their order."""

    CONSTANT = 0
    NEXT_CONSTANT = 1
    THIRD_CONSTANT = 2
    RESULT = 3
    COMPUTE = 4
    STORE = 5
    WEIGHT = 6
    NEXT_WEIGHT = 7
    THIRD_WEIGHT = 8


CONSTANTS = (Lane.CONSTANT, Lane.NEXT_CONSTANT, Lane.THIRD_CONSTANT)
"""The lanes of constants, which layers take in turn."""
WEIGHTS = (Lane.WEIGHT, Lane.NEXT_WEIGHT, Lane.THIRD_WEIGHT)
"""Those of weights, where they do not wait for other constants."""
LOADS = (*CONSTANTS, *WEIGHTS, Lane.RESULT)


@dataclass
class _Item:
    """An instruction or a part of it, its cycles, and the last one of each lane that it needs.

    ``place`` is the number of a computation or store among these.
    """

    part: Part
    insn: Insn
    lane: Lane
    number: int
    cycles: int
    needs: list[_Item] = field(default_factory=list)
    start: int = 0
    end: int | None = None
    place: int = -1

    @property
    def first_place(self) -> int:
        """The computations and stores that come before a LOAD in any case."""
        return max((need.place + 1 for need in self.needs), default=0)


def early_loads(insns: Sequence[Insn], config: VTAConfig, ahead: bool = False) -> list[Insn]:
    """The instructions of a program in a better order, each LOAD in the layer that it comes to.

    Those given are left as they are.  With ``ahead`` weights do not wait for other constants, and
    pass in smaller parts.
    """
    items = _items(insns, config, ahead)
    return list(_Player(items, config.timing, ahead).stream())


def _items(insns: Sequence[Insn], config: VTAConfig, ahead: bool) -> list[_Item]:
    """The instructions with what they need of each other."""
    stored = {space for insn in insns for space, _, _ in insn.writes if space.startswith(DRAM)}
    time = _Cycles(config)
    items: list[_Item] = []
    touched: LastTouches[Lane] = LastTouches()
    place = 0
    for insn in insns:
        lane, cycles = _lane(insn, stored, ahead), time(insn)
        for part in parts(insn, cycles, AHEAD_CYCLES if ahead else PART_CYCLES):
            each, number = part.insn, len(items)
            needs = [items[last] for last in touched.conflicts(lane, each).values()]
            own = cycles if each is insn else time(each)
            item = _Item(part, each, lane, number, own, needs)
            touched.touch(lane, each, number)
            items.append(item)
        if lane not in LOADS:
            item.place, place = place, place + 1
    return items


class _Cycles:
    """Cycles of instructions by their fields; most are like others."""

    def __init__(self, config: VTAConfig):
        self._config = config
        self._known: dict[Hashable, int] = {}

    def __call__(self, insn: Insn) -> int:
        fields = {name: value for name, value in insn.fields.items() if name not in PLACES}
        if insn.kernel is not None:
            fields["uop_end"] = len(insn.kernel)
        key = (insn.opcode, *fields.items())
        if key not in self._known:
            self._known[key] = cycles_alone(self._config, insn.opcode, fields)
        return self._known[key]


def _lane(insn: Insn, stored: set[str], ahead: bool) -> Lane:
    if insn.queue == Queue.LOAD:
        if any(space in stored for space, _, _ in insn.reads):
            return Lane.RESULT
        weights = ahead and insn.fields["mem_type"] == MemType.WGT
        return (WEIGHTS if weights else CONSTANTS)[insn.layer % len(CONSTANTS)]
    return Lane.STORE if insn.opcode == Opcode.STORE else Lane.COMPUTE


class _Player:
    """Plays a stream through; computations and stores run as soon as their LOADs are chosen."""

    def __init__(self, items: Sequence[_Item], timing: Timing, ahead: bool):
        self._latency = timing.token_latency
        self._store_latency = timing.dma_latency
        self._port_waits = not (ahead or timing.splits_channels)
        self._rest = [item for item in items if item.lane not in LOADS]
        self._loads = {lane: [i for i in items if i.lane == lane] for lane in LOADS}
        self._taken = dict.fromkeys(LOADS, 0)
        self._free = dict.fromkeys(Queue, 0)
        self._ran = 0
        self._known = -1  # of STOREs the last one whose end the compute queue has waited for

    def stream(self) -> Iterator[Insn]:
        """The instructions in their new order."""
        at = 0
        for place, part in self._merged():
            yield from (item.insn for item in self._rest[at:place])
            at = place
            following = self._rest[min(at, len(self._rest) - 1)]
            yield replace(part.insn, fields=part.insn.fields.copy(), layer=following.insn.layer)
        yield from (item.insn for item in self._rest[at:])

    def _merged(self) -> Iterator[tuple[int, Part]]:
        """LOADs, each with how many of the others come before it; parts that follow are one."""
        last: tuple[int, Part] | None = None
        for place, item in self._placed():
            joined = last[1].joined(item.part) if last else None
            if last and joined and item.first_place <= last[0]:
                last = last[0], joined
                continue
            if last:
                yield last
            last = place, item.part
        if last:
            yield last

    def _placed(self) -> Iterator[tuple[int, _Item]]:
        """The LOADs in their order, each with its place among the others."""
        at = 0
        while True:
            self._run()
            load = self._next()
            if load is None:
                return
            at = self._take(load, max(at, load.first_place))
            yield at, load

    def _take(self, load: _Item, at: int) -> int:
        """Play a LOAD; its place among the others, ``at`` or one behind.

        It is behind those that start before it.  What it needs of a STORE the compute queue passes
        on between two computations: before the one that then runs where that gains time, though
        that one may have to wait.
        """
        start = self._ready(load)
        assert start is not None, "a LOAD is taken when all that it needs has been played"
        behind = at
        while behind < self._ran and self._rest[behind].start <= start:
            behind += 1
        running = self._last_computation(at, behind)
        self._note(at, running)
        store = self._news(load)
        if store is None or running == behind:
            self._note(running, behind)
            self._play(load)
            return behind
        self._known = store.place
        told, after = self._told(store), self._told(self._rest[running]) + self._latency
        free, wait = self._free[Queue.COMPUTE], max(0, told - self._rest[running].start)
        if wait and max(free, after + load.cycles) <= max(free + wait, start + load.cycles):
            self._note(running, behind)
            self._play(load, after)
            return behind
        if wait:
            self._replay(running, told)
        self._play(load)
        return running

    def _last_computation(self, at: int, end: int) -> int:
        """The last one of those from ``at`` to ``end``; ``end`` where there is none."""
        numbers = range(end - 1, at - 1, -1)
        return next((n for n in numbers if self._rest[n].lane == Lane.COMPUTE), end)

    def _note(self, begin: int, end: int) -> None:
        """The compute queue knows of each STORE that one of these computations waits for."""
        for item in self._rest[begin:end]:
            self._known = max([self._known, *(need.place for need in _stores(item))])

    def _news(self, load: _Item) -> _Item | None:
        """The last STORE that a LOAD needs, where the compute queue does not know of its end."""
        store = max(_stores(load), key=lambda need: need.place, default=None)
        return None if store is None or store.place <= self._known else store

    def _told(self, item: _Item) -> int:
        """The cycle from which others know that ``item`` has ended."""
        assert item.end is not None, "only what has been played is waited for"
        return item.end + self._latency

    def _replay(self, first: int, start: int) -> None:
        """Play the others from number ``first`` on again: it starts in cycle ``start``."""
        for queue in (Queue.COMPUTE, Queue.STORE):
            before = (self._rest[n] for n in range(first - 1, -1, -1))
            ends = (item.end or 0 for item in before if item.insn.queue == queue)
            self._free[queue] = next(ends, 0)
        self._free[Queue.COMPUTE] = start
        for item in self._rest[first : self._ran]:
            self._play(item)

    def _run(self) -> None:
        """Computations and stores until one needs a LOAD that is not chosen yet."""
        while self._ran < len(self._rest) and self._ready(self._rest[self._ran]) is not None:
            self._play(self._rest[self._ran])
            self._ran += 1

    def _ready(self, item: _Item) -> int | None:
        """The cycle from which ``item`` may start; None where that is not known yet."""
        ready = 0
        for need in item.needs:
            if need.end is None:
                return None
            ready = max(ready, need.end + self._latency)
        return max(ready, self._free[item.insn.queue])

    def _play(self, item: _Item, earliest: int = 0) -> None:
        ready = self._ready(item)
        assert ready is not None, "an instruction is played after all that it needs"
        start = max(ready, earliest)
        item.start, item.end = start, start + item.cycles
        self._free[item.insn.queue] = item.end
        if item.lane in LOADS:
            self._taken[item.lane] += 1

    def _next(self) -> _Item | None:
        """The LOAD to be taken next: the earliest one, unless another fits before it.

        All that the earliest one needs is known: what comes before it has been played.
        """
        heads = [
            loads[self._taken[lane]]
            for lane, loads in self._loads.items()
            if self._taken[lane] < len(loads)
        ]
        if not heads:
            return None
        first, *others = sorted(heads, key=lambda item: item.number)
        mine = self._begins(first)
        for other in others:
            ready = self._ready(other)
            if ready is None:
                continue
            if ready + other.cycles - other.cycles // LATER_SHARE <= mine:
                return other
        return first

    def _begins(self, first: _Item) -> int:
        """The cycle from which the earliest LOAD holds up others.

        It starts then, or the STORE that it waits for is about to use the port: what would pass
        meanwhile delays both.  Where weights are loaded ahead the port is what a program waits for
        most, and is never kept free.
        """
        ready = self._ready(first)
        assert ready is not None, "the earliest LOAD needs nothing that is later"
        store = max(_stores(first), key=lambda need: need.place, default=None)
        if not self._port_waits or store is None or self._told(store) < ready:
            return ready
        return store.start + self._store_latency


def _stores(item: _Item) -> list[_Item]:
    """The STOREs that an instruction needs."""
    return [need for need in item.needs if need.lane == Lane.STORE]
