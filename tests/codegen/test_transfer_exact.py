"""The transfers of a copy, piece by piece, and random copies on fields of few values."""

from __future__ import annotations

import numpy as np
import pytest
from transfer_cases import UNTOUCHED, check_fields, expected, random_dims, replay

from vta_byoc.codegen import transfer
from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.transfer import NOTHING, PAD_LIMIT, SIZE_LIMIT, Dim, Piece, plan_transfer
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import ISA, Opcode

WIDE = Dim(10, 0, 10, 1, 1)


def zeros(sram: int, pads: tuple[int, int, int, int]) -> Piece:
    return Piece(0, sram, 1, 1, 1, pads, zero=True)


CASES: dict[str, tuple[list[Dim], list[Piece]]] = {
    "rows of one length": (
        [Dim(2, 0, 2, 12, 10), WIDE],
        [Piece(0, 0, 2, 10, 12)],
    ),
    "one datum between zeros is a row": (
        [Dim(3, 1, 2, 5, 1)],
        [Piece(0, 0, 1, 1, 1, (0, 0, 1, 1))],
    ),
    "two data in DRAM strides are rows": (
        [Dim(4, 1, 3, 5, 1)],
        [Piece(0, 0, 2, 1, 5, (1, 1, 0, 0))],
    ),
    "rows behind a margin": (
        [Dim(3, 0, 3, 9, 8), Dim(8, PAD_LIMIT - 10, 8, 1, 1)],
        [Piece(0, 0, 3, 3, 9, (0, 0, 5, 0))],
    ),
    "the longest row": (
        [Dim(2, 0, 2, 9, SIZE_LIMIT), Dim(SIZE_LIMIT, 3, SIZE_LIMIT, 1, 1)],
        [Piece(0, 0, 2, SIZE_LIMIT - 3, 9, (0, 0, 3, 0))],
    ),
    "the widest row": (
        [Dim(2, 0, 2, 9, SIZE_LIMIT), Dim(SIZE_LIMIT, 0, SIZE_LIMIT, 1, 1)],
        [Piece(0, 0, 2, SIZE_LIMIT, 9)],
    ),
    "rows of rows": (
        [Dim(2, 0, 2, 60, 12), Dim(3, 0, 3, 20, 4), Dim(4, 0, 4, 1, 1)],
        [Piece(0, 0, 6, 4, 20)],
    ),
    "rows that go back by one": (
        [Dim(2, 0, 2, -1, 2), Dim(2, 0, 2, 1, 1)],
        [Piece(0, 0, 1, 2, 2), Piece(-1, 2, 1, 2, 2)],
    ),
    "rows too long for one transfer": (
        [Dim(2, 0, 2, 9, SIZE_LIMIT + 1), Dim(SIZE_LIMIT + 1, 1, SIZE_LIMIT + 1, 1, 1)],
        [
            Piece(0, 0, 1, SIZE_LIMIT, SIZE_LIMIT, (0, 0, 1, 0)),
            Piece(9, SIZE_LIMIT + 1, 1, SIZE_LIMIT, SIZE_LIMIT, (0, 0, 1, 0)),
        ],
    ),
    "the widest margins": (
        [Dim(2, 0, 2, 1, 31), Dim(31, 15, 16, 1, 1)],
        [Piece(0, 0, 2, 1, 1, (0, 0, 15, 15))],
    ),
    "a left margin over the field": (
        [Dim(2, 0, 2, 1, 17), Dim(17, 16, 17, 1, 1)],
        [
            zeros(0, (0, 0, 0, 0)),
            Piece(0, 1, 1, 1, 1, (0, 0, 15, 0)),
            zeros(17, (0, 0, 0, 0)),
            Piece(1, 18, 1, 1, 1, (0, 0, 15, 0)),
        ],
    ),
    "a right margin over the field": (
        [Dim(2, 0, 2, 1, 17), Dim(17, 0, 1, 1, 1)],
        [
            Piece(0, 0, 1, 1, 1, (0, 0, 0, 15)),
            zeros(16, (0, 0, 0, 0)),
            Piece(1, 17, 1, 1, 1, (0, 0, 0, 15)),
            zeros(33, (0, 0, 0, 0)),
        ],
    ),
    "a unit loop between the rows and their elements": (
        [Dim(4, 0, 4, 3, 3), Dim(1, 0, 0, 0, 2), Dim(3, 0, 3, 1, 1)],
        [zeros(0, (0, 0, 11, 0))],
    ),
    "rows over the field, with margins": (
        [Dim(SIZE_LIMIT + 5, 2, SIZE_LIMIT + 4, 9, 1)],
        [
            Piece(0, 0, SIZE_LIMIT, 1, 9, (2, 0, 0, 0)),
            Piece(9 * SIZE_LIMIT, SIZE_LIMIT + 2, 2, 1, 9, (0, 1, 0, 0)),
        ],
    ),
    "a row over the field, with margins": (
        [Dim(SIZE_LIMIT + 5, 2, SIZE_LIMIT + 4, 1, 1)],
        [
            Piece(0, 0, 1, SIZE_LIMIT, SIZE_LIMIT, (0, 0, 2, 0)),
            Piece(SIZE_LIMIT, SIZE_LIMIT + 2, 1, 2, 2, (0, 0, 0, 1)),
        ],
    ),
    "one row of DRAM again and again": (
        [Dim(3, 0, 3, 0, 2), Dim(2, 0, 2, 1, 1)],
        [Piece(0, 0, 3, 2, 0)],
    ),
    "the widest step between rows": (
        [Dim(2, 0, 2, SIZE_LIMIT, 2), Dim(2, 0, 2, 1, 1)],
        [Piece(0, 0, 2, 2, SIZE_LIMIT)],
    ),
    "zeros: a row": ([Dim(31, 0, 0, 1, 1), NOTHING], [zeros(0, (0, 0, 15, 15))]),
    "zeros: a square": ([Dim(961, 0, 0, 1, 1), NOTHING], [zeros(0, (15, 15, 15, 15))]),
    "zeros: rows and a rest": (
        [Dim(65, 0, 0, 1, 1), NOTHING],
        [zeros(0, (1, 0, 15, 15)), zeros(62, (0, 0, 2, 0))],
    ),
    "zeros at a distance": (
        [Dim(2, 0, 0, 0, 5), NOTHING],
        [zeros(0, (0, 0, 0, 0)), zeros(5, (0, 0, 0, 0))],
    ),
    "blocks whose DRAM order is not that of SRAM": (
        [Dim(2, 0, 2, 1, 4), Dim(2, 0, 2, 2, 2), Dim(2, 0, 2, 4, 1)],
        [
            Piece(0, 0, 2, 1, 4),
            Piece(2, 2, 2, 1, 4),
            Piece(1, 4, 2, 1, 4),
            Piece(3, 6, 2, 1, 4),
        ],
    ),
    "every second element of DRAM, one stride": (
        [Dim(3, 0, 3, 4, 2), Dim(2, 0, 2, 2, 1)],
        [Piece(0, 0, 6, 1, 2)],
    ),
}


def test_limits_are_those_of_the_fields() -> None:
    isa = ISA.of(VTAConfig())
    limits = {
        SIZE_LIMIT: ("y_size", "x_size", "x_stride"),
        PAD_LIMIT: ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"),
    }
    for limit, names in limits.items():
        assert {isa.field(Opcode.LOAD, name).high for name in names} == {limit}


@pytest.mark.parametrize(("dims", "pieces"), CASES.values(), ids=CASES)
def test_pieces(dims: list[Dim], pieces: list[Piece]) -> None:
    assert plan_transfer(dims) == pieces


@pytest.mark.parametrize(
    ("gap", "margin", "fits"),
    [(1, 0, True), (15, 0, True), (16, 0, False), (13, 2, True), (14, 2, False)],
)
def test_gaps_that_padding_fills(gap: int, margin: int, fits: bool) -> None:
    """The gap between two rows and the zeros right of one share the padding field."""
    x = Dim(10 + margin, 0, 10, 1, 1)
    rows = Dim(3, 0, 3, 20, x.total + gap)
    filled = plan_transfer([rows, x], fill=True)
    if fits:
        assert filled == [Piece(0, 0, 3, 10, 20, (0, 0, 0, margin + gap))]
    else:
        assert filled == plan_transfer([rows, x])
    assert len(plan_transfer([rows, x])) == 3, "no zeros are written between rows unasked"


def test_extent_of_a_piece() -> None:
    piece = Piece(5, 7, 3, 4, 10, (1, 2, 3, 4))
    assert piece.sram_elems == (1 + 3 + 2) * (3 + 4 + 4)
    assert Piece(0, 0, 2, 3, 3).sram_elems == 6, "no padding unless it is given"
    assert not Piece(0, 0, 2, 3, 3).zero


def test_padded() -> None:
    assert [d.padded for d in (WIDE, Dim(3, 1, 3, 1, 1), Dim(3, 0, 2, 1, 1))] == [False, True, True]
    assert (NOTHING.total, NOTHING.low, NOTHING.high) == (1, 0, 0), "one position, no datum"


def test_a_store_pads_nothing() -> None:
    for dims in ([Dim(3, 1, 3, 1, 1)], [Dim(2, 0, 2, 4, 4), Dim(4, 0, 3, 1, 1)]):
        with pytest.raises(CodegenError) as error:
            plan_transfer(dims, store=True)
        assert str(error.value) == "a store cannot pad; store only what is inside the tensor"


def test_nesting_of_loops_in_sram() -> None:
    """A loop may begin where the one inside it ends, and not one element before."""
    inner = [Dim(3, 0, 3, 9, 4), Dim(2, 0, 2, 1, 1)]
    assert len(plan_transfer([Dim(2, 0, 2, 50, 10), *inner])) == 6
    with pytest.raises(CodegenError) as error:
        plan_transfer([Dim(2, 0, 2, 50, 9), *inner])
    assert str(error.value) == (
        "SRAM stride 9 overlaps a row of 10 elements; a DMA writes rows one after the other; keep "
        "the loops of the copy in the order of the buffer"
    )


@pytest.mark.parametrize(("fill", "instructions"), [(False, 10951), (True, 6300)])
def test_fields_of_few_values(
    monkeypatch: pytest.MonkeyPatch, fill: bool, instructions: int
) -> None:
    """Where sizes end at 7 and margins at 3 every copy is split somewhere."""
    monkeypatch.setattr(transfer, "SIZE_LIMIT", 7)
    monkeypatch.setattr(transfer, "PAD_LIMIT", 3)
    count = 0
    for number in range(300):
        dims = random_dims(np.random.default_rng(10_000 + number))
        pieces = plan_transfer(dims, fill=fill)
        check_fields(pieces)
        assert all(max(p.y_size, p.x_size, p.x_stride if p.y_size > 1 else 0) <= 7 for p in pieces)
        assert all(max(p.pads) <= 3 for p in pieces)
        reach = 1 + sum((d.total - 1) * d.sram for d in dims)
        size = max([reach, *(p.sram + p.sram_elems for p in pieces)])
        got, want = replay(pieces, size), expected(dims, size)
        copied = want != UNTOUCHED
        np.testing.assert_array_equal(got[copied], want[copied], err_msg=f"{number}: {dims}")
        count += len(pieces)
    assert count == instructions, "a smaller number is an improvement: write it here"
