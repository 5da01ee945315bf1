"""Scheduled PrimFuncs to a VTA Program."""

from __future__ import annotations

from .builder import ProgramBuilder
from .leaf import PRAGMA_KEY
from .linear import CodegenError
from .sram import SLOTS_ATTR
from .uops import BEST, PUBLISHED, FoldMode, fold_count
from .views import VIEWS_ATTR, View, with_views

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
