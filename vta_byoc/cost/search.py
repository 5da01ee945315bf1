"""Tile choice: a declared space of tilings and one estimate of cycles, shared by all strategies.

A strategy declares a :class:`Space`: axes with their candidate sizes, variants (loop orders and
what is kept in SRAM), and for all candidates at once (numpy broadcast) a
:class:`~vta_byoc.cost.usage.Demand`: what the layer then stages, computes and stores.  :func:`best`
returns the cheapest choice that fits SRAM.

    space = Space("a sum", {"h": sizes(56), "w": sizes(56)}, ("rows",), demand)
    choice = best(space, config)      # choice.tile["h"], choice.variant, choice.slots, .cycles
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vta_byoc.cost.objective import TOLERANCE, Objective, current
from vta_byoc.cost.usage import (
    Array,
    Demand,
    Mask,
    Staged,
    cycle_cost,
    depths,
    estimate,
    fits,
    needs,
)
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import Refusal, VTAError
from vta_byoc.workload.memory import MEMORIES, SRAM_SCOPES, WGT

__all__ = [
    "MOST_SIZES",
    "TOLERANCE",
    "Array",
    "Choice",
    "Demand",
    "Mask",
    "Space",
    "Staged",
    "best",
    "by_size",
    "ceil_div",
    "cheapest",
    "cost_of",
    "keeps_weights",
    "sizes",
]

MOST_SIZES = 20
"""Candidate sizes of an axis, at the most about; it bounds the time of the search."""
SPREAD = 1.25
"""How much more than the best a candidate of :func:`cheapest` may cost by estimate."""


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
    demand: Callable[[Mapping[str, np.ndarray], str], Demand]
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


def sizes(total: int, most: int = MOST_SIZES) -> list[int]:
    """Tile sizes that cover ``total`` in k equal parts (the last may be smaller), ascending.

    At most about ``most`` of them, evenly spread on a logarithmic scale.
    """
    every = sorted({-(-total // parts) for parts in range(1, total + 1)})
    if len(every) <= most:
        return every
    wanted = np.geomspace(1, total, most)
    return sorted({min(every, key=lambda s: abs(math.log(s / w))) for w in wanted})


def ceil_div(a: Array, b: Array) -> Array:
    """Quotient rounded up, elementwise."""
    return -(-np.asarray(a) // np.asarray(b))


def by_size(axis: np.ndarray, function: Callable[[int], float]) -> np.ndarray:
    """``function`` of each size of an axis, in the axis' shape."""
    return np.array([function(int(s)) for s in axis.reshape(-1)], float).reshape(axis.shape)


# ---------------------------------------------------------------- choice
def best(space: Space, config: VTAConfig) -> Choice:
    """The legal choice that is best by estimate, as the current objective says.

    Of those within its tolerance the one of least traffic.  The same for the same input.  Nothing
    fits: VTAError with what the smallest tile needs and the machine has.
    """
    aim = current()
    # (1 - weight) * cycles / least cycles is at most the score, and that of the cheapest is 1
    reach = (1 + aim.tolerance) / (1 - aim.weight) if aim.weight < 1 else math.inf
    reach = min(reach, aim.most_cycles(1.0))
    pools: list[_Pool] = []
    limit = math.inf
    for variant in space.variants:
        for pool in _Candidates(space, config, variant).pools(limit, reach):
            pools.append(pool)
            limit = min(limit, float(pool.cycles.min()))
    if not math.isfinite(limit):
        raise _nothing_fits(space, config)
    scores = _scores(pools, aim, limit)
    most = (1 + aim.tolerance) * min(float(score.min()) for score in scores)
    picks = (pool.least_traffic(score, most) for pool, score in zip(pools, scores, strict=True))
    return min((pick for pick in picks if pick), key=lambda pick: pick[:2])[2]


def _scores(pools: Sequence[_Pool], aim: Objective, fewest: float) -> list[np.ndarray]:
    """What ``aim`` makes of each candidate: the best have the least."""
    most = aim.most_cycles(fewest)
    if not aim.weight:
        return [np.where(pool.cycles <= most, pool.cycles, np.inf) for pool in pools]
    picks = (pool.least_traffic(pool.cycles, fewest) for pool in pools)
    port = max(min(pick[0] for pick in picks if pick), 1.0)
    return [pool.scores(aim.weight, fewest, port, most) for pool in pools]


def cheapest(space: Space, config: VTAConfig, count: int) -> list[Choice]:
    """At most ``count`` legal choices that cost least by estimate, the cheapest first.

    Each tile and variant is there once, with the slots that cost least; none costs more than SPREAD
    times the best.  The same for the same input.  Nothing fits: VTAError as of :func:`best`.
    """
    limit = SPREAD * best(space, config).cycles
    found: dict[tuple[object, ...], Choice] = {}
    for variant in space.variants:
        candidates = _Candidates(space, config, variant)
        for pool in candidates.within(limit):
            for choice in pool.lowest(count):
                key = (variant, *choice.tile.values())
                if key not in found or choice.cycles < found[key].cycles:
                    found[key] = choice
    return sorted(found.values(), key=lambda choice: choice.cycles)[:count]


def cost_of(space: Space, config: VTAConfig, choice: Choice) -> float:
    """Estimated cycles of a given choice (infinite where it does not fit)."""
    (alone,) = with_slots(space, config, choice, [choice.slots])
    return alone.cycles


def with_slots(
    space: Space, config: VTAConfig, choice: Choice, slots: Sequence[tuple[int, int, int]]
) -> list[Choice]:
    """A choice with each of ``slots``, and what it then costs (infinite where it does not fit)."""
    tile = {name: np.array([size]) for name, size in choice.tile.items()}
    columns = [np.array(column) for column in zip(*slots, strict=True)]
    cycles = estimate(space.demand(tile, choice.variant), config, columns, space.calls)
    cycles = np.where(space.legal(tile, choice.variant), cycles, np.inf)
    every = np.broadcast_to(cycles, (len(slots),)).tolist()
    return [
        dataclasses.replace(choice, slots=own, cycles=cost)
        for own, cost in zip(slots, every, strict=True)
    ]


def keeps_weights(space: Space, choice: Choice) -> bool:
    """Whether a call has weights and leaves all where the next one would load them to."""
    tile = {name: np.array([size]) for name, size in choice.tile.items()}
    staged = space.demand(tile, choice.variant).staged
    weights = [item for item in staged if item.scope == WGT]
    slots = choice.slots_attr()[WGT]
    return bool(weights) and all(np.all(item.stays(slots)) for item in weights)


def slot_choices(demand: Demand) -> list[tuple[int, int, int]]:
    """One or two slots for each SRAM in use, two first."""
    used = {item.scope for item in demand.staged}
    inp, wgt, acc = ((2, 1) if scope in used else (2,) for scope in SRAM_SCOPES)
    return list(itertools.product(inp, wgt, acc))


class _Candidates:
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
        self.demand = _map_demand(demand, self._flat)

    def _flat(self, value: Array) -> np.ndarray:
        """An array over the candidates; what is the same for all stays a scalar."""
        given = np.asarray(value)
        if given.size == 1:
            return given.reshape(())
        return np.broadcast_to(given, self.shape).reshape(-1)[self.at]

    def least(self) -> np.ndarray:
        """Cycles that candidates take at least, whatever the slots.

        Without kernels to load, and without a tile that is loaded to both slots, two slots
        everywhere cost least: what then exceeds the best so far need not be looked at with fewer.
        """
        staged = tuple(item.fewest() for item in self.demand.staged)
        free = dataclasses.replace(self.demand, staged=staged, step_kernels=0, step_uops=0)
        least, _ = cycle_cost(free, self.config, (2, 2, 2), self.space.calls)
        return np.broadcast_to(least, self.at.shape)

    def pools(self, limit: float, reach: float) -> Iterator[_Pool]:
        """Candidates by slots, those left out that take more than ``reach`` times ``limit``."""
        least = self.least()
        first, *others = slot_choices(self.demand)
        for choices in ([first], others):
            near = np.flatnonzero(least <= reach * limit)
            if not len(near) or not choices:
                return
            for pool in self._with_slots(choices, near):
                limit = min(limit, float(pool.cycles.min()))
                yield pool

    def within(self, limit: float) -> list[_Pool]:
        """Candidates by slots, those left out that cannot cost as little as ``limit``."""
        near = np.flatnonzero(self.least() <= limit)
        if not len(near):
            return []
        return [pool for c in slot_choices(self.demand) for pool in self._with_slots([c], near)]

    def _with_slots(self, choices: Sequence[tuple[int, int, int]], near: np.ndarray) -> list[_Pool]:
        """The candidates number ``near`` with each choice of slots, all at once."""
        demand = _map_demand(self.demand, _taking(near))
        slots = tuple(np.array(column)[:, None] for column in zip(*choices, strict=True))
        cycles, port = cycle_cost(demand, self.config, slots, self.space.calls)
        cycles = np.where(fits(demand, self.config, slots), cycles, np.inf)
        shape = (len(choices), len(near))
        rows = zip(np.broadcast_to(cycles, shape), np.broadcast_to(port, shape), strict=True)
        return [_Pool(self, c, near, *row) for c, row in zip(choices, rows, strict=True)]

    def tile(self, k: int) -> dict[str, int]:
        """Sizes of candidate number ``k``."""
        index = np.unravel_index(int(self.at[k]), self.shape)
        axes = self.space.axes.items()
        return {name: int(axis[int(i)]) for (name, axis), i in zip(axes, index, strict=True)}


@dataclass(frozen=True)
class _Pool:
    """Candidates number ``at`` with ``slots``: their cycles and those of the port."""

    candidates: _Candidates
    slots: tuple[int, int, int]
    at: np.ndarray
    cycles: np.ndarray
    port: np.ndarray

    def scores(self, weight: float, cycles: float, port: float, most: float) -> np.ndarray:
        """What ``weight`` of the port makes of each, counted in parts of ``cycles`` and ``port``.

        Infinite for those of more than ``most`` cycles.
        """
        fit = np.isfinite(self.cycles) & (self.cycles <= most)
        counted = np.where(fit, self.cycles, 0.0)
        return np.where(fit, (1 - weight) * counted / cycles + weight * self.port / port, np.inf)

    def least_traffic(self, scores: np.ndarray, limit: float) -> tuple[float, float, Choice] | None:
        """(port cycles, cycles, choice) of the least traffic with a score of at most ``limit``."""
        near = np.flatnonzero(scores <= limit)
        if not len(near):
            return None
        k = int(near[np.lexsort((self.cycles[near], self.port[near]))[0]])
        return float(self.port[k]), float(self.cycles[k]), self._choice(k)

    def lowest(self, count: int) -> list[Choice]:
        """At most ``count`` of them that fit and cost least, the cheapest first."""
        order = np.lexsort((self.port, self.cycles))[:count]
        return [self._choice(int(k)) for k in order if np.isfinite(self.cycles[k])]

    def _choice(self, k: int) -> Choice:
        tile = self.candidates.tile(int(self.at[k]))
        return Choice(tile, self.candidates.variant, self.slots, float(self.cycles[k]))


def _taking(at: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values[at] if values.ndim else values


def _map_demand(demand: Demand, function: Callable[[np.ndarray], np.ndarray]) -> Demand:
    """``demand`` with ``function`` applied to each of its arrays."""
    staged = tuple(
        Staged(item.scope, *(function(getattr(item, f.name)) for f in dataclasses.fields(item)[1:]))
        for item in demand.staged
    )
    names = [f.name for f in dataclasses.fields(demand)[1:]]
    return Demand(staged, **{name: function(getattr(demand, name)) for name in names})


def _nothing_fits(space: Space, config: VTAConfig) -> VTAError:
    tile = {name: np.array([axis[0]]) for name, axis in space.axes.items()}
    need = [
        min(int(np.max(needs(space.demand(tile, v), (1, 1, 1))[k])) for v in space.variants)
        for k in range(len(SRAM_SCOPES))
    ]
    over = [
        f"{n} {name.upper()} of {have}"
        for n, name, have in zip(need, MEMORIES, depths(config), strict=True)
        if n > have
    ]
    return VTAError(
        Refusal(
            f"no tile of {space.what} fits the SRAM of machine {config.name}",
            f"(the smallest needs {', '.join(over) or 'more than any variant leaves'} elements)",
            remedy="use larger buffers or leave the layer to the CPU",
        )
    )
