"""What a run leaves behind, whichever simulator it was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vta_byoc.hw.timing.result import TimingResult


@dataclass(frozen=True)
class RunResult:
    """The outcome of one program.

    ``arena`` is the DRAM, int8.  ``outputs`` holds the program's output tensors by symbol name,
    ``counters`` the seven counters by name.  ``sram`` holds the on-chip memories as the machine
    defines them: ``uop`` (depth,) uint32, ``inp`` (depth, batch, block) int8, ``wgt`` (depth,
    block, block) int8 with output lanes first, ``acc`` (depth, batch, block) int32; it is empty
    for a device that cannot show them.  ``timing`` is that of device "tsim", ``cycles`` those that
    device "rtl" counted.
    """

    arena: np.ndarray
    counters: dict[str, int]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    sram: dict[str, np.ndarray] = field(default_factory=dict)
    timing: TimingResult | None = None
    cycles: int | None = None
