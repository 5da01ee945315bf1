"""When loops of a copy are rows and columns of one instruction."""

from __future__ import annotations

import pytest

from vta_byoc.workload.dma import are_rows, is_row, runs_on


@pytest.mark.parametrize(
    ("dram", "gap", "room", "fits"),
    [
        (0, 0, 0, True),  # the same row again and again
        (65535, 3, 3, True),
        (65536, 3, 3, False),  # the field of the stride has 16 bits
        (-1, 0, 0, False),
        (1, 4, 3, False),  # more zeros between rows than the instruction writes
        (1, -1, 3, False),  # rows over one another
        (-1, 4, 3, False),
    ],
)
def test_rows(dram: int, gap: int, room: int, fits: bool) -> None:
    assert bool(are_rows(dram, gap, room)) is fits


@pytest.mark.parametrize(
    ("dram", "sram", "fits"), [(1, 1, True), (2, 1, False), (1, 2, False), (0, 1, False)]
)
def test_columns(dram: int, sram: int, fits: bool) -> None:
    assert bool(is_row(dram, sram)) is fits


@pytest.mark.parametrize(
    ("dram", "sram", "fits"), [(6, 12, True), (7, 12, False), (6, 11, False), (0, 0, False)]
)
def test_a_loop_goes_on(dram: int, sram: int, fits: bool) -> None:
    """Behind a loop that covers 6 elements in DRAM and 12 in SRAM."""
    assert bool(runs_on(dram, sram, 6, 12)) is fits
