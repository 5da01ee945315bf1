"""Straight fits: factors of columns and a constant that come nearest to a table.

The fit is made for many candidates at a time and again and again.  What does not depend on them is
made once, and the arrays lie so that the candidates of one column are behind each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TURNS = 3
"""So many times is fitted: where the last one is far off counts more in the next."""
RIDGE = 1e-7
"""Keeps the factors of columns that are alike from growing without limit."""


@dataclass(frozen=True)
class _Room:
    """Arrays for so many candidates and columns, each [candidates, 256] or several of these.

    Attributes:
        basis: the columns, and ones as the last.
        heavy: the same times what the results count, so that the last is what they count.
        first: what the results count in the first turn.
        made: the results of a turn.
        wanted: the table.
        below: by how much the table's least result is below each.
        above: by how much its largest is above.
    """

    basis: np.ndarray
    heavy: np.ndarray
    first: np.ndarray
    made: np.ndarray
    wanted: np.ndarray
    below: np.ndarray
    above: np.ndarray

    def cut(self, count: int) -> _Room:
        """What of it so many candidates need."""
        if count == len(self.made):
            return self
        return _Room(*(each[..., :count, :] for each in vars(self).values()))


class Fit:
    """Fits to one table, float64 or int64 [256].

    Results beyond the ends of the table, which a clamp cuts, count as reached; where it is known
    which do not count, `cut`, bool [256], no others do.
    """

    def __init__(self, table: np.ndarray, cut: np.ndarray | None = None) -> None:
        self._wanted = table.astype(np.float64)
        self._cut = cut
        self._rooms: dict[int, _Room] = {}

    def linear(
        self, columns: Sequence[np.ndarray], peaks: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Factors of `columns` and a constant, float64 [candidates], nearest to the table.

        Args:
            columns: int64 [candidates, 256] each.
            peaks: the largest magnitude in each candidate's column.
        """
        room = self._room(len(columns[0]), len(columns) + 1)
        basis, heavy, weight = room.basis, room.heavy, room.heavy[-1]
        sizes = [np.maximum(peak, 1).astype(np.float64) for peak in peaks]
        for column, size, part in zip(columns, sizes, basis, strict=False):
            np.divide(column.astype(np.float64), size[:, None], out=part)
        each, weighed = basis.transpose(1, 0, 2), heavy.transpose(1, 0, 2)
        turned = each.transpose(0, 2, 1)
        ridge = RIDGE * basis.shape[2] * np.eye(len(basis))
        weight[:] = room.first
        for turn in range(TURNS):
            np.multiply(basis[:-1], weight, out=heavy[:-1])
            products = weighed @ self._wanted[:, None]
            found = np.linalg.solve(weighed @ turned + ridge, products)
            if turn < TURNS - 1:
                np.matmul(found.transpose(0, 2, 1), each, out=room.made[:, None])
                self._weigh(room)
        factors = [found[:, i, 0] / size for i, size in enumerate(sizes)]
        return factors, found[:, -1, 0]

    def _weigh(self, room: _Room) -> None:
        """Let the results that are far from the table count more, and those beyond it nothing."""
        made, weight = room.made, room.heavy[-1]
        made -= room.wanted
        if self._cut is None:
            short = np.minimum(np.maximum(made, room.below), room.above)
            beyond = (short == 0.0) & (made != short)
            made = short
        np.abs(made, out=made)
        made += 0.3
        weight *= made
        if self._cut is None:
            np.putmask(weight, beyond, 0.0)

    def _room(self, count: int, terms: int) -> _Room:
        """The arrays for so many candidates and terms, made anew where there are too few."""
        room = self._rooms.get(terms)
        if room is None or room.made.shape[0] < count:
            room = self._rooms[terms] = self._made(count, terms)
        return room.cut(count)

    def _made(self, count: int, terms: int) -> _Room:
        table = self._wanted
        counts = np.ones(len(table)) if self._cut is None else (~self._cut).astype(np.float64)

        def rows(value: np.ndarray) -> np.ndarray:
            return np.broadcast_to(value, (count, len(table))).copy()

        basis, heavy = (np.ones((terms, count, len(table))) for _ in range(2))
        each = (counts, table, table, table.min() - table, table.max() - table)
        return _Room(basis, heavy, *map(rows, each))
