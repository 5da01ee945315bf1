"""The few of many drawn cases that have among them all that any of the many has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Case = TypeVar("Case")
Trait = Hashable


def covering(
    cases: Sequence[Case],
    traits: Callable[[Case], Iterable[Trait]],
    cost: Callable[[Case], float] = lambda case: 1.0,
    times: Callable[[Trait], int] = lambda trait: 1,
) -> list[Case]:
    """Some of `cases`, in their order, with every trait of all as often as `times` asks.

    A trait that fewer have stands in all of these.  The case with the most traits that are still
    missing, by its cost, is taken next; of equal ones the first.
    """
    has = [frozenset(traits(case)) for case in cases]
    holders: dict[Trait, list[int]] = {}
    for number, some in enumerate(has):
        for trait in some:
            holders.setdefault(trait, []).append(number)
    missing = {trait: min(times(trait), len(those)) for trait, those in holders.items()}
    gains, costs = list(map(len, has)), list(map(cost, cases))
    left = set(range(len(cases)))
    while any(missing.values()):
        best = min(left, key=lambda i: (-gains[i] / costs[i], i))
        left.remove(best)
        for trait in has[best]:
            if missing[trait] == 1:
                for number in holders[trait]:
                    gains[number] -= 1
            missing[trait] = max(0, missing[trait] - 1)
    taken = set(range(len(cases))) - left
    return [cases[i] for i in sorted(taken)]


def pairs(values: Mapping[str, Hashable]) -> set[Trait]:
    """Every two of the named values that a case has together."""
    return set(itertools.combinations(values.items(), 2))
