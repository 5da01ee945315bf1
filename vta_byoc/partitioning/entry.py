"""What an entry of the partition table is made of, and what it finds in a match."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.chains import Binding, Graph
from vta_byoc.strategies.base import LayerSchedule
from vta_byoc.strategies.te.kernel import Kernels
from vta_byoc.strategy import STRATEGIES
from vta_byoc.workload.im2col import Im2col
from vta_byoc.workload.layout import NCHW
from vta_byoc.workload.workloads import Shape


class Shaped(Protocol):
    """What every workload says: its shapes, before packing."""

    @property
    def in_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the operands."""
        ...

    @property
    def out_shape(self) -> Shape:
        """The shape of the result."""
        ...


@dataclass(frozen=True)
class Parsed:
    """A matched group, read for one machine.

    Attributes:
        work: its workload.
        operands: tensor operands, in order.
        constants: arrays by name, as the strategy's ``constants`` takes them.
        layout: of the operands and the result, NCHW, ROWS or tokens.
        layouts: of each operand, where they differ.
        apart: what its operators are where each is computed by itself, of a group that could be.
    """

    work: Any
    operands: tuple[relax.Expr, ...]
    constants: Mapping[str, np.ndarray]
    layout: str = NCHW
    layouts: tuple[str, ...] = ()
    apart: tuple[Parsed, ...] = ()

    @property
    def operand_layouts(self) -> tuple[str, ...]:
        """The layout of each operand."""
        return self.layouts or (self.layout,) * len(self.operands)


@dataclass(frozen=True)
class Candidate:
    """One way to compute a group, of those that are compared.

    Attributes:
        how: in words.
        cycles: by estimate.
        others: those that it was chosen from, or the cheapest and the dearest of them.
    """

    how: str
    cycles: float = 0.0
    others: tuple[Candidate, ...] = ()

    @property
    def text(self) -> str:
        """In words, with the estimates where there was a choice."""
        if not self.others:
            return self.how
        listed = ", ".join(f"{other.how} {other.cycles:,.0f}" for other in self.others)
        return f"{self.how}: {self.cycles:,.0f} cycles by estimate ({listed})"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Candidate:
        """The candidate that `dataclasses.asdict` took apart."""
        others = tuple(cls.from_json(other) for other in value["others"])
        return cls(str(value["how"]), float(value["cycles"]), others)


@dataclass(frozen=True)
class Plan:
    """How a group is computed.

    Attributes:
        strategy: key of the table of strategies.
        work: the workload of that strategy.
        arrays: its constants by name, before packing.
        kernels: those that cost least by estimate.
        cycles: estimated, with what the host does to the operand.
        candidate: the choice.
        fold: what the host does to the operand instead of packing it, None for a plain pack.
    """

    strategy: str
    work: Any
    arrays: Mapping[str, np.ndarray] = field(repr=False)
    kernels: Kernels
    cycles: float
    candidate: Candidate
    fold: Im2col | None = None

    def constants(self, schedule: LayerSchedule[Any], config: VTAConfig) -> list[np.ndarray]:
        """The strategy's packed constant arguments for ``schedule``."""
        return STRATEGIES[self.strategy].constants(schedule, self.arrays, config)


MatchBindings = Callable[[Graph, Binding], "list[Binding] | None"]
Read = Callable[[Sequence[Binding], VTAConfig], Parsed]
PlanGroup = Callable[[Parsed, VTAConfig], Plan]


@dataclass(frozen=True)
class PatternEntry:
    """One row of the partition table.

    Attributes:
        name: of the composite, ``vta.<kind>``.
        anchors: operators that it starts from.
        match: the bindings of the group around an anchor, in order, or None.
        read: bindings of a group to what is needed of it; VTAError with the reason why this
            machine does not take it.
        plan: the cheapest of its candidates.  VTAError where nothing fits.
        hosted: the same where the operand comes from the host, which can lay it out as the group
            likes; None where that makes no difference.
        moves: it only moves data: it goes to VTA if an operand of it is computed there.
        between: it goes there only if VTA reads the result, too.
    """

    name: str
    anchors: tuple[str, ...]
    match: MatchBindings
    read: Read
    plan: PlanGroup = field(repr=False)
    hosted: PlanGroup | None = field(default=None, repr=False)
    moves: bool = False
    between: bool = False


@dataclass(frozen=True)
class Match:
    """What an entry of the table found in a group of bindings.

    Attributes:
        entry: the row of the table.
        parsed: what was read.
        plan: how it is computed where its operands are on VTA.
    """

    entry: PatternEntry
    parsed: Parsed
    plan: Plan

    def planned(self, config: VTAConfig, hosted: bool) -> Plan:
        """How it is computed; ``hosted``: its operand comes from the host."""
        if not hosted or self.entry.hosted is None:
            return self.plan
        return self.entry.hosted(self.parsed, config)
