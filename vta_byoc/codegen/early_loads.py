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
    return list(_Player(items, config.timing.token_latency).stream())


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
        """The LOADs in their order, each behind the others that start before it."""
        at = 0
        while True:
            self._run()
            load = self._next()
            if load is None:
                return
            self._play(load)
            at = max(at, load.first_place)
            while at < self._ran and self._rest[at].start <= load.start:
                at += 1
            yield at, load

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
        mine = self._ready(first)
        assert mine is not None, "the earliest LOAD needs nothing that is later"
        for other in others:
            ready = self._ready(other)
            if ready is None:
                continue
            if ready + other.cycles - other.cycles // LATER_SHARE <= mine:
                return other
        return first
