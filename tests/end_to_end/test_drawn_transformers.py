"""Transformer blocks drawn at random: what VTA stores is what the integer reference computes."""

from __future__ import annotations

import pytest
from drawn_transformers import drawn, try_block


@pytest.mark.parametrize("seed", [3, 5])
def test_drawn_block(seed: int) -> None:
    """Masks of run time, on two machines: padding, and causal besides."""
    assert "padding" in drawn(seed).mask
    assert "vta.attention" in try_block(seed)
