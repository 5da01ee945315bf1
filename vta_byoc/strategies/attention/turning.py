"""Tiles of weights turned by the identity: what were rows become lanes, in SRAM for the next."""

from __future__ import annotations

import contextlib
import math

import numpy as np
from tvm import tirx

from vta_byoc.cost.search import Array, Choice, ResourceUsage, Staged
from vta_byoc.cost.usage import MOST_SLOTS
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.tir_builder import Expr, Load, Nests
from vta_byoc.workload.memory import ACC, INP, WGT


def turned_nests(
    groups: int, tiles: tuple[int, int], units: int, config: VTAConfig, choice: Choice
) -> tirx.PrimFunc:
    """The units, matrices of weights (groups, tiles), the vectors (groups, tile of columns, rows).

    Args:
        groups: how many matrices there are.
        tiles: of a matrix, along its rows and its columns.
        units: vectors of the first parameter; the first BLOCK are the identity.
        config: the machine.
        choice: the tile: "t" along rows, "s" along columns (all of them where it has none), "g"
            matrices (one).
    """
    nests, k = Nests(config), config.block
    sizes = (groups, tiles[1], tiles[0])
    own = choice.tile
    parts = (own.get("g", 1), own.get("s", tiles[1]), own["t"])
    given = nests.param("units", (units,))
    weights = nests.weights("tiles", math.prod(sizes))
    out = nests.param("out", (groups, tiles[1], tiles[0] * k))
    unit = nests.sram(INP, "unit", (k,))
    tile = nests.sram(WGT, "tile", (parts[0], parts[2], parts[1]))
    acc = nests.sram(ACC, "turned", (*parts, k))
    nests.load("load_units", (k,), lambda i: (unit[i], given[i]))
    with contextlib.ExitStack() as loops:
        names = zip(("go", "so", "to"), sizes, parts, strict=True)
        first = [loops.enter_context(nests.loop(n, -(-size // part))) for n, size, part in names]

        def at(*place: Expr) -> list[Expr]:
            """Group, column and row of an element of the tile; further indices are dropped."""
            return [o * p + i for o, p, i in zip(first, parts, place, strict=False)]

        def inside(*place: Expr) -> list[Expr]:
            ends = zip(at(*place), sizes, parts, strict=True)
            return [i < size for i, size, part in ends if size % part]

        def source(*place: Expr) -> Load:
            group, column, row = at(*place)
            return weights[(group * tiles[0] + row) * tiles[1] + column]

        def target(*place: Expr) -> Load:
            group, column, row = at(*place)
            return out[group, column, row * k + place[-1]]

        nests.load(
            "load",
            (parts[0], parts[2], parts[1]),
            lambda g, t, d: (tile[g, t, d], source(g, d, t)),
            lambda g, t, d: inside(g, d, t),
        )
        nests.reset("clear", (*parts, k), lambda *i: acc[i])
        nests.gemm(
            "turn",
            (*parts, k),
            lambda g, d, t, i: (acc[g, d, t, i], unit[i], tile[g, t, d]),
            inside,
        )
        nests.store("store", (*parts, k), lambda *i: (target(*i), acc[i]), inside)
    return nests.func(choice.slots_attr())


def turning_demand(
    total: int, size: Array, tiles: Array, runs: Array | int, config: VTAConfig
) -> ResourceUsage:
    """Of ``total`` tiles of weights, `size` at a time, each in so many ``runs`` of the result."""
    k = config.block
    kernels = 3 * np.minimum(tiles, MOST_SLOTS)
    return ResourceUsage(
        staged=(
            Staged(INP, k, 1, k * float(config.inp_elem_bytes), 1),
            Staged(WGT, size, tiles, float(total * config.wgt_elem_bytes), tiles),
            Staged(ACC, size * k, tiles),
        ),
        tiles=tiles,
        gemm=2.0 * total * k,
        gemm_starts=2 * tiles,
        uops=kernels,
        kernels=kernels,
        stored=float(total * k * config.out_elem_bytes),
        stores=tiles * runs,
    )
