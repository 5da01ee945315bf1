"""Indices as linear forms of loop variables, and which are none."""

from __future__ import annotations

import pytest
from tvm import tirx

from vta_byoc.codegen.linear import CodegenError, Linear, VarTable

I, J = (tirx.Var(name, "int32") for name in "ij")


def test_a_factor_stands_on_either_side() -> None:
    table = VarTable()
    i, j = (table.bind(var, extent) for var, extent in ((I, 4), (J, 5)))
    four = tirx.IntImm("int32", 4)
    assert table.linear(tirx.Mul(I, four)) == table.linear(tirx.Mul(four, I)) == Linear(0, ((i, 4),))
    assert table.linear(I * 4 + J + 3) == Linear(3, ((i, 4), (j, 1)))
    assert table.linear(tirx.Mul(I + J, tirx.Add(four, four))) == Linear(0, ((i, 8), (j, 8)))
    assert table.linear(tirx.Mul(tirx.Add(four, four), J)) == Linear(0, ((j, 8),))


@pytest.mark.parametrize("expr", [I * J, I * (J // 3), (J // 3) * I, J % 3], ids=str)
def test_what_is_not_affine_is_named(expr: tirx.PrimExpr) -> None:
    table = VarTable()
    table.bind(I, 4)
    table.bind(J, 5)
    with pytest.raises(CodegenError, match=r"^index .* is not affine in its loops; the DMA and"):
        table.linear(expr)
