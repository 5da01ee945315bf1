"""Transformer blocks drawn at random: what VTA stores is what the integer reference computes."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from drawn_transformers import (
    ACTIVATIONS,
    MACHINES,
    MASKS,
    NORMS,
    SCALES,
    Block,
    drawn_small,
    try_block,
    try_parts,
)
from draws import draws, least

from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.program.program import Program
from vta_byoc.hw.result import RunResult
from vta_byoc.hw.sim import simulator

MANY = 200
DRAWN = draws(60, MANY)
BLOCKS = [drawn_small(seed) for seed in range(DRAWN)]
"""`make fuzz` draws MANY of these, and larger ones."""
WHOLE = BLOCKS[: 7 * len(MASKS) : 7]
"""All masks, norms, scales and machines are among these few."""


def name(block: Block) -> str:
    """What tells a failure from others at a glance."""
    return f"{block.seed}-{block.mask}-{block.norm}-{block.machine}-{block.scales}"


@pytest.mark.parametrize("block", BLOCKS, ids=name)
def test_drawn_block(block: Block) -> None:
    """Attention is on VTA in each, and every tensor that a region stores is equal."""
    assert "vta.attention" in try_parts(block)


@pytest.mark.parametrize("block", WHOLE, ids=name)
def test_block_as_users_compile_it(block: Block) -> None:
    """The host's part is built as a whole, and so is the reference."""
    assert "vta.attention" in try_block(block)


def test_a_difference_names_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of what a region has stored is another one: block, region and tensor are named."""
    run = simulator.run

    def damaged(program: Program, inputs: dict[str, np.ndarray]) -> RunResult:
        result = run(program, inputs)
        program.view(result.arena, program.of_kind("output")[0].name).flat[0] ^= 1
        return result

    monkeypatch.setattr(simulator, "run", damaged)
    with pytest.raises(AssertionError, match=r"Block\(seed=1, .*region0 \w+: \d+ of \d+ values"):
        try_parts(BLOCKS[1])


def test_every_kind_is_among_the_blocks() -> None:
    """Masks, norms, scales and machines take turns; the rest is drawn and must have been."""
    assert len({block.seed for block in BLOCKS}) == DRAWN
    for blocks in (BLOCKS, WHOLE):
        assert {block.mask for block in blocks} == set(MASKS)
        assert {block.norm for block in blocks} == set(NORMS)
        assert {(b.machine, b.scales) for b in blocks} == set(itertools.product(MACHINES, SCALES))
    pairs = Counter((block.mask, block.norm) for block in BLOCKS)
    assert set(pairs) == set(itertools.product(MASKS, NORMS))
    assert min(pairs.values()) >= least(10, DRAWN, MANY)
    heads = Counter((block.heads, block.shared) for block in BLOCKS)
    assert set(heads) == {(1, 1), (2, 1), (2, 2), (3, 3), (4, 2)}
    assert min(heads.values()) >= least(20, DRAWN, MANY)
    activations = Counter(block.activation for block in BLOCKS)
    assert set(activations) == set(ACTIVATIONS)
    assert min(activations.values()) >= least(6, DRAWN, MANY)
    lengths = {block.tokens for block in BLOCKS}
    assert len(set(range(1, 27)) - lengths) <= draws(3, 0) and max(lengths) >= 40
    against = {(b.machine, np.sign(b.tokens - VTAConfig.preset(b.machine).block)) for b in BLOCKS}
    assert against == set(itertools.product(MACHINES, (-1, 0, 1)))  # less, as many and more
    others = {(b.machine, b.scales) for b in BLOCKS if b.activation != "relu"}
    assert len(others) == len(MACHINES) * len(SCALES)
    assert len({(block.first, block.biased) for block in BLOCKS}) == 4
    assert len({(block.rotary, bool(block.memory)) for block in BLOCKS}) == 4
    assert len({(block.mask, bool(block.memory)) for block in BLOCKS}) == 2 * len(MASKS)
