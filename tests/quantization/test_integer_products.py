"""Products of two activations: which are integers, their factors, and how near they are."""

from __future__ import annotations

import dialect_numpy
import numpy as np
import pytest
import tvm
from small_models import Graph, call

import vta_byoc as vta
from vta_byoc.base.choices import MUL, POW2
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import op_name, straight_bindings

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def kinds(mod: tvm.IRModule) -> list[str]:
    return [op_name(b.value).removeprefix("relax.") for b in straight_bindings(mod["main"])]


def product(left: tuple[int, ...], right: tuple[int, ...], turned: bool = False) -> Graph:
    """A graph whose last value is the product; with `turned` the second operand is permuted."""
    graph = Graph(left, right)
    other = graph.params[1]
    if turned:
        axes = [*range(len(right) - 2), len(right) - 1, len(right) - 2]
        other = graph.op("permute_dims", other, axes, name="turned")
    graph.last = graph.op("matmul", graph.params[0], other, name="product")
    return graph


def checked(mod: tvm.IRModule, given: tuple[np.ndarray, ...], **options: object) -> tvm.IRModule:
    """The quantized module: near the float one, and what numpy says of its integers."""
    quantized = vta.quantize(mod, calibration=[given], **options)
    (got,), (exact,) = call(quantized, *given), call(mod, *given)
    np.testing.assert_array_equal(got, dialect_numpy.run(quantized, *given)["result"])
    signal, error = np.square(exact).sum(), np.square(got - exact).sum()
    assert 10 * np.log10(signal / error) > 27, "dB of the integers against the floats"
    return quantized


SHAPES = [
    ((5, 8), (8, 6), False),
    ((5, 8), (6, 8), True),
    ((3, 5, 8), (3, 8, 6), False),
    ((1, 4, 5, 8), (1, 4, 6, 8), True),
    ((2, 3, 7, 16), (2, 3, 16, 1), False),
]


@pytest.mark.parametrize("scales", (POW2, MUL))
@pytest.mark.parametrize("left, right, turned", SHAPES)
def test_product_is_an_integer_one(
    left: tuple[int, ...], right: tuple[int, ...], turned: bool, scales: str
) -> None:
    graph = product(left, right, turned)
    given = noise(*left), 3 * noise(*right)
    found = checked(graph.module(graph.last), given, scales=scales)
    made = [b.value for b in straight_bindings(found["main"]) if op_name(b.value) == "relax.matmul"]
    assert [str(call.ty.dtype) for call in made] == ["int32"]
    # The weights of a product are turned once; an operand that is not is turned there and back.
    assert kinds(found).count("permute_dims") == (1 if turned else 2)


@pytest.mark.parametrize("left, right", (((2, 5, 8), (8, 6)), ((1, 5, 8), (3, 8, 6)), ((8,), (8,))))
def test_other_ranks_and_broadcasts_stay_float(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    graph = product(left, right)
    found = vta.quantize(graph.module(graph.last), calibration=[(noise(*left), noise(*right))])
    dtypes = {str(b.value.ty.dtype) for b in straight_bindings(found["main"])}
    assert "int32" not in dtypes and "matmul" in kinds(found)


# ---------------------------------------------------------------- factors
def scaled(op: str, factor: object, swapped: bool = False) -> tvm.IRModule:
    graph = product((1, 2, 5, 16), (1, 2, 16, 6))
    operands = [graph.last, graph.const(np.asarray(factor, "float32"))]
    last = graph.op(op, *(reversed(operands) if swapped else operands), name="scaled")
    return graph.module(last)


LEFT, RIGHT = noise(1, 2, 5, 16), noise(1, 2, 16, 6) + 4


@pytest.mark.parametrize(
    "op, factor, swapped, is_taken",
    (
        ("multiply", 0.3, False, True),
        ("multiply", 0.3, True, True),
        ("divide", 4.0, False, True),
        ("multiply", [[[[0.3]]]], False, True),
        ("multiply", -0.3, False, False),
        ("multiply", [0.3] * 5 + [0.4], False, False),
        ("multiply", [[[[[0.3]]]]], False, False),
        ("add", 0.3, False, False),
    ),
)
def test_a_positive_number_behind_the_product_is_part_of_it(
    op: str, factor: object, swapped: bool, is_taken: bool
) -> None:
    mod = scaled(op, factor, swapped)
    found = checked(mod, (LEFT, RIGHT), scales=MUL)
    names = {str(b.var.name).split("__")[0] for b in straight_bindings(found["main"])}
    assert "product" in names
    assert (kinds(found).count("astype") == 1) == is_taken, kinds(found)


def test_a_number_divided_by_the_product_stays_float() -> None:
    found = vta.quantize(scaled("divide", 4.0, True), calibration=[(LEFT, RIGHT)], scales=MUL)
    assert "divide" in kinds(found)


def test_two_factors_are_one() -> None:
    graph = product((1, 2, 5, 16), (1, 2, 16, 6))
    once = graph.op("multiply", graph.last, graph.const(0.5), name="once")
    mod = graph.module(graph.op("divide", once, graph.const(3.0), name="twice"))
    found = checked(mod, (LEFT, RIGHT), scales=MUL)
    assert kinds(found).count("astype") == 1


def test_a_factor_that_others_read_stays_outside() -> None:
    graph = product((1, 2, 5, 16), (1, 2, 16, 6))
    once = graph.op("multiply", graph.last, graph.const(0.3), name="once")
    mod = graph.module(graph.op("add", graph.last, once, name="both"))
    found = checked(mod, (LEFT, RIGHT), scales=MUL)
    assert kinds(found).count("astype") > 1


def test_powers_of_two_take_powers_of_two() -> None:
    """A shift is all that follows a product; other factors are left to what reads it."""
    for factor in (0.25, 0.3):
        found = checked(scaled("multiply", factor), (LEFT, RIGHT), scales=POW2)
        products = [k for k in kinds(found) if k in ("multiply", "matmul")]
        assert ("multiply" in products) == (factor == 0.3)


def test_an_operand_with_a_zero_point_keeps_the_product_float() -> None:
    graph = product((1, 2, 5, 16), (1, 2, 16, 6))
    mod = graph.module(graph.last)
    given = (np.abs(LEFT), RIGHT)
    found = vta.quantize(mod, calibration=[given], scales=MUL)
    assert "matmul" in kinds(found)


def test_sums_beyond_int32_are_refused() -> None:
    size = 1 << 17
    graph = product((1, size), (size, 1))
    given = np.ones((1, size), "float32"), np.ones((size, 1), "float32")
    with pytest.raises(VTAError) as caught:
        vta.quantize(graph.module(graph.last), calibration=[given])
    assert str(caught.value) == (
        'layer "product" can accumulate 2151677952; int32 holds 2147483647; split the summed axis '
        "over two products and add their results"
    )
