"""Chains of moves, slices and joined slices of layers, batches and groups of products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantized_runs import operators
from rule_cases import becomes, weight, written
from tvm import relax

from vta_byoc.importers.canonicalize.rules import normalize
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.views import PERMUTE, RESHAPE, View

Step = Callable[[relax.Expr], relax.Expr]
MATMUL, SOFTMAX = "matmul", "nn.softmax"


# ---------------------------------------------------------------- views
@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, tuple[int, ...]]]]:
    """A shape and moves of it; reshapes join and part axes, and write axes of 1."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=4)))
    now, moves = shape, []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            order = tuple(draw(st.permutations(range(len(now)))))
            now = tuple(now[axis] for axis in order)
            moves.append((PERMUTE, order))
            continue
        parts = [p for n in now for p in ([2, 2] if n == 4 else [n])]
        joined: list[int] = []
        for part in parts:
            if joined and draw(st.booleans()):
                joined[-1] *= part
            else:
                joined.append(part)
            joined += [1] * draw(st.integers(0, 1))
        now = tuple(joined)
        moves.append((RESHAPE, now))
    return shape, moves


def moved(array: np.ndarray, moves: Sequence[tuple[str, tuple[int, ...]]]) -> np.ndarray:
    for kind, numbers in moves:
        array = array.reshape(numbers) if kind == RESHAPE else array.transpose(numbers)
    return array


@settings(max_examples=300)
@given(chains())
def test_a_chain_is_at_most_three_moves(drawn: tuple[tuple[int, ...], list]) -> None:
    shape, moves = drawn
    view: View | None = View.of(shape)
    for kind, numbers in moves:
        assert view is not None
        view = view.permuted(numbers) if kind == PERMUTE else view.reshaped(numbers)
    assert view is not None
    fewest = view.moves()
    assert len(fewest) <= min(3, len(moves))
    elements = np.arange(math.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(moved(elements, fewest), moved(elements, moves))


def test_a_reshape_that_cuts_a_digit_has_no_view() -> None:
    assert View.of((2, 3)).permuted((1, 0)).reshaped((2, 3)) is None


def test_heads_of_one_image() -> None:
    """PyTorch parts tokens into heads with axes of 1 that nothing needs."""

    def heads(emit: Callable, x: relax.Expr) -> relax.Expr:
        parted = emit(relax.op.reshape(x, (1, 6, 1, 2, 4)))
        turned = emit(relax.op.permute_dims(parted, [2, 0, 3, 1, 4]))
        return relax.op.reshape(turned, (2, 6, 4))

    assert becomes([(1, 6, 8)], heads) == ["reshape", "permute_dims"]


# ---------------------------------------------------------------- slices of layers
@settings(max_examples=20)
@given(st.data())
def test_drawn_slices_of_a_layer(data: st.DataObject) -> None:
    """A range of one axis of columns, behind reshapes and permutations, with and without a bias."""
    tokens, parts = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))
    heads, size = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([2, 4]))
    with_bias, axis = data.draw(st.booleans()), data.draw(st.integers(0, 2))
    sizes = (parts, heads, size)
    first = data.draw(st.integers(0, sizes[axis] - 1))
    last = data.draw(st.integers(first + 1, sizes[axis]))
    order = data.draw(st.permutations(range(5)))
    columns = math.prod(sizes)

    def slices(emit: Callable, x: relax.Expr) -> relax.Expr:
        y = emit(relax.op.matmul(x, weight(5, columns)))
        y = emit(relax.op.add(y, weight(columns, seed=2))) if with_bias else y
        y = emit(relax.op.reshape(y, (1, tokens, *sizes)))
        y = emit(relax.op.permute_dims(y, list(order)))
        return relax.op.strided_slice(y, [order.index(axis + 2)], [first], [last], [1])

    found = becomes([(1, tokens, 5)], slices, 1e-5)
    if sizes[axis] > 1:
        assert "strided_slice" not in found


def rotated(emit: Callable, x: relax.Expr, heads: int, size: int) -> relax.Expr:
    """concat(-x[..., D/2:], x[..., :D/2]) of the heads of a layer, as rotary positions want it."""
    tokens = int(x.ty.shape[1])
    y = emit(relax.op.matmul(x, weight(5, heads * size)))
    y = emit(
        relax.op.permute_dims(emit(relax.op.reshape(y, (1, tokens, heads, size))), [0, 2, 1, 3])
    )
    first = emit(relax.op.strided_slice(y, [3], [0], [size // 2]))
    second = emit(relax.op.strided_slice(y, [3], [size // 2], [size]))
    return relax.op.concat([emit(relax.op.negative(second)), first], axis=3)


def test_halves_that_are_joined_are_one_layer() -> None:
    found = becomes([(1, 6, 5)], lambda emit, x: rotated(emit, x, 2, 8), 1e-5)
    assert found == [MATMUL, "reshape", "permute_dims"]


@pytest.mark.parametrize("form", ["strided", "parted"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_every_other_column_that_is_joined_again_is_one_layer(form: str, with_bias: bool) -> None:
    """stack(-x[..., 1::2], x[..., ::2]) of the heads of a layer, and of its parted columns."""
    tokens, heads, size = 6, 2, 8

    def build(emit: Callable, x: relax.Expr) -> relax.Expr:
        y = emit(relax.op.matmul(x, weight(5, heads * size)))
        y = emit(relax.op.add(y, weight(heads * size, seed=2))) if with_bias else y
        y = emit(relax.op.reshape(y, (1, tokens, heads, size)))
        y = emit(relax.op.permute_dims(y, [0, 2, 1, 3]))
        whole, half = (1, heads, tokens, size), (1, heads, tokens, size // 2)
        if form == "strided":
            even, odd = (
                emit(relax.op.strided_slice(y, [3], [first], [size], [2])) for first in (0, 1)
            )
        else:
            y = emit(relax.op.reshape(y, (*half, 2)))
            even, odd = (
                emit(
                    relax.op.reshape(
                        emit(relax.op.strided_slice(y, [4], [first], [first + 1])), half
                    )
                )
                for first in (0, 1)
            )
        turned = emit(relax.op.expand_dims(emit(relax.op.negative(odd)), [4]))
        joined = emit(relax.op.concat([turned, emit(relax.op.expand_dims(even, [4]))], axis=4))
        return relax.op.reshape(joined, whole)

    found = becomes([(1, tokens, 5)], build, 1e-5)
    assert found == [MATMUL, *(["add"] if with_bias else []), "reshape", "permute_dims"]


@pytest.mark.parametrize("step", [2, 3])
def test_a_slice_in_steps_is_a_layer_of_its_columns(step: int) -> None:
    def build(emit: Callable, x: relax.Expr) -> relax.Expr:
        y = emit(relax.op.reshape(emit(relax.op.matmul(x, weight(5, 14))), (1, 6, 2, 7)))
        return relax.op.strided_slice(y, [3], [1], [7], [step])

    assert becomes([(1, 6, 5)], build, 1e-5) == [MATMUL, "reshape"]


def test_halves_of_two_inputs_stay_apart() -> None:
    def build(emit: Callable, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        halves = [emit(relax.op.matmul(each, weight(5, 8))) for each in (x, y)]
        return relax.op.concat(halves, axis=2)

    assert "concat" in becomes([(1, 6, 5)] * 2, build, 1e-5)


# ---------------------------------------------------------------- products of two tensors
def attention(
    emit: Callable,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    mask: np.ndarray | None = None,
    guarded: bool = False,
) -> relax.Expr:
    """Scores of (1, H, T, D) as PyTorch writes them: batches joined, both operands scaled."""
    heads, tokens, size = static_shape(q)[1:]
    root = relax.const(np.float32(size**-0.25))
    turned = emit(relax.op.permute_dims(k, [0, 1, 3, 2]))
    scaled = [emit(relax.op.multiply(each, root)) for each in (q, turned)]
    left, right = (
        emit(relax.op.reshape(each, (heads, *static_shape(each)[2:]))) for each in scaled
    )
    scores = emit(relax.op.reshape(emit(relax.op.matmul(left, right)), (1, heads, tokens, tokens)))
    if mask is not None:
        scores = emit(relax.op.add(scores, relax.const(mask)))
    shares = emit(relax.op.nn.softmax(scores, -1))
    if guarded:
        is_hidden = emit(relax.op.equal(scores, relax.const(np.float32(-np.inf))))
        seen = emit(relax.op.astype(emit(relax.op.logical_not(is_hidden)), "int8"))
        some = emit(relax.op.astype(emit(relax.op.max(seen, [-1], keepdims=True)), "bool"))
        zeros = emit(relax.op.full_like(shares, relax.const(np.float32(0))))
        shares = emit(relax.op.where(emit(relax.op.logical_not(some)), zeros, shares))
    left, right = (emit(relax.op.reshape(e, (heads, tokens, -1))) for e in (shares, v))
    return relax.op.reshape(emit(relax.op.matmul(left, right)), (1, heads, tokens, size))


CORE = [MATMUL, "multiply", SOFTMAX, MATMUL]


def test_the_guard_of_one_key_is_left_out() -> None:
    """It asks for the largest of one truth value: whether any key is seen."""
    found = becomes(
        [(1, 2, 1, 4)] * 3, lambda emit, *given: attention(emit, *given, guarded=True), 1e-5
    )
    assert "where" not in found


@pytest.mark.parametrize("guarded", [False, True])
def test_batches_and_factors_of_an_attention(guarded: bool) -> None:
    found = becomes(
        [(1, 2, 5, 4)] * 3, lambda emit, *given: attention(emit, *given, guarded=guarded), 1e-5
    )
    assert [name for name in found if name != "reshape"] == [
        "permute_dims",
        *CORE,
    ]


@pytest.mark.parametrize("hidden", [0, 1])
def test_a_guard_goes_where_no_row_is_hidden(hidden: int) -> None:
    """`hidden` rows of the mask leave no place: then the guard decides."""
    mask = np.triu(np.full((5, 5), -np.inf, np.float32), 1)
    mask[:hidden] = -np.inf

    def build(emit: Callable, *given: relax.Expr) -> relax.Expr:
        return attention(emit, *given, mask=mask, guarded=True)

    found = becomes([(1, 2, 5, 4)] * 3, build, 1e-5)
    assert ("where" in found) == bool(hidden)


@pytest.mark.parametrize("kind", ["add", "where", "row"])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_mask_of_run_time_meets_the_scores_of_one_head(heads: int, kind: str) -> None:
    """Views of one head are reshapes alone, which would part the product from its softmax.

    Scores of more heads keep their reshape here: what they are products of has no other form.
    """

    def build(
        emit: Callable, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        keys = emit(relax.op.permute_dims(k, [0, 2, 1]))
        scores = emit(relax.op.reshape(emit(relax.op.matmul(q, keys)), (1, heads, 5, 5)))
        if kind == "where":
            seen = emit(relax.op.less(mask, relax.const(np.float32(0.5))))
            scores = emit(relax.op.where(seen, scores, relax.const(np.float32(-1e4))))
        else:
            scores = emit(relax.op.add(scores, mask))
        shares = emit(relax.op.nn.softmax(scores, -1))
        return relax.op.matmul(emit(relax.op.reshape(shares, (heads, 5, 5))), v)

    mask = (5,) if kind == "row" else (1, 1, 5, 5)
    found = becomes([*[(heads, 5, 4)] * 3, mask], build, 1e-5)
    core = found[found.index(MATMUL) :]
    hide = "where" if kind == "where" else "add"
    if heads == 1:
        alone = [name for name in core if name not in ("less", "reshape")]
        assert alone == [MATMUL, hide, SOFTMAX, MATMUL]
        assert "reshape" not in core[core.index(hide) : core.index(SOFTMAX)]
    else:
        assert "reshape" in core[: core.index(hide)]


@settings(max_examples=12)
@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(2, 3),
    st.sampled_from([1, 5]),
    st.booleans(),
)
def test_queries_of_a_group_are_rows(
    batch: int, groups: int, times: int, tokens: int, turned: bool
) -> None:
    """Keys that are repeated for several heads are read once."""
    size = 4

    def build(emit: Callable, q: relax.Expr, k: relax.Expr) -> relax.Expr:
        wide = emit(relax.op.expand_dims(k, 2))
        wide = emit(relax.op.broadcast_to(wide, (batch, groups, times, tokens, size)))
        wide = emit(relax.op.reshape(wide, (batch, groups * times, tokens, size)))
        if turned:
            return relax.op.matmul(q, emit(relax.op.permute_dims(wide, [0, 1, 3, 2])))
        return relax.op.matmul(emit(relax.op.matmul(q, weight(size, tokens))), wide)

    shapes = [(batch, groups * times, 7, size), (batch, groups, tokens, size)]
    assert "broadcast_to" not in becomes(shapes, build, 1e-4)


def test_repeated_columns_stay() -> None:
    """What is repeated inside of a matrix is no group of heads."""

    def build(emit: Callable, q: relax.Expr, k: relax.Expr) -> relax.Expr:
        return relax.op.matmul(q, emit(relax.op.broadcast_to(k, (1, 2, 4, 3))))

    assert "broadcast_to" in becomes([(1, 2, 5, 4), (1, 2, 1, 3)], build, 1e-5)


# ---------------------------------------------------------------- rows
def test_merged_heads_are_tokens() -> None:
    """PyTorch's linear layer of merged heads is a product of (T, C), with (1, T, C) behind it."""

    def build(emit: Callable, x: relax.Expr) -> relax.Expr:
        merged = emit(relax.op.permute_dims(x, [0, 2, 1, 3]))
        rows = emit(relax.op.reshape(merged, (6, 8)))
        y = emit(relax.op.add(emit(relax.op.matmul(rows, weight(8, 5))), weight(5, seed=2)))
        return relax.op.reshape(y, (1, 6, 5))

    mod = normalize(written([(1, 2, 6, 4)], build))
    assert operators(mod)[-2:] == [MATMUL, "add"]
    becomes([(1, 2, 6, 4)], build, 1e-5)


def test_a_permutation_of_units_is_a_reshape_of_rows() -> None:
    """`nn.MultiheadAttention` computes on (T, N, C)."""

    def build(emit: Callable, x: relax.Expr) -> relax.Expr:
        first = emit(relax.op.permute_dims(x, [1, 0, 2]))
        return relax.op.permute_dims(emit(relax.op.matmul(first, weight(8, 5))), [1, 0, 2])

    assert becomes([(1, 6, 8)], build, 1e-5) == [MATMUL]
