"""What the cases of every importer are drawn with, and what they are."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


class Draw:
    """Seeded choices: equal seeds give equal models."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, low: int = 1, high: int = 5) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def shape(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """A shape of `low` to `high` axes."""
        return tuple(self.size() for _ in range(self.size(low, high)))

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.size(-rank, rank - 1)

    def axes(self, rank: int) -> list[int]:
        """At least one axis, in any order, each counted from either end."""
        chosen = self.rng.permutation(rank)[: self.size(1, rank)]
        return [int(axis) - (rank if self.flag() else 0) for axis in chosen]

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with `shape`."""
        kept = [size if self.flag() else 1 for size in shape]
        return tuple(kept[self.size(0, len(kept)) if self.flag() else 0 :])

    def floats(self, shape: Sequence[int], low: float = -4, high: float = 4) -> np.ndarray:
        """float32 in a range; one tensor in three has multiples of a half only, ties among them."""
        values = self.rng.uniform(low, high, tuple(shape))
        if self.size(1, 3) == 1:
            values = np.clip(np.round(values * 2) / 2, low, high)
        return np.asarray(values, "float32")

    def integers(self, shape: Sequence[int], low: int, high: int) -> np.ndarray:
        """int64 from `low` to `high`, both included."""
        return self.rng.integers(low, high + 1, tuple(shape))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="importer-cases-")


def case_folder() -> Path:
    """Where models are written; it is gone when the process ends."""
    return Path(_folder().name)


def single(array: np.ndarray) -> np.ndarray:
    """With the floats that an imported ONNX model has."""
    is_other = str(array.dtype) in ("float16", "bfloat16", "float64")
    return np.array(array, "float32" if is_other else array.dtype, order="C")


TOLERANCE = 1e-5
"""Of a case that states none."""


@dataclass(frozen=True)
class Case:
    """One drawn model with one operator under test.

    Attributes:
        operator: the name that the importer's own table has for it.
        model: makes what `load_model` takes: a path, or a program.
        feed: the inputs, in order.
        expected: computes what the source runtime makes of them; raises if it takes no such model.
        text: the draw in words, for a failure.
        tolerance: of float32, relative to the value and to the largest of its tensor; other dtypes
            are equal.
    """

    operator: str
    model: Callable[[], Any]
    feed: Sequence[np.ndarray]
    expected: Callable[[], Sequence[np.ndarray]]
    text: str
    tolerance: float = TOLERANCE
