"""Tiles of a result and windows along an axis: what is said of them, position by position."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tvm import tirx

from vta_byoc.codegen.transfer import Dim, plan_transfer
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.tile_grid import Grid, moved_by, staged_operand
from vta_byoc.strategies.te.window import Window
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP

SIM = VTAConfig.preset("sim")


@pytest.mark.parametrize("size", range(1, 9))
def test_the_last_tile_is_smaller_where_sizes_do_not_divide(size: int) -> None:
    """Positions are bounded there, and nowhere else."""
    index = tirx.Var("i", "int32")
    for extent in range(1, size + 1):
        grid = Grid({"c": size}, {"c": extent})
        grid.outer["c"] = tirx.Var("co", "int32")
        firsts = range(0, size, extent)
        assert grid.count("c") == len(firsts)
        assert grid.uneven("c") == (firsts[-1] + extent > size) == bool(grid.where(index))


@pytest.mark.parametrize("kind", [CHANNEL, MAP, FULL])
def test_transfers_of_an_operand_are_those_of_code_generation(kind: str) -> None:
    """Every tile that divides a tensor of blocks, rows and columns; other loops load it again."""
    sizes = {"n": 1, "c": 4, "h": 6, "w": 6}
    axes = tuple("chw")
    moved = moved_by(kind, axes)
    for extents in itertools.product([1, 2, 4], [1, 3, 6], [1, 2, 6]):
        tile = dict(zip(axes, extents, strict=True))
        found = staged_operand(kind, sizes, {a: np.array([s]) for a, s in tile.items()}, axes, SIM)
        dims, dram, sram = [], 1, 1
        for axis in moved[::-1]:
            dims.append(Dim(tile[axis], 0, tile[axis], dram, sram))
            dram, sram = dram * sizes[axis], sram * tile[axis]
        each = len(plan_transfer(dims[::-1]))
        # a channel's operand stays where tiles of the plane follow each other
        fills = math.prod(sizes[a] // tile[a] for a in (axes if kind != CHANNEL else moved))
        assert (found.size, found.fills, found.dmas) == (sram, fills, fills * each), tile
        assert found.nbytes == fills * sram * SIM.acc_elem_bytes


@pytest.mark.parametrize("seed", range(20))
def test_bounds_of_windows_are_those_of_all_positions(seed: int) -> None:
    """Of each tap; whether they reach beyond the input, and the share of it that they see."""
    rng = np.random.default_rng(seed)
    out, size, taps, step = (int(n) for n in rng.integers(1, (6, 9, 5, 4)))
    dilation, before = int(rng.integers(1, 4)), int(rng.integers(0, 5))
    window = Window(out, size, taps, step, dilation, before)
    seen = [[o * step + t * dilation - before for t in range(taps)] for o in range(out)]
    for tap in range(taps):
        positions = [each[tap] for each in seen]
        assert (window.lowest(tap), window.highest(tap)) == (min(positions), max(positions))
    every = [position for each in seen for position in each]
    assert window.pads == (min(every) < 0, max(every) >= size)
    inside = [[0 <= position < size for position in each] for each in seen]
    assert window.empty == any(not any(each) for each in inside)
    assert window.share == pytest.approx(np.mean(inside))
    for outs, some in itertools.product(range(1, out + 1), range(1, taps + 1)):
        part = [position for each in seen[:outs] for position in each[:some]]
        assert window.extent(outs, some) == max(part) - min(part) + 1


def test_steps_of_a_reduction_have_as_many_taps_each() -> None:
    """Four sizes are tried at the most, from a single tap to all of them."""
    for taps in range(1, 130):
        found = Window(1, 1, taps, 1, 1, 0).chunks()
        divisors = [size for size in range(1, taps + 1) if taps % size == 0]
        assert found == sorted(set(found) & set(divisors))
        assert (found[0], found[-1], len(found)) == (1, taps, min(4, len(divisors)))


@pytest.mark.parametrize("seed", range(20))
def test_what_tiles_of_windows_read(seed: int) -> None:
    """Positions inside and beyond the input, and tiles that have any of these."""
    rng = np.random.default_rng([1, seed])
    out, size, taps, step = (int(n) for n in rng.integers(1, (7, 9, 5, 4)))
    dilation, before = int(rng.integers(1, 4)), int(rng.integers(0, 5))
    window = Window(out, size, taps, step, dilation, before)
    outs, some = int(rng.integers(1, out + 1)), int(rng.choice(window.chunks()))
    read = beyond = padded = 0
    for first, tap in itertools.product(range(0, out, outs), range(0, taps, some)):
        tile = range(first, min(first + outs, out))
        places = [o * step + t * dilation - before for o in tile for t in range(tap, tap + some)]
        staged = range(min(places), max(places) + 1)
        outside = sum(not 0 <= place < size for place in staged)
        read, beyond = read + len(staged) - outside, beyond + outside
        padded += outside > 0
    assert window.traffic(outs, some) == (read, beyond, padded)
