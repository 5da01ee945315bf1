"""What a layer asks of the machine, and the cycles it then takes.

A :class:`ResourceUsage` says what one tiling, or all of a space at once (numpy broadcast), stages,
computes and stores; :func:`estimate` turns it into cycles by the machine's timing parameters.
docs/cost-model.md derives every term.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import INSN_BYTES, UOP_BYTES
from vta_byoc.hw.timing.work import BURST_START, WRITE_BURST, WRITE_START
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.workload.memory import ACC, SRAM_SCOPES, WGT, depth_of

Array: TypeAlias = float | np.ndarray
"""A number, or an array that broadcasts over the axes of a space.  An integer of NumPy's is one too
(:func:`integer`): named here, each operation of two of these would be looked up for every pair of
types, and the type checker would take twice as long for the whole package."""
Mask: TypeAlias = bool | np.bool_ | np.ndarray
"""The same of truth values."""

MOST_SLOTS = 2
"""Most slots of a buffer (double buffering).  Micro-ops address SRAM by element, so that a kernel
is loaded once for each slot that it works on."""
TOKEN_INSNS = 2
"""Instructions of a tile, at the most about, that move only tokens; fetch reads them too."""
PREFETCH_STEPS = 2
"""Steps during which a buffer with two slots is filled ahead of the step that needs it."""
WRITE_BEAT_CYCLES = 1.5
"""Cycles of a beat of a written burst of profile "chisel": two beats in three cycles
(docs/timing.md, The profile chisel)."""


def integer(value: int) -> Array:
    """The integer ``value`` as NumPy has it."""
    return cast(Array, np.int64(value))


@dataclass(frozen=True)
class Staged:
    """One buffer of a layer in SRAM.

    ``size``: elements of one (full) tile; ``fills``: tiles over the layer.  For a loaded buffer,
    over the layer, were every fill a load: ``nbytes`` read from DRAM, ``dmas`` instructions,
    ``zeros`` elements of padding.

    ``period`` different tiles are filled in turn, ``turns`` times, before others come: a fill whose
    slot holds its tile already is no load.  The last step before others come is ``ends`` times as
    long as one is on average.  ``chunks``: a fill is that many loads, one after the other, each to
    a slot of its own as far as there are slots.
    """

    scope: str
    size: Array
    fills: Array
    nbytes: Array = 0
    dmas: Array = 0
    zeros: Array = 0
    period: Array = 1
    turns: Array = 1
    ends: Array = 1
    chunks: Array = 1

    def loaded(self, slots: Array) -> Staged:
        """What is really loaded with that many slots: ``fills`` that are loads."""
        row = self.period * self.turns
        if _is_one(row):
            return self
        held = slots % np.asarray(self.period) == 0
        return self._part(np.where(held, np.minimum(slots, row), row), row)

    def fewest(self) -> Staged:
        """With a single tile loaded once, as one slot has it, where two would load it twice."""
        if _is_one(self.turns):
            return self
        turns = np.where(np.asarray(self.period) == 1, 1, self.turns)
        return dataclasses.replace(self._part(turns, self.turns), turns=turns)

    def stays(self, slots: Array) -> Mask:
        """Whether the next call of the layer finds all tiles in their slots."""
        return (slots % np.asarray(self.period) == 0) & (self.fills == self.period * self.turns)

    def without_loads(self, where: Mask) -> Staged:
        """With nothing to load ``where`` that holds."""
        return dataclasses.replace(
            self,
            nbytes=np.where(where, 0, self.nbytes),
            dmas=np.where(where, 0, self.dmas),
            zeros=np.where(where, 0, self.zeros),
        )

    def _part(self, count: Array, of: Array) -> Staged:
        """With ``count`` of each ``of`` fills (their product is exact, unlike a share)."""
        counts = {
            name: getattr(self, name) * count / of for name in ("fills", "nbytes", "dmas", "zeros")
        }
        return dataclasses.replace(self, **counts)


def _is_one(count: Array) -> bool:
    return np.ndim(count) == 0 and bool(count == 1)


@dataclass(frozen=True)
class ResourceUsage:
    """What a layer asks of the machine, over the whole layer.

    ``tiles`` are output tiles; ``gemm`` micro-ops with resets, ``alu`` cycles; ``gemm_starts`` and
    ``alu_starts`` instructions of each; ``kernels`` micro-op loads of ``uops`` micro-ops together;
    ``stored`` bytes by ``stores`` instructions; ``waits``: the part of the stores that computation
    waits for whatever the slots (it changes in place what they read).  ``step_kernels`` and
    ``step_uops`` are loaded once for each combination of slots that a step can meet.
    """

    staged: tuple[Staged, ...]
    tiles: Array
    gemm: Array = 0
    gemm_starts: Array = 0
    alu: Array = 0
    alu_starts: Array = 0
    uops: Array = 0
    kernels: Array = 0
    stored: Array = 0
    stores: Array = 0
    waits: Array = 0
    step_kernels: Array = 0
    step_uops: Array = 0


def fits(demand: ResourceUsage, config: VTAConfig, slots: Sequence[Array]) -> Mask:
    """Whether all tiles fit SRAM with their slots."""
    every = zip(needs(demand, slots), depths(config), strict=True)
    return functools.reduce(np.logical_and, (need <= have for need, have in every))


def depths(config: VTAConfig) -> tuple[int, ...]:
    """Elements of the INP, WGT and ACC buffer."""
    return tuple(depth_of(config, scope) for scope in SRAM_SCOPES)


def needs(demand: ResourceUsage, slots: Sequence[Array]) -> list[Array]:
    """SRAM elements in use by scope; a buffer filled once takes one slot."""
    count = dict(zip(SRAM_SCOPES, slots, strict=True))
    used: dict[str, Array] = dict.fromkeys(SRAM_SCOPES, 0)
    for item in demand.staged:
        used[item.scope] = used[item.scope] + np.minimum(count[item.scope], item.fills) * item.size
    return [used[scope] for scope in SRAM_SCOPES]


def estimate(
    demand: ResourceUsage, config: VTAConfig, slots: Sequence[Array], calls: int = 1
) -> Array:
    """Cycles of a layer; infinite where its tiles do not fit SRAM.

    The three queues overlap as far as slots allow: a step's loads hide behind the step before, a
    buffer with one slot is filled while nothing computes on it.  ``calls`` are those of
    :func:`cycle_cost`.
    """
    cycles, _ = cycle_cost(demand, config, slots, calls)
    return np.where(fits(demand, config, slots), cycles, np.inf)


def cycle_cost(
    demand: ResourceUsage, config: VTAConfig, slots: Sequence[Array], calls: int = 1
) -> tuple[Array, Array]:
    """(cycles, cycles of the port) of a layer, whether it fits or not.

    ``slots`` may be arrays that broadcast against those of ``demand``. Of ``calls`` calls in a row
    that have their weights in common: a call's share.
    """
    time = Time(demand, config, slots)
    if calls == 1:
        return time.cycles(), time.port
    later = Time(demand, config, slots, again=True)
    first, rest = 1 / calls, 1 - 1 / calls
    return first * time.cycles() + rest * later.cycles(), first * time.port + rest * later.port


class Time:
    """Cycles of each queue, of the port (``port``), and how they overlap (:meth:`cycles`).

    ``again``: of a call that follows one with the same weights.
    """

    def __init__(
        self,
        demand: ResourceUsage,
        config: VTAConfig,
        slots: Sequence[Array],
        *,
        again: bool = False,
    ):
        time = config.timing
        self.demand, self.time = demand, time
        self.slots = dict(zip(SRAM_SCOPES, slots, strict=True))
        self._loaded = [item.loaded(self.slots[item.scope]) for item in demand.staged]
        staged = self._loaded
        if again:
            staged = [self._again(*pair) for pair in zip(demand.staged, staged, strict=True)]
        self.loads = [s for s in staged if s.scope != ACC]
        self.fillings = [self.filling(s) for s in self.loads]
        self.each = [f / s.fills for f, s in zip(self.fillings, self.loads, strict=True)]
        operands = [s for s in staged if s.scope == ACC]
        self.steps = demand.tiles
        for item in demand.staged:
            if item.scope != ACC:
                self.steps = np.maximum(self.steps, item.fills)
        met = self.combinations()
        kernels = demand.kernels + met * demand.step_kernels
        uop_bytes = (demand.uops + met * demand.step_uops) * UOP_BYTES
        uops = uop_bytes / time.port_bytes + kernels * time.read_latency
        self.gemm = demand.gemm + demand.gemm_starts * time.compute_start + uops
        self.alu = demand.alu + demand.alu_starts * time.compute_start
        self.alu = self.alu + sum(self.filling(s) for s in operands)
        alone = sum(self.fillings, np.float64(0))
        self.store = _storing(time, demand.stored, demand.stores)
        dmas = sum(s.dmas for s in staged) + demand.stores + kernels
        self.insns = dmas + demand.gemm_starts + demand.alu_starts
        self.insns = self.insns + TOKEN_INSNS * demand.tiles
        nbytes = sum(s.nbytes for s in staged) + uop_bytes
        if not time.splits_channels:
            nbytes = nbytes + demand.stored
        self.port = (nbytes + self.insns * INSN_BYTES) / time.port_bytes
        # a load waits for whoever else uses the port while it does
        mine = sum((s.nbytes for s in self.loads), np.float64(0)) / time.port_bytes
        self.stretch = 1 + mine * (self.port - mine) / np.maximum(alone, 1) ** 2
        self.load = alone * self.stretch

    def _again(self, item: Staged, loaded: Staged) -> Staged:
        """What a call loads that follows one with the same weights."""
        if item.scope != WGT:
            return loaded
        return loaded.without_loads(item.stays(self.slots[WGT]))

    def combinations(self) -> Array:
        """Combinations of slots that steps meet: buffers filled equally often go in step."""
        count: Array = np.float64(1)
        seen: list[Array] = []
        for item in self.demand.staged:
            used = np.minimum(self.slots[item.scope], item.fills)
            alone: Mask = np.True_
            for fills in seen:
                alone = alone & (fills != item.fills)
            count = np.where(alone, count * used, count)
            seen.append(np.where(used > 1, item.fills, 0))
        return np.minimum(count, self.steps)

    def filling(self, item: Staged) -> Array:
        """Cycles of a queue for all loads of a buffer."""
        zeros = 0 if self.time.hides_padding else item.zeros
        return item.nbytes / self.time.port_bytes + item.dmas * self.time.read_latency + zeros

    def cycles(self) -> Array:
        """The slowest queue, with what it cannot hide before, between and after."""
        return functools.reduce(np.maximum, self.limits().values())

    def limits(self) -> dict[str, Array]:
        """What each limit alone makes the layer take, by name (docs/cost-model.md)."""
        tiles, steps = self.demand.tiles, self.steps
        first = sum(self.each, np.float64(0))
        gemm, alu, out = self.gemm / steps, self.alu / tiles, self.store / tiles
        fetch = self.insns * (INSN_BYTES / self.time.port_bytes)
        fetch = fetch + self.insns / self.time.fetch_burst * self.time.fetch_latency
        return {
            "compute": self.gemm + self.alu + self.exposed(alu) + self.renewed() + first + out,
            "load": self.load + gemm + alu + out,
            "reduction": self.uneven(gemm, alu) + first + out,
            "prefetch": self.bursts() + first + out,
            "store": self.store + first + gemm + alu,
            "fetch": fetch,
            "port": self.port + gemm + alu,
        }

    def exposed(self, alu: Array) -> Array:
        """Loads and stores that buffers with one slot keep from overlapping computation.

        The loads for a tile's first step still hide behind the ALU work of the tile before, those
        for a further chunk of it behind nothing.
        """
        tiles, waits = self.demand.tiles, self.demand.waits
        stores: Array = self.store * waits
        apart = self.store * (1 - waits) * (1 - 1 / tiles)
        stores = stores + np.where(self.slots[ACC] == 1, apart, 0)
        loads: Array = np.float64(0)
        first: Array = np.float64(0)
        further: Array = np.float64(0)
        waiting = self.waiting()
        for item, filling, one in zip(self.loads, self.fillings, self.each, strict=True):
            if not _is_one(item.chunks):
                chunks = filling * (1 - 1 / item.chunks)
                further = further + np.where(self.slots[item.scope] == 1, chunks, 0)
            # those of another buffer wait that follow one which waits: a queue is in order
            times = np.minimum(waiting, item.fills)
            each = np.where(times > 1, one, 0)
            loads = loads + each * (times - 1)
            first = first + each * np.minimum(times, tiles)
        hidden = np.minimum(first, alu * np.minimum(waiting, tiles))
        return stores + further + np.maximum(loads - hidden, 0)

    def waiting(self) -> Array:
        """How many loads wait for computation: all of a buffer with one slot."""
        most: Array = np.float64(0)
        for item in self.loads:
            waits = (item.fills > 1) & (self.slots[item.scope] == 1)
            most = np.maximum(most, np.where(waits, item.fills, 0))
        return most

    def uneven(self, gemm: Array, alu: Array) -> Array:
        """Steps of a reduction: loads run one step ahead, so the epilogue hides one load only."""
        tiles = self.demand.tiles
        each = self.steady * self.stretch
        inner, last = np.maximum(each, gemm), gemm + alu
        return (self.steps - tiles) * inner + (tiles - 1) * np.maximum(each, last) + last

    def renewed(self) -> Array:
        """Cycles of loading the tiles that follow some that stayed for several iterations.

        A slot falls free only in the last iteration, so that each load hides behind one step.
        """
        each = (self.gemm + self.alu) / self.steps
        longest: Array = np.float64(0)
        for item, loaded in zip(self.demand.staged, self._loaded, strict=True):
            slots = self.slots[item.scope]
            if item.scope == ACC or _is_one(item.turns) or np.all(slots == 1):
                continue
            rows = item.fills / (item.period * item.turns)
            load = (self.filling(loaded) / loaded.fills + self.steady) * self.stretch
            waits = np.maximum(load - item.ends * each, 0)
            waits = waits + (loaded.fills / rows - 1) * np.maximum(load - each, 0)
            stays = (item.turns > 1) & (loaded.fills < item.fills) & (slots > 1)
            longest = np.maximum(longest, np.where(stays, (rows - 1) * waits, 0))
        return longest

    @functools.cached_property
    def steady(self) -> Array:
        """Cycles of the loads that come with every step, for one step."""
        total: Array = np.float64(0)
        for item, one in zip(self.loads, self.each, strict=True):
            total = total + np.where(item.fills == self.steps, one, 0)
        return total

    def bursts(self) -> Array:
        """A buffer filled seldom is prefetched during the two steps before it is needed."""
        total: Array = np.float64(0)
        each = (self.gemm + self.alu) / self.steps
        fast = self.steady
        for item, one in zip(self.loads, self.each, strict=True):
            period = self.steps / item.fills
            load = (one + PREFETCH_STEPS * fast) * self.stretch
            between = np.maximum(period - PREFETCH_STEPS, 0) * each + load
            time = (item.fills - 1) * between + period * each
            total = np.maximum(total, np.where(period > 1, time, 0))
        return total


def _storing(time: Timing, nbytes: Array, stores: Array) -> Array:
    """Cycles of the store queue for ``nbytes`` in so many STOREs."""
    if not time.writes_in_bursts:
        return nbytes / time.port_bytes + stores * time.store_latency
    bursts = nbytes / WRITE_BURST
    return (
        WRITE_BEAT_CYCLES * nbytes / time.port_bytes
        + bursts * (BURST_START + time.write_latency)
        + stores * WRITE_START
    )
