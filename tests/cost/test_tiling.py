"""The tile space: sizes, DMA counts, the estimate by hand, the best of all candidates, errors."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from vta_byoc.codegen.transfer import Dim, plan_transfer
from vta_byoc.cost.dma import CopyAxis, Run, copy_count, transfers
from vta_byoc.cost.objective import NAMED, Objective, aiming
from vta_byoc.cost.search import (
    MOST_SIZES,
    TOLERANCE,
    Choice,
    Space,
    best,
    ceil_div,
    cost_of,
    keeps_weights,
    sizes,
)
from vta_byoc.cost.usage import ResourceUsage, Staged, Time, cycle_cost, estimate, fits, needs
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.timing_parameters import Timing
from vta_byoc.strategies.base import LayerWork
from vta_byoc.strategies.conv.conv2d import CONV2D
from vta_byoc.workload.memory import ACC, INP, WGT
from vta_byoc.workload.workloads import Conv2dWorkload

CONFIG = VTAConfig()
FREE = VTAConfig(timing=Timing(dma_latency=0, compute_start=0))
SLOTS = list(itertools.product((2, 1), repeat=3))


# ---------------------------------------------------------------- sizes
@pytest.mark.parametrize("total", [1, 2, 3, 7, 16, 56, 97, 400])
def test_few_totals_have_every_size(total: int) -> None:
    found = sizes(total, total)
    assert found == sorted({-(-total // parts) for parts in range(1, total + 1)})


@pytest.mark.parametrize("total", [1, 40, 224, 1000, 70_000, 10_000_000])
def test_sizes_are_few_and_reach_from_one_to_all(total: int) -> None:
    found = sizes(total)
    assert found[0] == 1 and found[-1] == total and len(found) <= MOST_SIZES
    assert found == sorted(set(found))
    # each covers the total in equal parts: one less would need another part
    for size in found[1:]:
        assert -(-total // size) < -(-total // (size - 1))


# ---------------------------------------------------------------- transfers
def random_copy(rng: np.random.Generator) -> tuple[list[int], list[int], bool]:
    """Extents of a tensor and of a tile of it, innermost first; whether its columns are padded."""
    totals = [int(n) for n in rng.choice([1, 2, 3, 5, 12], 4)]
    tiles = [
        total if rng.random() < 0.5 else int(rng.integers(1, total + 1)) for total in totals
    ]
    return totals, tiles, bool(rng.random() < 0.3)


@pytest.mark.parametrize("seed", range(300))
def test_transfers_counts_what_code_generation_plans(seed: int) -> None:
    totals, tiles, padded = random_copy(np.random.default_rng(seed))
    strides = np.cumprod([1, *totals])[:4].tolist()
    inner = tiles[0] + 2 if padded else tiles[0]
    dense = np.cumprod([1, inner, *tiles[1:]])[:4].tolist()
    dims = [
        Dim(tile, 0, tile, stride, place)
        for tile, stride, place in zip(tiles, strides, dense, strict=True)
    ]
    if padded:
        dims[0] = Dim(inner, 1, inner - 1, 1, 1)
    axes = [CopyAxis(tile, stride) for tile, stride in zip(tiles, strides, strict=True)]
    axes[0] = CopyAxis(inner, 1, padded)
    assert int(transfers(axes)) == len(plan_transfer(dims))


@pytest.mark.parametrize("store", [False, True])
def test_copies_with_gaps_in_sram_count_what_code_generation_plans(store: bool) -> None:
    """Gaps that zeros fill and those that they do not, strides within the field and beyond it."""
    rng, seen = np.random.default_rng(int(store)), set()
    for _ in range(2000):
        place, step, dims = 1, int(rng.choice([1, 1, 1, 3])), []
        for _ in range(int(rng.integers(1, 5))):
            total = int(rng.integers(1, 9))
            dims.append(Dim(total, 0, total, step, place))
            place *= total
            place += int(rng.choice([0, 0, 1, 15, 16]))
            step = step * total + int(rng.choice([0, 0, 1, 70_000]))
        want = len(plan_transfer(dims, store=store, fill=not store))
        runs = [Run(d.total, d.dram, d.sram) for d in dims]
        assert int(copy_count(runs, store)) == want, dims
        seen.add(want)
    assert len(seen) > 10


def test_transfers_of_arrays() -> None:
    """A quarter of the rows, of the columns, of both, all: of three planes."""
    columns, rows = np.array([[8], [2]]), np.array([[8, 2]])
    count = transfers([CopyAxis(columns, 1), CopyAxis(rows, 8), CopyAxis(3, 64)])
    assert count.tolist() == [[1, 1], [1, 3]]


def test_wide_padding_leaves_rows_alone() -> None:
    assert transfers([CopyAxis(40, 1, True, True), CopyAxis(5, 8), CopyAxis(3, 40)]) == 15


# ---------------------------------------------------------------- estimate by hand
def demand(**other: Any) -> ResourceUsage:
    """4 tiles; 10 kB into INP in 4 loads, 2000 micro-ops, 1000 ALU cycles, 1600 bytes out."""
    staged = (
        Staged(INP, 100, 4, 10_240, 4),
        Staged(ACC, 50, 4),
    )
    values = {"tiles": 4, "gemm": 2000, "alu": 1000, "stored": 1600, "stores": 4} | other
    return ResourceUsage(**({"staged": staged} | values))


def cycles(
    what: ResourceUsage, config: VTAConfig = FREE, slots: tuple[int, int, int] = (2, 2, 2)
) -> float:
    return float(estimate(what, config, slots))


def test_compute_bound() -> None:
    """All computation, the first load before it, the last store behind it."""
    assert cycles(demand()) == 2000 + 1000 + 10_240 / 8 / 4 + 1600 / 8 / 4


def test_load_bound() -> None:
    """All loads, which wait while others use the port, then one step and its store."""
    others = (1600 + 16 * 16) / 8
    assert cycles(demand(gemm=400, alu=100)) == 10_240 / 8 + others + 125 + 1600 / 8 / 4


def test_store_bound() -> None:
    what = demand(stored=40_000)
    assert cycles(what) > 40_000 / 8 + 10_240 / 8 / 4


def test_latency_and_starts() -> None:
    """32 cycles for each DMA, 10 for each instruction of the compute queue."""
    more = cycles(demand(gemm_starts=4, alu_starts=8), VTAConfig()) - cycles(demand(), FREE)
    assert more == 12 * 10 + 32 + 32


def test_one_input_slot_exposes_loads() -> None:
    """Three loads of 320 cycles wait for computation; 250 ALU cycles hide part of each."""
    exposed = cycles(demand(), slots=(1, 2, 2)) - cycles(demand())
    assert exposed == 3 * 320 - 3 * 320 + max(0, 3 * 320 - 4 * 250)
    exposed = cycles(demand(alu=400), slots=(1, 2, 2)) - cycles(demand(alu=400))
    assert exposed == 3 * 320 - 4 * 100


def test_one_result_slot_exposes_stores() -> None:
    assert cycles(demand(), slots=(2, 2, 1)) - cycles(demand()) == 3 * 1600 / 8 / 4


def test_operands_load_in_the_compute_queue() -> None:
    operand = Staged(ACC, 10, 4, 800, 4)
    what = demand(staged=(*demand().staged, operand))
    assert cycles(what) - cycles(demand()) == 100


def test_kernels_load_once_for_each_combination_of_slots() -> None:
    """INP and ACC change together: two combinations; with weights that stay twice, four."""
    kernel = {"step_kernels": 1, "step_uops": 100}
    config = VTAConfig(timing=Timing(compute_start=0))

    def more(slots: tuple[int, int, int], *others: Staged) -> float:
        staged = (*demand().staged, *others)
        what = demand(staged=staged)
        return cycles(dataclasses.replace(what, **kernel), config, slots) - cycles(
            what, config, slots
        )

    assert more((2, 2, 2)) == 2 * (50 + 32)
    assert more((1, 2, 1)) == 1 * (50 + 32)
    assert more((2, 2, 2), Staged(WGT, 1, 2)) == 4 * (50 + 32)


def test_what_does_not_fit_costs_infinitely() -> None:
    tiles = Staged(INP, np.array([CONFIG.inp_depth // 2, CONFIG.inp_depth // 2 + 1]), 4, 64, 4)
    what = demand(staged=(tiles,))
    assert np.isfinite(estimate(what, CONFIG, (2, 2, 2))).tolist() == [True, False]
    assert np.isfinite(estimate(what, CONFIG, (1, 2, 2))).tolist() == [True, True]
    assert fits(what, CONFIG, (2, 2, 2)).tolist() == [True, False]


def test_a_buffer_filled_once_takes_one_slot() -> None:
    what = demand(staged=(Staged(WGT, 7, np.array([1, 2, 3]), 64, 1),))
    assert [n.tolist() if np.ndim(n) else n for n in needs(what, (2, 2, 2))] == [0, [7, 14, 14], 0]


# ---------------------------------------------------------------- tiles that stay
def fills_that_load(tiles: list[int], slots: int) -> int:
    """Fills of slots in turn, those left out whose slot holds the tile already."""
    held: dict[int, int] = {}
    count = 0
    for number, tile in enumerate(tiles):
        count += held.get(number % slots) != tile
        held[number % slots] = tile
    return count


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("turns", [1, 2, 5])
@pytest.mark.parametrize("period", [1, 2, 3])
def test_fills_that_load(period: int, turns: int, rows: int, slots: int) -> None:
    """Rows of some tiles in turn, and all of it again as the next call has it."""
    tiles = [r * period + k for r in range(rows) for _ in range(turns) for k in range(period)]
    whole = (period * rows, 1) if turns == 1 else (period, turns)
    item = Staged(WGT, 8, len(tiles), 64 * len(tiles), 3 * len(tiles), len(tiles), *whole)
    loaded, count = item.loaded(slots), fills_that_load(tiles, slots)
    assert (loaded.fills, loaded.nbytes) == (count, 64 * count)
    assert (loaded.dmas, loaded.zeros) == (3 * count, count)
    # each call begins with the first slot
    twice = sum(fills_that_load(tiles[k::slots] * 2, 1) for k in range(slots))
    assert bool(item.stays(slots)) == (twice == count)


def test_one_tile_costs_a_single_load() -> None:
    """3 of 4 loads of 320 cycles are left out, and with them their part of the port."""
    once = Staged(INP, 100, 4, 10_240, 4, period=1, turns=4)
    what = demand(staged=(once, Staged(ACC, 50, 4)))
    assert cycles(what, slots=(1, 2, 2)) == 2000 + 1000 + 10_240 / 8 / 4 + 1600 / 8 / 4
    left_out = Time(demand(), FREE, (1, 2, 2)).port - Time(what, FREE, (1, 2, 2)).port
    assert left_out == 3 * (320 + 16 / 8)


def test_tiles_that_stay_are_renewed_behind_one_step() -> None:
    """Two rows of one tile: two loads of 320 cycles behind a step of 60, and a shorter last one."""
    staged = Staged(INP, 100, 8, 8 * 2560, 8, period=1, turns=4, ends=0.5)
    what = demand(staged=(staged, Staged(ACC, 50, 8)), tiles=8, gemm=400, alu=80, stored=0)
    loaded = Time(what, FREE, (2, 2, 2))
    assert loaded.renewed() == 320 * loaded.stretch - 30 + 320 * loaded.stretch - 60
    assert Time(what, FREE, (1, 2, 2)).renewed() == 0


def test_further_chunks_wait_with_one_slot() -> None:
    """Of two chunks a tile the second is loaded when the first is used up."""
    loaded, result = demand().staged
    halves = demand(staged=(dataclasses.replace(loaded, chunks=2), result))
    assert cycles(halves) == cycles(demand())
    assert cycles(halves, slots=(1, 2, 2)) - cycles(demand(), slots=(1, 2, 2)) == 10_240 / 8 / 2


def test_calls_share_their_weights() -> None:
    """Of three calls one loads the weights, where they all stay in their slots."""
    for fills, slots, loads in ((1, 1, 1), (1, 2, 1), (2, 2, 1), (2, 1, 3), (3, 2, 3)):
        weights = Staged(WGT, 10, fills, 2400, fills, 0, fills, 1)
        what = demand(staged=(*demand().staged, weights))
        _, port = cycle_cost(what, FREE, (2, slots, 2), 3)
        _, bare = cycle_cost(demand(), FREE, (2, slots, 2))
        insns = loads * fills * 16 / 8
        assert port - bare == pytest.approx((loads * 2400 / 8 + insns) / 3)


# ---------------------------------------------------------------- choice
def toy(rows: int, cols: int, elements: int = 1, calls: int = 1) -> Space:
    """A copy through INP and ACC of rows x cols pixels of some elements each, with some weights:
    "again" loads all of the input for each tile, "stays" the weights of a column of tiles once."""

    def wanted(tile: Mapping[str, np.ndarray], variant: str) -> ResourceUsage:
        tiles = ceil_div(rows, tile["h"]) * ceil_div(cols, tile["w"])
        size, bulk = tile["h"] * tile["w"] * elements, float(rows * cols * elements)
        again = tiles if variant == "again" else 1
        turns = ceil_div(rows, tile["h"]) if variant == "stays" else 1
        loads = tiles / turns if variant == "stays" else 1
        row = (tiles / turns, turns) if variant == "stays" else ()
        return ResourceUsage(
            (
                Staged(INP, size, tiles, bulk * 16 * again, tiles),
                Staged(WGT, 1, tiles, bulk * 8 / loads, tiles, 0, *row),
                Staged(ACC, size, tiles),
            ),
            tiles,
            gemm=bulk,
            gemm_starts=tiles,
            stored=bulk * 16,
            stores=tiles * np.where(tile["w"] == cols, 1, tile["h"]),
        )

    variants = ("again", "once", "stays")
    return Space("a toy", {"h": sizes(rows), "w": sizes(cols)}, variants, wanted, calls=calls)


@functools.cache
def every_choice(rows: int, cols: int, calls: int, preset: str) -> Mapping[float, float]:
    """The least traffic of all legal choices of a toy by their cycles, one tile at a time.

    Every seventh is asked for by its `Choice` too.
    """
    config, space = VTAConfig.preset(preset), toy(rows, cols, calls=calls)
    found: dict[float, float] = {}
    tiles = itertools.product(space.axes["h"], space.axes["w"], space.variants)
    for number, (h, w, variant) in enumerate(tiles):
        what = space.demand({"h": np.array(h), "w": np.array(w)}, variant)
        for slots in SLOTS:
            cycles, port = (float(c) for c in cycle_cost(what, config, slots, space.calls))
            cost = cycles if fits(what, config, slots) else math.inf
            found[cost] = min(port, found.get(cost, port))
            if number % 7 == 0:
                choice = Choice({"h": h, "w": w}, variant, slots)
                assert cost == cost_of(space, config, choice)
                assert cost == float(estimate(what, config, slots, space.calls))
    return found


@pytest.mark.parametrize("rows, cols, calls", [(1, 1, 1), (9, 30, 3), (32, 32, 1), (250, 3, 3)])
@pytest.mark.parametrize("preset", ["sim", "2x16", "tophub_4x8"])
def test_best_is_the_least_traffic_of_the_cheapest(
    rows: int, cols: int, calls: int, preset: str
) -> None:
    config, space = VTAConfig.preset(preset), toy(rows, cols, calls=calls)
    with aiming(NAMED["cycles"]):
        choice, again = best(space, config), best(space, config)
    every = every_choice(rows, cols, calls, preset)
    near = {cost: port for cost, port in every.items() if cost <= (1 + TOLERANCE) * min(every)}
    assert near[choice.cycles] == min(near.values())
    assert cost_of(space, config, choice) == choice.cycles
    assert again == choice
    assert rows * cols == 1 or choice.variant != "again"
    if calls > 1:
        assert keeps_weights(space, choice)


@pytest.mark.parametrize("preset", ["sim", "2x16", "tophub_4x8"])
@pytest.mark.parametrize(
    "aim",
    [
        Objective(),
        Objective("dram-bytes"),
        Objective("dram-bytes", cycles_limit=0.05),
        Objective("both"),
        Objective("both", 0.1, 0.01),
        Objective("both", 0.9, cycles_limit=0.2),
        Objective("both", 1.0),
    ],
)
def test_best_is_best_by_the_objective(aim: Objective, preset: str) -> None:
    """By comparison with every choice, whose score is computed one by one."""
    config = VTAConfig.preset(preset)
    for rows, cols, calls in ((9, 30, 3), (32, 32, 1), (250, 3, 3)):
        with aiming(aim):
            choice = best(toy(rows, cols, calls=calls), config)
        every = every_choice(rows, cols, calls, preset)
        fewest = min(every)
        allowed = {c: p for c, p in every.items() if c < math.inf and c <= aim.most_cycles(fewest)}
        scores = {
            c: (1 - aim.weight) * c / fewest + aim.weight * p / every[fewest]
            for c, p in allowed.items()
        }
        near = [c for c, s in scores.items() if s <= (1 + aim.tolerance) * min(scores.values())]
        assert choice.cycles in near
        assert every[choice.cycles] == min(every[c] for c in near)


def test_the_objective_is_part_of_what_is_asked_for() -> None:
    """What is kept for one objective is not taken for another, in a process and beyond it."""
    work = Conv2dWorkload(1, 64, 64, 28, 28, (3, 3), padding=(1, 1, 1, 1))
    with aiming(Objective("dram-bytes")):
        fewest = CONV2D.choose(LayerWork(work), CONFIG).kernels
    assert CONV2D.choose(LayerWork(work), CONFIG).kernels != fewest
    with aiming(Objective("dram-bytes")):
        assert CONV2D.choose(LayerWork(work), CONFIG).kernels == fewest


def test_legal_excludes_tiles() -> None:
    space = dataclasses.replace(toy(16, 16), legal=lambda tile, _: tile["w"] != 16)
    assert best(toy(16, 16), CONFIG).tile["w"] == 16
    assert best(space, CONFIG).tile["w"] < 16
    whole = Choice({"h": 1, "w": 16}, "once", (2, 2, 2))
    assert np.isinf(cost_of(space, CONFIG, whole))


def test_slots_as_code_generation_takes_them() -> None:
    choice = Choice({}, "", (1, 2, 1))
    assert choice.slots_attr() == {INP: 1, WGT: 2, ACC: 1}


def test_nothing_fits() -> None:
    message = (
        "no tile of a toy fits the SRAM of machine 1x16 (the smallest needs 5000 INP of 2048, "
        "5000 ACC of 2048 elements); use larger buffers or leave the layer to the CPU"
    )
    with pytest.raises(VTAError, match=re.escape(message)):
        best(toy(4, 4, 5000), CONFIG)
