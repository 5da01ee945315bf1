"""The timeline of a compiled model, small enough for a page and true at every zoom.

Two forms of the same cycles: exact instructions, of every layer the first ones, and buckets of
equal width, which count the cycles of each queue by what they went to. The page draws instructions
where it has them and names everything else an aggregate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vta_byoc.base.json_types import JsonObject
from vta_byoc.hw.isa import ISA, Instruction, Queue
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.result import PORT, InsnTime
from vta_byoc.reports.run.buffers import SRAMS, Lifetimes
from vta_byoc.reports.run.layers import ACTIVITIES, ModelFacts, activity
from vta_byoc.reports.run.trace import short_name, token_pairs

EXACT = 12_000
"""Instructions that a timeline holds one by one: about 0.5 MB."""
BUCKETS = 2_000
"""Equal parts of the time that it counts cycles in: at most 0.3 MB."""
Decoded = Mapping[str, Sequence[Instruction]]
"""The instructions of each region."""
_KIND = {name: number for number, name in enumerate(ACTIVITIES)}


def timeline(facts: ModelFacts, exact: int = EXACT, buckets: int = BUCKETS) -> JsonObject:
    """The timeline of all regions, one after the other, for the page.

    Args:
        facts: of the compiled model.
        exact: instructions that it may hold one by one, the same number of every layer.
        buckets: equal parts of the time that it may have.
    """
    width = -(-facts.cycles // buckets) or 1
    edges = np.arange(0, facts.cycles + width, width, dtype=np.int64)
    starts = _region_starts(facts)
    names: dict[str, int] = {}
    insns = {name: _instructions(program) for name, program in facts.programs.items()}
    chosen = list(_exact(facts, insns, _per_layer(facts, exact), names))
    return {
        "cycles": facts.cycles,
        "bucket": width,
        "kinds": list(ACTIVITIES),
        "regions": [[n, starts[n], starts[n] + r.cycles] for n, r in facts.regions.items()],
        "layers": _layer_spans(facts, starts),
        "lanes": {q.name.lower(): _lane(facts, insns, q, edges, starts) for q in Queue},
        "names": list(names),
        "exact": [event for event, _ in chosen],
        "tokens": _tokens(insns, {where: i for i, (_, where) in enumerate(chosen)}),
        "instructions": sum(len(r.instructions) for r in facts.regions.values()),
        "sram": {name: _occupancy(facts, name, edges, starts) for name in SRAMS},
    }


def _region_starts(facts: ModelFacts) -> dict[str, int]:
    """The cycle in which each region begins."""
    starts, at = {}, 0
    for name, result in facts.regions.items():
        starts[name] = at
        at += result.cycles
    return starts


def _layer_spans(facts: ModelFacts, starts: dict[str, int]) -> list[list[str | int]]:
    """Name, and the cycles [begin, end) in which the compute queue is at a layer."""
    spans: list[list[str | int]] = []
    for region, result in facts.regions.items():
        for layer in result.layers:
            mine = result.instructions[layer.begin : layer.end]
            compute = [time for time in mine if time.queue == Queue.COMPUTE]
            if compute:
                begin, end = compute[0].free, compute[-1].end
                spans.append([layer.name, starts[region] + begin, starts[region] + end])
    return spans


# ---------------------------------------------------------------- aggregates
def pieces(time: InsnTime, insn: Instruction) -> Iterator[tuple[str, int]]:
    """What the queue did from ``time.free`` to ``time.end``: (one of ACTIVITIES, cycles).

    Waits come first. Inside of an instruction, startup stands before the waits for the port and
    these before the work, whatever their real order is.
    """
    yield from ((reason, n) for reason, n in time.stalls.items() if reason != PORT)
    yield "startup", time.startup
    yield PORT, time.stalls.get(PORT, 0)
    yield activity(insn), time.busy - time.startup


def _instructions(program: Program) -> list[Instruction]:
    isa = ISA.of(program.config)
    return [isa.decode(*words) for words in program.insns.tolist()]


def _lane(
    facts: ModelFacts, insns: Decoded, queue: Queue, edges: np.ndarray, starts: dict[str, int]
) -> dict[str, list[int]]:
    """Kind -> cycles in every bucket, for kinds that the queue has cycles for."""
    spans: dict[str, list[int]] = {}
    for region, result in facts.regions.items():
        for time in result.instructions:
            if time.queue != queue:
                continue
            at = starts[region] + time.free
            for kind, cycles in pieces(time, insns[region][time.index]):
                if cycles:
                    spans.setdefault(kind, []).extend((at, at + cycles))
                at += cycles
    return {str(_KIND[kind]): _counted(spans[kind], edges) for kind in ACTIVITIES if kind in spans}


def _counted(spans: Sequence[int], edges: np.ndarray) -> list[int]:
    """Cycles of disjoint, ascending spans (begin, end, begin, ...) in each bucket."""
    ends = np.array(spans, np.int64)
    lengths = np.zeros_like(ends)
    lengths[1::2] = ends[1::2] - ends[::2]
    covered = np.interp(edges, ends, np.cumsum(lengths))
    return np.diff(np.rint(covered).astype(np.int64)).tolist()


def _occupancy(
    facts: ModelFacts, name: str, edges: np.ndarray, starts: dict[str, int]
) -> JsonObject:
    """The depth of a buffer, and the most elements that are live at a time in each bucket."""
    times: list[np.ndarray] = [np.zeros(1, np.int64)]
    changes: list[np.ndarray] = [np.zeros(1, np.int64)]
    for region, result in facts.regions.items():
        live: Lifetimes = facts.live[region][name]
        for counts, ends, sign in ((live.born, False, 1), (live.died, True, -1)):
            used = np.flatnonzero(counts)
            cycle = [
                result.instructions[i].end if ends else result.instructions[i].start for i in used
            ]
            times.append(np.array(cycle, np.int64) + starts[region])
            changes.append(sign * counts[used])
    moments, place = np.unique(np.concatenate(times), return_inverse=True)
    level = np.cumsum(np.bincount(place, np.concatenate(changes))).astype(np.int64)
    begins = edges[:-1]
    most = level[np.searchsorted(moments, begins, "right") - 1]
    bucket = np.searchsorted(edges, moments, "right") - 1
    inside = bucket < len(most)
    np.maximum.at(most, bucket[inside], level[inside])
    return {"depth": facts.config.depths[name], "most": most.tolist()}


# ---------------------------------------------------------------- instructions
def _per_layer(facts: ModelFacts, limit: int) -> int:
    """How many instructions of each layer may be exact so that all are at most ``limit``."""
    sizes = [y.end - y.begin for r in facts.regions.values() for y in r.layers]
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _exact(
    facts: ModelFacts, insns: Decoded, per_layer: int, names: dict[str, int]
) -> Iterator[tuple[list[int], tuple[str, int]]]:
    """Events with the region and number of their instruction.

    An event is [queue, cycle from which the queue was free, number in its region, name, kind,
    startup, cycles waiting for the port, cycles of work, and for each other wait: kind, cycles].
    """
    at = 0
    for region, result in facts.regions.items():
        symbols = {r.index: r.symbol for r in facts.programs[region].relocations}
        for layer in result.layers:
            for index in range(layer.begin, min(layer.end, layer.begin + per_layer)):
                time, insn = result.instructions[index], insns[region][index]
                text = short_name(insn, symbols.get(index))
                name = names.setdefault(text, len(names))
                event = [int(time.queue), at + time.free, index, name, _KIND[activity(insn)]]
                event += [time.startup, time.stalls.get(PORT, 0), time.busy - time.startup]
                for reason, cycles in time.stalls.items():
                    if reason != PORT and cycles:
                        event += [_KIND[reason], cycles]
                yield event, (region, index)
        at += result.cycles


def _tokens(insns: Decoded, numbers: dict[tuple[str, int], int]) -> list[list[int]]:
    """Pairs of exact events, from the one that pushes a token to the one that pops it."""
    return [
        [numbers[region, source], numbers[region, target]]
        for region, decoded in insns.items()
        for source, target in token_pairs(decoded)
        if (region, source) in numbers and (region, target) in numbers
    ]
