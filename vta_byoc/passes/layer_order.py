"""The order of layers that do not depend on each other: the one with most layers behind it first.

A layer of another branch between a producer and its consumer gives the loads and stores of both
time.  Whether that gains anything only the whole program shows, so that both are timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from graphlib import TopologicalSorter

from vta_byoc.cost.objective import current
from vta_byoc.hw.program.program import Program
from vta_byoc.partitioning.appended import APPENDED
from vta_byoc.partitioning.region import Region
from vta_byoc.strategies.te.timed import measured_alone


def longest_path_first(region: Region) -> Region | None:
    """``region`` with its steps in another order; None where there is no other.

    Of the steps whose operands are stored, the one comes first from which the way to the end of the
    region has most steps; of equal ones that of the model.
    """
    steps = region.steps
    if any(step.composite == APPENDED for step in steps):
        return None  # the state of a session is read and written in the order of the model
    stored = {step.output: number for number, step in enumerate(steps)}
    needs = [{stored[arg] for arg in step.args if arg in stored} for step in steps]
    paths = _paths(needs)
    sorter = TopologicalSorter(dict(enumerate(needs)))
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        ready += sorter.get_ready()
        order.append(min(ready, key=lambda number: (-paths[number], number)))
        ready.remove(order[-1])
        sorter.done(order[-1])
    if order == sorted(order):
        return None
    return dataclasses.replace(region, steps=tuple(steps[number] for number in order))


def best_order(programs: Sequence[Program]) -> Program:
    """The best of programs of one region by the objective; the first of equal ones."""
    measured = [measured_alone(program) for program in programs]
    return programs[current().best(measured, measured[0])]


def _paths(needs: Sequence[set[int]]) -> list[int]:
    """For each step the number of steps until the end of the region on the longest way."""
    paths = [1] * len(needs)
    for number in reversed(range(len(needs))):
        for need in needs[number]:
            paths[need] = max(paths[need], paths[number] + 1)
    return paths
