"""The order of layers that do not depend on each other: the one with most layers behind it first.

A layer of another branch between a producer and its consumer gives the loads and stores of both
time.  Whether that gains anything only the whole program shows, so that both are timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from vta_byoc.cost.objective import Measured, current
from vta_byoc.hw.counters import dram_bytes
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.partitioning.appended import APPENDED
from vta_byoc.partitioning.region import Region, Step


def longest_path_first(region: Region) -> Region | None:
    """``region`` with its steps in another order; None where there is no other.

    Of the steps whose operands are stored, the one comes first from which the way to the end of the
    region has most steps; of equal ones that of the model.
    """
    if any(step.composite == APPENDED for step in region.steps):
        return None  # the state of a session is read and written in the order of the model
    readers = _readers(region.steps)
    if not _has_choice(region.steps, readers):
        return None
    paths = _paths(region.steps, readers)
    waiting = [sum(arg in readers for arg in set(step.args)) for step in region.steps]
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        number = max(ready, key=lambda n: (paths[n], -n))
        ready.remove(number)
        order.append(number)
        for reader in readers[region.steps[number].output]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    if order == sorted(order):
        return None
    return dataclasses.replace(region, steps=tuple(region.steps[number] for number in order))


def best_order(programs: Sequence[Program]) -> Program:
    """The best of programs of one region by the objective; the first of equal ones."""
    measured = [Measured(simulate(p).cycles, dram_bytes(p.counters())) for p in programs]
    return programs[current().best(measured, measured[0])]


def _readers(steps: Sequence[Step]) -> dict[str, list[int]]:
    """By tensor that a step stores: the steps that read it."""
    found: dict[str, list[int]] = {step.output: [] for step in steps}
    for number, step in enumerate(steps):
        for arg in set(step.args):
            if arg in found:
                found[arg].append(number)
    return found


def _has_choice(steps: Sequence[Step], readers: dict[str, list[int]]) -> bool:
    """Whether some step does not read the one before it."""
    pairs = enumerate(steps[:-1], start=1)
    return any(number not in readers[before.output] for number, before in pairs)


def _paths(steps: Sequence[Step], readers: dict[str, list[int]]) -> list[int]:
    """For each step the number of steps until the end of the region on the longest way."""
    paths = [0] * len(steps)
    for number in reversed(range(len(steps))):
        paths[number] = 1 + max((paths[r] for r in readers[steps[number].output]), default=0)
    return paths
