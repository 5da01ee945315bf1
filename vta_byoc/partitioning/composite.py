"""Composite functions: their attributes, reading them."""

from __future__ import annotations

import tvm
from tvm import relax

PLACEMENT_ATTR = "vta.placement"
SOURCE_ATTR = "vta.source"
"""On a composite: the source operator it computes."""
RESULT_ATTR = "vta.result"
"""On a composite: the variable of the quantized module that it computes."""
MATCH_ATTR, CONSTANTS_ATTR = "vta.match", "vta.constants"
"""On a marked composite: the plan of its match, and the constants that the plan packs."""


def composites(mod: tvm.IRModule) -> dict[str, relax.Function]:
    """Composite functions of ``mod`` by the name of their global variable."""
    return {
        gv.name_hint: func
        for gv, func in mod.functions.items()
        if isinstance(func, relax.Function) and func.attrs and "Composite" in func.attrs
    }


def composite_source(func: relax.Function) -> str:
    """The source operator of a composite that :func:`vta_byoc.partition.mark` made."""
    return str(func.attrs[SOURCE_ATTR])
