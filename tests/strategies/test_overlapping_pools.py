"""Pools whose windows overlap or are padded, in the tiles of a convolution, against numpy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from alu_cases import BARE, GEOMETRIES, SIM, clamp
from conv_cases import random_work
from draws import draws
from fused_cases import MOST_VALUES, Case, case, head
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fused_consumers import random_consumer

from vta_byoc.base.rewrites import without
from vta_byoc.cost.search import Choice, cost_of
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.fused.consumer import FusedConsumer, overlaps
from vta_byoc.strategies.te.kernel import Chosen, Kernel
from vta_byoc.strategy import STRATEGIES, Computation, LayerWork
from vta_byoc.workload.workloads import (
    CHANNEL,
    MAP,
    Conv2dWorkload,
    Epilogue,
    PoolWorkload,
    Step,
)

RISING = (Step("add", CHANNEL), Step("shr", 7), *clamp())
STEM = Conv2dWorkload(1, 20, 33, 17, 19, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=Epilogue(RISING))
Windows = tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]


def pool_of(work: Conv2dWorkload, windows: Windows) -> PoolWorkload:
    n, c, h, w = work.out_shape
    return PoolWorkload("max", n, c, h, w, *windows)


def drawn(rng: np.random.Generator) -> tuple[Conv2dWorkload, PoolWorkload]:
    """Any convolution with a rising epilogue, and any pool behind it that its tiles can take."""
    while True:
        work = dataclasses.replace(random_work(rng), digit_shift=0, epilogue=Epilogue(RISING))
        kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        strides = tuple(int(rng.integers(1, size + 1)) for size in kernel)
        pads = tuple(int(rng.integers(0, (kernel[i % 2] + 1) // 2)) for i in range(4))
        sizes = zip(work.out_shape[2:], kernel, pads, pads[2:], strict=False)
        if np.prod(work.out_shape) > MOST_VALUES or any(n + a + b < k for n, k, a, b in sizes):
            continue
        pool = pool_of(work, (kernel, (strides[0], strides[1]), pads))  # type: ignore[arg-type]
        if overlaps(pool):
            return work, pool


def random_tile(made: Case, config: VTAConfig, rng: np.random.Generator) -> Choice | None:
    """A tile of the space that fits; None where none of many does."""
    computation = made.computation
    layer = LayerWork(computation.work, computation.fused)
    (space,) = computation.strategy.spaces(layer, config)
    ((_, tiles),) = space.candidates
    for _ in range(200):
        one, two, three = (int(n) for n in rng.integers(1, 3, 3))
        tile = {name: int(rng.choice(axis)) for name, axis in tiles.axes.items()}
        choice = Choice(tile, str(rng.choice(list(tiles.variants))), (one, two, three))
        if np.isfinite(cost_of(tiles, config, choice)):
            return choice
    return None


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), machine=st.sampled_from(sorted(GEOMETRIES)))
def test_any_windows_behind_any_convolution(seed: int, machine: str) -> None:
    rng, config = np.random.default_rng(seed), GEOMETRIES[machine]
    work, pool = drawn(rng)
    producer = head("conv2d", rng, work)
    consumers = [FusedConsumer(pool)]
    if rng.random() < 0.5:
        consumers.append(random_consumer(rng, pool.out_shape, mul=True))
    try:
        made = case(producer, consumers, config, rng)
    except VTAError as error:
        assert "no tile" in str(error) or "no padding reaches" in str(error), error
        return
    made.check()


@settings(max_examples=draws(12, 25), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), machine=st.sampled_from(["1x16", "4x8", "quarter"]))
def test_any_tile(seed: int, machine: str) -> None:
    """Tiles that cut rows and columns anywhere, the last of an axis smaller than the others."""
    rng, config = np.random.default_rng(seed), GEOMETRIES[machine]
    work, pool = drawn(rng)
    try:
        made = case(head("conv2d", rng, work), [FusedConsumer(pool)], config, rng)
    except VTAError as error:
        assert "no tile" in str(error) or "no padding reaches" in str(error), error
        return
    choice = random_tile(made, config, rng)
    if choice is None:
        return
    (kernel,) = made.computation.kernels(config)
    chosen = Chosen((Kernel(choice, kernel.grouping),))
    case(head("conv2d", rng, work), [FusedConsumer(pool)], config, rng, chosen).check()


PUBLISHED = [
    ((3, 3), (2, 2), (1, 1, 1, 1)),
    ((3, 3), (2, 2), (0, 0, 0, 0)),
    ((3, 3), (2, 2), (0, 0, 1, 1)),
    ((2, 2), (1, 1), (0, 0, 1, 1)),
    ((2, 2), (2, 2), (1, 1, 1, 1)),
    ((5, 5), (1, 1), (2, 2, 2, 2)),
    ((1, 3), (1, 2), (0, 1, 0, 1)),
    ((4, 2), (3, 1), (0, 0, 2, 0)),
]
ROWS = [(1, 3)[(number + turn) % 2] for turn in range(draws(1, 2)) for number in range(8)]


@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "rows"),
    [(*PUBLISHED[number % 8], rows) for number, rows in enumerate(ROWS)],
)
def test_windows_of_published_networks(
    kernel: tuple[int, int], strides: tuple[int, int], pads: Any, rows: int
) -> None:
    """Tiles of few rows and columns, so that most windows' neighbours are in other tiles."""
    rng, pool = np.random.default_rng(rows), pool_of(STEM, (kernel, strides, pads))
    computation = Computation(STRATEGIES["conv2d"], STEM, (FusedConsumer(pool),))
    (chosen,) = computation.kernels(SIM)
    tile = {**chosen.choice.tile, "oh": rows, "ow": rows + 2, "co": 1}
    kernel_of = dataclasses.replace(chosen, choice=dataclasses.replace(chosen.choice, tile=tile))
    head_of = head("conv2d", rng, STEM)
    case(head_of, [FusedConsumer(pool)], SIM, rng, Chosen((kernel_of,))).check()


@pytest.mark.parametrize("machine", ["pynq", "1x16", "4x8", "quarter"])
def test_the_estimate_is_near_the_simulated_cycles(machine: str) -> None:
    config = {**GEOMETRIES, "pynq": BARE}[machine]
    rng = np.random.default_rng(3)
    stem = dataclasses.replace(STEM, in_channels=16, out_channels=32, height=40, width=40)
    for windows in (((3, 3), (2, 2), (1, 1, 1, 1)), ((3, 3), (1, 1), (1, 1, 1, 1))):
        pool = pool_of(stem, windows)
        made = case(head("conv2d", rng, stem), [FusedConsumer(pool)], config, rng)
        estimate = made.computation.estimate(config)
        assert simulate(made.program).cycles == pytest.approx(estimate, rel=0.08)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "sum"}, "need windows that neither overlap nor leave gaps, have windows of 3x3"),
        ({"strides": (4, 4)}, "need windows that neither overlap nor leave gaps, have windows of "),
        ({"kernel": (2, 2), "padding": (1, 1, 1, 1), "strides": (1, 1)}, "need a tap of windows "
         r"of 2x2 every 1x1 that no padding reaches, have \(1, 1, 1, 1\) with 17 rows"),
        ({"kernel": (2, 2), "dilation": (2, 2), "kind": "sum"}, "need windows of neighbours"),
    ],
)  # fmt: skip
def test_pools_that_no_tile_takes(change: dict[str, Any], message: str) -> None:
    pool = dataclasses.replace(pool_of(STEM, ((3, 3), (2, 2), (1, 1, 1, 1))), **change)
    together = Computation(STRATEGIES["conv2d"], STEM, (FusedConsumer(pool),))
    with pytest.raises(VTAError, match=message):
        together.estimate(SIM)


@pytest.mark.parametrize(
    "steps",
    [
        (Step("mul", -1), Step("shr", 7), *clamp()),
        (Step("add", MAP), Step("shr", 7), *clamp()),
    ],
)
def test_an_epilogue_that_maxima_must_follow(steps: tuple[Step, ...]) -> None:
    work = dataclasses.replace(STEM, epilogue=Epilogue(steps))
    pool = pool_of(work, ((3, 3), (2, 2), (1, 1, 1, 1)))
    with pytest.raises(VTAError, match="need an epilogue that never falls where its value rises"):
        Computation(STRATEGIES["conv2d"], work, (FusedConsumer(pool),)).estimate(SIM)


def test_only_the_first_pool_of_a_tile_may_overlap() -> None:
    first = pool_of(STEM, ((2, 2), (2, 2), (0, 0, 0, 0)))
    second = PoolWorkload("max", *first.out_shape, (3, 3), (1, 1))
    fused = FusedConsumer(first), FusedConsumer(second)
    with pytest.raises(VTAError, match="need windows of 3x3 every 1x1 to be the first"):
        Computation(STRATEGIES["conv2d"], STEM, fused).estimate(SIM)
    fused = FusedConsumer(PoolWorkload("max", *STEM.out_shape, (3, 3), (1, 1))), FusedConsumer(
        PoolWorkload("max", 1, 33, 15, 17, (2, 2), (2, 2))
    )
    rng = np.random.default_rng(5)
    case(head("conv2d", rng, STEM), fused, SIM, rng).check()


@pytest.mark.parametrize("name", ["overlapping_pools", "pool_first"])
def test_it_is_switched_off(name: str) -> None:
    pool = pool_of(STEM, ((3, 3), (2, 2), (1, 1, 1, 1)))
    together = Computation(STRATEGIES["conv2d"], STEM, (FusedConsumer(pool),))
    with without([name]), pytest.raises(VTAError, match="need windows that neither overlap"):
        together.estimate(SIM)
