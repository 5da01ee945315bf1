"""Conditions of GEMM nests that hold for what is computed, not for what is staged.

Products that are zero may be left out of a sum.  TVM's passes would stage less of a tile whose
block has such a condition, at places that no loop reaches in constant steps; so the condition is an
attribute of the scheduled PrimFunc until its tiles are placed.  Where products are left in several
boxes, each has a condition, and a nest of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map

from vta_byoc.codegen.nest import leaf_chain
from vta_byoc.codegen.tensorizable import SHARES_KEY

WHERE_ATTR = "vta.where"
"""By the name of a block: the conditions, on the loops around it, under which it computes."""


def with_where(func: tirx.PrimFunc, conditions: Mapping[str, Sequence[Expr]]) -> tirx.PrimFunc:
    """The scheduled ``func`` whose blocks of these names compute under ``conditions`` alone.

    No two conditions of a block hold at once.
    """
    return func.with_attr(WHERE_ATTR, {name: [*each] for name, each in conditions.items()})


def narrowed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The lowered ``func`` with the conditions of :func:`with_where` in its blocks."""
    if func.attrs is None or WHERE_ATTR not in func.attrs:
        return func
    conditions = {str(name): [*each] for name, each in func.attrs[WHERE_ATTR].items()}

    def narrow(stmt: tirx.SeqStmt) -> tirx.SeqStmt:
        parts: list[tirx.Stmt] = []
        for part in stmt.seq:
            chain = leaf_chain(part) if isinstance(part, tirx.For | SBlockRealize) else None
            name = "" if chain is None else str(chain[1].block.name_hint)
            own = conditions.get(name, [])
            parts += [_under(part, each, shares=len(own) > 1) for each in own] or [part]
        return tirx.SeqStmt(parts)

    body = structural_map(func.body, (tirx.SeqStmt, narrow))
    return func.with_body(body).without_attr(WHERE_ATTR)


def _under(nest: tirx.Stmt, condition: Expr, *, shares: bool) -> tirx.Stmt:
    """The nest where ``condition`` holds; ``shares``: it is one of several."""
    notes = {SHARES_KEY: True} if shares else {}

    def narrow(real: SBlockRealize) -> SBlockRealize:
        block = SBlock([], [], [], real.block.name_hint, real.block.body, annotations=notes)
        return SBlockRealize([], tirx.all(real.predicate, condition), block)

    return structural_map(nest, (SBlockRealize, narrow))
