"""Small machines whose cores are quick to build: elements narrower and wider than the port."""

from __future__ import annotations

import dataclasses

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.timing_parameters import Timing

SMALL = VTAConfig(
    log_block=2,
    log_uop_buff_size=9,
    log_inp_buff_size=8,
    log_wgt_buff_size=9,
    log_acc_buff_size=10,
    timing=Timing(fetch_burst=4, queue_depth=8),
)
"""1x4: elements of INP and OUT are half a beat."""
PLAIN = dataclasses.replace(
    SMALL,
    log_batch=1,
    log_inp_buff_size=9,
    capabilities=Capabilities(
        mul=False, acc_8bit=False, imm_reads_src=True, shift_modulo=True, out_sram=True
    ),
)
"""2x4 without MUL and ACC_8BIT, and with all that the Chisel core does otherwise."""


def machine_of(device: str, usual: VTAConfig) -> VTAConfig:
    """The machine on which a test runs a device; `rtl` has SMALL: no other core is built."""
    return SMALL if device == "rtl" else usual
