"""The order of loads: what does not wait for a result is loaded while others wait for theirs.

The load queue is in order.  At the border of two layers its next LOAD is one of inputs that the
layer before has not stored yet, and the weights behind it wait too, although nothing holds them.
Here the stream is played through with the cycles of its instructions, and each time the load queue
is free it takes one of two: the next LOAD of what the stream stores itself, or the next one of
anything else (constants, the inputs of the program).  Each kind keeps its order, and so do
computations and stores.  SRAM alone limits how far ahead a LOAD goes.

A new order is as good as the old one for whoever runs it from first to last: no two instructions
of which one writes what the other touches change places.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from vta_byoc.codegen.stream import DRAM, Insn, LastTouch
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import Opcode, Queue
from vta_byoc.hw.timing.work import cycles_alone

LATER_SHARE = 4
"""A LOAD goes ahead of one that could start before its end, if it holds that up for no more than
this part of its own time."""


class Lane(IntEnum):
    """Instructions that keep their order."""

    CONSTANT = 0
    RESULT = 1
    COMPUTE = 2
    STORE = 3


LOADS = (Lane.CONSTANT, Lane.RESULT)


@dataclass
class _Item:
    """An instruction, how long it takes, and the last one of each other lane that it needs."""

    insn: Insn
    lane: Lane
    number: int
    cycles: int
    needs: list[_Item] = field(default_factory=list)
    start: int = 0
    end: int | None = None
    place: int = -1
    """Of a computation or store: its number among these."""


def early_loads(insns: Sequence[Insn], config: VTAConfig) -> list[Insn]:
    """The instructions of a program in a better order, each LOAD in the layer that it comes to."""
    items = _items(insns, config)
    return list(_Player(items, config.timing.token_latency).stream())


def _items(insns: Sequence[Insn], config: VTAConfig) -> list[_Item]:
    """The instructions with what they need of each other."""
    stored = {space for insn in insns for space, _, _ in insn.writes if space.startswith(DRAM)}
    cycles = functools.cache(lambda *key: cycles_alone(config, key[0], dict(key[1])))
    items: list[_Item] = []
    touched = {lane: LastTouch() for lane in Lane}
    place = 0
    for number, insn in enumerate(insns):
        lane = _lane(insn, stored)
        key = tuple((name, value) for name, value in insn.fields.items() if name not in PLACES)
        item = _Item(insn, lane, number, cycles(insn.opcode, _relative(insn, key)))
        if lane not in LOADS:
            item.place, place = place, place + 1
        for other in Lane:
            last = touched[other].conflict(insn) if other != lane else -1
            if last >= 0:
                item.needs.append(items[last])
        touched[lane].touch(insn, number)
        items.append(item)
    return items


PLACES = ("sram_base", "uop_bgn", "uop_end")
"""Fields that say where something is, which takes no time."""


def _relative(insn: Insn, key: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    count = insn.fields.get("uop_end", 0) - insn.fields.get("uop_bgn", 0)
    return (*key, ("uop_end", count)) if count else key


def _lane(insn: Insn, stored: set[str]) -> Lane:
    if insn.queue == Queue.LOAD:
        return Lane.RESULT if any(s in stored for s, _, _ in insn.reads) else Lane.CONSTANT
    return Lane.STORE if insn.opcode == Opcode.STORE else Lane.COMPUTE


class _Player:
    """Plays a stream through; computations and stores run as soon as their LOADs are chosen."""

    def __init__(self, items: Sequence[_Item], latency: int):
        self._latency = latency
        self._rest = [item for item in items if item.lane not in LOADS]
        self._loads = {lane: [i for i in items if i.lane == lane] for lane in LOADS}
        self._taken = dict.fromkeys(LOADS, 0)
        self._free = dict.fromkeys(Queue, 0)
        self._ran = 0

    def stream(self) -> Iterator[Insn]:
        """The instructions in their new order."""
        at = 0
        while True:
            self._run()
            load = self._next()
            if load is None:
                break
            self._play(load)
            first = max((n.place + 1 for n in load.needs if n.lane not in LOADS), default=0)
            begin, at = at, max(at, first)
            while at < self._ran and self._rest[at].start <= load.start:
                at += 1
            yield from (item.insn for item in self._rest[begin:at])
            if at < len(self._rest):
                load.insn.layer = self._rest[at].insn.layer
            yield load.insn
        yield from (item.insn for item in self._rest[at:])

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

    def _play(self, item: _Item) -> None:
        start = self._ready(item)
        assert start is not None, "an instruction is played after all that it needs"
        item.start, item.end = start, start + item.cycles
        self._free[item.insn.queue] = item.end
        if item.lane in LOADS:
            self._taken[item.lane] += 1

    def _next(self) -> _Item | None:
        """The LOAD to be taken next: the earlier one, unless the other fits before it."""
        heads = sorted(
            (loads[self._taken[lane]] for lane, loads in self._loads.items()
             if self._taken[lane] < len(loads)),
            key=lambda item: item.number,
        )
        if len(heads) < 2:
            return heads[0] if heads else None
        first, second = heads
        mine, other = self._ready(first), self._ready(second)
        if other is None:
            return first
        if mine is None:
            return second
        fits = other + second.cycles - second.cycles // LATER_SHARE <= mine
        return second if fits else first
