"""Which operators the user wants to keep in float: selectors to variables of `main`."""

from __future__ import annotations

import tvm
from tvm import relax

from vta_byoc.ir.bindings import source_name, straight_bindings
from vta_byoc.ir.selection import Operators, Selectors, as_selectors


def keep_float(mod: tvm.IRModule, selectors: Selectors) -> set[relax.Var]:
    """The variables of `main` that belong to the operators that `selectors` choose.

    Args:
        mod: float module of `load_model`.
        selectors: names, patterns, ranges and kinds (`vta_byoc.ir.selection`).

    Raises:
        VTAError: a selector that chooses no operator.
    """
    chosen = as_selectors(selectors)
    if not chosen:
        return set()
    names = Operators.of(mod).select(chosen, "to keep in float")
    bound = [binding.var for binding in straight_bindings(mod["main"])]
    return {var for var in bound if source_name(var) in names}
