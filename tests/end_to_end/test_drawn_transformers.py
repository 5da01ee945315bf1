"""Transformer blocks drawn at random: what VTA stores is what the integer reference computes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from covering import Trait, covering, pairs
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

MANY = 400
OF = 200
"""Blocks of which so many have a mask with a norm, some heads or an activation as is said below."""
LENGTHS, LONG = range(1, 27), 40
"""Tokens of which each number must be there, and so many or more."""


def against(block: Block, size: int) -> int:
    """-1, 0 or 1: whether a size is less than the machine's block, equal or more."""
    return int(np.sign(size - VTAConfig.preset(block.machine).block))


def traits(block: Block) -> Iterator[Trait]:
    """Every two of a block's properties, its activation on its machine, and its length."""
    yield from pairs(
        {
            "mask": block.mask,
            "norm": block.norm,
            "machine": (block.machine, block.scales),
            "heads": (block.heads, block.shared),
            "first": block.first,
            "biased": block.biased,
            "rotary": block.rotary,
            "memory": bool(block.memory),
            "tokens": against(block, block.tokens),
            "size": against(block, block.size),
        }
    )
    yield block.activation
    yield block.activation == "relu", block.machine, block.scales
    yield block.tokens if block.tokens in LENGTHS else block.tokens >= LONG


def dear(block: Block) -> float:
    """What a block takes: for other activations than ReLU a function is searched for."""
    return 1.0 if block.activation == "relu" else 3.0


TWICE = {(("mask", mask), ("norm", norm)) for mask, norm in itertools.product(MASKS, NORMS)}
DRAWN = [drawn_small(seed) for seed in range(MANY)]
BLOCKS = draws(covering(DRAWN, traits, dear, lambda trait: 1 + (trait in TWICE)), DRAWN)
"""`make fuzz` takes all that are drawn, and larger ones."""
WHOLE = covering(
    BLOCKS, lambda b: [("mask", b.mask), ("norm", b.norm), ("machine", b.machine, b.scales)]
)
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
    named = rf"Block\(seed={BLOCKS[0].seed}, "
    with pytest.raises(AssertionError, match=rf"{named}.*region0 \w+: \d+ of \d+ values"):
        try_parts(BLOCKS[0])


def test_every_kind_is_among_the_blocks() -> None:
    """Whatever the drawn ones have two of, some of these have, and they are few."""
    of_all, of_these = ({t for block in some for t in traits(block)} for some in (DRAWN, BLOCKS))
    assert of_all == of_these and len(DRAWN) == MANY and len(BLOCKS) <= draws(50, MANY)
    assert len({block.seed for block in BLOCKS}) == len(BLOCKS)
    for blocks in (BLOCKS, WHOLE):
        assert {block.mask for block in blocks} == set(MASKS)
        assert {block.norm for block in blocks} == set(NORMS)
        assert {(b.machine, b.scales) for b in blocks} == set(itertools.product(MACHINES, SCALES))
    assert len(WHOLE) <= len(MASKS)
    pairs_of = Counter((block.mask, block.norm) for block in BLOCKS)
    assert set(pairs_of) == set(itertools.product(MASKS, NORMS))
    assert min(pairs_of.values()) >= least(10, len(BLOCKS), OF)
    heads = Counter((block.heads, block.shared) for block in BLOCKS)
    assert set(heads) == {(1, 1), (2, 1), (2, 2), (3, 3), (4, 2)}
    assert min(heads.values()) >= least(20, len(BLOCKS), OF)
    activations = Counter(block.activation for block in BLOCKS)
    assert set(activations) == set(ACTIVATIONS)
    assert min(activations.values()) >= least(6, len(BLOCKS), OF)
    lengths = {block.tokens for block in BLOCKS}
    assert set(LENGTHS) <= lengths and max(lengths) >= LONG
    sizes = {(block.machine, against(block, block.tokens)) for block in BLOCKS}
    assert sizes == set(itertools.product(MACHINES, (-1, 0, 1)))  # less, as many and more
    others = {(b.machine, b.scales) for b in BLOCKS if b.activation != "relu"}
    assert len(others) == len(MACHINES) * len(SCALES)
    assert len({(block.first, block.biased) for block in BLOCKS}) == 4
    assert len({(block.rotary, bool(block.memory)) for block in BLOCKS}) == 4
    assert len({(block.mask, bool(block.memory)) for block in BLOCKS}) == 2 * len(MASKS)
