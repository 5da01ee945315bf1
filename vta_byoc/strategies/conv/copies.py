"""Steps of an epilogue that add a value again: its copy on chip, and what is computed before it.

The copy is a stage of its own.  Steps before it would be computed twice, for the copy and for what
goes on; they are a stage too, which overwrites the accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir, tirx
from tvm.s_tir import SBlock
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm_ffi import structural_map

from vta_byoc.codegen import PRAGMA_KEY
from vta_byoc.strategies.conv.bias import without_buffer, written_by
from vta_byoc.workload.memory import ACC
from vta_byoc.workload.workloads import Epilogue

KEEP = "kept"
"""The stage of the copy that is added again."""


def step_name(number: int) -> str:
    """Name of the stage of step ``number`` of the epilogue."""
    return f"step{number}"


def stage_before_copy(epilogue: Epilogue) -> str | None:
    """The stage whose values are copied, where steps make them: it is computed in place."""
    start = next((i for i, step in enumerate(epilogue.steps) if step.op == "keep"), 0)
    shifts_only = all(step.op == "shl" for step in epilogue.steps[:start])
    return None if shifts_only else step_name(start - 1)


def stage_copies(sch: s_tir.Schedule, names: Sequence[str], last: LoopRV) -> None:
    """Keep the copy that is added again on chip, and before it what is copied."""
    for name in names:
        copy = sch.get_sblock(name)
        sch.set_scope(copy, 0, ACC)
        sch.compute_at(copy, last, preserve_unit_loops=True)
        annotate(sch, copy, "alu")


def in_place(func: tirx.PrimFunc, stage: str, sums: str) -> tirx.PrimFunc:
    """``func`` whose stage ``stage`` overwrites the accumulators ``sums``, its only operand."""
    found = dict(written_by(func.body))
    kept, gone = found[f"{sums}_update"], found[stage]

    def one_buffer(block: SBlock) -> SBlock:
        return without_buffer(block, gone)

    body = structural_map(func.body, (SBlock, one_buffer))
    body = structural_map(body, (tirx.Var, lambda var: kept if var.same_as(gone) else var))
    return func.with_body(body)


def annotate(sch: s_tir.Schedule, block: SBlockRV, pragma: str) -> None:
    """State on the innermost loop of ``block`` what its nest is."""
    sch.annotate(sch.get_loops(block)[-1], PRAGMA_KEY, pragma)
