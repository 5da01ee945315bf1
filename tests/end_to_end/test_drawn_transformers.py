"""Transformer blocks drawn at random: what VTA stores is what the integer reference computes."""

from __future__ import annotations

import pytest
from drawn_transformers import drawn_small, try_block

BLOCKS = 18
"""All masks with all norms; `make fuzz` draws larger ones, and 200 of them."""


@pytest.mark.parametrize("seed", range(BLOCKS))
def test_drawn_block(seed: int) -> None:
    """Masks, norms, scales and machines take turns; attention is on VTA in each."""
    assert "vta.attention" in try_block(drawn_small(seed))
