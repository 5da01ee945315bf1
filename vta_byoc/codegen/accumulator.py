"""What the accumulator's vectors hold while a layer is emitted.

Of each vector is known whether GEMM or ALU wrote it last (a STORE may read nothing else) and which
block, if any, changed its value in place on the way to another: nobody may read that value again,
but an expression that begins with the same changes may go on from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.uops import LoopDim
from vta_byoc.hw.isa import AluOp

Where = slice | np.ndarray
"""Elements of the accumulator buffer."""


def elements(dims: Sequence[LoopDim], operand: int, base: int) -> Where:
    """SRAM elements that operand number ``operand`` of a nest touches, from ``base``."""
    loops = sorted((abs(d.strides[operand]), d.extent, d.strides[operand]) for d in dims)
    low, reach = base, 1
    for step, extent, stride in loops:
        if step > reach:
            return _apart(dims, operand, base)
        low += min(0, stride) * (extent - 1)
        reach += step * (extent - 1)
    return slice(low, low + reach)


def _apart(dims: Sequence[LoopDim], operand: int, base: int) -> np.ndarray:
    """The elements where some between them are left out."""
    at = np.array([base])
    for d in dims:
        if d.strides[operand]:
            at = (at[:, None] + np.arange(d.extent) * d.strides[operand]).reshape(-1)
    return np.unique(at)


def meet(one: Where, two: Where) -> bool:
    """Whether two sets of elements have one in common."""
    first, second = (np.r_[w] if isinstance(w, slice) else w for w in (one, two))
    return bool(np.isin(first, second).any())


@dataclass(frozen=True)
class Change:
    """One ALU operation on a set of vectors: the nest ``dims`` from elements ``dst`` and ``src``.

    The operand is ``imm`` or the vectors at ``src``, which is ``dst`` where there are none; shifts
    are by any amount.
    """

    op: AluOp
    imm: int | None
    dst: int
    src: int
    dims: tuple[LoopDim, ...]


@dataclass(frozen=True, eq=False)
class Clobbered:
    """Block ``name`` made ``changes`` with the ``operands``, as write number ``when``."""

    name: str
    changes: Sequence[Change] = ()
    operands: Sequence[Where] = ()
    when: int = 0


class AccumulatorState:
    """State of every vector of the ACC buffer."""

    def __init__(self, depth: int):
        self._computed = np.zeros(depth, bool)
        self._clobberer = np.zeros(depth, np.int64)
        self._written = np.zeros(depth, np.int64)
        self._records = [Clobbered("")]
        self._writes = 0

    def cleared(self, at: Where) -> None:
        """A load or a reset wrote ``at``."""
        self._note(at, False)
        self._clobberer[at] = 0

    def computed(self, at: Where) -> None:
        """GEMM or ALU wrote ``at``, as the value of its own block."""
        self._note(at, True)

    def clobbered(self, at: Where, clobbered: Clobbered) -> None:
        """A block overwrote the values ``at`` on the way to its own."""
        self._note(at, True)
        self._clobberer[at] = len(self._records)
        self._records.append(dataclasses.replace(clobbered, when=self._writes))

    def _note(self, at: Where, computed: bool) -> None:
        self._writes += 1
        self._computed[at] = computed
        self._written[at] = self._writes

    def storable(self, at: Where) -> bool:
        """Whether GEMM or ALU wrote all of ``at`` last."""
        return bool(self._computed[at].all())

    def refuse_clobbered(self, at: Where, name: str, buffer: str) -> None:
        """Refuse block ``name`` to read ``at`` of ``buffer`` after a block clobbered it."""
        clobberer = int(self._clobberer[at].max())
        if clobberer:
            raise CodegenError(
                f"block {name} reads {buffer} after block {self._records[clobberer].name} changed "
                "it in place; the ALU overwrites its first operand; stage a second copy"
            )

    def rest_of(self, at: Where, changes: Sequence[Change]) -> Sequence[Change] | None:
        """What is left to do of ``changes`` to ``at``.

        All of them where nobody clobbered the values; the others where a block made the first of
        them, with operands that are still the same; None where it did something else.
        """
        clobberers = self._clobberer[at]
        number = int(clobberers.max())
        if not number:
            return changes
        record = self._records[number]
        stale = any((self._written[where] > record.when).any() for where in record.operands)
        if stale or not record.changes or (clobberers != number).any():
            return None
        return _continued(record.changes, changes)


def _continued(done: Sequence[Change], wanted: Sequence[Change]) -> Sequence[Change] | None:
    """What makes ``wanted`` of ``done``; a last right shift may be the first part of another."""
    count = len(done)
    if len(wanted) < count or list(wanted[: count - 1]) != list(done[:-1]):
        return None
    last, this, rest = done[-1], wanted[count - 1], wanted[count:]
    if this == last:
        return rest
    alike = dataclasses.replace(last, imm=this.imm) == this
    if this.op != AluOp.SHR or not alike or last.imm is None or this.imm is None:
        return None
    if not 0 <= last.imm <= this.imm:
        return None
    return [dataclasses.replace(this, imm=this.imm - last.imm), *rest]
