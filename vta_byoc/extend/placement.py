"""`register_pattern` and `register_strategy`: what VTA takes, and how it computes it."""

from __future__ import annotations

from typing import Any

from vta_byoc.extend.made import instance
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.registry import registrant
from vta_byoc.partitioning.entry import PatternEntry
from vta_byoc.partitioning.table import PATTERNS
from vta_byoc.strategies.base import Strategy
from vta_byoc.strategy import STRATEGIES

PREFIX = "vta."
"""What the name of every composite begins with."""


def register_pattern(entry: PatternEntry) -> None:
    """Let partitioning group operators into a composite of its own.

    Rows of plug-ins come before those of the compiler. A row that fails, or raises VTAError, leaves
    the operators to the next row or to the CPU; the placement record says why.

    Args:
        entry: a row of the partition table; its name begins with "vta.".

    Raises:
        VTAError: the name is taken, or does not begin with "vta.".
    """
    by = registrant(entry.match)
    if not entry.name.startswith(PREFIX) or not entry.name[len(PREFIX) :].isidentifier():
        raise VTAError(
            f'pattern "{entry.name}" of {by}; the names of composites are vta.<identifier>; give '
            "it such a name"
        )
    PATTERNS.add(entry.name, entry, by)


def register_strategy(strategy: type[Strategy[Any]] | Strategy[Any]) -> None:
    """Add a way to compute a kind of workload, which plans of patterns name.

    Args:
        strategy: a subclass of `vta_byoc.strategies.base.Strategy` with its `name` and
            `workload`, or an instance of it.

    Raises:
        VTAError: the name is taken, or it is no strategy.
    """
    by = registrant(strategy if isinstance(strategy, type) else type(strategy))
    made = instance(strategy, "strategy", by)
    if not isinstance(made, Strategy):
        raise VTAError(
            f"strategy {type(made).__name__} of {by} is no Strategy; derive it from "
            "vta_byoc.strategies.base.Strategy"
        )
    missing = [name for name in ("name", "workload") if not hasattr(made, name)]
    if missing:
        raise VTAError(
            f"strategy {type(made).__name__} of {by} has no {', '.join(missing)}; it needs a name "
            "and the class of its workloads; add it"
        )
    STRATEGIES.add(made.name, made, by)
