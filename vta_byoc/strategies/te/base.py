"""What every strategy is made of: its description, the epilogue, and how nests are marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

import numpy as np
from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Expr, Var

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.workload.alu import OPERATIONS
from vta_byoc.workload.packing import PLANES, operand_shape, pack_operand
from vta_byoc.workload.workloads import CHANNEL, MAP, Epilogue, Kind, Shape, Step

if TYPE_CHECKING:
    from vta_byoc.strategies.te.kernel import Kernels, KernelSpace

__all__ = [
    "Part",
    "Strategy",
    "apply_steps",
    "elementwise",
    "epilogue_constants",
    "epilogue_operands",
    "inline",
    "mark",
]


@dataclass(frozen=True)
class Part:
    """A scheduled PrimFunc of a composite.

    ``args`` are positions among the composite's arguments; -1 is its result.  Where a parameter is
    only a part of the tensor it is bound to, ``func`` says so by views (`codegen.with_views`).
    """

    func: tirx.PrimFunc
    args: tuple[int, ...]


def _no_homes(work: object, config: VTAConfig) -> list[int | None]:
    return []


@dataclass(frozen=True)
class Shared:
    """A composite with consumers in its tiles: cycles by estimate, and what makes its PrimFuncs.

    The arguments of a part are the producer's; for each consumer its int8 operands from DRAM, its
    weights and its tensor operands; -1 is the result.  ``keeps``: the tile, where it leaves all
    weights in SRAM for the next call of the same tile.
    """

    cycles: float
    parts: Callable[[], list[Part]]
    keeps: Choice | None = None


@dataclass(frozen=True)
class Strategy(Generic[Kind]):
    """How one kind of composite becomes instructions.

    Attributes:
        name: its name; the composite's is ``vta.<name>``.
        workload: class of its workloads.
        compute: the packed PrimFunc that defines the result (runs as it is on llvm): operands,
            constants in the order of ``constants``, result.
        parts: the scheduled PrimFuncs that compute it, in order.
        scopes: DRAM scope demanded for each argument (operands, then constants).
        constants: packed constant arguments from what the partition table parsed.
        estimate: cycles that the tile chooser expects; VTAError where no tile fits.
        homes: for each operand the scalar offset in the result where its producer may store it,
            so that the parts that copy it are not needed; None where it must be copied.
        shared: as (workload, tails, config) with consumers that take its int8 result from the
            accumulators, tile by tile; VTAError where no tile fits.  None: its tiles are spent
            or read again when they are stored.
        repeated: as (workload, tails, calls, config) one of that many calls in a row that have
            their weights in common; cycles are a call's share.  None: calls share nothing.
        choose: the kernels of (workload, config, tails, calls) by estimate; VTAError where nothing
            fits.  ``compute``, ``parts``, ``constants``, ``estimate``, ``shared`` and ``repeated``
            take kernels last, and ask for these where none are given.
        spaces: what each of these kernels could be.
    """

    name: str
    workload: type[Kind]
    compute: Callable[..., tirx.PrimFunc]
    parts: Callable[..., list[Part]]
    scopes: Callable[[Kind], tuple[str, ...]]
    constants: Callable[..., list[np.ndarray]]
    estimate: Callable[..., float]
    choose: Callable[..., Kernels]
    spaces: Callable[..., tuple[KernelSpace, ...]]
    homes: Callable[[Kind, VTAConfig], list[int | None]] = _no_homes
    shared: Callable[..., Shared] | None = None
    repeated: Callable[..., Shared] | None = None


# ---------------------------------------------------------------- steps in TE
def elementwise(name: str, function: Callable[..., Expr], *tensors: te.Tensor) -> te.Tensor:
    """Elementwise ``function`` over tensors of one shape."""
    return te.compute(
        tensors[0].shape, lambda *i: function(*(t(*i) for t in tensors)), name=name
    )


def epilogue_operands(
    tensors: Sequence[str], shape: Shape, config: VTAConfig, prefix: str = "operand"
) -> list[te.Tensor]:
    """Placeholders for tensor operands of steps on a result (N, C, H, W)."""
    return [
        te.placeholder(operand_shape(kind, shape, config), "int32", name=f"{prefix}{i}")
        for i, kind in enumerate(tensors)
    ]


def epilogue_constants(
    tensors: Sequence[str], parts: Mapping[str, np.ndarray], config: VTAConfig, first: int = 0
) -> list[np.ndarray]:
    """The packed tensor operands; ``parts`` has them as ``operand<first>``, and so on."""
    return [
        pack_operand(parts[f"operand{first + i}"], kind, config) for i, kind in enumerate(tensors)
    ]


OPERATORS: dict[str, Callable[[Expr, Expr], Expr]] = {
    name: operation.build for name, operation in OPERATIONS.items()
}


def apply_steps(
    value: te.Tensor, steps: Sequence[Step], operands: Sequence[te.Tensor], prefix: str
) -> tuple[te.Tensor, list[str]]:
    """``value`` (n, c, h, w, b, k) int32 after ``steps``, and the names of the stages.

    ``operands`` are the tensor operands in order.
    """
    waiting, names = list(operands), []
    kept = value
    for number, step in enumerate(steps):
        name = f"{prefix}{number}_{step.op}"
        if step.op == "keep":
            kept = value
            continue
        if step.is_kept:
            value = elementwise(name, OPERATORS[step.op], value, kept)
            names.append(name)
            continue
        operand = waiting.pop(0) if step.is_tensor else tirx.const(int(step.operand), "int32")
        value = _stage(name, value, step, operand)
        names.append(name)
    return value, names


def _stage(
    name: str, value: te.Tensor, step: Step, operand: te.Tensor | tirx.IntImm
) -> te.Tensor:
    function = OPERATORS[step.op]

    def at(n: Var, c: Var, h: Var, w: Var, b: Var, k: Var) -> Expr:
        if not step.is_tensor:
            return function(value[n, c, h, w, b, k], operand)
        if step.operand == CHANNEL:
            return function(value[n, c, h, w, b, k], operand[c, b, k])
        if step.operand == MAP:
            return function(value[n, c, h, w, b, k], operand[h, w, b, k])
        return function(value[n, c, h, w, b, k], operand[c, h, w, b, k])

    return te.compute(value.shape, at, name=name)


def stored(value: te.Tensor, epilogue: Epilogue, name: str = "out") -> te.Tensor:
    """The int8 result of int32 ``value``; an int32 one as byte planes in front of its shape."""
    if epilogue.dtype == "int8":
        return elementwise(name, lambda v: v.astype("int8"), value)
    return te.compute(
        (PLANES, *value.shape), lambda p, *i: (value(*i) >> (p * 8)).astype("int8"), name=name
    )


# ---------------------------------------------------------------- schedules
def inline(sch: s_tir.Schedule, names: Iterable[str]) -> None:
    """Inline the stages of ``names`` into what reads them."""
    for name in names:
        sch.compute_inline(sch.get_sblock(name))


def mark(sch: s_tir.Schedule, block: SBlockRV, pragma: str) -> None:
    """State on the innermost loop of ``block`` what its nest is."""
    sch.annotate(sch.get_loops(block)[-1], PRAGMA_KEY, pragma)
