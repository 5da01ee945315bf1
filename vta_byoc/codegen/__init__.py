"""Scheduled PrimFuncs to a VTA Program."""

from __future__ import annotations

from .builder import ProgramBuilder
from .leaf import PRAGMA_KEY
from .linear import CodegenError
from .uops import BEST, PUBLISHED, FoldMode
from .walk import SLOTS_ATTR

__all__ = [
    "BEST",
    "PRAGMA_KEY",
    "PUBLISHED",
    "SLOTS_ATTR",
    "CodegenError",
    "FoldMode",
    "ProgramBuilder",
]
