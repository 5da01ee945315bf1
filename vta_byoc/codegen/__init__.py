"""Scheduled PrimFuncs to a VTA Program."""

from __future__ import annotations

from vta_byoc.codegen.builder import ProgramBuilder
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.sram import SLOTS_ATTR
from vta_byoc.codegen.tensorizable import APART_KEY, PRAGMA_KEY
from vta_byoc.codegen.uops import BEST, TUTORIALS, LoopCompression, compressed_count
from vta_byoc.codegen.views import VIEWS_ATTR, View, with_views

__all__ = [
    "APART_KEY",
    "BEST",
    "PRAGMA_KEY",
    "SLOTS_ATTR",
    "TUTORIALS",
    "VIEWS_ATTR",
    "CodegenError",
    "LoopCompression",
    "ProgramBuilder",
    "View",
    "compressed_count",
    "with_views",
]
