"""Chains of steps in a graph, and what each entry of the partition table takes as its group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from integer_models import IntegerNet
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.ir.bindings import op_name
from vta_byoc.ir.chains import Binding, Graph, as_step, is_narrowing, is_widening
from vta_byoc.partition import mark
from vta_byoc.partitioning.composite import composites
from vta_byoc.partitioning.entry import PatternEntry
from vta_byoc.partitioning.table import entries


class Chains(IntegerNet):
    """Operators by name on one int8 input ``x`` (1, 16, 4, 4), with a few short forms."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        super().__init__(**(inputs or {"x": (1, 16, 4, 4)}))
        self.x = self.params[0]

    def product(self, name: str = "c__acc", x: relax.Expr | None = None) -> relax.Var:
        weight = relax.const(np.ones((16, 16, 1, 1), "int8"))
        return self.op(
            "nn.conv2d", self.x if x is None else x, weight, out_dtype="int32", name=name
        )

    def step(self, op: str, x: relax.Expr, value: Any, name: str) -> relax.Var:
        return self.op(op, x, relax.const(np.asarray(value, "int32")), name=name)

    def widened(self, x: relax.Expr, name: str) -> relax.Var:
        return self.op("astype", x, "int32", name=name)

    def narrowed(self, x: relax.Expr, name: str) -> relax.Var:
        return self.op("astype", x, "int8", name=name)

    def graph(self, *outputs: relax.Expr) -> Graph:
        return Graph(self.module(*outputs)["main"])


def names(bindings: list[Binding] | None) -> list[str] | None:
    return None if bindings is None else [str(b.var.name) for b in bindings]


def entry(name: str) -> PatternEntry:
    return next(e for e in entries() if e.name == name)


def match(name: str, graph: Graph, anchor: str) -> list[str] | None:
    """Names of the bindings that the entry takes around the binding ``anchor``."""
    binding = next(b for b in graph.bindings if str(b.var.name) == anchor)
    assert op_name(binding.value) in entry(name).anchors
    return names(entry(name).match(graph, binding))


# ---------------------------------------------------------------- chains
def saturated(net: Chains, value: relax.Expr) -> relax.Var:
    value = net.step("maximum", value, -128, "c__max")
    value = net.step("minimum", value, 127, "c__min")
    return net.narrowed(value, "c")


def test_a_chain_ends_with_the_narrowing() -> None:
    net = Chains()
    acc = net.product()
    value = net.step("add", acc, np.ones((1, 16, 1, 1)), "c__bias")
    value = net.step("right_shift", value, 3, "c__shift")
    out = saturated(net, value)
    after = net.widened(out, "more")
    graph = net.graph(after)
    found = graph.chain(acc)
    assert names(found) == ["c__bias", "c__shift", "c__max", "c__min", "c"]
    assert is_narrowing(found[-1].value)
    assert match("vta.conv2d", graph, "c__acc") == ["c__acc", *(names(found) or [])]


def test_a_value_read_twice_ends_the_chain() -> None:
    net = Chains()
    acc = net.product()
    biased = net.step("add", acc, 5, "c__bias")
    first = net.step("right_shift", biased, 3, "a")
    second = net.step("right_shift", biased, 4, "b")
    graph = net.graph(first, second)
    assert names(graph.chain(acc)) == ["c__bias"]
    assert match("vta.conv2d", graph, "c__acc") == ["c__acc", "c__bias"], "an int32 result"


def test_a_result_of_the_function_ends_the_chain() -> None:
    net = Chains()
    acc = net.product()
    biased = net.step("add", acc, 5, "c__bias")
    out = net.step("right_shift", biased, 3, "c")
    assert names(net.graph(out, biased).chain(acc)) == ["c__bias"]
    assert names(net.graph(out).chain(acc)) == ["c__bias", "c"]
    assert net.graph(acc, out).chain(acc) == []


def test_a_value_that_is_squared_ends_the_chain() -> None:
    net = Chains()
    acc = net.product()
    square = net.op("multiply", acc, acc, name="square")
    assert net.graph(square).chain(acc) == []


@pytest.mark.parametrize(
    ("op", "shape", "left", "taken"),
    [
        ("add", (), True, True),
        ("multiply", (1, 16, 1, 1), True, True),
        ("maximum", (16, 1, 1), False, True),
        ("right_shift", (), False, True),
        ("right_shift", (1, 16, 4, 4), True, False),
        ("left_shift", (1, 16, 4, 4), True, False),
        ("subtract", (), False, False),
        ("add", (2, 1, 1, 1), False, False),
        ("add", (1, 1, 1, 1, 1), False, False),
        ("add", (1, 16, 4, 4), False, True),
    ],
)
def test_what_a_step_is(op: str, shape: tuple[int, ...], left: bool, taken: bool) -> None:
    """One operand is constant, a shifted constant is no step, and the data keeps its shape."""
    net = Chains()
    acc = net.product()
    constant = relax.const(np.full(shape, 3, "int32"))
    args = (constant, acc) if left else (acc, constant)
    value = net.op(op, *args, name="value")
    found = as_step(net.graph(value).bindings[-1].value)
    assert (found is not None) == taken
    if found is not None:
        assert found[1].shape == shape and found[2].same_as(acc)


def test_the_way_back_to_a_widening() -> None:
    net = Chains(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
    wide = net.widened(net.x, "wide")
    value = net.step("left_shift", net.step("add", wide, 1, "plus"), 2, "shift")
    other = net.op("add", value, net.widened(net.params[1], "other"), name="sum")
    graph = net.graph(other)
    assert names(graph.back(value)) == ["wide", "plus", "shift"]
    assert names(graph.back(wide)) == ["wide"]
    assert graph.back(other) is None and graph.back(net.x) is None
    assert is_widening(graph.defined[wide].value)


# ---------------------------------------------------------------- entries
def test_names_of_the_table_are_different_and_anchors_known() -> None:
    listed = [e.name for e in entries()]
    assert len(set(listed)) == len(listed)
    assert listed.index("vta.binary") < listed.index("vta.unary"), "sides are unary groups too"
    assert all(tvm.ir.Op.get(anchor) for e in entries() for anchor in e.anchors)


@pytest.mark.parametrize("where", ["data", "weight", "both"])
def test_a_product_needs_variable_data_and_constant_weights(where: str) -> None:
    net = Chains(x=(1, 16, 4, 4), w=(16, 16, 1, 1))
    constant = relax.const(np.ones((1, 16, 4, 4), "int8"))
    data = constant if where != "weight" else net.x
    weight = net.params[1] if where != "both" else relax.const(np.ones((16, 16, 1, 1), "int8"))
    out = net.op("nn.conv2d", data, weight, out_dtype="int32", name="c")
    assert match("vta.conv2d", net.graph(out), "c") is None


def test_a_binary_operator_has_two_sides_with_steps() -> None:
    net = Chains(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
    left = net.step("left_shift", net.widened(net.x, "s__lhs"), 2, "s__left")
    right = net.widened(net.params[1], "s__rhs")
    total = net.op("add", left, right, name="s__acc")
    out = net.narrowed(net.step("right_shift", total, 1, "s__shift"), "s")
    found = match("vta.binary", net.graph(out), "s__acc")
    assert found == ["s__lhs", "s__left", "s__rhs", "s__acc", "s__shift", "s"]


def test_a_binary_operator_needs_an_int8_result_and_widened_sides() -> None:
    net = Chains(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
    left, right = (net.widened(p, f"w{p.name}") for p in net.params)
    wide = net.op("add", left, right, name="wide")
    assert match("vta.binary", net.graph(wide), "wide") is None
    net = Chains()
    mixed = net.op("add", net.product(), net.widened(net.x, "w"), name="mixed")
    out = net.narrowed(mixed, "out")
    assert match("vta.binary", net.graph(out), "mixed") is None


def test_both_sides_may_come_from_one_value() -> None:
    """Leaky relu: the larger of a value and a fraction of it."""
    net = Chains()
    wide = net.widened(net.x, "leaky__wide")
    small = net.step("right_shift", wide, 3, "leaky__small")
    out = net.narrowed(net.op("maximum", wide, small, name="leaky__acc"), "leaky")
    found = match("vta.binary", net.graph(out), "leaky__acc")
    assert found == ["leaky__wide", "leaky__small", "leaky__acc", "leaky"]


def bump(net: Chains, op: str = "add", again: str = "right", other: str = "x") -> relax.Var:
    """Two chains of a value, joined by `op`, steps, and one of the chains once more."""
    sides = {
        "left": net.step("multiply", net.widened(net.x, "f__wide"), -1, "f__left"),
        "right": net.step(
            "maximum", net.widened(net.params[-1 if other == "y" else 0], "f__wider"), 0, "f__right"
        ),
    }
    joined = net.op(op, sides["left"], sides["right"], name="f__acc")
    value = net.step("minimum", joined, 9, "f__ceiling")
    value = net.op("multiply", value, value, name="f__square")
    value = net.op("add", value, sides[again], name="f__again")
    return net.narrowed(net.step("right_shift", value, 4, "f__shift"), "f")


def test_the_right_side_may_be_added_again() -> None:
    net = Chains()
    out = bump(net)
    found = match("vta.binary", net.graph(out), "f__acc")
    assert found == [
        *("f__wide", "f__left", "f__wider", "f__right", "f__acc"),
        *("f__ceiling", "f__square", "f__again", "f__shift", "f"),
    ]
    (func,) = composites(mark(VTAConfig())(net.module(out))).values()
    assert str(func.attrs["Composite"]) == "vta.binary"


@pytest.mark.parametrize(
    ("op", "again", "other"),
    [("subtract", "right", "x"), ("add", "left", "x"), ("add", "right", "y")],
    ids=["of a difference", "the left one", "of two tensors"],
)
def test_what_is_not_added_again(op: str, again: str, other: str) -> None:
    net = Chains(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
    assert match("vta.binary", net.graph(bump(net, op, again, other)), "f__acc") is None


def test_a_widening_may_serve_several_groups() -> None:
    net = Chains(x=(1, 16, 4, 4), y=(1, 16, 4, 4))
    wide = net.widened(net.x, "wide")
    other = net.widened(net.params[1], "other")
    total = net.narrowed(net.op("add", wide, other, name="a__acc"), "a")
    product = net.narrowed(net.op("multiply", wide, other, name="b__acc"), "b")
    marked = mark(VTAConfig())(net.module(total, product))
    kinds = sorted(str(f.attrs["Composite"]) for f in composites(marked).values())
    assert kinds == ["vta.binary", "vta.binary"]


def test_a_unary_operator_is_a_widening_steps_and_a_narrowing() -> None:
    net = Chains()
    value = net.step("right_shift", net.widened(net.x, "u__acc"), 2, "u__shift")
    out = net.narrowed(value, "u")
    assert match("vta.unary", net.graph(out), "u__acc") == ["u__acc", "u__shift", "u"]
    wide = Chains()
    assert match("vta.unary", wide.graph(wide.widened(wide.x, "w")), "w") is None
    there = Chains()
    back = there.narrowed(there.widened(there.x, "w"), "back")
    assert match("vta.unary", there.graph(back), "w") is None, "nothing is computed"


def test_a_clamp_takes_all_maxima_and_minima_of_int8() -> None:
    net = Chains()
    low = net.op("maximum", net.x, relax.const(np.int8(0)), name="r__max")
    out = net.op("minimum", low, relax.const(np.int8(6)), name="r")
    graph = net.graph(out)
    assert match("vta.clamp", graph, "r__max") == ["r__max", "r"]
    assert match("vta.clamp", graph, "r") == ["r"]


def test_a_mean_is_a_sum_of_a_widened_tensor() -> None:
    net = Chains()
    total = net.op("sum", net.widened(net.x, "m__int32"), axis=[2, 3], keepdims=True, name="m__acc")
    out = net.narrowed(net.step("right_shift", total, 4, "m__shift"), "m")
    assert match("vta.mean", net.graph(out), "m__acc") == ["m__int32", "m__acc", "m__shift", "m"]
    plain = Chains()
    acc = plain.op("sum", plain.product(), axis=[2, 3], name="s")
    assert match("vta.mean", plain.graph(acc), "s") is None


def test_max_pool_of_int8_alone() -> None:
    net = Chains()
    out = net.op("nn.max_pool2d", net.x, pool_size=(2, 2), name="p")
    assert match("vta.max_pool2d", net.graph(out), "p") == ["p"]
    wide = Chains()
    out = wide.op("nn.max_pool2d", wide.widened(wide.x, "w"), pool_size=(2, 2), name="p")
    assert match("vta.max_pool2d", wide.graph(out), "p") is None
