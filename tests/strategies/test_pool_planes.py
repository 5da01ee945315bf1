"""Pools in the tiles of a convolution whose accumulators are in planes, against numpy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from alu_cases import BARE, GEOMETRIES, SIM, clamp
from conv_cases import random_work
from draws import draws
from fused_cases import MOST_VALUES, Case, case, head
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_fused_consumers import random_consumer
from test_overlapping_pools import RISING, pool_of, random_tile

from vta_byoc.base.rewrites import without
from vta_byoc.codegen.linear import Bound, Clip, Linear
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.fused.consumer import FusedConsumer
from vta_byoc.strategies.fused.planes import planes_of
from vta_byoc.strategies.te.kernel import Chosen, Kernel
from vta_byoc.workload.workloads import CHANNEL, MAP, Conv2dWorkload, Epilogue, PoolWorkload, Step

PADDED = Conv2dWorkload(1, 20, 24, 28, 35, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=Epilogue(RISING))
PLANES = "pool_planes"


def windows(rows: int, cols: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, ...]]:
    return (rows, cols), (rows, cols), (0, 0, 0, 0)


def rising(rng: np.random.Generator) -> Epilogue:
    """Operands by channel, and numbers of both signs."""
    added = Step("add", int(rng.integers(-300, 300)))
    steps = [Step("add", CHANNEL), Step("max", CHANNEL), Step("mul", 3), added, Step("min", 900)]
    kept = [step for step in steps if rng.random() < 0.5]
    return Epilogue((*kept, Step("shr", 7), *clamp()))


def drawn(rng: np.random.Generator) -> tuple[Conv2dWorkload, PoolWorkload]:
    """Any convolution with a rising epilogue, and windows side by side that tile its result."""
    while True:
        work = dataclasses.replace(random_work(rng), digit_shift=0, epilogue=rising(rng))
        rows, cols = (int(n) for n in rng.integers(1, 5, 2))
        _, _, height, width = work.out_shape
        if np.prod(work.out_shape) <= MOST_VALUES and rows <= height and cols <= width:
            return work, pool_of(work, windows(rows, cols))  # type: ignore[arg-type]


def made_of(
    work: Conv2dWorkload, pool: PoolWorkload, config: VTAConfig, chosen: Chosen | None = None
) -> Case:
    rng = np.random.default_rng(5)
    return case(head("conv2d", rng, work), [FusedConsumer(pool)], config, rng, chosen)


@settings(max_examples=draws(12, 25), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), machine=st.sampled_from(sorted(GEOMETRIES)))
def test_any_windows_behind_any_convolution(seed: int, machine: str) -> None:
    rng, config = np.random.default_rng(seed), GEOMETRIES[machine]
    work, pool = drawn(rng)
    consumers = [FusedConsumer(pool)]
    if rng.random() < 0.5:
        consumers.append(random_consumer(rng, pool.out_shape, mul=True))
    try:
        made = case(head("conv2d", rng, work), consumers, config, rng)
    except VTAError as error:
        assert "no tile" in str(error), error
        return
    made.check()


@settings(max_examples=draws(12, 25), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), machine=st.sampled_from(["1x16", "4x8", "quarter"]))
def test_any_tile(seed: int, machine: str) -> None:
    """Tiles of whole windows, and such that are the whole tensor and have parts of them."""
    rng, config = np.random.default_rng(seed), GEOMETRIES[machine]
    work, pool = drawn(rng)
    try:
        made = case(head("conv2d", rng, work), [FusedConsumer(pool)], config, rng)
    except VTAError as error:
        assert "no tile" in str(error), error
        return
    choice = random_tile(made, config, rng)
    if choice is None:
        return
    legal = all(
        choice.tile[axis] % size == 0 or choice.tile[axis] == extent
        for axis, size, extent in zip(("oh", "ow"), pool.kernel, work.out_shape[2:], strict=True)
    )
    if legal:
        (kernel,) = made.computation.kernels(config)
        chosen = Chosen((Kernel(choice, kernel.grouping),))
        case(head("conv2d", rng, work), [FusedConsumer(pool)], config, rng, chosen).check()


@pytest.mark.parametrize("machine", ["pynq", "1x16", "4x8", "quarter"])
@pytest.mark.parametrize("window", [(2, 2), (1, 2), (4, 1)])
def test_nothing_is_copied(machine: str, window: tuple[int, int]) -> None:
    config = {**GEOMETRIES, "pynq": BARE}[machine]
    work = dataclasses.replace(PADDED, height=24, width=24)
    pool = pool_of(work, windows(*window))  # type: ignore[arg-type]
    made = made_of(work, pool, config)
    made.check()
    with without([PLANES]):
        apart = made_of(work, pool, config)
        apart.check()
    assert simulate(made.program).cycles < simulate(apart.program).cycles
    fewer, more = (each.program.counters()["alu_counter"] for each in (made, apart))
    assert fewer < more


@pytest.mark.parametrize("machine", ["1x16", "4x8", "quarter"])
@pytest.mark.parametrize("kinds", [("max", "max"), ("max", "sum"), ("max", "max", "max")])
def test_pools_behind_a_pool(kinds: tuple[str, ...], machine: str) -> None:
    """The windows of the second are of what the first one gave, in a tile of their own."""
    rng, config = np.random.default_rng(3), GEOMETRIES[machine]
    first, consumers = dataclasses.replace(PADDED, height=24, width=16), []
    work: Conv2dWorkload | PoolWorkload = first
    for kind in kinds:
        work = pool_of(work, windows(2, 2))  # type: ignore[arg-type]
        if kind == "sum":
            mean = Epilogue((Step("shr", 2), *clamp()))
            work = dataclasses.replace(work, kind=kind, epilogue=mean)
        consumers.append(FusedConsumer(work))
    assert planes_of(first, consumers) == (2, 2)
    case(head("conv2d", rng, first), consumers, config, rng).check()


def test_numbers_below_zero_are_added_behind_the_pool() -> None:
    """TVM subtracts them."""
    steps = (Step("add", CHANNEL), Step("add", -4032), Step("shr", 7), *clamp())
    work = dataclasses.replace(PADDED, height=24, width=24, epilogue=Epilogue(steps))
    pool = pool_of(work, windows(2, 2))  # type: ignore[arg-type]
    made = made_of(work, pool, BARE)
    made.check()
    with without([PLANES]):
        copied = made_of(work, pool, BARE)
        copied.check()
    with without(["pool_first"]):
        before = made_of(work, pool, BARE)
    fewest, fewer, more = (
        each.program.counters()["alu_counter"] for each in (made, copied, before)
    )
    assert fewest < fewer < more


@pytest.mark.parametrize("machine", ["pynq", "1x16", "4x8", "quarter"])
def test_the_estimate_is_near_the_simulated_cycles(machine: str) -> None:
    config = {**GEOMETRIES, "pynq": BARE}[machine]
    work = dataclasses.replace(PADDED, in_channels=16, out_channels=32, height=40, width=40)
    made = made_of(work, pool_of(work, windows(2, 2)), config)  # type: ignore[arg-type]
    estimate = made.computation.estimate(config)
    assert simulate(made.program).cycles == pytest.approx(estimate, rel=0.08)


def test_where_accumulators_keep_their_order() -> None:
    """A window in a tile of parts of windows, sums, what falls, and maps before the pool."""
    pool = pool_of(PADDED, windows(2, 2))  # type: ignore[arg-type]
    fused = (FusedConsumer(pool),)
    assert planes_of(PADDED, fused) == (2, 2)
    assert planes_of(PADDED, ()) is None
    assert planes_of(PADDED, (FusedConsumer(dataclasses.replace(pool, kind="sum")),)) is None
    overlapping = pool_of(PADDED, ((3, 3), (2, 2), (1, 1, 1, 1)))
    assert planes_of(PADDED, (FusedConsumer(overlapping),)) is None
    for steps in ((Step("mul", -1), *clamp()), (Step("add", MAP), *clamp())):
        work = dataclasses.replace(PADDED, epilogue=Epilogue(steps))
        assert planes_of(work, fused) is None
    assert planes_of(dataclasses.replace(PADDED, digit_shift=7), fused) is None
    many = pool_of(PADDED, windows(3, 3))  # type: ignore[arg-type]
    assert planes_of(PADDED, (FusedConsumer(many),)) is None
    for name in (PLANES, "pool_first"):
        with without([name]):
            assert planes_of(PADDED, fused) is None
    made_of(dataclasses.replace(PADDED, height=9, width=7), pool_of(
        dataclasses.replace(PADDED, height=9, width=7), windows(2, 2)  # type: ignore[arg-type]
    ), SIM).check()  # fmt: skip


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1))
def test_boxes_of_bounds_about_three_loops(seed: int) -> None:
    """The boxes of a clip are all places where its bounds hold, each once."""
    rng = np.random.default_rng(seed)
    extents = [int(n) for n in rng.integers(1, 6, 4)]
    bounds = []
    for _ in range(int(rng.integers(1, 4))):
        which = rng.choice(4, int(rng.integers(1, 4)), replace=False)
        terms = {int(k): int(rng.choice([-3, -2, -1, 1, 2, 3])) for k in which}
        bounds.append(Bound(Linear.of(int(rng.integers(-6, 7)), terms), "drawn"))
    clip = Clip(bounds, list(enumerate(extents)), 3)
    seen = np.zeros(extents, int)
    for domain in clip.domains({}):
        seen[tuple(slice(low, high) for low, high in domain)] += 1
    holds = np.ones(extents, bool)
    places = np.indices(extents)
    for bound in bounds:
        holds &= bound.form.const + sum(c * places[v] for v, c in bound.form.terms) >= 0
    np.testing.assert_array_equal(seen, holds.astype(int))
