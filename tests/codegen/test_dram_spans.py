"""The bytes of DRAM that a LOAD or STORE touches, by which others wait for it or do not."""

from __future__ import annotations

from vta_byoc.codegen.dma import dram_spans


def spans(rows: int, size: int, stride: int) -> list[tuple[int, int]]:
    return dram_spans({"y_size": rows, "x_size": size, "x_stride": stride}, 3, 16)


def test_rows_with_gaps_are_told_apart() -> None:
    """What lies between them is another tile's."""
    assert spans(3, 2, 5) == [(48, 80), (128, 160), (208, 240)]


def test_rows_without_gaps_are_one() -> None:
    assert spans(3, 2, 2) == [(48, 144)] and spans(1, 4, 9) == [(48, 112)]
    assert spans(3, 2, 0) == [(48, 80)], "the same row again"


def test_many_rows_are_one() -> None:
    assert len(spans(128, 1, 2)) == 128
    assert spans(129, 1, 2) == [(48, (3 + 2 * 128 + 1) * 16)]
