"""Leaky relus that exporters write as several operators become one; near misses stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from small_models import PLAIN
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import op_name, straight_bindings

SHAPE = (1, 4, 3, 3)
EACH = np.array([0.1, -0.5, 1.5, 2.0], "float32").reshape(4, 1, 1)
Write = Callable[[relax.BlockBuilder, relax.Var, relax.Expr], relax.Expr]


def number(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def chosen(b: relax.BlockBuilder, x: relax.Var, slopes: relax.Expr) -> relax.Expr:
    """As PyTorch decomposes PReLU."""
    above = b.emit(relax.op.greater(x, number(0)))
    return relax.op.where(above, x, b.emit(relax.op.multiply(x, slopes)))


def summed(b: relax.BlockBuilder, x: relax.Var, slopes: relax.Expr) -> relax.Expr:
    """As TFLite defines PRELU."""
    below = b.emit(relax.op.minimum(x, number(0)))
    scaled = b.emit(relax.op.multiply(below, slopes))
    return relax.op.add(b.emit(relax.op.nn.relu(x)), scaled)


def from_one(b: relax.BlockBuilder, x: relax.Var, slopes: relax.Expr) -> relax.Expr:
    above = b.emit(relax.op.greater(x, number(1)))
    return relax.op.where(above, x, b.emit(relax.op.multiply(x, slopes)))


def of_another(b: relax.BlockBuilder, x: relax.Var, slopes: relax.Expr) -> relax.Expr:
    above = b.emit(relax.op.greater(x, number(0)))
    other = b.emit(relax.op.tanh(x))
    return relax.op.where(above, x, b.emit(relax.op.multiply(other, slopes)))


def cut_at_one(b: relax.BlockBuilder, x: relax.Var, slopes: relax.Expr) -> relax.Expr:
    below = b.emit(relax.op.minimum(x, number(1)))
    scaled = b.emit(relax.op.multiply(below, slopes))
    return relax.op.add(b.emit(relax.op.nn.relu(x)), scaled)


def module(write: Write, slopes: np.ndarray) -> tvm.IRModule:
    b, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            result = b.emit_output(write(b, x, relax.const(slopes)))
        b.emit_func_output(result)
    return b.get()


def normalized(write: Write, slopes: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    """The operators after normalization, and the results before and after it."""
    before = module(write, slopes)
    after = normalize(before)
    x = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    results = []
    for mod in (before, after):
        machine = relax.VirtualMachine(tvm.compile(mod, PLAIN), tvm.cpu())
        results.append(machine["main"](tvm.runtime.tensor(x)).numpy())
    return [op_name(b.value) for b in straight_bindings(after["main"])], results


@pytest.mark.parametrize("write", [chosen, summed])
@pytest.mark.parametrize(
    ("slopes", "operator"),
    [
        (EACH, "relax.nn.prelu"),
        (EACH[None], "relax.nn.prelu"),
        (EACH.reshape(4)[:3], "relax.nn.prelu"),  # the last axis
        (np.array(0.25, "float32"), "relax.nn.leakyrelu"),
        (np.full((1, 1, 1, 1), 0.25, "float32"), "relax.nn.leakyrelu"),
    ],
)
def test_becomes_one_operator(write: Write, slopes: np.ndarray, operator: str) -> None:
    operators, (want, got) = normalized(write, slopes)
    assert operators == [operator]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("write", [from_one, of_another, cut_at_one])
def test_near_misses(write: Write) -> None:
    operators, (want, got) = normalized(write, EACH)
    assert len(operators) >= 3 and not {"relax.nn.prelu", "relax.nn.leakyrelu"} & set(operators)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("write", [chosen, summed])
def test_slopes_of_two_axes_stay(write: Write) -> None:
    slopes = np.linspace(0.1, 0.9, 12, dtype="float32").reshape(4, 1, 3)
    operators, (want, got) = normalized(write, slopes)
    assert "relax.nn.prelu" not in operators
    np.testing.assert_array_equal(got, want)
