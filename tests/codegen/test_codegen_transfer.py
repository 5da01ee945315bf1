"""Copies with padding as 2-D transfers: random boxes against a position-by-position copy."""

from __future__ import annotations

import numpy as np
import pytest
from script_nests import function, nest, program
from strict_machine import Machine
from transfer_cases import UNTOUCHED, check_fields, expected, random_dims, replay

from vta_byoc.codegen.linear import CodegenError
from vta_byoc.codegen.transfer import (
    NOTHING,
    PAD_LIMIT,
    SIZE_LIMIT,
    UNIT,
    Dim,
    Piece,
    plan_transfer,
)
from vta_byoc.hw.isa import ISA, MemType, Opcode


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("seed", range(0, 1500, 100))
def test_random_loads(seed: int, fill: bool) -> None:
    for number in range(seed, seed + 100):
        dims = random_dims(np.random.default_rng(number))
        pieces = plan_transfer(dims, fill=fill)
        check_fields(pieces)
        reach = 1 + sum((d.total - 1) * d.sram for d in dims)
        size = max([reach, *(p.sram + p.sram_elems for p in pieces)])
        got, want = replay(pieces, size), expected(dims, size)
        copied = want != UNTOUCHED
        np.testing.assert_array_equal(got[copied], want[copied], err_msg=f"{number}: {dims}")
        assert np.isin(got[~copied], [UNTOUCHED, 0] if fill else [UNTOUCHED]).all()


def test_random_stores() -> None:
    """A store reads what the loops say and nothing between the rows."""
    for number in range(300):
        loops = random_dims(np.random.default_rng(number))
        dims = [Dim(d.total, 0, d.total, d.dram, d.sram) for d in loops]
        pieces = plan_transfer(dims, store=True)
        check_fields(pieces)
        assert not any(any(p.pads) or p.zero for p in pieces)
        size = 1 + sum((d.total - 1) * d.sram for d in dims)
        np.testing.assert_array_equal(replay(pieces, size), expected(dims, size))


def piece(*dims: Dim) -> Piece:
    """The only transfer of a copy."""
    (only,) = plan_transfer(dims)
    return only


def test_one_instruction_where_it_fits() -> None:
    assert piece(Dim(4, 0, 4, 10, 6), Dim(6, 1, 5, 1, 1)) == Piece(0, 0, 4, 4, 10, (0, 0, 1, 1))
    assert piece(Dim(5, 1, 4, 10, 3), Dim(3, 0, 3, 1, 1)) == Piece(0, 0, 3, 3, 10, (1, 1, 0, 0))
    # a dense block of several loops is one row
    assert piece(Dim(3, 0, 3, 8, 8), Dim(4, 0, 4, 2, 2), Dim(2, 0, 2, 1, 1)).x_size == 24
    # one column: the row loop steps single elements
    assert piece(Dim(7, 2, 5, 9, 1)) == Piece(0, 0, 3, 1, 9, (2, 2, 0, 0))
    assert piece(UNIT) == Piece(0, 0, 1, 1, 1)
    # rows that repeat in DRAM
    assert piece(Dim(4, 0, 4, 0, 3), Dim(3, 0, 3, 1, 1)).x_stride == 0


@pytest.mark.parametrize(("pad", "instructions"), [(15, 1), (16, 2), (40, 2), (600, 2)])
def test_row_padding_over_the_field(pad: int, instructions: int) -> None:
    """Zeros that the field cannot hold come from the zero element."""
    dims = [Dim(pad + 2, pad, pad + 2, 9, 3), Dim(3, 0, 3, 1, 1)]
    pieces = plan_transfer(dims)
    check_fields(pieces)
    zeros = [p for p in pieces if p.zero]
    assert len(pieces) - len(zeros) == 1
    assert (len(pieces) == 1) == (pad <= PAD_LIMIT) and len(pieces) >= instructions
    np.testing.assert_array_equal(replay(pieces, (pad + 2) * 3), expected(dims, (pad + 2) * 3))


def test_column_padding_over_the_field() -> None:
    dims = [Dim(3, 0, 3, 50, 60), Dim(60, 20, 40, 1, 1)]
    pieces = plan_transfer(dims)
    check_fields(pieces)
    assert sum(not p.zero for p in pieces) == 3, "one row an instruction"
    np.testing.assert_array_equal(replay(pieces, 180), expected(dims, 180))


def test_stride_over_the_field() -> None:
    near = plan_transfer([Dim(3, 0, 3, SIZE_LIMIT, 2), Dim(2, 0, 2, 1, 1)])
    assert [p.y_size for p in near] == [3]
    far = plan_transfer([Dim(3, 0, 3, SIZE_LIMIT + 1, 2), Dim(2, 0, 2, 1, 1)])
    assert [(p.dram, p.sram, p.y_size) for p in far] == [
        (0, 0, 1),
        (SIZE_LIMIT + 1, 2, 1),
        (2 * (SIZE_LIMIT + 1), 4, 1),
    ]


def test_backwards_in_dram() -> None:
    pieces = plan_transfer([Dim(3, 0, 3, -4, 2), Dim(2, 0, 2, 1, 1)])
    assert [(p.dram, p.y_size) for p in pieces] == [(0, 1), (-4, 1), (-8, 1)]


@pytest.mark.parametrize("size", [SIZE_LIMIT, SIZE_LIMIT + 1, 3 * SIZE_LIMIT + 5])
def test_size_over_the_field(size: int) -> None:
    dims = [Dim(size, 3, size, 1, 1)]
    pieces = plan_transfer(dims)
    check_fields(pieces)
    assert len(pieces) == -(-(size - 3) // SIZE_LIMIT)
    np.testing.assert_array_equal(replay(pieces, size), expected(dims, size))
    rows = [Dim(size, 0, size, 2, 1)]
    pieces = plan_transfer(rows)
    check_fields(pieces)
    np.testing.assert_array_equal(replay(pieces, size), expected(rows, size))


@pytest.mark.parametrize("count", [1, 2, 15, 16, 31, 32, 100, 961, 962, 2000])
def test_only_padding(count: int) -> None:
    pieces = plan_transfer([Dim(count, 0, 0, 1, 1), NOTHING])
    check_fields(pieces)
    assert all(p.zero for p in pieces)
    np.testing.assert_array_equal(replay(pieces, count), np.zeros(count))
    assert len(pieces) <= 2 + count // 961


def test_overlapping_rows() -> None:
    with pytest.raises(CodegenError, match="SRAM stride 2 overlaps a row of 3 elements"):
        plan_transfer([Dim(2, 0, 2, 9, 2), Dim(3, 0, 3, 1, 1)])


# ---------------------------------------------------------------- in programs
def copied(shape: str, loops: str, load: str, store: str, buffer: str) -> str:
    return function(
        f"x:int32:{shape} y:int8:{buffer}",
        f"a:acc:{buffer}",
        nest("load", "dma_copy", loops, load),
        nest("store", "dma_copy", loops, store),
    )


def run(text: str, x: np.ndarray) -> np.ndarray:
    built = program(text)
    return built.view(Machine(built, {"x": x}).run(), "y")


def test_program_with_far_rows() -> None:
    """Rows of DRAM further apart than a stride field reaches."""
    x = np.zeros((3, 70000, 16), np.int32)
    x[:, 5] = np.arange(48).reshape(3, 16)
    text = copied(
        "3,70000,16",
        "i:3 k:16",
        "a[i, k] = x[i, 5, k]",
        'y[i, k] = T.Cast("int8", a[i, k])',
        "3,16",
    )
    np.testing.assert_array_equal(run(text, x), x[:, 5])


def test_columns_loaded_one_by_one() -> None:
    """A second load into a tile must not clear what the first one brought beside it."""
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 16), dtype=np.int32)
    text = function(
        "x:int32:2,3,16 y:int8:2,5,16",
        "a:acc:2,5,16",
        nest("left", "dma_copy", "i:2 j:2 k:16", "a[i, j, k] = x[i, j, k]"),
        nest("right", "dma_copy", "i:2 j:3 k:16", "a[i, j + 2, k] = x[i, j, k]"),
        nest("store", "dma_copy", "i:2 j:5 k:16", 'y[i, j, k] = T.Cast("int8", a[i, j, k])'),
    )
    want = np.concatenate([x[:, :2], x], axis=1)
    np.testing.assert_array_equal(run(text, x), want)
    # the other way round, the first load may fill the gap behind its rows
    swapped = function(
        "x:int32:2,3,16 y:int8:2,5,16",
        "a:acc:2,5,16",
        nest("right", "dma_copy", "i:2 j:3 k:16", "a[i, j + 2, k] = x[i, j, k]"),
        nest("left", "dma_copy", "i:2 j:2 k:16", "a[i, j, k] = x[i, j, k]"),
        nest("store", "dma_copy", "i:2 j:5 k:16", 'y[i, j, k] = T.Cast("int8", a[i, j, k])'),
    )
    np.testing.assert_array_equal(run(swapped, x), want)


def test_gaps_never_reach_the_next_buffer() -> None:
    """Zeros between the rows of a tile end with its buffer."""
    x = np.random.default_rng(0).integers(-128, 128, (3, 2, 16), dtype=np.int32)
    text = function(
        "x:int32:3,2,16 y:int8:3,2,16",
        "b:acc:1,16 a:acc:3,4,16",
        nest("first", "dma_copy", "k:16", "b[0, k] = x[0, 0, k]"),
        nest("load", "dma_copy", "i:3 j:2 k:16", "a[i, j + 2, k] = x[i, j, k]"),
        nest(
            "store",
            "alu,dma_copy",
            "i:3 j:2 k:16",
            'y[i, j, k] = T.Cast("int8", T.max(a[i, j + 2, k], b[0, k]))',
        ),
    )
    np.testing.assert_array_equal(run(text, x), np.maximum(x, x[0, 0]))


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_gaps_behind_the_last_row_are_filled_where_the_tile_has_them(behind: int) -> None:
    """Rows of two and gaps of two: one LOAD of three rows takes twelve places."""
    x = np.random.default_rng(0).integers(-128, 128, (3, 2, 16), dtype=np.int32)
    more = nest("more", "dma_copy", f"j:{behind} k:16", "a[10 + j, k] = x[0, j, k]")
    text = function(
        "x:int32:3,2,16 y:int8:3,2,16",
        "a:acc:12,16",
        nest("load", "dma_copy", "i:3 j:2 k:16", "a[i * 4 + j, k] = x[i, j, k]"),
        *([more] if behind else []),
        nest("store", "dma_copy", "i:3 j:2 k:16", 'y[i, j, k] = T.Cast("int8", a[i * 4 + j, k])'),
    )
    np.testing.assert_array_equal(run(text, x), x)
    built = program(text)
    isa = ISA.of(built.config)
    insns = [isa.decode(*words) for words in built.insns.tolist()]
    sizes = [
        insn["y_size"] * (insn["x_pad_0"] + insn["x_size"] + insn["x_pad_1"])
        for insn in insns
        if insn.opcode == Opcode.LOAD and insn["mem_type"] == MemType.ACC
    ]
    assert sizes == ([12, 2] if behind == 2 else [2, 2, 2, *[1] * behind])
