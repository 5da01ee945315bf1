"""Chunks of a tile, which a fused consumer's operand is loaded by."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from alu_cases import SIM, clamp
from fused_cases import SATURATED, case, head
from hypothesis import given
from hypothesis import strategies as st

from vta_byoc.strategies.fused.chunks import divisor, peeled
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.fused.usage import TileSize
from vta_byoc.strategies.te.kernel import Chosen
from vta_byoc.strategy import STRATEGIES, Computation
from vta_byoc.workload.workloads import Conv2dWorkload, ElementwiseWorkload, Epilogue, Prologue


@pytest.mark.parametrize(("channels", "loads"), [(768, 2), (512, 1), (656, 41)])
def test_a_chunk_is_as_much_of_the_tile_as_divides_it(channels: int, loads: int) -> None:
    """Tiles of 16 positions in chunks of at most 512 vectors: 24 blocks of 48; 1 of 41, a prime."""
    rng = np.random.default_rng(4)
    work = ElementwiseWorkload(
        1, channels, 1, 16, (Prologue(0, ()), Prologue(1, ())), "add", Epilogue(clamp())
    )
    conv = Conv2dWorkload(1, 16, channels, 1, 16, (1, 1), epilogue=SATURATED)
    producer, consumer = head("conv2d", rng, conv), FusedConsumer(work, 0)
    (kernel,) = Computation(STRATEGIES["conv2d"], conv, (consumer,)).kernels(SIM)
    tile = {**kernel.choice.tile, "co": channels // 16, "ow": 16}
    whole = dataclasses.replace(kernel, choice=dataclasses.replace(kernel.choice, tile=tile))
    made = case(producer, [consumer], SIM, rng, Chosen((whole,)))
    made.check()
    symbols = [each.symbol for each in made.program.relocations]
    assert symbols.count("x2") == loads


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(1, 600))
def test_the_estimate_has_the_chunks_of_the_tile(extents: list[int], limit: int) -> None:
    count = peeled(extents, limit)
    inner = math.prod(extents[count:])
    part = divisor(extents[count - 1], limit // inner) if count else 1
    assert inner * part <= limit
    arrays = [np.array([extent, 1]) for extent in extents]
    found = TileSize(arrays, 1, 1).chunk(limit)
    assert found.tolist() == [inner * part, 1]
