"""Products with padding that tiles leave out: how many there are, and when that pays."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from conv_cases import chosen_tiling, conv_case, rescale
from hypothesis import given, settings
from hypothesis import strategies as st

from vta_byoc.base.rewrites import without
from vta_byoc.codegen.linear import Bound, Clip, Linear
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.sim import simulator
from vta_byoc.hw.timing.engine import simulate
from vta_byoc.strategies.conv.gemm_usage import chosen_left_out
from vta_byoc.strategies.conv.taps import NONE, all_products, boxes_of, skips_of
from vta_byoc.strategies.conv.window import Window, windows
from vta_byoc.workload.receptive import products_inside
from vta_byoc.workload.workloads import Conv2dWorkload

SIM = VTAConfig.preset("sim")
WORK = Conv2dWorkload(1, 64, 64, 7, 7, (3, 3), padding=(1, 1, 1, 1), epilogue=rescale(8))


@pytest.mark.parametrize("seed", range(30))
def test_boxes_cover_what_sees_the_input(seed: int) -> None:
    """Each pair of an output and a tap once, whatever the tiles."""
    rng = np.random.default_rng(seed)
    taps, step, dilation, before = (int(n) for n in rng.integers((1, 1, 1, -2), (6, 4, 4, 6)))
    out, size = (int(n) for n in rng.integers(1, 12, 2))
    window = Window(out, size, taps, step, dilation, before)
    inside = sum(
        0 <= o * step + tap * dilation - before < size
        for o, tap in itertools.product(range(out), range(taps))
    )
    assert products_inside(out, size, taps, step, dilation, before) == inside
    for outs in range(1, out + 1):
        products, boxes, kinds, different, shortest = boxes_of(window, outs, taps)
        assert products == inside
        assert boxes >= different >= kinds - 1
        assert 1 <= shortest <= max(1, out)


@pytest.mark.parametrize("out", [1, 2, 5])
@pytest.mark.parametrize("planes", [1, 2])
def test_windows_beside_the_input_have_no_boxes(out: int, planes: int) -> None:
    """Nothing is computed, whatever the tiles; one output is what a share is taken of."""
    for outs, before in itertools.product(range(1, out + 1), (-4, out + 2)):
        window = Window(out, 4, 3, 1, 1, before)
        assert boxes_of(window, outs, 3, planes) == (0, 0, 1, 0, 1)


def test_a_tile_of_a_whole_plane_has_three_boxes_an_axis() -> None:
    rows, _ = windows(WORK, gather=False)
    assert boxes_of(rows, 7, 3) == (19, 3, 1, 3, 6)
    assert all_products(WORK) == 19 * 19
    assert skips_of(WORK)[0] == NONE


def test_small_planes_leave_out_what_reads_padding() -> None:
    """The very count of products inside; each program computes the same."""
    cycles = {}
    for off in ([], ["skip_padding"]):
        with without(off):
            grouping, tile = chosen_tiling(WORK, SIM)
            case = conv_case(WORK, SIM, tile, grouping=grouping)
            skips = chosen_left_out(WORK, grouping, SIM, tile).padding
        case.check(simulator.run(case.program, case.inputs).arena)
        rows, cols = (19 if skip else 21 for skip in skips)
        assert case.program.counters()["gemm_counter"] == 4 * 4 * rows * cols
        assert (skips == NONE) == bool(off)
        cycles[len(off)] = simulate(case.program).cycles
    assert cycles[0] < 0.96 * cycles[1]


def test_nothing_is_left_out_where_there_is_no_padding() -> None:
    work = dataclasses.replace(WORK, padding=(0, 0, 0, 0))
    assert skips_of(work) == [NONE]
    wide = dataclasses.replace(WORK, padding=(0, 1, 0, 1))
    assert skips_of(wide) == [NONE, (False, True)]


def test_starts_of_instructions_may_cost_more_than_padding() -> None:
    """One block of channels on a large plane: nine instructions for each that it was."""
    work = dataclasses.replace(WORK, in_channels=16, out_channels=16, height=8, width=56)
    grouping, tile = chosen_tiling(work, SIM)
    assert chosen_left_out(work, grouping, SIM, tile).padding != (True, True)


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1))
def test_boxes_in_planes_are_those_of_code_generation(seed: int) -> None:
    """The very products that a clip of the nest leaves, tile by tile, in about as many boxes.

    Where a plane has fewer outputs than there are planes, code generation cuts another loop.
    """
    rng = np.random.default_rng(seed)
    taps, step, dilation, before = (int(n) for n in rng.integers((1, 1, 1, -2), (6, 4, 4, 6)))
    out, size = (int(n) for n in rng.integers(2, 16, 2))
    planes, outs = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    window, outs = Window(out, size, taps, step, dilation, before), outs * planes
    products, boxes, *_ = boxes_of(window, outs, taps, planes)
    found = [
        domain
        for first, count in window.tiles(outs)
        for domain in _clip(window, first, count, outs, planes).domains({})
    ]
    assert sum(math.prod(high - low for low, high in domain) for domain in found) == products
    assert len(found) <= planes * boxes and boxes <= planes * len(found)


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_planes_that_see_the_input_alone_are_one_box(planes: int) -> None:
    """Of each tile; its outputs are those of all planes."""
    window = Window(12, 40, 3, 2, 1, 0)
    assert boxes_of(window, 6, 3, planes) == (12 * 3, 2, 1, 1, 6)


def _clip(window: Window, first: int, count: int, outs: int, planes: int) -> Clip:
    """Of the loops over planes, outputs of a plane and taps: inside of the input and the tile."""
    plane, output, tap = range(3)
    place = Linear.of(0, {output: planes, plane: 1})
    seen = place.scale(window.step) + Linear.of(
        first * window.step - window.before, {tap: window.dilation}
    )
    inside = [seen, seen.scale(-1) + Linear(window.size - 1)]
    bounds = [Bound(form, "inside") for form in inside]
    if count < outs:
        bounds.append(Bound(place.scale(-1) + Linear(count - 1), "partial"))
    loops = [(plane, planes), (output, outs // planes), (tap, window.taps)]
    return Clip(bounds, loops, 3)
