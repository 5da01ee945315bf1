"""Filters for the model zoo: random, but none that cancels most of its input.

Such a filter needs a large gain to use its range, and with it turns the rounding errors of its
input into signals: in a network of fifty layers nothing else would be left. So more filters are
drawn than needed, tried at random places of the build images, and the weakest dropped. Dropping
many would leave filters that all look at the same, and make all images alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models._build import INHIBITION, random_filters
from models._exact import F32, F64, on_int8_grid, patches

SPARE = 0.25
"""Filters to drop, as a share of those to keep, unless a model knows better."""
CANDIDATES = 2
"""Filters to choose the one of a depthwise channel from."""
PLACES = 256
"""Where filters are tried."""


def strong_filters(
    rng: np.random.RandomState, x: F32, channels: int, kernel: int, *, spare: float = SPARE
) -> F32:
    """(channels, C, kernel, kernel): filters on all channels of NCHW `x`."""
    drawn = channels + int(spare * channels)
    w = random_filters(rng, (drawn, x.shape[1], kernel, kernel))
    seen = patches(x, kernel, PLACES, rng).reshape(PLACES, -1)
    strength = _strength(seen, w.reshape(drawn, -1).T.astype(np.float64))
    return w[np.sort(np.argsort(-strength, kind="stable")[:channels])]


def depthwise_filters(rng: np.random.RandomState, x: F32, kernel: int) -> F32:
    """(C, 1, kernel, kernel): a filter for each channel of NCHW `x`."""
    channels = x.shape[1]
    w = on_int8_grid(rng.uniform(-1, 1, (CANDIDATES, channels, 1, kernel, kernel)))
    seen = patches(x, kernel, PLACES, rng).transpose(1, 0, 2)
    flat = w.reshape(CANDIDATES, channels, -1).transpose(1, 2, 0).astype(np.float64)
    return w[_strength(seen, flat).argmax(axis=1), np.arange(channels)]


def transposed_filters(rng: np.random.RandomState, shape: tuple[int, int, int, int]) -> F32:
    """IOHW filters of a transposed convolution: uniform taps, their mean below zero."""
    inputs, _, kh, kw = shape
    w = rng.uniform(-1, 1, shape)
    w -= w.mean(axis=(0, 2, 3), keepdims=True) + INHIBITION / np.sqrt(3 * inputs * kh * kw)
    return on_int8_grid(w)


def _strength(seen: F64, w: F64) -> npt.NDArray[np.float64]:
    """Variance of what filters (..., taps, filters) make of (..., places, taps), per norm."""
    return np.asarray((seen @ w).var(axis=-2) / np.square(w).sum(axis=-2))
