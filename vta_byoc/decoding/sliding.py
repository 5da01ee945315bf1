"""Constants with a row a token, of which a window takes its rows, and how a program holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vta_byoc.strategies.attention.attention import packed_mask

MASK, ROWS, COLUMNS = "mask", "rows", "columns"
"""Layouts: queries in lanes; as the values are; tokens as columns of blocks of channels."""


@dataclass(frozen=True)
class Place:
    """Where the tokens of a tensor are: on ``axis``, one every ``inner`` elements of it."""

    axis: int
    inner: int = 1


@dataclass(frozen=True)
class Sliding:
    """A constant of which a window takes the rows of its tokens.

    Attributes:
        values: those of all tokens.
        place: where the tokens are.
        tokens: how many there are.
        window: how many a window has.
    """

    values: np.ndarray
    place: Place
    tokens: int
    window: int

    def at(self, block: int) -> np.ndarray:
        """The values of window number ``block``."""
        shape, axis, inner = self.values.shape, self.place.axis, self.place.inner
        split = self.values.reshape(*shape[:axis], -1, self.tokens, inner, *shape[axis + 1 :])
        first = block * self.window
        rows = split[(slice(None),) * (axis + 1) + (slice(first, first + self.window),)]
        return np.ascontiguousarray(rows.reshape(*shape[:axis], -1, *shape[axis + 1 :]))

    def widest(self, block: int) -> np.ndarray:
        """The same with the extremes of all windows in place of the first two tokens.

        A bound that is proven for an operator on these values holds for every window: each element
        of the first token reaches as far from 0 as that of any token does, upward, and each of
        the second downward, where any is below 0.
        """
        found, axis = self.at(block).copy(), self.place.axis
        if self.place.inner != 1 or self.values.shape[axis] != self.tokens:
            return found
        most = np.abs(self.values).max(axis)
        least = np.where(self.values.min(axis) < 0, -most, most)
        rows = np.moveaxis(found, axis, 0)
        rows[0], rows[1] = most, least
        return found


@dataclass(frozen=True)
class Held:
    """How a program holds a constant that slides.

    Attributes:
        name: that of the constant.
        layout: one of MASK, ROWS, COLUMNS.
        copies: how often it is there, one after the other: once for each head that reads it.
    """

    name: str
    layout: str
    copies: int = 1

    def packed(self, sliding: Sliding, values: np.ndarray, lanes: int) -> np.ndarray:
        """The values of a window, flat, as the program has them."""
        if self.layout == MASK:
            rows, keys = values.shape[-2:]
            found = packed_mask(values.reshape(-1, rows, keys), lanes)
        elif self.layout == COLUMNS:
            rows = np.moveaxis(values, sliding.place.axis, 0).reshape(sliding.window, -1, lanes)
            found = np.ascontiguousarray(rows.transpose(1, 0, 2))
        else:
            found = values
        return np.tile(found.reshape(-1), self.copies)


def layouts(sliding: Sliding, mask: bool, lanes: int) -> tuple[str, ...]:
    """The layouts that a constant can have."""
    if mask:
        return (MASK,)
    once = sliding.place.inner == 1 and sliding.values.shape[sliding.place.axis] == sliding.tokens
    blocks = once and not sliding.values.size // sliding.tokens % lanes
    return (ROWS, COLUMNS) if blocks else (ROWS,)
