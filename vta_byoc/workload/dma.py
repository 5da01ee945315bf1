"""Which loops of a copy between DRAM and SRAM are one DMA instruction.

An instruction moves rows of elements that are dense on both sides; in DRAM its rows may lie apart,
in SRAM they follow one another.  These rules are the one model of it: code generation plans
transfers by them, and the cost model counts with arrays by them what would be planned.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from vta_byoc.hw.isa import SIZE_LIMIT

Number: TypeAlias = int | float | np.int64 | np.ndarray
"""A number, or an array of numbers for as many copies."""
Truth: TypeAlias = bool | np.bool_ | np.ndarray
"""The same of truth values."""


def runs_on(dram: Number, sram: Number, past_dram: Number, past_sram: Number) -> Truth:
    """Whether a loop of these strides goes on where the loop inside it ends, on both sides.

    Two such loops are one loop, if neither has padding.  `past_dram` and `past_sram` are how many
    elements the inner loop covers.
    """
    return (dram == past_dram) & (sram == past_sram)


def is_row(dram: Number, sram: Number) -> Truth:
    """Whether a loop of these strides can be the columns of an instruction."""
    return (dram == 1) & (sram == 1)


def are_rows(dram: Number, gap: Number, room: Number) -> Truth:
    """Whether a loop can be the rows of an instruction.

    In DRAM rows are `dram` elements apart.  In SRAM `gap` elements lie between them, of which the
    instruction fills at most `room` with zeros.
    """
    return (dram >= 0) & (dram <= SIZE_LIMIT) & (gap >= 0) & (gap <= room)
