"""No index of an imported model leaves its axis: constants are checked, the rest is limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from small_models import Graph, call
from tvm import relax
from tvm_ffi import structural_equal

from vta_byoc.hw.errors import VTAError
from vta_byoc.importers.canonicalize.index_bounds import SIZES, bound_indices, unproven_indices
from vta_byoc.ir.bindings import op_name, straight_bindings

SHAPE = (3, 5, 2)
DATA = np.arange(30, dtype="float32").reshape(SHAPE)


def integers(value: Any, dtype: str = "int64") -> relax.Expr:
    return relax.const(np.asarray(value), dtype)


def computed(g: Graph, dtype: str = "int64") -> relax.Var:
    """The second input, as integers."""
    return g.op("astype", g.params[1], dtype)


def operators(mod: tvm.IRModule) -> list[str]:
    return [op_name(b.value).removeprefix("relax.") for b in straight_bindings(mod["main"])]


# ---------------------------------------------------------------- constants
@pytest.mark.parametrize("index", [-1, 0, 4, -5])
def test_an_element_is_a_slice(index: int) -> None:
    g = Graph(SHAPE)
    mod = bound_indices(g.module(g.op("take", g.params[0], integers(index), 1)))
    assert operators(mod) == ["strided_slice", "squeeze"]
    np.testing.assert_array_equal(call(mod, DATA)[0], DATA[:, index])


CONSTANT: dict[str, tuple[Callable[[Graph], relax.Var], np.ndarray]] = {
    "take": (
        lambda g: g.op("take", g.params[0], integers([-1, 0, 3]), 1),
        DATA[:, [-1, 0, 3]],
    ),
    "gather_elements": (
        lambda g: g.op("gather_elements", g.params[0], integers([[[-1, -1]]]), 0),
        DATA[-1:, :1],
    ),
    "gather_nd": (
        lambda g: g.op("gather_nd", g.params[0], integers([[-1, -2], [0, 4]])),
        DATA[[-1, 0], [-2, 4]],
    ),
    "index_tensor": (
        lambda g: g.op("index_tensor", g.params[0], [integers([-1, 0]), integers([-5, 4])]),
        DATA[[-1, 0], [-5, 4]],
    ),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constant_indices_count_from_the_start(name: str) -> None:
    build, expected = CONSTANT[name]
    g = Graph(SHAPE)
    mod = g.module(build(g))
    assert unproven_indices(mod)
    mod = bound_indices(mod)
    assert not unproven_indices(mod) and operators(mod) == [name.split()[0]]
    np.testing.assert_array_equal(call(mod, DATA)[0], expected)


def test_indices_that_are_right_stay() -> None:
    g = Graph(SHAPE)
    mod = g.module(g.op("take", g.params[0], integers([4, 0]), 1, "clip"))
    assert structural_equal(mod, bound_indices(mod))


def test_tvm_does_not_warn_of_indices_that_are_right(capfd: pytest.CaptureFixture[str]) -> None:
    g = Graph(SHAPE)
    mod = bound_indices(g.module(g.op("take", g.params[0], integers([4, 0]), 1, "fast")))
    np.testing.assert_array_equal(call(mod, DATA)[0], DATA[:, [4, 0]])
    assert "Warning" not in capfd.readouterr().err


# ---------------------------------------------------------------- computed while the model runs
COMPUTED: dict[str, tuple[Callable[[Graph], relax.Var], Callable[[np.ndarray], np.ndarray]]] = {
    "take": (lambda g: g.op("take", g.params[0], computed(g), 1), lambda i: DATA[:, i]),
    "take by bytes": (
        lambda g: g.op("take", g.params[0], computed(g, "int8"), 1),
        lambda i: DATA[:, i],
    ),
    "index_tensor": (
        lambda g: g.op("index_tensor", g.params[0], [integers([1, 2, 0]), computed(g)]),
        lambda i: DATA[[1, 2, 0], i],
    ),
    "index_put": (
        lambda g: g.op("index_put", g.params[0], beside_rows(g), g.normal(3)),
        lambda i: replaced(i),
    ),
}


def beside_rows(g: Graph) -> relax.Tuple:
    return relax.Tuple([integers([1, 2, 0]), computed(g), integers([-1, 0, 1])])


def replaced(index: np.ndarray) -> np.ndarray:
    result = DATA.copy()
    result[[1, 2, 0], index, [-1, 0, 1]] = np.random.default_rng(0).standard_normal(3)
    return result


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_indices(name: str) -> None:
    """Valid ones mean what they say; others read some element of the tensor."""
    build, expected = COMPUTED[name]
    g = Graph(SHAPE, (3,))
    mod = g.module(build(g))
    assert unproven_indices(mod)
    mod = bound_indices(mod)
    assert not unproven_indices(mod)
    index = np.array([-5, 4, -1])
    np.testing.assert_array_equal(call(mod, DATA, index.astype("float32"))[0], expected(index))
    outside = np.array([-100, 5, 99], "float32")
    (got,) = call(mod, DATA, outside)
    np.testing.assert_array_equal(got, expected(np.array([0, 4, 4])))


def test_coordinates_are_limited_axis_by_axis() -> None:
    g = Graph(SHAPE, (1, 2))
    mod = bound_indices(g.module(g.op("gather_nd", g.params[0], computed(g))))
    for given, at in {(-1, -1): (2, 4), (2, 4): (2, 4), (9, -9): (2, 0)}.items():
        (got,) = call(mod, DATA, np.array([given], "float32"))
        np.testing.assert_array_equal(got, DATA[at][None])


def test_a_scatter_into_a_part() -> None:
    """Indices of 2 rows and 1 column: TVM alone would write to other rows."""
    index = np.array([[[4], [0]], [[2], [-2]]])
    g = Graph(SHAPE, index.shape)
    scattered = g.op("scatter_elements", g.params[0], integers(index), g.params[1], 1)
    mod = bound_indices(g.module(scattered))
    assert not unproven_indices(mod) and operators(mod).count("concat") == 2
    updates = -np.ones(index.shape, "float32")
    expected = DATA.copy()
    np.put_along_axis(expected[:2, :, :1], index, updates, 1)
    np.testing.assert_array_equal(call(mod, DATA, updates)[0], expected)


def test_every_operator_of_the_table_exists() -> None:
    assert all(tvm.ir.Op.get(name) for name in SIZES)


# ---------------------------------------------------------------- refusals
def refused(text: str, *shapes: tuple[int, ...], index: relax.Expr, axis: int) -> None:
    g = Graph(*shapes)
    with pytest.raises(VTAError) as caught:
        bound_indices(g.module(g.op("take", g.params[0], index, axis, name="pick")))
    assert str(caught.value) == text


@pytest.mark.parametrize("index", [5, -6])
def test_a_constant_outside(index: int) -> None:
    refused(
        f'node "pick" (take) has the index {index}; its axis has 5 elements, so -5 to 4 can be '
        "read; correct the index",
        SHAPE,
        index=integers([0, index]),
        axis=1,
    )


def test_no_elements() -> None:
    refused(
        'node "pick" (take) has an axis without elements; an index must have something to point '
        "at; remove the operator",
        (3, 0),
        index=integers(0),
        axis=1,
    )
