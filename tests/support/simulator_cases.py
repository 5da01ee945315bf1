"""Machines, random programs and comparisons that the simulator tests share."""

from __future__ import annotations

import functools

import numpy as np
from draws import draws

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim import interpreter
from vta_byoc.hw.sim.target import native_target
from vta_byoc.hw.testing.random_programs import random_stream

PROGRAMS = draws(48, 200)  # for each machine below


def machine(batch: int, block: int, uop: int, inp: int, wgt: int, acc: int) -> VTAConfig:
    """A machine by its logarithms."""
    return VTAConfig(
        log_batch=batch,
        log_block=block,
        log_uop_buff_size=uop,
        log_inp_buff_size=inp,
        log_wgt_buff_size=wgt,
        log_acc_buff_size=acc,
    )


MACHINES = {
    **{name: VTAConfig.preset(name) for name in ("sim", "chisel", "tophub_4x8", "2x16", "1x32")},
    "1x8": machine(0, 3, 12, 12, 14, 14),
    "2x8": machine(1, 3, 13, 13, 14, 15),
    "4x16": machine(2, 4, 12, 15, 16, 17),
    "2x32": machine(1, 5, 12, 13, 15, 15),
    "4x32": machine(2, 5, 12, 14, 16, 16),
    "tiny 1x16": machine(0, 4, 8, 6, 10, 9),
    "plain 1x16": VTAConfig(capabilities=Capabilities(mul=False, max_tokens=2)),
}
SIM = MACHINES["sim"]


def dots(config: VTAConfig) -> list[str]:
    """The ways to multiply that this processor has; named, so that none falls back to another."""
    vnni = interpreter.vnni_lanes(config, native_target())
    return ["portable", "vnni"] if vnni else ["portable"]


@functools.cache
def streams(config: VTAConfig, count: int = PROGRAMS) -> list[tuple[np.ndarray, np.ndarray]]:
    """The random programs of a machine, (instructions, arena), the same each time."""
    rng = np.random.default_rng([config.log_batch, config.log_block, config.log_acc_buff_size])
    return [random_stream(config, rng) for _ in range(count)]


def assert_same(found: RunResult, wanted: RunResult) -> None:
    assert found.counters == wanted.counters
    np.testing.assert_array_equal(found.arena, wanted.arena)
    assert list(found.sram) == list(wanted.sram) == ["uop", "inp", "wgt", "acc"]
    for name, memory in wanted.sram.items():
        assert found.sram[name].dtype == memory.dtype
        np.testing.assert_array_equal(found.sram[name], memory, err_msg=name)
