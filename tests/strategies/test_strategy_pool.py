"""Max and sum pooling: any window and machine against numpy; borders, global pools, cycles."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from alu_cases import (
    BARE,
    GEOMETRIES,
    QUARTER,
    SIM,
    build,
    choice_of,
    clamp,
    cycles_of,
    estimated,
    named,
    operand_values,
    pool_reference,
    random_int8,
    random_pool,
    run_llvm,
    run_program,
)
from draws import draws

from vta_byoc.cost.objective import NAMED, aiming
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.program.program import Program
from vta_byoc.strategies.pooling.pool import POOL
from vta_byoc.strategies.pooling.sum import _nests
from vta_byoc.strategies.pooling.tile_space import MaxPool, sliding_of
from vta_byoc.workload.borders import boxes
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Epilogue, PoolWorkload, Step

SCALE = Epilogue((Step("mul", 37), Step("add", 128), Step("shr", 8), *clamp()))
SHIFT = Epilogue((Step("add", 8), Step("shr", 4), *clamp()))


def check(
    work: PoolWorkload,
    config: VTAConfig,
    seed: int = 0,
    x: np.ndarray | None = None,
    llvm: bool = False,
) -> Program:
    """Bit-exact with numpy."""
    rng = np.random.default_rng(seed)
    operands = operand_values(rng, work.epilogue.steps, work.out_shape)
    program = build(POOL, work, config, named(operands))
    x = random_int8(rng, *work.in_shapes[0]) if x is None else x
    x = np.maximum(x, work.low)
    expected = pool_reference(work, x, operands)
    np.testing.assert_array_equal(run_program(program, [x], work.out_shape), expected)
    if llvm:
        found = run_llvm(POOL, work, config, [x], named(operands))
        np.testing.assert_array_equal(found, expected)
    return program


@pytest.mark.parametrize("kind", ["max", "sum"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_random_windows(name: str, kind: str) -> None:
    for seed in range(10):
        work = random_pool(np.random.default_rng([seed, len(name), len(kind)]), kind)
        check(work, GEOMETRIES[name], seed, llvm=seed == 0)


def test_random_windows_without_mul_and_widening_loads() -> None:
    for seed in range(4):
        work = random_pool(np.random.default_rng(seed), "max")
        check(work, BARE, seed)
    check(PoolWorkload("sum", 1, 20, 8, 8, (4, 4), (4, 4), epilogue=SHIFT), BARE)


@pytest.mark.parametrize("name", [*GEOMETRIES, "bare"])
def test_a_factor_for_each_box(name: str) -> None:
    """Positions that see the same taps have theirs; of one digit or two, whatever the tile."""
    config = {**GEOMETRIES, "bare": BARE}[name]
    for seed in range(draws(4, 8)):
        rng = np.random.default_rng([seed, len(name)])
        work = random_pool(rng, "sum")
        count, most = len(boxes(work.window)), int(rng.choice([120, 9000]))
        factors = tuple(rng.integers(1, most, count).tolist())
        epilogue = Epilogue((Step("add", 1 << 9), Step("shr", 12), *clamp()))
        work = dataclasses.replace(work, factors=factors, epilogue=epilogue)
        check(work, config, seed, llvm=seed < draws(1, 2))


def test_padded_averages_take_little_more_than_others() -> None:
    """A nest for each box of a tile."""
    end = Epilogue((Step("add", 1 << 14), Step("shr", 15), *clamp()))
    work = PoolWorkload("sum", 1, 64, 28, 28, (3, 3), (2, 2), (1, 1, 1, 1), epilogue=end)
    factors = (8192, 5461, 5461, 3641)
    apart = dataclasses.replace(work, factors=factors)
    work = dataclasses.replace(work, factor=factors[-1])
    assert len(boxes(work.window)) == len(factors)
    assert cycles_of(check(apart, BARE)) < 1.1 * cycles_of(check(work, BARE))
    assert estimated(POOL, apart, BARE) < 1.1 * estimated(POOL, work, BARE)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (2, 0, 1, 2), (0, 0, 0, 0)])
def test_a_tile_has_a_nest_for_each_box_that_it_has_a_part_of(
    padding: tuple[int, int, int, int], stride: int
) -> None:
    work = PoolWorkload("sum", 1, 48, 9, 8, (3, 3), (stride, stride), padding)
    parts = boxes(work.window)
    work, (rows, cols) = dataclasses.replace(work, factors=(5,) * len(parts)), work.out_shape[2:]
    for h, w in itertools.product(range(1, rows + 1), range(1, cols + 1)):
        firsts = itertools.product(range(0, rows, h), range(0, cols, w))
        meeting = sum(
            max(top, y) < min(bottom, y + h) and max(left, x) < min(right, x + w)
            for (y, x), ((top, bottom), (left, right)) in itertools.product(firsts, parts)
        )
        tile = {"n": np.array([1]), "c": np.array([2]), "h": np.array([h]), "w": np.array([w])}
        assert _nests(work, sliding_of(work, SIM), tile) == 2 * meeting


# ---------------------------------------------------------------- borders
@pytest.mark.parametrize("value", [-128, -1])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (2, 0, 0, 2), (0, 2, 1, 0), (2, 2, 2, 2)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_padding_never_wins(stride: int, padding: tuple[int, int, int, int], value: int) -> None:
    """All-negative data: a zero in any border would show."""
    work = PoolWorkload("max", 1, 16, 9, 8, (3, 3), (stride, stride), padding)
    x = np.full(work.in_shapes[0], value, np.int8)
    check(work, SIM, x=x)
    check(work, QUARTER, x=np.minimum(random_int8(np.random.default_rng(1), *x.shape), -1))


def test_windows_of_padding_alone_are_the_least_value() -> None:
    work = PoolWorkload("max", 1, 16, 4, 4, (2, 2), (1, 1), (3, 2, 2, 3), low=0)
    program = check(work, SIM, llvm=True)
    assert program.counters()["alu_counter"] > 0


def test_the_border_of_signed_data_costs_nothing() -> None:
    """Taps outside are left out; above zero the padding takes part, harmlessly."""
    counts = {}
    for low in (0, -128):
        work = PoolWorkload("max", 1, 16, 12, 12, (3, 3), (1, 1), (1, 1, 1, 1), low=low)
        counts[low] = check(work, SIM).counters()["alu_counter"]
    assert counts[-128] <= counts[0]


def test_negative_padding_leaves_rows_and_columns_out() -> None:
    for kind, epilogue in (("max", Epilogue()), ("sum", SHIFT)):
        work = PoolWorkload(kind, 1, 16, 9, 10, (2, 2), (2, 2), (-1, -2, 0, -1), epilogue=epilogue)
        assert work.out_shape == (1, 16, 4, 3)
        check(work, SIM)


# ---------------------------------------------------------------- large and global
GLOBAL = [(7, 7), (13, 13), (56, 56), (1, 3000), (61, 53)]


@pytest.mark.parametrize("size", GLOBAL)
@pytest.mark.parametrize("channels", [3, 48, 130])
def test_global_sums_need_not_fit_sram(size: tuple[int, int], channels: int) -> None:
    if channels > 3 and size[0] > 50:
        channels = 20
    epilogue = Epilogue((Step("add", 1 << 9), Step("shr", 10), *clamp()))
    work = PoolWorkload("sum", 1, channels, *size, size, epilogue=epilogue)
    check(work, QUARTER if size[1] < 3000 else SIM)
    check(work, GEOMETRIES["4x8"])


@pytest.mark.parametrize("size", [(13, 13), (56, 56), (1, 700)])
def test_global_maxima_need_not_fit_sram(size: tuple[int, int]) -> None:
    work = PoolWorkload("max", 1, 20, *size, size)
    x = np.full(work.in_shapes[0], -7, np.int8)
    x[0, ::2, -1, -1] = -3
    check(work, QUARTER, x=x)


def test_equal_destinations_of_few_channels_stay_apart() -> None:
    """One vector, 56 x 56 taps: a column of accumulators; a cycle a tap, not an instruction."""
    work = PoolWorkload("sum", 1, 16, 56, 56, (56, 56), epilogue=Epilogue((Step("shr", 12),)))
    program = check(work, SIM)
    assert choice_of(POOL, work, SIM).variant != "whole"
    assert cycles_of(program) <= 2.5 * 56 * 56


@pytest.mark.parametrize("kinds", [(MAP,), (CHANNEL, MAP), (FULL,)])
def test_divisors_of_the_border_by_position(kinds: tuple[str, ...]) -> None:
    """A mean without the padding: the divisor depends on the position."""
    steps = (*(Step("mul", kind) for kind in kinds), Step("add", 1 << 7), Step("shr", 8), *clamp())
    work = PoolWorkload("sum", 2, 40, 13, 9, (3, 3), (2, 2), (1, 1, 1, 1), epilogue=Epilogue(steps))
    for config in (SIM, QUARTER, GEOMETRIES["2x16"]):
        check(work, config)


def test_steps_after_a_maximum() -> None:
    epilogue = Epilogue((Step("add", CHANNEL), Step("shr", 3), *clamp()))
    check(PoolWorkload("max", 3, 40, 11, 11, (3, 3), (2, 2), epilogue=epilogue), QUARTER)


def test_refusal_names_mul() -> None:
    work = PoolWorkload("sum", 1, 16, 8, 8, (2, 2), epilogue=SCALE)
    with pytest.raises(VTAError, match="computes MUL; this machine has no MUL"):
        build(POOL, work, BARE, {})


# ---------------------------------------------------------------- cost
def test_strides_sort_taps_into_phases() -> None:
    """3 x 3 stride 2: the middle tap has its phase for itself, so maxima end in place."""
    work = PoolWorkload("max", 1, 16, 16, 16, (3, 3), (2, 2))
    pool = MaxPool.of(work, SIM, "rows first", (3, 3))
    assert pool.in_place and pool.taps["h"].home == 1
    crowded = PoolWorkload("max", 1, 16, 16, 16, (3, 3), (1, 1))
    assert not MaxPool.of(crowded, SIM, "rows first", (3, 3)).in_place


@pytest.mark.parametrize(
    ("work", "limit"),
    [
        (PoolWorkload("max", 1, 64, 112, 112, (3, 3), (2, 2), (1, 1, 1, 1), low=0), 21.5),
        (PoolWorkload("max", 1, 64, 112, 112, (3, 3), (2, 2), (1, 1, 1, 1)), 21.5),
        (PoolWorkload("max", 1, 128, 112, 112, (2, 2), (2, 2)), 14.8),
        (PoolWorkload("sum", 1, 512, 7, 7, (7, 7), epilogue=SCALE), 140),
        (PoolWorkload("sum", 1, 128, 28, 28, (3, 3), (1, 1), (1, 1, 1, 1), epilogue=SCALE), 15.6),
    ],
)
def test_cycles_a_vector(work: PoolWorkload, limit: float) -> None:
    """Maxima: 2 to widen each input, 2 a tap and axis.  Sums: 1 a tap, 1 to clear, the steps."""
    with aiming(NAMED["cycles"]):
        cycles, expected = cycles_of(build(POOL, work, SIM, {})), estimated(POOL, work, SIM)
    vectors = work.out_shape[1] // 16 * work.out_shape[2] * work.out_shape[3]
    assert cycles / vectors <= limit
    assert abs(expected / cycles - 1) <= 0.08


@pytest.mark.parametrize("kind", ["max", "sum"])
def test_estimates(kind: str) -> None:
    """Within a third (or 600 cycles) each, most within a seventh."""
    ratios = []
    for seed in range(36):
        config = list(GEOMETRIES.values())[seed % 5]
        work = random_pool(np.random.default_rng([seed, 3]), kind)
        operands = operand_values(np.random.default_rng(0), work.epilogue.steps, work.out_shape)
        cycles = cycles_of(build(POOL, work, config, named(operands)))
        estimate = estimated(POOL, work, config)
        assert abs(estimate - cycles) <= max(0.33 * cycles, 600), (work, config.name)
        ratios.append(estimate / cycles)
    assert 0.92 <= np.median(ratios) <= 1.08
    assert np.mean([abs(r - 1) < 0.15 for r in ratios]) >= 0.7


def test_both_orders_of_axes_occur() -> None:
    found: Counter[str] = Counter()
    for shape in ((112, 30), (30, 112), (97, 97), (112, 112)):
        work = PoolWorkload("max", 1, 16, *shape, (3, 3), (2, 2), (1, 1, 1, 1))
        check(work, SIM)
        found[choice_of(POOL, work, SIM).variant] += 1
    assert len(found) == 2, found
