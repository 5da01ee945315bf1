"""The table of ALU operations: arithmetic, intervals, TIR, and agreement with the numpy model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import sym, tirx

from vta_byoc.hw.config import Capabilities, VTAConfig
from vta_byoc.hw.isa import AluOp
from vta_byoc.hw.reference.numpy_model import _alu
from vta_byoc.workload.alu import BY_OPCODE, OPERATIONS, is_shift, missing, on_int32, operation_of

VALUES = np.array([-9, -4, -1, 0, 1, 2, 5, 8], np.int64)
AMOUNTS = np.array([0, 1, 2, 5], np.int64)
EXTREMES = (-(2**31), -(2**31) + 1, -65536, -33, -31, -1, 0, 1, 7, 31, 33, 2**31 - 1)


def test_every_operation_of_the_alu_has_one_row() -> None:
    assert set(BY_OPCODE) == set(AluOp)
    assert [name for name in OPERATIONS if is_shift(name)] == ["shr", "shl"]
    assert not is_shift("keep")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_node_of_tir_is_its_operation_and_computes_it(name: str) -> None:
    row = OPERATIONS[name]
    x, y = tirx.Var("x", "int32"), tirx.Var("y", "int32")
    node = row.build(x, y)
    assert operation_of(node) is row and operation_of(x) is None
    operands = AMOUNTS if is_shift(name) else VALUES
    for value, by in itertools.product(VALUES.tolist(), operands.tolist()):
        folded = row.build(tirx.const(value, "int32"), tirx.const(by, "int32"))
        if name == "shl" and value < 0:
            continue  # TVM does not fold what C leaves undefined
        assert int(sym.Analyzer().simplify(folded).value) == row.exact(value, by)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interval_holds_every_result_and_both_ends_are_reached(name: str) -> None:
    row = OPERATIONS[name]
    operands = AMOUNTS if is_shift(name) else VALUES
    for low, high in itertools.combinations_with_replacement(VALUES.tolist(), 2):
        for least, most in itertools.combinations_with_replacement(operands.tolist(), 2):
            values, by = np.arange(low, high + 1), np.arange(least, most + 1)
            results = row.exact(values[:, None], by)
            assert row.bounds(low, high, least, most) == (results.min(), results.max())


@pytest.mark.parametrize("name", [n for n, row in OPERATIONS.items() if row.neutral is not None])
def test_the_neutral_operand_changes_nothing(name: str) -> None:
    row = OPERATIONS[name]
    np.testing.assert_array_equal(row.exact(VALUES, np.full_like(VALUES, row.neutral)), VALUES)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operands_change_places_where_the_table_says_so(name: str) -> None:
    row, pairs = OPERATIONS[name], np.abs(np.array([*itertools.product(VALUES, VALUES)])).T
    assert np.array_equal(row.exact(*pairs), row.exact(*pairs[::-1])) == row.commutes


@pytest.mark.parametrize("op", AluOp)
def test_int32_results_are_those_of_the_numpy_model(op: AluOp) -> None:
    for value, operand in itertools.product(EXTREMES, EXTREMES):
        wide = _alu(op, np.array([value], np.int64), np.array([operand], np.int64))
        assert on_int32(op, value, operand) == int(wide.astype(np.int32)[0])


def test_a_machine_lacks_what_its_capabilities_say() -> None:
    small = VTAConfig(capabilities=Capabilities(mul=False))
    assert {op: missing(small, op) for op in AluOp if missing(small, op)} == {AluOp.MUL: "mul"}
    assert not any(missing(VTAConfig(), op) for op in AluOp)
