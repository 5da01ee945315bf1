"""Scheduled PrimFuncs to a VTA Program."""

from __future__ import annotations

from vta_byoc.codegen.builder import ProgramBuilder
from vta_byoc.codegen.leaf import PRAGMA_KEY
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.sram import SLOTS_ATTR
from vta_byoc.codegen.uops import BEST, PUBLISHED, FoldMode, fold_count
from vta_byoc.codegen.views import VIEWS_ATTR, View, with_views

__all__ = [
    "BEST",
    "PRAGMA_KEY",
    "PUBLISHED",
    "SLOTS_ATTR",
    "VIEWS_ATTR",
    "CodegenError",
    "FoldMode",
    "ProgramBuilder",
    "View",
    "fold_count",
    "with_views",
]
