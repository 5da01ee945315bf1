"""Noise for the inputs of a model."""

from __future__ import annotations

import numpy as np


def random_input(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Standard normal float32, or integers of all values of the dtype."""
    if dtype == "float32":
        return rng.standard_normal(shape, np.float32)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
