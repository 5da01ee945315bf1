"""Memories of the machine as scopes of tensors."""

from __future__ import annotations

from vta_byoc.hw.config import VTAConfig

DRAM_INP, DRAM_WGT, DRAM_ACC = "global.vta.inp", "global.vta.wgt", "global.vta.acc"

INP, WGT, ACC = "local.inp_buffer", "local.wgt_buffer", "local.acc_buffer"
SRAM_SCOPES = (INP, WGT, ACC)
DTYPES = {INP: "int8", WGT: "int8", ACC: "int32"}


def element_scalars(config: VTAConfig, scope: str) -> int:
    """Scalars of one SRAM element of ``scope``."""
    if scope == WGT:
        return config.block * config.block
    return config.batch * config.block


def in_dram(scope: str) -> bool:
    """Whether a buffer of ``scope`` lives in DRAM (``global`` or one of ``global.vta.*``)."""
    return scope.partition(".")[0] == "global"
