"""The tilings of a space, with all slots: what they cost, as flat arrays over all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.cost.usage import Array, Mask, ResourceUsage, Staged, cycle_cost, fits
from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.memory import SRAM_SCOPES

FEW = 512
"""Candidates of which all are looked at at once: to find the near ones would take longer."""

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
    used = {item.scope for item in demand.staged}
    inp, wgt, acc = ((2, 1) if scope in used else (2,) for scope in SRAM_SCOPES)
    return list(itertools.product(inp, wgt, acc))


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
        self._places: dict[tuple[int, ...], np.ndarray] = {}
        self.demand = _map_demand(demand, self._flat)

    def _flat(self, value: Array) -> np.ndarray:
        """An array over the candidates; what is the same for all stays a scalar."""
        given = np.asarray(value)
        if given.size == 1:
            return given.reshape(())
        if given.shape not in self._places:
            own = np.arange(given.size).reshape(given.shape)
            self._places[given.shape] = np.broadcast_to(own, self.shape).reshape(-1)[self.at]
        return given.reshape(-1)[self._places[given.shape]]

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
        counts = [len(member.at) for member in members]
        self.starts = np.cumsum([0, *counts])
        self.space, self.config = members[0].space, members[0].config
        self.demand = _joined_demand([member.demand for member in members], counts)

    def least(self) -> np.ndarray:
        """Cycles that candidates take at least, whatever the slots.

        Without kernels to load, and without a tile that is loaded to both slots, two slots
        everywhere cost least: what then exceeds the best so far need not be looked at with fewer.
        """
        staged = tuple(item.fewest() for item in self.demand.staged)
        free = dataclasses.replace(self.demand, staged=staged, step_kernels=0, step_uops=0)
        least, _ = cycle_cost(free, self.config, (2, 2, 2), self.space.calls)
        return np.broadcast_to(least, (int(self.starts[-1]),))

    def pools(self, limit: float, reach: float) -> Iterator[Pool]:
        """Candidates by slots, those left out that take more than ``reach`` times ``limit``."""
        first, *others = slot_choices(self.demand)
        few = self.starts[-1] <= FEW
        least = np.zeros(int(self.starts[-1])) if few else self.least()
        for choices in ([first, *others],) if few else ([first], others):
            near = np.flatnonzero(least <= reach * limit)
            if not len(near) or not choices:
                return
            for pool in self._with_slots(choices, near):
                limit = min(limit, float(pool.cycles.min()))
                yield pool

    def within(self, limit: float) -> list[Pool]:
        """Candidates by slots, those left out that cannot cost as little as ``limit``."""
        near = np.flatnonzero(self.least() <= limit)
        if not len(near):
            return []
        return [pool for c in slot_choices(self.demand) for pool in self._with_slots([c], near)]

    def _with_slots(self, choices: Sequence[tuple[int, int, int]], near: np.ndarray) -> list[Pool]:
        """The candidates number ``near`` with each choice of slots, all at once."""
        every = len(near) == self.starts[-1]
        demand = self.demand if every else _map_demand(self.demand, _taking(near))
        slots = tuple(np.array(column)[:, None] for column in zip(*choices, strict=True))
        cycles, port = cycle_cost(demand, self.config, slots, self.space.calls)
        cycles = np.where(fits(demand, self.config, slots), cycles, np.inf)
        shape = (len(choices), len(near))
        cycles, port = np.broadcast_to(cycles, shape), np.broadcast_to(port, shape)
        ends = np.searchsorted(near, self.starts)
        return [
            Pool(member, choice, near[own] - start, cycles[row, own], port[row, own])
            for member, start, low, high in zip(
                self.members, self.starts, ends, ends[1:], strict=False
            )
            if low < high
            for own in [slice(low, high)]
            for row, choice in enumerate(choices)
        ]


def pools_of(every: Sequence[Candidates], reach: float) -> Pools:
    """Candidates by variant and slots, without those that take more than ``reach`` times the best.

    The order is that of the variants, and of :func:`slot_choices`.
    """
    alike: dict[tuple[str, ...], list[Candidates]] = {}
    for candidates in every:
        if len(candidates.at):
            scopes = tuple(item.scope for item in candidates.demand.staged)
            alike.setdefault(scopes, []).append(candidates)
    found: list[Pool] = []
    limit = math.inf
    for members in alike.values():
        for pool in Joined(members).pools(limit, reach):
            found.append(pool)
            limit = min(limit, float(pool.cycles.min()))
    place = {id(candidates): number for number, candidates in enumerate(every)}
    return Pools(sorted(found, key=lambda pool: place[id(pool.candidates)]))


def _joined_demand(demands: Sequence[ResourceUsage], counts: Sequence[int]) -> ResourceUsage:
    """One demand of as many candidates of each as ``counts`` says."""
    if len(demands) == 1:
        return demands[0]

    def joined(values: Sequence[Array]) -> Array:
        arrays = [np.asarray(value) for value in values]
        if all(not a.ndim and a == arrays[0] for a in arrays):
            return arrays[0]
        each = zip(arrays, counts, strict=True)
        return np.concatenate([a if a.ndim else np.full(count, a) for a, count in each])

    staged = tuple(
        Staged(items[0].scope, *(joined([getattr(i, n) for i in items]) for n in _STAGED))
        for items in zip(*(demand.staged for demand in demands), strict=True)
    )
    return ResourceUsage(staged, **{n: joined([getattr(d, n) for d in demands]) for n in _DEMANDED})


@dataclass(frozen=True)
class Pool:
    """Candidates number ``at`` with ``slots``: their cycles and those of the port."""

    candidates: Candidates
    slots: tuple[int, int, int]
    at: np.ndarray
    cycles: np.ndarray
    port: np.ndarray

    def lowest(self, count: int) -> list[Choice]:
        """At most ``count`` of them that fit and cost least, the cheapest first."""
        order = np.lexsort((self.port, self.cycles))[:count]
        return [self.choice(int(k)) for k in order if np.isfinite(self.cycles[k])]

    def choice(self, k: int) -> Choice:
        """Number ``k`` of them."""
        tile = self.candidates.tile(int(self.at[k]))
        return Choice(tile, self.candidates.variant, self.slots, float(self.cycles[k]))


class Pools:
    """The candidates of all pools, one behind the other: their cycles and those of the port."""

    def __init__(self, pools: Sequence[Pool]):
        self._pools = pools
        self._ends = np.cumsum([len(pool.at) for pool in pools])
        self.cycles = np.concatenate([np.zeros(0), *(pool.cycles for pool in pools)])
        self.port = np.concatenate([np.zeros(0), *(pool.port for pool in pools)])

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
        return pool.choice(k - int(self._ends[number]) + len(pool.at))


def _taking(at: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values[at] if values.ndim else values


def _map_demand(
    demand: ResourceUsage, function: Callable[[np.ndarray], np.ndarray]
) -> ResourceUsage:
    """``demand`` with ``function`` applied to each of its arrays."""
    staged = tuple(
        Staged(item.scope, *(function(getattr(item, name)) for name in _STAGED))
        for item in demand.staged
    )
    return ResourceUsage(staged, **{name: function(getattr(demand, name)) for name in _DEMANDED})
