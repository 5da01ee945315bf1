"""The waves that a Fourier transform multiplies a signal by."""

from __future__ import annotations

import numpy as np


def waves(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the frequencies 0 to count - 1 over `size` samples.

    Returns:
        Two arrays (size, count), float64.
    """
    angles = 2 * np.pi * (np.outer(np.arange(size), np.arange(count)) % size) / size
    return np.cos(angles), np.sin(angles)
