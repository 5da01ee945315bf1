"""Memories of the machine as scopes of tensors; what each holds is said in `hw/isa.py`."""

from __future__ import annotations

from collections.abc import Mapping

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import LOADABLE, MEMORY_TYPES, SRAMS, MemType

DRAM_INP, DRAM_WGT, DRAM_ACC = (
    MEMORY_TYPES[mem].scope for mem in (MemType.INP, MemType.WGT, MemType.ACC)
)
MEMORIES = tuple(name for name, memory in SRAMS.items() if memory.sizes)
"""The on-chip memories that hold tensors, in the order in which slots are given."""
INP, WGT, ACC = SRAM_SCOPES = tuple(f"local.{name}_buffer" for name in MEMORIES)
SPACES: Mapping[str, str] = dict(zip(SRAM_SCOPES, MEMORIES, strict=True))
"""On-chip scope -> name of its memory."""
DTYPES: Mapping[str, str] = {scope: SRAMS[name].dtype for scope, name in SPACES.items()}
"""On-chip scope -> type of its scalars."""
LOADS: Mapping[tuple[str, str], MemType] = {
    (scope, MEMORY_TYPES[mem].dtype): mem
    for scope, name in SPACES.items()
    for mem in LOADABLE
    if MEMORY_TYPES[mem].sram == name
}
"""(On-chip scope, type of the tensor in DRAM) -> the memory type that a LOAD has."""


def element_scalars(config: VTAConfig, scope: str) -> int:
    """Scalars of one element of the on-chip memory ``scope``."""
    rows, columns = SRAMS[SPACES[scope]].sizes
    count: int = getattr(config, rows) * getattr(config, columns)
    return count


def depth_of(config: VTAConfig, scope: str) -> int:
    """Elements of the on-chip memory ``scope``."""
    return config.depths[SPACES[scope]]


def in_dram(scope: str) -> bool:
    """Whether a buffer of ``scope`` lives in DRAM (``global`` or one of ``global.vta.*``)."""
    return scope.partition(".")[0] == "global"


def dram_scopes() -> dict[str, list[MemType]]:
    """DRAM scope -> the memory types that LOAD reads from it, in the order of the table."""
    found: dict[str, list[MemType]] = {}
    for mem in LOADABLE:
        if MEMORY_TYPES[mem].scope:
            found.setdefault(MEMORY_TYPES[mem].scope, []).append(mem)
    return found
