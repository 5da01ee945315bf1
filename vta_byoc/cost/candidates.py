"""The tilings of a space, with all slots: what they cost, as flat arrays over all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vta_byoc.cost.usage import Array, Mask, ResourceUsage, Staged, cycle_cost, fits
from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.memory import SRAM_SCOPES

FEW = 1024
"""Candidates of which all are looked at at once: to find the near ones would take longer."""
TRIED = 64
"""Candidates that take least at the least, of which the best says what is near."""
ROUNDING = 1 + 1e-9
"""What takes so much more at the least may be the best: both are rounded."""

_STAGED = tuple(f.name for f in dataclasses.fields(Staged)[1:])
_DEMANDED = tuple(f.name for f in dataclasses.fields(ResourceUsage)[1:])


@dataclass(frozen=True)
class Space:
    """All tilings of a layer: candidate sizes by axis, variants, and the demand of all of them.

    ``demand(tile, variant)`` takes an array for each axis; sizes must ascend from the smallest
    legal one.  ``what`` names the operator in errors; ``legal`` (as ``demand``) excludes tiles for
    reasons other than SRAM.  ``calls``: so many calls in a row have their weights in common, and
    costs are a call's share.
    """

    what: str
    axes: Mapping[str, Sequence[int]]
    variants: Sequence[str]
    demand: Callable[[Mapping[str, np.ndarray], str], ResourceUsage]
    legal: Callable[[Mapping[str, np.ndarray], str], Mask] = field(default=lambda _t, _v: True)
    calls: int = 1


@dataclass(frozen=True)
class Choice:
    """A tiling: sizes by axis, a variant, slots of (INP, WGT, ACC); ``cycles`` as estimated."""

    tile: Mapping[str, int]
    variant: str
    slots: tuple[int, int, int]
    cycles: float = 0.0

    def slots_attr(self) -> dict[str, int]:
        """Slots by SRAM scope, as code generation takes them (codegen.SLOTS_ATTR)."""
        return dict(zip(SRAM_SCOPES, self.slots, strict=True))


def slot_choices(demand: ResourceUsage) -> list[tuple[int, int, int]]:
    """One or two slots for each SRAM in use, two first."""
    inp, wgt, acc = _slot_counts(demand)
    return list(itertools.product(inp, wgt, acc))


def _slot_counts(demand: ResourceUsage) -> list[tuple[int, ...]]:
    used = {item.scope for item in demand.staged}
    return [(2, 1) if scope in used else (2,) for scope in SRAM_SCOPES]


class Candidates:
    """The tiles of one variant that fit SRAM with one slot each, as flat arrays."""

    def __init__(self, space: Space, config: VTAConfig, variant: str):
        self.space, self.config, self.variant = space, config, variant
        names = list(space.axes)
        grid = np.ix_(*(np.asarray(space.axes[name], np.int64) for name in names))
        tile = dict(zip(names, grid, strict=True))
        self.shape = tuple(len(space.axes[name]) for name in names)
        demand = space.demand(tile, variant)
        legal = np.logical_and(fits(demand, config, (1, 1, 1)), space.legal(tile, variant))
        self.at = np.flatnonzero(np.broadcast_to(legal, self.shape))
        self.demand = demand
        self._places: dict[tuple[int, ...], np.ndarray] = {}

    def places(self, shape: tuple[int, ...]) -> np.ndarray:
        """Where the candidates are in an array of ``shape``, made flat."""
        if shape not in self._places:
            own = np.arange(math.prod(shape)).reshape(shape)
            self._places[shape] = np.broadcast_to(own, self.shape).reshape(-1)[self.at]
        return self._places[shape]

    def tile(self, k: int) -> dict[str, int]:
        """Sizes of candidate number ``k``."""
        index = np.unravel_index(int(self.at[k]), self.shape)
        axes = self.space.axes.items()
        return {name: int(axis[int(i)]) for (name, axis), i in zip(axes, index, strict=True)}


class Joined:
    """Candidates of several variants that stage the same buffers, as if they were of one.

    Spaces are small, so that the time of a search is that of the calls of numpy.
    """

    def __init__(self, members: Sequence[Candidates]):
        self.members = members
        self.starts = np.cumsum([0, *(len(member.at) for member in members)])
        self.space, self.config = members[0].space, members[0].config
        self._places: dict[tuple[int, ...], np.ndarray] = {}
        self.demand = _map_demand([member.demand for member in members], self._flat)

    def _flat(self, values: Sequence[Array]) -> np.ndarray:
        """Arrays of the members as one over the candidates; what is the same for all: a scalar."""
        first, *others = arrays = [np.asarray(value) for value in values]
        if all(a.size == 1 for a in arrays) and all(a.item() == first.item() for a in others):
            return first.reshape(())
        if any(value is not values[0] for value in values):
            each = zip(arrays, self.members, strict=True)
            return np.concatenate([a.reshape(-1)[m.places(a.shape)] for a, m in each])
        if first.shape not in self._places:
            every = [member.places(first.shape) for member in self.members]
            self._places[first.shape] = np.concatenate(every)
        return first.reshape(-1)[self._places[first.shape]]

    def least(self) -> np.ndarray:
        """Cycles that candidates take at least, whatever the slots.

        Without kernels to load, and without a tile that is loaded to both slots, two slots
        everywhere cost least: what then exceeds the best so far need not be looked at with fewer.
        """
        staged = tuple(item.fewest() for item in self.demand.staged)
        free = dataclasses.replace(self.demand, staged=staged, step_kernels=0, step_uops=0)
        least, _ = cycle_cost(free, self.config, (2, 2, 2), self.space.calls)
        return np.broadcast_to(least, (int(self.starts[-1]),))

    def pools(self, limit: float, reach: float) -> list[Pool]:
        """Candidates with all slots, those left out that take more than ``reach`` times the best.

        ``limit``: what the best of others takes.
        """
        near = np.arange(self.starts[-1])
        if len(near) > FEW:
            least = self.least()
            lowest = np.sort(np.argpartition(least, TRIED)[:TRIED])
            limit = min(limit, *(float(pool.cycles.min()) for pool in self._with_slots(lowest)))
            near = np.flatnonzero(least <= ROUNDING * reach * limit)
        return self._with_slots(near)

    def within(self, limit: float) -> list[Pool]:
        """Candidates with all slots, those left out that cannot cost as little as ``limit``."""
        return self._with_slots(np.flatnonzero(self.least() <= limit))

    def _with_slots(self, near: np.ndarray) -> list[Pool]:
        """The candidates number ``near`` with each choice of slots, all at once."""
        if not len(near):
            return []
        every = len(near) == self.starts[-1]
        demand = self.demand if every else _map_demand([self.demand], _taking(near))
        counts = _slot_counts(demand)
        slots = tuple(axis[..., None] for axis in np.ix_(*counts))
        cycles, port = cycle_cost(demand, self.config, slots, self.space.calls)
        cycles = np.where(fits(demand, self.config, slots), cycles, np.inf)
        shape, choices = (*map(len, counts), len(near)), slot_choices(demand)
        cycles, port = (
            np.broadcast_to(each, shape).reshape(len(choices), -1) for each in (cycles, port)
        )
        ends = np.searchsorted(near, self.starts)
        return [
            Pool(member, choices, near[low:high] - start, cycles[:, low:high], port[:, low:high])
            for member, start, low, high in zip(
                self.members, self.starts, ends, ends[1:], strict=False
            )
            if low < high
        ]


def pools_of(every: Sequence[Candidates], reach: float) -> Pools:
    """Candidates by variant, without those that take more than ``reach`` times the best."""
    alike: dict[tuple[str, ...], list[Candidates]] = {}
    for candidates in every:
        if len(candidates.at):
            scopes = tuple(item.scope for item in candidates.demand.staged)
            alike.setdefault(scopes, []).append(candidates)
    found: list[Pool] = []
    limit = math.inf
    for members in alike.values():
        pools = Joined(members).pools(limit, reach)
        found += pools
        limit = min([limit, *(float(pool.cycles.min()) for pool in pools)])
    place = {id(candidates): number for number, candidates in enumerate(every)}
    return Pools(sorted(found, key=lambda pool: place[id(pool.candidates)]))


@dataclass(frozen=True)
class Pool:
    """Candidates number ``at`` with each of ``slots``: their cycles and those of the port."""

    candidates: Candidates
    slots: Sequence[tuple[int, int, int]]
    at: np.ndarray
    cycles: np.ndarray
    port: np.ndarray

    def lowest(self, count: int) -> list[Choice]:
        """At most ``count`` with each of the slots that fit and cost least, the cheapest first."""
        return [
            self._choice(number, int(k))
            for number, (cycles, port) in enumerate(zip(self.cycles, self.port, strict=True))
            for k in np.lexsort((port, cycles))[:count]
            if np.isfinite(cycles[k])
        ]

    def choice(self, k: int) -> Choice:
        """Number ``k`` of them: those of the first slots first."""
        return self._choice(*divmod(k, len(self.at)))

    def _choice(self, slots: int, k: int) -> Choice:
        tile, cycles = self.candidates.tile(int(self.at[k])), float(self.cycles[slots, k])
        return Choice(tile, self.candidates.variant, self.slots[slots], cycles)


class Pools:
    """The candidates of all pools, one behind the other: their cycles and those of the port."""

    def __init__(self, pools: Sequence[Pool]):
        self._pools = pools
        self._ends = np.cumsum([pool.cycles.size for pool in pools])
        self.cycles = np.concatenate([np.zeros(0), *(pool.cycles.ravel() for pool in pools)])
        self.port = np.concatenate([np.zeros(0), *(pool.port.ravel() for pool in pools)])

    def scores(self, weight: float, cycles: float, port: float, most: float) -> np.ndarray:
        """What ``weight`` of the port makes of each, counted in parts of ``cycles`` and ``port``.

        Infinite for those of more than ``most`` cycles.
        """
        fit = np.isfinite(self.cycles) & (self.cycles <= most)
        counted = np.where(fit, self.cycles, 0.0)
        return np.where(fit, (1 - weight) * counted / cycles + weight * self.port / port, np.inf)

    def least_traffic(self, scores: np.ndarray, limit: float) -> int:
        """The number of the one of least traffic, then cycles, with a score of at most ``limit``.

        Of several the first; at least one has such a score.
        """
        near = np.flatnonzero(scores <= limit)
        return int(near[np.lexsort((self.cycles[near], self.port[near]))[0]])

    def choice(self, k: int) -> Choice:
        """Number ``k`` of them."""
        number = int(np.searchsorted(self._ends, k, side="right"))
        pool = self._pools[number]
        return pool.choice(k - int(self._ends[number]) + pool.cycles.size)


def _taking(at: np.ndarray) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
    return lambda values: values[0][at] if values[0].ndim else values[0]


def _map_demand(
    demands: Sequence[ResourceUsage], function: Callable[[Sequence[Any]], np.ndarray]
) -> ResourceUsage:
    """A demand of what ``function`` makes of each array of ``demands``; the same ones once."""
    found: dict[tuple[int, ...], np.ndarray] = {}

    def mapped(items: Sequence[object], name: str) -> np.ndarray:
        values = [getattr(item, name) for item in items]
        key = tuple(map(id, values))
        if key not in found:
            found[key] = function(values)
        return found[key]

    staged = tuple(
        Staged(items[0].scope, *(mapped(items, name) for name in _STAGED))
        for items in zip(*(demand.staged for demand in demands), strict=True)
    )
    return ResourceUsage(staged, *(mapped(demands, name) for name in _DEMANDED))
