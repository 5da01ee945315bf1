"""What an entry of the partition table is made of."""

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
from vta_byoc.workload.im2col import Fold
from vta_byoc.workload.layout import NCHW
from vta_byoc.workload.workloads import Shape


class Shaped(Protocol):
    """What every workload says: its shapes, before packing."""

    @property
    def in_shapes(self) -> tuple[Shape, ...]: ...

    @property
    def out_shape(self) -> Shape: ...


@dataclass(frozen=True)
class Parsed:
    """A matched group, read for one machine.

    Attributes:
        work: its workload.
        operands: tensor operands, in order.
        constants: arrays by name, as the strategy's ``constants`` takes them.
        layout: of the operands and the result, NCHW or ROWS.
    """

    work: Any
    operands: tuple[relax.Expr, ...]
    constants: Mapping[str, np.ndarray]
    layout: str = NCHW


@dataclass(frozen=True)
class Plan:
    """How a group is computed.

    Attributes:
        strategy: key of the table of strategies.
        work: the workload of that strategy.
        constants: makes the strategy's packed constant arguments for a schedule of it.
        kernels: those that cost least by estimate.
        cycles: estimated.
        fold: what the host does to the operand instead of packing it, None for a plain pack.
        note: the choice in words, "" where there was none.
    """

    strategy: str
    work: Any
    constants: Callable[[LayerSchedule[Any]], list[np.ndarray]]
    kernels: Kernels
    cycles: float
    fold: Fold | None = None
    note: str = ""


Match = Callable[[Graph, Binding], "list[Binding] | None"]
Read = Callable[[Sequence[Binding], VTAConfig], Parsed]
PlanGroup = Callable[[Parsed, VTAConfig, bool], Plan]


@dataclass(frozen=True)
class PatternEntry:
    """One row of the partition table.

    Attributes:
        name: of the composite, ``vta.<kind>``.
        anchors: operators that it starts from.
        match: the bindings of the group around an anchor, in order, or None.
        read: bindings of a group to what is needed of it; VTAError with the reason why this
            machine does not take it.
        plan: the ways to compute it, cheapest first chosen; ``hosted``: the operand comes from
            the host.  VTAError where nothing fits.
        moves: it only moves data: it goes to VTA if an operand of it is computed there.
    """

    name: str
    anchors: tuple[str, ...]
    match: Match
    read: Read
    plan: PlanGroup = field(repr=False)
    moves: bool = False
