"""Kernels of a layer that need not wait for all of its operands.

The scores of attention take queries and keys; only what comes behind them takes the values.
Computed before the projection of the values, they take their time while its weights pass the port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vta_byoc.partitioning.region import RegionStep
from vta_byoc.strategies.base import KernelFunction


@dataclass(frozen=True)
class Launch:
    """Kernel number ``kernel`` of step number ``step``, launched before step number ``place``.

    That is its own step, or an earlier one.
    """

    place: int
    step: int
    kernel: int

    @property
    def is_early(self) -> bool:
        """Whether steps that stand before its own come behind it."""
        return self.place < self.step


def launches(
    steps: Sequence[RegionStep],
    kernels: Mapping[str, Sequence[KernelFunction]],
    stored: Mapping[str, int],
    *,
    early: bool,
) -> list[Launch]:
    """The kernels of all steps in the order in which they run.

    Args:
        steps: of a region.
        kernels: of each step, by its result; none of one that has nothing to do.
        stored: the number of the step that stores a tensor, by its name.
        early: whether the first kernels of a step come right behind what they read.  The last
            kernel stays in its place: with it the whole step would move.
    """
    found = []
    for number, step in enumerate(steps):
        own, place = kernels[step.output], 0
        for index, kernel in enumerate(own):
            reads = [step.args[i] for i in kernel.args if 0 <= i < len(step.args)]
            place = max([place, *(stored[name] + 1 for name in reads if name in stored)])
            while place < number and not kernels[steps[place].output]:
                place += 1
            moved = early and index + 1 < len(own)
            found.append(Launch(place if moved else number, number, index))
    return sorted(found, key=lambda launch: (launch.place, not launch.is_early))
