"""Channels that are only moved between convolutions, stored where they are read.

ShuffleNet's units cut a tensor in two halves of channels, join what they compute to one of them
and shuffle all channels.  Nothing of that has to be carried out: each channel is read by one
convolution in the end.  The convolution before computes its filters in ranges, one for each tensor
that is read behind; what is read lies side by side, and the weights of the convolution behind have
its order.  What no range of whole blocks can be (few channels of many tensors) is copied into one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from tvm import relax

from vta_byoc.base.rewrites import is_on
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import static_shape
from vta_byoc.partitioning.channel_order import NONE, is_by_channel, reading, with_filters
from vta_byoc.partitioning.channel_ranges import Reads, cheapest_ranges, padded
from vta_byoc.partitioning.entry import Plan
from vta_byoc.partitioning.layers import simple_plan
from vta_byoc.partitioning.routable import ChannelMoves, Connected
from vta_byoc.partitioning.routes import Order, Part, Routes
from vta_byoc.strategies.movement import regions
from vta_byoc.workload.packing import blocks
from vta_byoc.workload.workloads import ConcatWorkload, Conv2dWorkload, MoveWorkload, Shape

LOG = logging.getLogger(__name__)
START_LATENCIES = 8
"""Latencies of the DMA that one more kernel costs, about: its first load, its last store."""
COPY_CYCLES = 3
"""Cycles a vector, about, of copying lanes: a reset, a product, what the store adds."""


def find_routes(
    main: relax.Function, groups: Mapping[str, relax.Function], config: VTAConfig
) -> Routes:
    """The routes that cost less by estimate than moving the channels; ``groups`` are composites."""
    found = Routes()
    if not is_on("routed_channels"):
        return found
    moves = ChannelMoves(main, groups)
    for connected in moves.connected():
        try:
            routes, gain = _Planner(connected, config).plan()
        except VTAError as err:
            LOG.debug("channels of %s are moved: %s", connected.read[0].name, err)
            continue
        if gain > 0:
            found.add(routes)
            moves.change(routes.readers)
    return found


# ---------------------------------------------------------------- how it is routed
class _Planner:
    """Chooses parts, then the order in which each tensor is read, then plans its readers."""

    def __init__(self, moves: Connected, config: VTAConfig) -> None:
        self._moves = moves
        self._config = config
        self._start = START_LATENCIES * config.timing.dma_latency
        self._channels = {var: set(moves.moves[var]) for var in moves.read}

    def plan(self) -> tuple[Routes, float]:
        """The routes and how many cycles they save by estimate.

        Raises:
            VTAError: no tile of a part or of a reader fits.
        """
        moves = self._moves
        routes = Routes(moves=set(moves.moves))
        parts = {var: self._parts(var) for var in self._sources()}
        routes.parts = {v: p for v, p in parts.items() if p[0].match is not None}
        routes.orders = {var: self._order(var, parts) for var in moves.read}
        lanes = {var: order.lanes for var, order in routes.orders.items()}
        for var, (data, match) in moves.readers.items():
            routes.readers[var] = reading(match, lanes[data], self._config)
            if is_by_channel(match.parsed.work):
                lanes[var] = lanes[data]
                routes.reordered.add(var)
        return routes, self._before(routes) - _after(routes)

    def _before(self, routes: Routes) -> float:
        """Cycles of what the routes replace; what concatenations store in place costs nothing."""
        copies = [m for m in self._moves.before if isinstance(m.parsed.work, MoveWorkload)]
        convs = [self._moves.splits[var] for var in routes.parts]
        convs += [match for _, match in self._moves.readers.values()]
        return sum(match.plan.cycles for match in (*copies, *convs))

    def _sources(self) -> dict[relax.Var, None]:
        """The tensors whose channels are moved, in order of first use."""
        channels = (c for var in self._moves.read for c in self._moves.moves[var])
        return dict.fromkeys(source for source, _ in channels)

    # ------------------------------------------------------------ parts
    def _parts(self, var: relax.Var) -> list[Part]:
        """How ``var`` is stored."""
        count = static_shape(var)[1]
        if var not in self._moves.splits:
            return [Part(var, 0, count)]
        readers: list[set[relax.Var]] = [set() for _ in range(count)]
        for moved in self._moves.read:
            for source, channel in self._moves.moves[moved]:
                if source.same_as(var):
                    readers[channel].add(moved)
        match = self._moves.splits[var]
        ranges = cheapest_ranges(
            [frozenset(own) for own in readers], lambda reads: self._cost(match.parsed.work, reads)
        )
        stored = [r for r in ranges if r.counts]
        if len(stored) == 1 and stored[0].last - stored[0].first == count:
            return [Part(var, 0, count)]
        return [
            Part(var, r.first, r.last, with_filters(match, r.first, r.last, self._config))
            for r in stored
        ]

    def _cost(self, work: Conv2dWorkload, reads: Reads) -> float:
        """Cycles of storing a range by itself and of reading it, about."""
        if not reads.counts:
            return 0.0
        k, size = self._config.block, reads.last - reads.first
        made = self._start + blocks(size, k) * _block_cycles(work, blocks(work.in_channels, k))
        plane = work.batch * work.out_height * work.out_width
        in_place = {v for v, count in reads.counts.items() if count == len(self._moves.moves[v])}
        joining = len(reads.counts) - len(in_place)
        for reader, count in reads.counts.items():
            if joining == 1 or reader in in_place:
                made += blocks(size, k) * self._reading(reader)
            else:
                made += self._start + COPY_CYCLES * plane + count / k * self._reading(reader)
        return made

    def _reading(self, var: object) -> float:
        """Cycles of reading one more block of ``var``, about."""
        found, blocked = 0.0, {var}
        for result, (data, match) in self._moves.readers.items():
            if data not in blocked:
                continue
            work = match.parsed.work
            if is_by_channel(work):
                blocked.add(result)
                found += _block_cycles(work, 1)
            else:
                taps = work.kernel[0] * work.kernel[1]
                plane = work.batch * work.out_height * work.out_width
                found += plane * taps * blocks(work.out_channels, self._config.block)
        return found

    # ------------------------------------------------------------ orders
    def _order(self, var: relax.Var, parts: Mapping[relax.Var, list[Part]]) -> Order:
        """Parts that ``var`` alone reads lie side by side; its channels of others are copied."""
        k, channels = self._config.block, self._moves.moves[var]
        numbers = {channel: number for number, channel in enumerate(channels)}
        pieces: list[Part] = []
        copied: list[Part] = []
        lanes: list[int] = []
        rest: list[tuple[regions.Channel, int]] = []
        for source in dict.fromkeys(source for source, _ in channels):
            for part in parts[source]:
                own = [numbers.get((source, c), NONE) for c in part.channels]
                if all(n == NONE for n in own):
                    continue
                if self._is_alone(var, part) and self._is_dense(var, own):
                    pieces.append(part)
                    lanes += _filled(own, k)
                else:
                    rest += [((len(copied), at), n) for at, n in enumerate(own) if n != NONE]
                    copied.append(part)
        copy = self._copied(var, copied, [channel for channel, _ in rest])
        lanes += _filled([number for _, number in rest], k)
        sizes = [padded(len(p.channels), k) for p in pieces]
        joined = self._joined(var, [*sizes, padded(len(rest), k)] if rest else sizes)
        return Order(tuple(pieces), tuple(copied), copy, joined, tuple(lanes))

    def _copied(
        self, var: relax.Var, parts: Sequence[Part], channels: Sequence[regions.Channel]
    ) -> Plan | None:
        """The copy of ``channels`` of ``parts``, None where there are none."""
        if not channels:
            return None
        n, _, height, width = static_shape(var)
        shapes: list[Shape] = [(n, len(p.channels), height, width) for p in parts]
        plane = regions.whole(height), regions.whole(width)
        work = regions.gathered(shapes, channels, *plane, self._config)
        how = "channels of several tensors copied into blocks"
        return simple_plan("move", work, {}, self._config, how)

    def _joined(self, var: relax.Var, sizes: Sequence[int]) -> Plan | None:
        """Pieces of ``sizes`` channels side by side, where there are several."""
        if len(sizes) < 2:
            return None
        n, _, height, width = static_shape(var)
        work = ConcatWorkload(n, tuple(sizes), height, width)
        plan = simple_plan("concat", work, {}, self._config, "stored where it is read")
        return dataclasses.replace(plan, cycles=0.0)

    def _is_alone(self, var: relax.Var, part: Part) -> bool:
        """Whether ``part`` can lie in ``var``: it is all of it, or no other joins it to more."""
        own = {(part.var, c) for c in part.channels}
        joining = {v for v, read in self._channels.items() if own & read and read - own}
        return var not in joining or len(joining) == 1

    def _is_dense(self, var: relax.Var, own: Sequence[int]) -> bool:
        """Whether reading all of a part costs no more than a copy of the channels that are read."""
        k, used = self._config.block, sum(n != NONE for n in own)
        more = (blocks(len(own), k) - blocks(used, k)) * self._reading(var)
        n, _, height, width = static_shape(var)
        return more <= self._start + COPY_CYCLES * n * height * width * blocks(used, k)


def _filled(numbers: Sequence[int], block: int) -> list[int]:
    """``numbers`` in whole blocks."""
    return [*numbers, *[NONE] * (padded(len(numbers), block) - len(numbers))]


def _block_cycles(work: Conv2dWorkload, inputs: int) -> float:
    """Cycles of one block of results that sees ``inputs`` blocks of channels."""
    products = inputs * work.kernel[0] * work.kernel[1]
    return work.batch * work.out_height * work.out_width * (products + 1 + len(work.epilogue.steps))


def _after(routes: Routes) -> float:
    """Cycles of everything that the routes compute."""
    plans = [p.match.plan for own in routes.parts.values() for p in own if p.match is not None]
    plans += [order.copy for order in routes.orders.values() if order.copy is not None]
    return sum(plan.cycles for plan in (*plans, *(m.plan for m in routes.readers.values())))
