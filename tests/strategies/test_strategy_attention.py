"""Attention on VTA: what the simulator computes is what the definition computes on llvm."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from draws import draws

from vta_byoc.cost.search import Choice
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.sim.simulator import run
from vta_byoc.hw.verify.verifier import check
from vta_byoc.quantization.ops.exponential import attention_of, exponential_of
from vta_byoc.quantization.scales import Scale
from vta_byoc.schedule import random_inputs, reference
from vta_byoc.strategies.attention.attention import ATTENTION
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.te.kernel import Kernel
from vta_byoc.testing.strategies import check_strategy, layer_program
from vta_byoc.workload.attention import AttentionWorkload

MACHINES = tuple(VTAConfig.preset(name) for name in ("sim", "1x32"))
SIM = MACHINES[0]


def work_of(
    config: VTAConfig,
    groups: int,
    queries: int,
    keys: int,
    depth: int,
    width: int,
    *,
    unit: float = 1e-3,
    ratio: float = 2.0,
    masks: int = 0,
    hiding: tuple[int, ...] = (),
    causal: tuple[int, ...] = (),
) -> AttentionWorkload:
    """Sizes in blocks for `depth` and `width`; scores of `unit`, values `ratio` times as coarse."""
    k = config.block
    exponential = exponential_of(unit, depth * k * 128 * 128, "attention")
    numbers = attention_of(keys, exponential, ratio, Scale(1.0), (-128, 127), "attention")
    own = dataclasses.astuple(numbers)[1:]
    return AttentionWorkload(
        *(groups, queries, keys, depth * k, width * k),
        *(own, masks, k),
        hiding=hiding,
        causal=causal,
    )


def drawn(
    rng: np.random.Generator, config: VTAConfig
) -> tuple[AttentionWorkload, Mapping[str, np.ndarray]]:
    """Any number of heads, lengths and head sizes; with a mask or without."""
    groups, depth, width = (int(rng.integers(1, high)) for high in (4, 4, 4))
    queries, keys = (int(n) for n in rng.integers(1, 70, 2))
    masks = int(rng.choice([0, 1, groups]))
    late = int(rng.choice([0, 1, groups])), int(rng.integers(2)), int(rng.integers(10, 22))
    work = work_of(
        config,
        groups,
        queries,
        keys,
        depth,
        width,
        unit=float(10.0 ** -rng.uniform(1, 4.5)),
        ratio=float(2.0 ** rng.uniform(-2, 5)),
        masks=masks,
        hiding=late if late[0] else (),
    )
    if not masks:
        return work, {}
    hidden = rng.random((masks, queries, keys)) < 0.3
    offsets = rng.integers(-3000, 3000, hidden.shape)
    return work, {"mask": np.where(hidden, -(1 << 24), offsets)}


def causal(
    rng: np.random.Generator, config: VTAConfig
) -> tuple[AttentionWorkload, Mapping[str, np.ndarray]]:
    """Queries that see the keys up to their own, or some further; all kinds of masks besides."""
    groups, depth, width = (int(rng.integers(1, high)) for high in (3, 3, 3))
    k = config.block
    queries, further = int(rng.integers(k + 1, 4 * k)), int(rng.integers(0, 3 * k // 2))
    keys = queries + int(rng.choice([further, 2 * k + 3]))
    masks, clear = int(rng.choice([1, groups])), bool(rng.integers(2))
    late = int(rng.choice([0, 1, groups])), int(rng.integers(2)), 12
    work = work_of(
        *(config, groups, queries, keys, depth, width),
        unit=float(10.0 ** -rng.uniform(1, 4.5)),
        masks=masks,
        hiding=late if late[0] else (),
        causal=(-(-(k + further) // k), further // k if clear else -keys),
    )
    shape = masks, queries, keys
    seen = np.tri(queries, keys, further, bool)
    offsets = 0 if clear else rng.integers(-3000, 3000, shape)
    return work, {"mask": np.broadcast_to(np.where(seen, offsets, -(1 << 24)), shape)}


def test_drawn_causal_attention() -> None:
    """Keys that no query of a block sees are left out, and no bit differs."""
    check_strategy(ATTENTION, causal, machines=MACHINES, cases=draws(4, 6), factor=2.2)


def test_drawn_attention() -> None:
    """Bit for bit, verified, and the estimate near the timing model."""
    check_strategy(ATTENTION, drawn, machines=MACHINES, cases=draws(5, 9), factor=2.2)


def few_queries(
    rng: np.random.Generator, config: VTAConfig
) -> tuple[AttentionWorkload, Mapping[str, np.ndarray]]:
    """A window of a decoder: many heads, one block of queries or two, more keys."""
    groups, keys = int(rng.choice([6, 8, 12])), int(rng.integers(40, 100))
    queries = int(rng.integers(1, 2 * config.block + 1))
    return work_of(config, groups, queries, keys, 1, int(rng.integers(1, 3))), {}


def test_reciprocals_of_several_heads_are_computed_together() -> None:
    """Their instructions are many and of one vector each: bits and estimate are as ever."""
    check_strategy(ATTENTION, few_queries, machines=MACHINES, cases=draws(2, 4), factor=2.2)
    mixing = ATTENTION.choose(LayerWork(work_of(SIM, 12, 16, 128, 4, 4)), SIM).kernels[1].choice
    assert mixing.tile["g"] > 1


def test_a_tile_without_all_queries_has_one_head() -> None:
    """Its values would be loaded again for every tile."""
    work = work_of(SIM, 4, 400, 400, 2, 2)
    mixing = ATTENTION.choose(LayerWork(work), SIM).kernels[1].choice
    assert mixing.tile["g"] == 1 or mixing.tile["t"] == work.query_blocks


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("size", [1, 2])
def test_a_smaller_last_tile_of_queries(blocks: int, size: int) -> None:
    """Tiles that divide the blocks of queries and such that do not: the same bits."""
    work, rng = work_of(SIM, 2, blocks * 16, 33, 1, 1), np.random.default_rng(blocks)
    chosen = ATTENTION.choose(LayerWork(work), SIM)
    tiles = ({"t": size, "n": 2}, {"t": size}, {"t": size})
    kernels = tuple(Kernel(Choice(tile, "tiles", (1, 1, 1))) for tile in tiles)
    schedule = dataclasses.replace(chosen, kernels=kernels)
    definition = ATTENTION.compute(schedule, SIM)
    operands = random_inputs(definition, int(rng.integers(1000)))[: len(work.in_shapes)]
    values = [*operands, *ATTENTION.constants(schedule, {}, SIM)]
    program = layer_program(ATTENTION, schedule, SIM, definition, values)
    check(program)
    given = {f"x{number}": value for number, value in enumerate(operands)}
    np.testing.assert_array_equal(run(program, given).outputs["y"], reference(definition, *values))
