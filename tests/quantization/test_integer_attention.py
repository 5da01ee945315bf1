"""Attention on integers: bounded for every input, near to float for every spread of scores."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import dialect_numpy
import numpy as np
import pytest
import tvm
from attention_cases import attention, quantized, samples
from small_models import Graph, call
from tvm import relax

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.isa import IMMEDIATE_HIGH, IMMEDIATE_LOW
from vta_byoc.ir.attention import (
    INVERSE_BITS,
    LEAST_SHARE,
    MOST_SHARE,
    RATE,
    RESULT,
    SHARE,
    TOTAL,
    Attention,
    attended,
    bound_of,
    lifts,
    rate_steps,
    result_steps,
    room,
    score_steps,
    share_steps,
)
from vta_byoc.ir.bindings import op_name, straight_bindings
from vta_byoc.ir.programs import run
from vta_byoc.ir.quantization_record import float_regions
from vta_byoc.quantization.ops.exponential import _fitted, attention_of, exponential_of
from vta_byoc.quantization.scales import INT32_HIGH, Scale, Unscalable

SIM = VTAConfig.preset("sim")
UNITS = [float(u) for u in 10.0 ** -np.linspace(0.3, 5, 12)]


def numbers_of(keys: int, unit: float, ratio: float = 3.0, depth: int = 64) -> Attention:
    """Scores of `unit`; values `ratio` times as coarse as results."""
    exponential = exponential_of(unit, depth * 128 * 128, "attention")
    return attention_of(keys, exponential, ratio, Scale(1.0), (-128, 127), "attention")


def steps_of(numbers: Attention) -> list[object]:
    """All immediates of all programs."""
    programs = (
        *(score_steps(numbers), room(numbers.width), share_steps(numbers)),
        *(rate_steps(numbers), lifts(), result_steps(numbers)),
    )
    return [each.right for program in programs for each in program]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("keys", [1, 2, 63, 197, 300, 1500])
def test_no_step_leaves_int32(keys: int, unit: float) -> None:
    """Of operands that reach the ends of int8, alike, opposite, and drawn."""
    numbers = numbers_of(keys, unit)
    bound = bound_of(numbers, 64)
    assert bound <= INT32_HIGH
    rng = np.random.default_rng(keys)
    ends = [np.full((9, 64), -128), np.full((9, 64), 127), rng.choice([-128, 127], (9, 64))]
    for query in (*ends, np.zeros((9, 64)), rng.integers(-128, 128, (9, 64))):
        for end in (-128, 127):
            key = rng.choice([-128, 127], (keys, 64)) if end > 0 else np.full((keys, 64), end)
            found = attended(query, key, np.full((keys, 16), end), numbers)
            assert max(np.abs(value).max() for value in found.values()) <= bound


@pytest.mark.parametrize("unit", UNITS)
def test_shares_are_the_exponential(unit: float) -> None:
    """Of every distance from the largest score, to about a part in 256."""
    numbers = numbers_of(64, unit)
    distance = np.arange(numbers.width + 2)
    given = {"score": -distance, "room": np.array([numbers.width])}
    shares = run(share_steps(numbers), given)[SHARE] + 128
    assert LEAST_SHARE <= shares[0] <= MOST_SHARE
    assert (np.diff(shares) <= 0).all()
    assert shares[-1] <= 1
    wanted = shares[0] * np.exp(-distance * unit * 2.0**numbers.shift)
    assert np.abs(shares - wanted).max() < 2.6


def test_the_largest_share_is_all_that_int8_has() -> None:
    """Whatever is shifted behind the squares, but for what their floors take."""
    reached = set()
    for others in itertools.product((14, 15), (13, 14, 15), (8, 11, 15)):
        found = _fitted(700.0, 0, others)
        if found is None:
            continue
        share = found.level + (found.width**2 >> found.first)
        for shift in others:
            share = share * share >> shift
        reached.add(share)
    assert reached and reached <= {MOST_SHARE - 1, MOST_SHARE}


def test_immediates_fit() -> None:
    """Of the ALU, 16 bits."""
    for unit in UNITS:
        for keys in (1, 100, 257, 1024, 4096):
            found = [n for n in steps_of(numbers_of(keys, unit)) if not isinstance(n, str)]
            assert min(found) >= IMMEDIATE_LOW
            assert max(found) <= IMMEDIATE_HIGH


@pytest.mark.parametrize("keys", [1, 5, 64, 197, 1000, 4000])
def test_reciprocals(keys: int) -> None:
    """Of every sum of shares that there can be, to a part in 200; never above the bound."""
    for ratio in (0.3, 1.0, 7.7):
        numbers = numbers_of(keys, 1e-3, ratio)
        sums = np.arange(LEAST_SHARE, MOST_SHARE * keys + 1)
        rate = run(rate_steps(numbers), {TOTAL: sums - 128 * keys})[RATE]
        exact = ratio * 2.0 ** (numbers.before + numbers.behind) / sums
        assert np.abs(rate / exact - 1).max() < 5e-3


def sqnr(spread: float, tokens: int, depth: int, seed: int, *, rounded: bool) -> float:
    """In dB, of attention on int8 operands whose scores have a standard deviation of `spread`."""
    rng = np.random.default_rng(seed)
    floats = rng.normal(size=(3, 3, tokens, depth))
    steps = [np.abs(x).max() / 127 for x in floats]
    query, key, value = (np.rint(x / s) for x, s in zip(floats, steps, strict=True))
    unit = spread / depth**0.5 * steps[0] * steps[1]
    scores = query @ np.swapaxes(key, -1, -2) * unit
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    exact = shares / shares.sum(-1, keepdims=True) @ value * steps[2]
    step = np.abs(exact).max() / 127
    if not rounded:
        step /= 64
    numbers = numbers_of(tokens, unit, steps[2] / step, depth)
    wide = dataclasses.replace(numbers, low=-(1 << 15), high=(1 << 15) - 1)
    found = attended(query, key, value, numbers if rounded else wide)[RESULT] * step
    return float(10 * np.log10((exact**2).sum() / ((found - exact) ** 2).sum()))


@pytest.mark.parametrize("spread", [1.0, 2.0, 3.0, 4.0])
def test_every_spread_of_scores_is_near(spread: float) -> None:
    """197 keys: shares of 8 bits; results of 8 bits that reach as far as the largest."""
    found = [sqnr(spread, 197, 64, seed, rounded=False) for seed in range(3)]
    assert np.mean(found) >= 35.5
    assert np.mean([sqnr(spread, 197, 64, seed, rounded=True) for seed in range(3)]) >= 32
    assert np.mean([sqnr(spread, 64, 32, seed, rounded=True) for seed in range(3)]) >= 34


def test_a_shift_of_two_instructions_is_not_taken_for_a_little() -> None:
    """Scores for which an exponential with a shift of 16 bits is 0.3 dB nearer."""
    found = exponential_of(4.8661e-4, 64 * 128 * 128, "attention")
    assert max(found.first, *found.others) == 15
    assert found.worth == found.quality > 36.5


def test_coarse_scores_are_refused() -> None:
    """One in a score that is worth many natural units, and no room to raise it."""
    assert exponential_of(40.0, 1 << 20, "attention").shift < 0
    with pytest.raises(Unscalable) as caught:
        exponential_of(40.0, 1 << 28, "attention")
    assert "one in its scores is worth 40 natural units" in caught.value.refusal.text


def test_values_far_coarser_than_results_are_refused() -> None:
    with pytest.raises(Unscalable, match=None) as caught:
        numbers_of(64, 1e-3, ratio=2.0**24)
    assert "times as coarse as its results" in caught.value.refusal.text


@pytest.mark.parametrize("keys", [1, 64, 300, 4000])
def test_the_rate_is_the_nearest_of_15_bits(keys: int) -> None:
    """For results from far finer to far coarser than the values."""
    bits = max(INVERSE_BITS, (MOST_SHARE * keys).bit_length())
    for ratio in np.geomspace(2.0**-5.9, 2.0**21.9, 200).tolist():
        numbers = numbers_of(keys, 1e-3, ratio)
        raised = numbers.behind + numbers.before + numbers.down + 1 - bits
        assert abs(math.ldexp(ratio, raised) - numbers.multiplier) <= 0.5
        assert 1 << 14 <= numbers.multiplier <= IMMEDIATE_HIGH
    whole = numbers_of(keys, 1e-3, IMMEDIATE_HIGH / 2**15)
    assert whole.multiplier == IMMEDIATE_HIGH, "the largest that an immediate holds"


# ---------------------------------------------------------------- the quantizer's rule
@pytest.mark.parametrize("scales", ["mul", "pow2"])
@pytest.mark.parametrize("masked", [False, True])
def test_written_as_the_program(scales: str, masked: bool) -> None:
    """What numpy computes of the integer module is what llvm does, and no softmax is left."""
    mask = np.where(np.tri(20), 0.0, -np.inf) if masked else None
    mod = attention(20, 2, 16, mask=mask)
    integers = quantized(mod, SIM, scales)
    kinds = [op_name(b.value) for b in straight_bindings(integers["main"])]
    assert "relax.nn.softmax" not in kinds
    assert float_regions(integers) == {}
    for given in samples(mod):
        (got,) = call(integers, *given)
        np.testing.assert_array_equal(got, dialect_numpy.run(integers, *given)["result"])


def test_masked_keys_have_no_share() -> None:
    """A causal mask: what is behind a query changes nothing of it."""
    mod = attention(20, 2, 16, mask=np.where(np.tri(20), 0.0, -np.inf))
    integers = quantized(mod, SIM, "mul")
    ((given,), *_) = samples(mod)
    (first,) = call(integers, given)
    changed = given.copy()
    changed[:, 12:] = -given[:, 12:]
    (second,) = call(integers, changed)
    np.testing.assert_array_equal(first[:, :12], second[:, :12])
    assert not np.array_equal(first[:, 12:], second[:, 12:])


# ---------------------------------------------------------------- which attentions it takes
def simple(
    shape: tuple[int, ...], hide: Callable[[Graph, relax.Var], relax.Var] | None = None
) -> tvm.IRModule:
    """Three layers of one input and their attention, without a factor; `hide` changes scores."""
    g = Graph(shape)
    query, key, value = (g.dense(g.params[0], shape[-1], name=name) for name in "qkv")
    turned = g.op("permute_dims", key, [*range(len(shape) - 2), -1, -2])
    scores = g.op("matmul", query, turned, name="scores")
    scores = scores if hide is None else hide(g, scores)
    return g.module(g.op("matmul", g.op("nn.softmax", scores, -1), value, name="mixed"))


def check_near(mod: tvm.IRModule, integers: tvm.IRModule) -> None:
    """Within 27 dB of float on the samples."""
    for given in samples(mod):
        (exact,), (got,) = call(mod, *given), call(integers, *given)
        assert np.square(got - exact).mean() < 2e-3 * np.square(exact).mean()


@pytest.mark.parametrize("shape", [(20, 8), (2, 20, 8), (2, 3, 20, 8)])
def test_operands_of_any_rank_are_near_to_float(shape: tuple[int, ...]) -> None:
    """Scores without a factor are worth what their products are."""
    mod = simple(shape)
    integers = quantized(mod, SIM, "mul")
    assert float_regions(integers) == {}
    kinds = [op_name(b.value) for b in straight_bindings(integers["main"])]
    assert "relax.nn.softmax" not in kinds
    check_near(mod, integers)


def test_operands_are_turned_where_the_model_does_not() -> None:
    """A product's second operand, keys or values, is a weight with its axes exchanged."""
    g = Graph((16, 8))
    query, key, value = (g.dense(g.params[0], 8, name=name) for name in "qkv")
    key = g.op("reshape", key, (8, 16))
    value = g.op("permute_dims", g.op("permute_dims", value, [1, 0]), [1, 0])
    shares = g.op("nn.softmax", g.op("matmul", query, key, name="scores"), -1)
    other = g.module(g.op("matmul", shares, value, name="mixed"))
    for mod, place in ((other, 1), (simple((16, 8)), 2)):
        bindings = straight_bindings(quantized(mod, SIM, "mul")["main"])
        names = [str(b.var.name) for b in bindings if "__turned" in str(b.var.name)]
        assert names == [f"mixed{place}__turned"]


@pytest.mark.parametrize("hides_where_true", [True, False])
@pytest.mark.parametrize(("fill", "is_mask"), [(-1000.0, True), (-np.inf, True), (-999.0, False)])
def test_a_constant_condition_hides_with_a_thousand(
    fill: float, is_mask: bool, hides_where_true: bool
) -> None:
    """Less is a score; what hides is as far below as a hidden key, whichever side it is on."""
    hidden = np.tri(20, k=-1).T.astype(bool)

    def hide(g: Graph, scores: relax.Var) -> relax.Var:
        sides = (g.const(fill), scores) if hides_where_true else (scores, g.const(fill))
        return g.op("where", relax.const(hidden == hides_where_true), *sides)

    mod = simple((2, 20, 8), hide)
    integers = quantized(mod, SIM, "mul")
    kinds = [op_name(b.value) for b in straight_bindings(integers["main"])]
    assert ("relax.nn.softmax" not in kinds) == is_mask
    check_near(mod, integers)


# ---------------------------------------------------------------- masks of run time
def test_what_is_computed_for_masks_alone_stays_float() -> None:
    """A sum of two inputs becomes integer anywhere else."""

    def hide(g: Graph, scores: relax.Var) -> relax.Var:
        far = relax.Var("far", relax.TensorType((20, 20), "float32"))
        g.params.append(far)
        return g.op("add", scores, g.op("add", far, far, name="doubled"))

    integers = quantized(simple((2, 20, 8), hide), SIM, "mul")
    types = {b.var.name: str(b.var.ty.dtype) for b in straight_bindings(integers["main"])}
    assert float_regions(integers) == {} and "mixed__hidden" in types
    assert types["doubled"] == "float32"


def test_a_mask_of_two_groups_meets_scores_in_another_shape() -> None:
    """Heads become images before it hides all keys of one or none; the other is as it was."""

    def hide(g: Graph, scores: relax.Var) -> relax.Var:
        g.params.append(relax.Var("kept", relax.TensorType((2, 1, 20, 1), "bool")))
        apart = g.op("reshape", scores, (2, 1, 20, 20))
        masked = g.op("where", g.params[-1], apart, g.const(-np.inf))
        return g.op("reshape", masked, (1, 2, 20, 20))

    mod = simple((1, 2, 20, 8), hide)
    integers = quantized(mod, SIM, "mul")
    kinds = [op_name(b.value) for b in straight_bindings(integers["main"])]
    assert "relax.nn.softmax" not in kinds
    check_near(mod, integers)
    ((x, kept), *_) = samples(mod)
    (whole,) = call(integers, x, kept)
    kept[0] = False
    (half,) = call(integers, x, kept)
    np.testing.assert_array_equal(half[0, 1], whole[0, 1])
