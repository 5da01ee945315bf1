"""The table of patterns."""

from __future__ import annotations

import dataclasses

from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import straight_bindings
from vta_byoc.partitioning import elementwise, layers, movement, pooling
from vta_byoc.partitioning.composite import LEAST_ATTR
from vta_byoc.partitioning.entry import Parsed, PatternEntry
from vta_byoc.workload.workloads import PoolWorkload

TABLE: tuple[PatternEntry, ...] = (
    *pooling.ENTRIES,  # averages are convolutions of ones: before the layers
    *layers.ENTRIES,
    *elementwise.ENTRIES,
    *movement.ENTRIES,
)
"""Earlier entries take their operators first; movement comes last, where the others are known."""


def entry_of(composite: str) -> PatternEntry:
    """The table's row of a composite name."""
    return next(e for e in TABLE if e.name == composite)


def parse_composite(func: relax.Function, config: VTAConfig) -> tuple[PatternEntry, Parsed]:
    """The table row and workload of a composite function."""
    entry = entry_of(str(func.attrs["Composite"]))
    parsed = entry.read(straight_bindings(func), config)
    if isinstance(parsed.work, PoolWorkload):
        work = dataclasses.replace(parsed.work, low=int(func.attrs[LEAST_ATTR]))
        parsed = dataclasses.replace(parsed, work=work)
    return entry, parsed
