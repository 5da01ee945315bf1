"""The waves that a Fourier transform multiplies a signal by."""

from __future__ import annotations

import numpy as np

DIGITS = 15
"""Of a wave's values: what is zero is zero, so that half of the frequencies' range is real."""


def waves(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the frequencies 0 to count - 1 over `size` samples.

    Returns:
        Two arrays (size, count), float64.
    """
    angles = 2 * np.pi * (np.outer(np.arange(size), np.arange(count)) % size) / size
    return np.round(np.cos(angles), DIGITS), np.round(np.sin(angles), DIGITS)


def complex_waves(given: int, size: int, is_onesided: bool, is_inverse: bool) -> np.ndarray:
    """What each part of a sample adds to each part of a frequency.

    Args:
        given: samples that there are; of more than `size` the first are taken, and fewer are
            continued with zeros.
        size: samples of the transform.
        is_onesided: whether there are frequencies up to half of the size, instead of all.
        is_inverse: whether it is the inverse transform, divided by `size`.

    Returns:
        (2, given, 2, frequencies), float64: the real part is 0, the imaginary one 1.
    """
    cosines, sines = waves(size, size // 2 + 1 if is_onesided else size)
    if is_inverse:
        cosines, sines = cosines / size, -sines / size
    matrix = np.zeros((2, given, 2, cosines.shape[1]))
    used = min(given, size)
    matrix[0, :used, 0] = matrix[1, :used, 1] = cosines[:used]
    matrix[0, :used, 1], matrix[1, :used, 0] = -sines[:used], sines[:used]
    return matrix


def real_waves(given: int, size: int) -> np.ndarray:
    """What the parts of frequencies up to half of the size add to each real sample.

    Args:
        given: frequencies that there are; of more than half of the size the first are taken, and
            fewer are continued with zeros.
        size: samples of the inverse transform, which is divided by it.

    Returns:
        (2, given, 1, size), float64.
    """
    used = min(given, size // 2 + 1)
    cosines, sines = waves(size, used)
    twice = np.full(used, 2.0)  # the frequency on the other side is its conjugate
    twice[[k for k in (0, size // 2) if 2 * k in (0, size) and k < used]] = 1
    matrix = np.zeros((2, given, 1, size))
    matrix[0, :used, 0], matrix[1, :used, 0] = (cosines * twice).T / size, -(sines * twice).T / size
    return matrix
