"""Conditions of GEMM nests that hold for what is computed, not for what is staged.

Products that are zero may be left out of a sum.  TVM's passes would stage less of a tile whose
block has such a condition, at places that no loop reaches in constant steps; so the condition is an
attribute of the scheduled PrimFunc until its tiles are placed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx
from tvm.ir import Expr
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map

WHERE_ATTR = "vta.where"
"""By the name of a block: the condition, on the loops around it, under which it computes."""


def with_where(func: tirx.PrimFunc, conditions: Mapping[str, Expr]) -> tirx.PrimFunc:
    """The scheduled ``func`` whose blocks of these names compute under ``conditions`` alone."""
    return func.with_attr(WHERE_ATTR, dict(conditions))


def narrowed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The lowered ``func`` with the conditions of :func:`with_where` in its blocks."""
    if func.attrs is None or WHERE_ATTR not in func.attrs:
        return func
    conditions = func.attrs[WHERE_ATTR]

    def narrow(real: SBlockRealize) -> SBlockRealize:
        name = str(real.block.name_hint)
        if name not in conditions:
            return real
        where = tirx.all(real.predicate, conditions[name])
        return SBlockRealize(real.iter_values, where, real.block)

    body = structural_map(func.body, (SBlockRealize, narrow))
    return func.with_body(body).without_attr(WHERE_ATTR)
