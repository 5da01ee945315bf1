"""The ALU steps of a nest as operations on SRAM elements, and what they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vta_byoc.codegen.accumulator import Change, Where, elements, meet
from vta_byoc.codegen.alu import Access, AluStep
from vta_byoc.codegen.execution import Execution
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.tensorizable import TensorizableNest
from vta_byoc.codegen.uops import LoopDim


@dataclass(frozen=True)
class InPlace:
    """What the steps of one execution do.

    ``reads`` are the values they find, as (access, elements); ``changed`` the accesses they
    overwrite; ``operands`` the elements that they read besides ``changed``.
    """

    changes: Sequence[Change]
    reads: Sequence[tuple[Access, Where]]
    changed: dict[Access, Where]

    @classmethod
    def of(cls, run: Execution) -> InPlace:
        """The steps of ``run``; CodegenError where they would spoil what they still need."""
        nest = run.nest
        changes: list[Change] = []
        reads: dict[Access, Where] = {}
        changed: dict[Access, Where] = {}
        for step in run.steps:
            dims = run.dims(step.dst, step.src or step.dst, lanes_alike=True)
            if step.dst not in changed and step.dst is not nest.dst:
                _refuse_repeat(nest, step, dims)
            places = {
                a: elements(dims, k, run.at(a))
                for k, a in enumerate((step.dst, step.src))
                if a is not None
            }
            for access, where in places.items():
                if access not in changed:
                    reads.setdefault(access, where)
            changed.setdefault(step.dst, places[step.dst])
            _refuse_overlap(nest, changed, places)
            changes.append(_change(run, step, dims))
        return cls(changes, list(reads.items()), changed)

    @property
    def operands(self) -> list[Where]:
        """Elements that are read and not changed."""
        return [where for access, where in self.reads if access not in self.changed]

    def only(self, access: Access | None) -> bool:
        """Whether ``access`` alone is changed."""
        return list(self.changed) == [access]


def _change(run: Execution, step: AluStep, dims: Sequence[LoopDim]) -> Change:
    imm = None if step.imm is None else step.imm.const
    return Change(step.op, imm, run.at(step.dst), run.at(step.src or step.dst), tuple(dims))


def _refuse_repeat(nest: TensorizableNest, step: AluStep, dims: Sequence[LoopDim]) -> None:
    """An intermediate value must be changed once an element."""
    if any(d.strides[0] == 0 for d in dims):
        raise CodegenError(
            f"block {nest.name} applies {step.op.name} to {step.dst.buffer.name} more than once "
            "per element (a loop does not move it); put the varying operand first or stage a copy"
        )


def _refuse_overlap(
    nest: TensorizableNest, changed: dict[Access, Where], places: dict[Access, Where]
) -> None:
    """Two different accesses must not meet in an element that one of them changes."""
    for first, low in changed.items():
        for second, high in places.items():
            alike = second is first or not second.buffer.same_as(first.buffer)
            if not alike and meet(low, high):
                raise CodegenError(
                    f"block {nest.name} reads elements of {first.buffer.name} that it also "
                    "changes, at another index; the ALU works in place and its loops run in any "
                    "order; stage a second copy"
                )
