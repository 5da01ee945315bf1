"""Tile choice: a declared space of tilings and one estimate of cycles, shared by all strategies.

A strategy declares a :class:`Space`: axes with their candidate sizes, variants (loop orders and
what is kept in SRAM), and for all candidates at once (numpy broadcast) a
:class:`~vta_byoc.cost.usage.ResourceUsage`: what the layer then stages, computes and stores.
:func:`best` returns the cheapest choice that fits SRAM.

    space = Space("a sum", {"h": sizes(56), "w": sizes(56)}, ("rows",), demand)
    choice = best(space, config)      # choice.tile["h"], choice.variant, choice.slots, .cycles
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from vta_byoc.cost.candidates import Candidates, Choice, Joined, Pools, Space, pools_of
from vta_byoc.cost.objective import TOLERANCE, Objective, current
from vta_byoc.cost.usage import (
    Array,
    Mask,
    ResourceUsage,
    Staged,
    depths,
    estimate,
    integer,
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
    "Mask",
    "ResourceUsage",
    "Space",
    "Staged",
    "best",
    "by_size",
    "ceil_div",
    "cheapest",
    "cost_of",
    "integer",
    "keeps_weights",
    "sizes",
]

MOST_SIZES = 20
"""Candidate sizes of an axis, at the most about; it bounds the time of the search."""
SPREAD = 1.25
"""How much more than the best a candidate of :func:`cheapest` may cost by estimate."""


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
    pools = pools_of([Candidates(space, config, variant) for variant in space.variants], reach)
    fewest = float(pools.cycles.min(initial=math.inf))
    if not math.isfinite(fewest):
        raise _nothing_fits(space, config)
    scores = _scores(pools, aim, fewest)
    most = (1 + aim.tolerance) * float(scores.min())
    return pools.choice(pools.least_traffic(scores, most))


def _scores(pools: Pools, aim: Objective, fewest: float) -> np.ndarray:
    """What ``aim`` makes of each candidate: the best have the least."""
    most = aim.most_cycles(fewest)
    if not aim.weight:
        return np.where(pools.cycles <= most, pools.cycles, np.inf)
    least = pools.least_traffic(pools.cycles, fewest)
    port = max(float(pools.port[least]), 1.0)
    return pools.scores(aim.weight, fewest, port, most)


def cheapest(space: Space, config: VTAConfig, count: int) -> list[Choice]:
    """At most ``count`` legal choices that cost least by estimate, the cheapest first.

    Each tile and variant is there once, with the slots that cost least; none costs more than SPREAD
    times the best.  The same for the same input.  Nothing fits: VTAError as of :func:`best`.
    """
    limit = SPREAD * best(space, config).cycles
    found: dict[tuple[object, ...], Choice] = {}
    for variant in space.variants:
        candidates = Candidates(space, config, variant)
        for pool in Joined([candidates]).within(limit):
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
