"""Tiles of a result, and the tensor operands of its steps, for strategies written nest by nest."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

from tvm import tirx

from vta_byoc.cost.dma import CopyAxis, transfers
from vta_byoc.cost.search import Array, Staged, ceil_div
from vta_byoc.hw.config import VTAConfig
from vta_byoc.strategies.te.definition import OPERATORS
from vta_byoc.strategies.te.tir_builder import Expr, Nests, NestTensor
from vta_byoc.workload.memory import ACC
from vta_byoc.workload.workloads import CHANNEL, FULL, MAP, Step

CHANNELS = "c"
"""The axis of channel blocks; operands by position move with all ``space`` axes of a grid."""


class Grid:
    """The loops over tiles of a result: axis by axis its size, the tile's and the loop variable.

    ``outer`` is filled in as the loops are opened.
    """

    def __init__(self, sizes: Mapping[str, int], tile: Mapping[str, int]):
        self.sizes = dict(sizes)
        self.tile = {axis: int(tile[axis]) for axis in sizes}
        self.outer: dict[str, tirx.Var] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of a tile."""
        return tuple(self.tile.values())

    def count(self, axis: str) -> int:
        """Tiles along ``axis``."""
        return -(-self.sizes[axis] // self.tile[axis])

    def at(self, axis: str, index: Expr) -> Expr:
        """Position in the result of ``index`` of the tile."""
        return self.outer[axis] * self.tile[axis] + index

    def uneven(self, axis: str) -> bool:
        """Whether the last tile along ``axis`` is smaller."""
        return self.sizes[axis] % self.tile[axis] != 0

    def inside(self, index: Mapping[str, Expr]) -> list[Expr]:
        """Conditions that keep ``index`` inside a smaller last tile."""
        return [
            self.at(axis, value) < self.sizes[axis]
            for axis, value in index.items()
            if self.uneven(axis)
        ]

    def where(self, *index: Expr) -> list[Expr]:
        """:meth:`inside` of one index for each axis."""
        return self.inside(dict(zip(self.sizes, index, strict=True)))

    def positions(self, *index: Expr) -> tuple[Expr, ...]:
        """Position in the result of an index of the tile."""
        return tuple(self.at(axis, i) for axis, i in zip(self.sizes, index, strict=True))


def moved_by(kind: str, axes: Sequence[str]) -> tuple[str, ...]:
    """Those of ``axes`` (without images) that move an operand of ``kind``."""
    if kind == CHANNEL:
        return tuple(axis for axis in axes if axis == CHANNELS)
    return tuple(axis for axis in axes if kind == FULL or axis != CHANNELS)


class Operands:
    """The tensor operands of a strategy's steps: parameters, tiles, loads and use."""

    def __init__(self, nests: Nests, kinds: Sequence[str], grid: Grid, axes: Sequence[str]):
        self._nests, self._grid, self._kinds = nests, grid, kinds
        self._moved = [moved_by(kind, axes) for kind in kinds]
        self._params = [
            nests.param(f"operand{i}", [grid.sizes[a] for a in moved], "int32")
            for i, moved in enumerate(self._moved)
        ]
        self._tiles: list[NestTensor] = [
            nests.sram(ACC, f"value{i}", self._extents(moved))
            for i, moved in enumerate(self._moved)
        ]

    def _extents(self, moved: Sequence[str]) -> list[int]:
        return [self._grid.tile[axis] for axis in moved]

    def load(self, *kinds: str) -> None:
        """Stage the operands of ``kinds``, inside the loops that move them."""
        for number, kind in enumerate(self._kinds):
            if kind in kinds:
                self._load(number, self._moved[number])

    def _load(self, number: int, moved: Sequence[str]) -> None:
        grid, tile, param = self._grid, self._tiles[number], self._params[number]
        self._nests.load(
            f"load_operand{number}",
            self._extents(moved),
            lambda *i: (
                tile[i],
                param[tuple(grid.at(a, v) for a, v in zip(moved, i, strict=True))],
            ),
            lambda *i: grid.inside(dict(zip(moved, i, strict=True))),
        )

    def applied(
        self,
        value: Expr,
        steps: Sequence[Step],
        index: Mapping[str, Expr],
        first: int = 0,
        kept: Expr | None = None,
        other: Expr | None = None,
    ) -> Expr:
        """``value`` at ``index`` of the tile after ``steps``; their tensors from ``first`` on.

        ``kept`` is the copy that steps of KEPT add, ``other`` what those of OTHER do.
        """
        for step in steps:
            operand: tirx.Expr
            if step.is_square:
                operand = value
            elif step.is_kept:
                assert kept is not None, f"nothing is kept before {steps}"
                operand = kept
            elif step.is_other:
                assert other is not None, f"nothing is joined before {steps}"
                operand = other
            elif step.is_tensor:
                operand = self._tiles[first][tuple(index[axis] for axis in self._moved[first])]
                first += 1
            else:
                operand = tirx.const(int(step.operand), "int32")
            value = OPERATORS[step.op](value, operand)
        return value


def staged_operand(
    kind: str,
    sizes: Mapping[str, int],
    tile: Mapping[str, Array],
    axes: Sequence[str],
    config: VTAConfig,
) -> Staged:
    """What an operand asks of SRAM and DMA where the loop over channels is the outermost."""
    moved = moved_by(kind, axes)
    counts = {axis: ceil_div(sizes[axis], tile[axis]) for axis in axes}
    fills = counts[CHANNELS] if kind == CHANNEL else _product(counts.values())
    repeats = counts[CHANNELS] if kind == MAP else 1
    nbytes = float(_product(sizes[a] for a in moved)) * repeats * config.acc_elem_bytes
    strides = [_product(sizes[a] for a in moved[i + 1 :]) for i in range(len(moved))]
    rows = [CopyAxis(tile[a], stride) for a, stride in zip(moved, strides, strict=True)]
    size = _product(tile[a] for a in moved)
    return Staged(ACC, size, fills, nbytes, fills * transfers(rows[::-1]))


def _product(values: Iterable[Array]) -> Array:
    return functools.reduce(operator.mul, values, 1)
