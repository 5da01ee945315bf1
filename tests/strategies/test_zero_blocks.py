"""Blocks of weights that are all zero: which they are, what is left, and when that pays."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from conv_cases import chosen_tiling, conv_case, random_tiling, rescale
from draws import draws
from hypothesis import given, settings
from hypothesis import strategies as st

from vta_byoc.base.rewrites import without
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.conv import conv2d
from vta_byoc.strategies.conv.filled import area_of, filled_by, filled_of, pieces_of, rectangles
from vta_byoc.strategies.conv.gemm_usage import chosen_left_out
from vta_byoc.strategies.conv.grouping import groupings
from vta_byoc.strategies.conv.taps import left_out_of
from vta_byoc.strategies.te.kernel import Grouping
from vta_byoc.workload.texts import from_json, to_json
from vta_byoc.workload.workloads import Conv2dWorkload

SIM = VTAConfig.preset("sim")
WORK = Conv2dWorkload(1, 136, 136, 14, 14, (1, 1), groups=4, epilogue=rescale(8))


def covered(size: tuple[int, int], filled: tuple[tuple[int, int, int, int], ...]) -> np.ndarray:
    """How often each pair of blocks is in a rectangle."""
    count = np.zeros(size, int)
    for first, end, first_in, end_in in filled:
        count[first:end, first_in:end_in] += 1
    return count


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1))
def test_rectangles_have_every_place_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    there = rng.random(rng.integers(1, 9, 2)) < rng.random()
    filled = rectangles(there)
    np.testing.assert_array_equal(covered(there.shape, filled), there.astype(int))
    assert area_of(filled) == there.sum()


@pytest.mark.parametrize("seed", range(20))
def test_pieces_are_what_tiles_have_of_rectangles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    there = rng.random(rng.integers(1, 12, 2)) < 0.6
    there[0, 0] = True
    filled = rectangles(there)
    for rows, cols in itertools.product(range(1, there.shape[0] + 1), range(1, 4)):
        found = [
            (min(end, r + rows) - max(first, r), min(end_in, c + cols) - max(first_in, c))
            for first, end, first_in, end_in in filled
            for r in range(0, there.shape[0], rows)
            for c in range(0, there.shape[1], cols)
        ]
        sizes = [(high, wide) for high, wide in found if high > 0 and wide > 0]
        pieces = pieces_of(filled, rows, cols)
        assert (pieces.pairs, pieces.count) == (there.sum(), len(sizes))
        assert pieces.rows * len(sizes) == pytest.approx(sum(high for high, _ in sizes))
        assert pieces.cols * len(sizes) == pytest.approx(sum(wide for _, wide in sizes))


def test_groups_leave_blocks_of_zeros() -> None:
    """Four groups of 34 channels: a block of two groups sees five blocks, one of one three."""
    (grouping,) = groupings(WORK, SIM)
    filled = filled_of(WORK, grouping, SIM)
    weight = np.zeros((136, 136, 1, 1), np.int8)
    for group in range(4):
        weight[34 * group :, 34 * group :][:34, :34] = 1
    assert filled == filled_by(weight, SIM)
    assert area_of(filled) == 6 * 3 + 3 * 5 < 81
    with without(["zero_blocks"]):
        assert filled_of(WORK, grouping, SIM) == ()


def test_groups_in_whole_blocks_leave_none() -> None:
    """More of them than have to be put together are another tile of the same products."""
    work = dataclasses.replace(WORK, in_channels=96, out_channels=96)
    for grouping in groupings(work, SIM):
        found = filled_of(work, grouping, SIM)
        assert bool(found) == (grouping.joined == 2)
    alone = dataclasses.replace(WORK, in_channels=128, out_channels=128)
    assert not any(filled_of(alone, each, SIM) for each in groupings(alone, SIM))


def test_a_workload_says_which_blocks_are_filled() -> None:
    work = dataclasses.replace(WORK, groups=1, filled=((0, 9, 0, 4), (1, 2, 5, 9)))
    assert from_json(Conv2dWorkload, to_json(work)) == work
    assert filled_of(work, Grouping(1, 1, 9, 9), SIM) == work.filled
    assert "filled" not in to_json(WORK)


def test_products_with_zero_blocks_are_left_out() -> None:
    """The very count of products of the pairs that are left, in clearly fewer cycles."""
    cycles = []
    for off in ([], ["zero_blocks"]):
        with without(off):
            grouping, tile = chosen_tiling(WORK, SIM)
            case = conv_case(WORK, SIM, tile, grouping=grouping)
            left_out = chosen_left_out(WORK, grouping, SIM, tile)
        case.check(simulator.run(case.program, case.inputs).arena)
        pairs = 81 if off else 33
        assert left_out.blocks == (not off)
        counters = case.program.counters()
        assert counters["gemm_counter"] == 196 * pairs
        assert (counters["wgt_load_nbytes"] < 81 * 256) == (not off)
        cycles.append(simulate(case.program).cycles)
    assert cycles[0] < 0.75 * cycles[1]


SHAPES = [
    (2, 40, 24, (1, 1), 1),
    (3, 60, 33, (1, 1), 7),
    (3, 30, 48, (3, 3), 6),
    (4, 136, 68, (1, 1), 5),
    (4, 68, 136, (3, 1), 5),
    (8, 24, 200, (1, 1), 3),
    (8, 72, 40, (2, 2), 5),
]


MACHINES = ["sim", "tophub_4x8", "pynq", "1x32", "2x16"]
TURNS = [
    (MACHINES[(number + turn) % len(MACHINES)], shape)
    for number, shape in enumerate(SHAPES)
    for turn in range(draws(2, len(MACHINES)))
]
"""Each shape on some of the machines, and each machine with some of the shapes."""


@pytest.mark.parametrize(("machine", "shape"), TURNS)
def test_any_tile_leaves_them_out(
    machine: str,
    shape: tuple[int, int, int, tuple[int, int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results are the reference's with whatever tile, whether it pays or not."""

    def every(work: Conv2dWorkload, grouping: Grouping, config: VTAConfig, *_: object) -> object:
        return left_out_of(work, filled_of(work, grouping, config))[-1]

    groups, inputs, outputs, kernel, size = shape
    config = VTAConfig.preset(machine)
    work = Conv2dWorkload(
        *(3, inputs, outputs, size, size, kernel), padding=(1, 1, 1, 1), groups=groups
    )
    work = dataclasses.replace(work, epilogue=rescale(9))
    case = conv_case(work, config)
    case.check(simulator.run(case.program, case.inputs).arena)
    monkeypatch.setattr(conv2d, "chosen_left_out", every)
    rng = np.random.default_rng(inputs)
    for seed in range(draws(1, 3)):
        tiling = random_tiling(rng, work, config)
        if tiling is not None:
            grouping, tile = tiling
            case = conv_case(work, config, tile, seed, grouping=grouping)
            case.check(simulator.run(case.program, case.inputs).arena)
