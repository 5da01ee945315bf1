"""The few of many drawn cases that have among them all that any of the many has."""

from __future__ import annotations

import itertools
from collections import Counter
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
    there = Counter(itertools.chain.from_iterable(has))
    missing = Counter({trait: min(times(trait), count) for trait, count in there.items()})
    worth = [1 / cost(case) for case in cases]
    left, taken = set(range(len(cases))), set[int]()
    while missing.total():
        gains = {i: worth[i] * sum(missing[trait] > 0 for trait in has[i]) for i in left}
        best = min(gains, key=lambda i: (-gains[i], i))
        taken.add(best)
        left.remove(best)
        missing.subtract(trait for trait in has[best] if missing[trait])
    return [cases[i] for i in sorted(taken)]


def pairs(values: Mapping[str, Hashable]) -> set[Trait]:
    """Every two of the named values that a case has together."""
    return set(itertools.combinations(values.items(), 2))
