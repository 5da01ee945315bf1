"""Selectors of operators: names, patterns, ranges and kinds, and what is refused."""

from __future__ import annotations

import re

import pytest
from integer_models import residual_net

from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.selection import Operators, as_selectors, is_plain

KINDS = {
    "stem": "relax.nn.conv2d",
    "features_0_conv": "relax.nn.conv2d",
    "join": "relax.add",
    "pool": "relax.nn.max_pool2d",
    "fc": "relax.matmul",
}
OPERATORS = Operators(list(KINDS), KINDS.__getitem__, {"stem_relu": "stem"}, ["image"])


def select(*selectors: str) -> list[str]:
    return list(OPERATORS.select(selectors, "to test"))


def refused(selector: str, message: str) -> None:
    with pytest.raises(VTAError, match=f"^{re.escape(message)}$"):
        select(selector)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("stem", "stem"),
        ("/features/0/conv", "features_0_conv"),
        ("stem_relu", "stem"),
        ("*o*", "features_0_conv join pool"),
        ("[jp]oo?", "pool"),
        ("stem_*", "stem"),
        ("features_0_conv..pool", "features_0_conv join pool"),
        ("/features/0/conv..join", "features_0_conv join"),
        ("stem_relu..features_0_conv", "stem features_0_conv"),
        ("join..join", "join"),
        ("pool..", "pool fc"),
        ("..features_0_conv", "stem features_0_conv"),
        ("@conv2d", "stem features_0_conv"),
        ("@nn.conv2d", "stem features_0_conv"),
        ("@relax.add", "join"),
        ("@*pool*", "pool"),
        ("@nn.*", "stem features_0_conv pool"),
    ],
)
def test_what_a_selector_chooses(selector: str, names: str) -> None:
    assert select(selector) == names.split()


def test_several_in_topological_order_each_with_the_first_that_chooses_it() -> None:
    found = OPERATORS.select(["@matmul", "stem", "*e*"], "to test")
    assert list(found.items()) == [("stem", "stem"), ("features_0_conv", "*e*"), ("fc", "@matmul")]


def test_a_name_with_signs_of_its_own_is_a_name() -> None:
    odd = Operators(["a..b", "@c", "d*", "dd"], "relax.add".__add__)
    assert list(odd.select(["a..b", "@c", "d*"], "to test")) == ["a..b", "@c", "d*"]


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (
            "stam",
            'operator "stam" to test is not in the model; it has 5 operators; similar names are '
            '"stem"',
        ),
        (
            "zzz*",
            'operator "zzz*" to test is not in the model; it has 5 operators; `vta-byoc place '
            "MODEL` lists their names",
        ),
        (
            "image",
            'operator "image" to test is an input of the model; only operators are named; name '
            "those that read it",
        ),
        (
            "pool..stem",
            'range "pool..stem" of operators to test is backwards: "pool" is operator 4 of 5, '
            '"stem" is 1; write "stem..pool"',
        ),
        (
            "stem..pol",
            'range "stem..pol" of operators to test: "pol" is not in the model; it has 5 '
            'operators; similar names are "pool"',
        ),
        ("..", 'range ".." of operators to test has no end; give FIRST..LAST, FIRST.. or ..LAST'),
        (
            "@conv3d",
            'kind "@conv3d" of operators to test is not in the model; kinds are @conv2d; name one',
        ),
        (
            "@xyz",
            'kind "@xyz" of operators to test is not in the model; kinds are @add, @conv2d, '
            "@matmul, @max_pool2d; name one",
        ),
    ],
)
def test_what_is_refused(selector: str, message: str) -> None:
    refused(selector, message)


def test_operators_of_a_module() -> None:
    net = residual_net()
    found = Operators.of(net.module(net.result))
    kinds = {name: found.kind(name) for name in found.names}
    assert kinds == {
        "conv_a": "relax.nn.conv2d",
        "conv_b": "relax.nn.conv2d",
        "join": "relax.add",
    }
    assert found.inputs == ["x"]


def test_texts_and_sequences() -> None:
    assert as_selectors(" a, b*,") == ("a", "b*")
    assert as_selectors(["a", "b"]) == ("a", "b")
    assert [text for text in ("a", "a*", "a..", "@a", "a?", "[a]") if is_plain(text)] == ["a"]
