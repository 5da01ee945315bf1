"""Attention in other forms, lengths as norms, rows behind reshapes, slices of convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_cases import becomes, weight, written
from small_models import call
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize

MATMUL, SOFTMAX, RMS_NORM, LAYER_NORM = "matmul", "nn.softmax", "nn.rms_norm", "nn.layer_norm"
Emit = Callable[[relax.Expr], relax.Expr]


# ---------------------------------------------------------------- values in front of shares
def test_values_stand_behind_the_shares() -> None:
    def build(emit: Emit, scores: relax.Expr, values: relax.Expr) -> relax.Expr:
        shares = emit(relax.op.nn.softmax(scores, -1))
        turned = emit(relax.op.permute_dims(shares, [0, 1, 3, 2]))
        return relax.op.matmul(values, turned)

    found = becomes([(1, 2, 5, 7), (1, 2, 3, 7)], build, 1e-6)
    assert found == [SOFTMAX, "permute_dims", MATMUL, "permute_dims"]


@pytest.mark.parametrize("order", [[0, 1, 3, 2], [1, 0, 3, 2]])
def test_a_product_that_is_no_attention_stays(order: list[int]) -> None:
    """Nothing is a softmax, or heads change places with images."""

    def build(emit: Emit, scores: relax.Expr, values: relax.Expr) -> relax.Expr:
        shares = emit(relax.op.nn.softmax(scores, -1) if order[0] else relax.op.exp(scores))
        return relax.op.matmul(values, emit(relax.op.permute_dims(shares, order)))

    found = becomes([(2, 2, 5, 7), (2, 2, 3, 7)], build, 1e-6)
    assert found[-2:] == ["permute_dims", MATMUL]


@pytest.mark.parametrize("shape, is_ahead", [((3, 1, 1), True), ((3, 4, 1), False), ((1,), False)])
def test_a_temperature_for_each_head(shape: tuple[int, ...], is_ahead: bool) -> None:
    """One number for each matrix multiplies the rows; other factors stay behind the product."""

    def build(emit: Emit, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return relax.op.multiply(emit(relax.op.matmul(x, y)), weight(*shape))

    found = becomes([(1, 3, 4, 5), (1, 3, 5, 6)], build, 1e-5)
    assert found == (["multiply", MATMUL] if is_ahead else [MATMUL, "multiply"])


# ---------------------------------------------------------------- slices of convolutions
@settings(max_examples=20)
@given(st.data())
def test_drawn_slices_of_a_convolution(data: st.DataObject) -> None:
    """A range of one axis of parted channels is a convolution of its own."""
    sizes = tuple(data.draw(st.integers(2, 4)) for _ in range(3))
    axis, kernel = data.draw(st.integers(0, 2)), data.draw(st.sampled_from([1, 3]))
    with_bias = data.draw(st.booleans())
    first = data.draw(st.integers(0, sizes[axis] - 1))
    last = data.draw(st.integers(first + 1, sizes[axis]))
    channels = math.prod(sizes)

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        y = emit(relax.op.nn.conv2d(x, weight(channels, 5, kernel, kernel), padding=kernel // 2))
        y = emit(relax.op.add(y, weight(1, channels, 1, 1, seed=2))) if with_bias else y
        y = emit(relax.op.reshape(y, (1, *sizes, 4, 6)))
        return relax.op.strided_slice(y, [axis + 1], [first], [last], [1])

    assert "strided_slice" not in becomes([(1, 5, 4, 6)], build, 1e-4)


@pytest.mark.parametrize("how", ["rows", "channels", "groups", "two readers"])
def test_slices_that_stay(how: str) -> None:
    """Rows, channels that nothing has parted, groups, and what something else reads whole."""

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        groups = 2 if how == "groups" else 1
        y = emit(relax.op.nn.conv2d(x, weight(12, 6 // groups, 1, 1), groups=groups))
        parted = y if how == "channels" else emit(relax.op.reshape(y, (1, 3, 4, 4, 6)))
        part = emit(relax.op.strided_slice(parted, [3 if how == "rows" else 1], [0], [2], [1]))
        if how != "two readers":
            return part
        return relax.op.add(emit(relax.op.sum(part)), emit(relax.op.sum(y)))

    assert "strided_slice" in becomes([(1, 6, 4, 6)], build, 1e-4)


# ---------------------------------------------------------------- lengths
def length(emit: Emit, x: relax.Expr, how: str, least: float) -> relax.Expr:
    """What rows are divided by, as PyTorch, TensorFlow and people write it."""
    number = relax.const(np.float32(least))
    if how == "norm":
        squares = emit(relax.op.power(emit(relax.op.abs(x)), relax.const(np.float32(2))))
        total = emit(relax.op.sum(squares, -1, True))
        root = emit(relax.op.power(total, relax.const(np.float32(0.5))))
        return emit(relax.op.broadcast_to(emit(relax.op.maximum(root, number)), (2, 3, 8)))
    squares = emit(relax.op.multiply(x, x))
    total = emit(relax.op.sum(squares, -1, True))
    if how == "sum":
        return emit(relax.op.sqrt(emit(relax.op.add(total, number))))
    return emit(relax.op.sqrt(emit(relax.op.maximum(total, number)) if least else total))


@pytest.mark.parametrize(
    "how, least, is_norm",
    [
        *(("norm", 1e-12, True), ("norm", 1e-6, True), ("norm", 1e-2, False)),
        *(("sum", 1e-5, True), ("sum", 3.0, True), ("root", 0.0, True)),
        *(("root", 1e-12, True), ("root", 1e-3, False)),
    ],
)
def test_rows_of_length_one_are_a_norm(how: str, least: float, is_norm: bool) -> None:
    """What rows are divided by at least must be less than usual numbers; an epsilon is exact."""

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        return relax.op.divide(x, length(emit, x, how, least))

    found = becomes([(2, 3, 8)], build, 1e-5)
    assert (found == [RMS_NORM]) == is_norm
    assert (RMS_NORM in found) == is_norm


def test_a_row_of_zeros_stays_zero() -> None:
    """As PyTorch's `normalize` has it."""
    mod = written([(2, 3, 8)], lambda emit, x: relax.op.divide(x, length(emit, x, "norm", 1e-12)))
    (found,) = call(normalize(mod), np.zeros((2, 3, 8), "float32"))
    assert not found.any()


def test_a_bound_of_reciprocals_is_none_of_lengths() -> None:
    """Largest lengths are another function than least ones."""

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        total = emit(relax.op.sum(emit(relax.op.multiply(x, x)), -1, True))
        least = emit(relax.op.maximum(emit(relax.op.rsqrt(total)), relax.const(np.float32(1e-7))))
        return relax.op.multiply(x, least)

    assert RMS_NORM not in becomes([(2, 3, 8)], build, 1e-5)


def test_a_factor_of_columns_goes_into_the_norm() -> None:
    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        rows = emit(relax.op.divide(x, length(emit, x, "sum", 1e-5)))
        return relax.op.multiply(rows, weight(8))

    assert becomes([(2, 3, 8)], build, 1e-5) == [RMS_NORM]


# ---------------------------------------------------------------- rows behind reshapes
def test_rows_of_tokens_seen_as_an_image() -> None:
    """A norm, a layer, a function and a sum of rows come in front of the reshape."""

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        rows = emit(relax.op.reshape(x, (1, 2, 3, 8)))
        normed = emit(relax.op.nn.layer_norm(rows, weight(8), weight(8, seed=2), [-1]))
        wide = emit(relax.op.nn.relu(emit(relax.op.matmul(normed, weight(8, 16)))))
        both = emit(relax.op.add(rows, emit(relax.op.matmul(wide, weight(16, 8)))))
        return relax.op.permute_dims(both, [0, 3, 1, 2])

    found = becomes([(1, 6, 8)], build, 1e-5)
    assert found[:5] == [LAYER_NORM, MATMUL, "nn.relu", MATMUL, "add"]
    assert sorted(found[5:]) == ["permute_dims", "reshape"]


@pytest.mark.parametrize("how", ["columns", "constant of rows", "two images"])
def test_reshapes_that_stay_in_front(how: str) -> None:
    """They part columns, rows meet a constant of their own, or tokens of several images."""
    images, shape = (2 if how == "two images" else 1), (8,)
    seen = (1, 6, 2, 4) if how == "columns" else (images, 2, 3, 8)
    shape = {"columns": (4,), "constant of rows": (2, 3, 8)}.get(how, (8,))

    def build(emit: Emit, x: relax.Expr) -> relax.Expr:
        return relax.op.multiply(emit(relax.op.reshape(x, seen)), weight(*shape))

    assert becomes([(images, 6, 8)], build)[0] == "reshape"


@pytest.mark.parametrize("images, is_one", [(4, True), (4, False), (1, True)])
def test_one_matrix_for_all_images(images: int, is_one: bool) -> None:
    """A layer whose matrix is written once for each image, not where that makes the images."""
    matrices = np.random.default_rng(3).standard_normal((4, 8, 5)).astype("float32")
    if is_one:
        matrices = np.broadcast_to(matrices[:1], matrices.shape)
    mod = written(
        [(images, 3, 8)], lambda emit, x: relax.op.matmul(x, relax.const(matrices.copy()))
    )
    after = normalize(mod)
    (binding,) = after["main"].body.blocks[0].bindings
    assert len(binding.value.args[1].value.shape) == (2 if is_one and images > 1 else 3)
    x = np.random.default_rng(4).standard_normal((images, 3, 8)).astype("float32")
    for got, want in zip(call(after, x), call(mod, x), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
