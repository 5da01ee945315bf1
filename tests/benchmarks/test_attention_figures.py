"""The figures of attention: near to float at every spread, on small shapes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.attention import LEAST, attended, causal, drawn, sqnr


@pytest.mark.parametrize("spread", [1, 2, 3, 4])
def test_every_spread_is_near(spread: int) -> None:
    """Against the same operands; against floats their rounding counts too."""
    found = [drawn(spread, seed, heads=2, tokens=48, depth=32).nearness() for seed in range(2)]
    assert np.mean([each.of_operands for each in found]) >= LEAST
    assert all(LEAST - 8 <= each.of_floats < each.of_operands for each in found)


def test_vta_computes_what_the_reference_does() -> None:
    assert drawn(2, 0, heads=1, tokens=32, depth=16).different() == 0


def test_a_wrong_exponential_would_be_seen() -> None:
    """Scores of another spread are far away."""
    one = drawn(2, 0, heads=1, tokens=32, depth=16)
    assert sqnr(attended(2, one.floats), attended(2.2, one.floats)) < LEAST


def test_causal_attention_takes_less() -> None:
    """Of four blocks of queries ten of sixteen blocks of scores are computed."""
    found = causal(64, heads=1, depth=32)
    assert found.different == 0
    assert found.cycles < 0.85 * found.every
