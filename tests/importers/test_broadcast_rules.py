"""Copies that an operator of two tensors would make by itself are left to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rule_cases import becomes
from tvm import relax

Emit = Callable[[relax.Expr], relax.Var]


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
@pytest.mark.parametrize("is_left", [False, True])
def test_a_copy_is_left_to_the_operator(op: str, is_left: bool) -> None:
    def build(emit: Emit, x: relax.Var, y: relax.Var) -> relax.Expr:
        whole = emit(relax.op.broadcast_to(y, (2, 3, 4)))
        return getattr(relax.op, op)(*((whole, x) if is_left else (x, whole)))

    assert becomes([(2, 3, 4), (2, 1, 4)], build, 1e-6) == [op]


def test_one_of_two_copies_stays() -> None:
    """As neither operand has the shape of the result by itself."""

    def build(emit: Emit, x: relax.Var, y: relax.Var) -> relax.Expr:
        whole = emit(relax.op.broadcast_to(y, (2, 3, 4)))
        return relax.op.add(emit(relax.op.broadcast_to(x, (2, 3, 4))), whole)

    assert becomes([(2, 1, 4), (2, 3, 1)], build, 1e-6) == ["broadcast_to", "add"]


def test_a_copy_of_fewer_axes_stays() -> None:
    def build(emit: Emit, x: relax.Var, y: relax.Var) -> relax.Expr:
        return relax.op.add(x, emit(relax.op.broadcast_to(y, (2, 3, 4))))

    assert becomes([(2, 3, 4), (4,)], build, 1e-6) == ["broadcast_to", "add"]
