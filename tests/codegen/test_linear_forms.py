"""Indices as linear forms of loop variables, and which are none."""

from __future__ import annotations

import pytest
from tvm import tirx

from vta_byoc.codegen.linear import Bound, Clip, CodegenError, Linear, VarTable

ROW, COL = (tirx.Var(name, "int32") for name in ("row", "col"))
FOUR = tirx.IntImm("int32", 4)


def test_a_factor_stands_on_either_side() -> None:
    table = VarTable()
    row, col = (table.bind(var, extent) for var, extent in ((ROW, 4), (COL, 5)))
    eight = tirx.Add(FOUR, FOUR)
    assert table.linear(tirx.Mul(ROW, FOUR)) == Linear(0, ((row, 4),))
    assert table.linear(tirx.Mul(FOUR, ROW)) == Linear(0, ((row, 4),))
    assert table.linear(ROW * 4 + COL + 3) == Linear(3, ((row, 4), (col, 1)))
    assert table.linear(tirx.Mul(ROW + COL, eight)) == Linear(0, ((row, 8), (col, 8)))
    assert table.linear(tirx.Mul(eight, COL)) == Linear(0, ((col, 8),))


@pytest.mark.parametrize("expr", [ROW * COL, ROW * (COL // 3), (COL // 3) * ROW, COL % 3], ids=str)
def test_what_is_not_affine_is_named(expr: tirx.PrimExpr) -> None:
    table = VarTable()
    table.bind(ROW, 4)
    table.bind(COL, 5)
    with pytest.raises(CodegenError, match=r"^index .* is not affine in its loops; the DMA and"):
        table.linear(expr)


@pytest.mark.parametrize("extents", [(1, 5), (5, 1), (1, 1)])
def test_a_loop_of_one_turn_is_not_bounded(extents: tuple[int, int]) -> None:
    """What a condition says of a row and a column is one box where there is one row."""
    loops = list(enumerate(extents))
    for const in range(-1, 4):
        bound = Bound(Linear(const, ((0, -1), (1, -1))), "inside")
        kept = max(0, min(const + 1, max(extents)))
        wanted = tuple((0, kept if extent > 1 else 1) for extent in extents)
        found = Clip([bound], loops).domains({})
        assert found == ([wanted] if kept else [])
