"""Ranges of channels with their readers, and the cheapest way to store them."""

from __future__ import annotations

import itertools
import random

import pytest

from vta_byoc.partitioning.channel_ranges import (
    MOST_RUNS,
    Reads,
    cheapest_ranges,
    padded,
    runs_of,
)


def readers(text: str) -> list[frozenset[str]]:
    """One word for each channel: the letters are its readers, "-" is none."""
    return [frozenset(word.strip("-")) for word in text.split()]


def cost(reads: Reads) -> float:
    """Blocks of four; a block of two readers is read twice; a range costs one more."""
    return 1 + padded(reads.last - reads.first, 4) / 4 * (1 + 2 * len(reads.counts))


def test_runs_have_the_same_readers() -> None:
    assert runs_of(readers("a a ab b b - a")) == [
        Reads(0, 2, {"a": 2}),
        Reads(2, 3, {"a": 1, "b": 1}),
        Reads(3, 5, {"b": 2}),
        Reads(5, 6, {}),
        Reads(6, 7, {"a": 1}),
    ]


def test_small_runs_are_stored_together_and_large_ones_apart() -> None:
    found = cheapest_ranges(readers("a b " + "a " * 8), cost)
    assert [(r.first, r.last) for r in found] == [(0, 2), (2, 10)]
    assert [r.counts for r in found] == [{"a": 1, "b": 1}, {"a": 8}]


def test_too_many_runs_are_one_range() -> None:
    found = cheapest_ranges(readers("a b " * MOST_RUNS), cost)
    assert found == [Reads(0, 2 * MOST_RUNS, {"a": MOST_RUNS, "b": MOST_RUNS})]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_way_is_cheaper(seed: int) -> None:
    draw = random.Random(seed)
    words = [draw.choice(["a", "b", "ab", "-"]) for _ in range(draw.randint(1, 9))]
    given = readers(" ".join(word for word in words for _ in range(draw.randint(1, 6))))
    found, runs = cheapest_ranges(given, cost), runs_of(given)
    assert [r.first for r in found] == [0, *(r.last for r in found[:-1])]
    assert found[-1].last == len(given)
    ways = []
    for cuts in itertools.product([False, True], repeat=len(runs) - 1):
        ends = [run.first for run, cut in zip(runs[1:], cuts, strict=True) if cut]
        edges = [0, *ends, len(given)]
        ways.append(sum(map(cost, (_range(given, a, b) for a, b in itertools.pairwise(edges)))))
    assert sum(map(cost, found)) == min(ways)


def _range(given: list[frozenset[str]], first: int, last: int) -> Reads:
    own = [reader for channel in given[first:last] for reader in channel]
    return Reads(first, last, {reader: own.count(reader) for reader in own})
