"""Seeded images with the look of normalised photographs; numpy only."""

from __future__ import annotations

import numpy as np

from models._exact import F32, F64

CALIBRATION_SEED = 20_000
"""Seed of the images that networks are built on: calibrate with these for the best scales."""

_LEVEL = 64.0
_LIMIT = 120.0


def sample_inputs(n: int, seed: int, size: int) -> F32:
    """`n` images, float32 (n, 3, size, size), mean near 0 and standard deviation near 0.8.

    An image is a sum of 3 to 5 smooth random fields (bilinear, 5 to 49 cells a side) and 3 to 5
    gratings (4 to size/7 periods), each in a colour of its own, compressed so that contrast is
    even, shifted in colour by up to 0.08, with white noise of deviation 0.16 to 0.24 on top.
    Structure, not brightness, tells images apart. Values are multiples of 1/64 within +-1.875, so
    that int8 with the scale 1/64 holds them without error. Image i depends on (seed, i, size)
    only: a longer batch begins with the shorter one.
    """
    images = [_image(np.random.RandomState([seed, i]), size) for i in range(n)]
    return np.stack(images).astype(np.float32)


def _image(rng: np.random.RandomState, size: int) -> F64:
    image = np.zeros((3, size, size))
    for _ in range(rng.randint(3, 6)):
        image += _colour(rng) * _smooth_field(rng, size, int(rng.choice([5, 9, 17, 33, 49])))
    for _ in range(rng.randint(3, 6)):
        image += 0.8 * _colour(rng) * _grating(rng, size)
    image /= image.std()
    image /= 1 + np.abs(image)
    image /= image.std()
    image += rng.uniform(-0.1, 0.1, (3, 1, 1))
    image += rng.uniform(0.2, 0.3) * rng.standard_normal(image.shape)
    return np.asarray(np.clip(np.rint(0.8 * _LEVEL * image), -_LIMIT, _LIMIT) / _LEVEL)


def _colour(rng: np.random.RandomState) -> F64:
    """(3, 1, 1): a random hue plus a random share of grey."""
    return np.asarray(rng.uniform(-1, 1, (3, 1, 1)) + rng.uniform(-1, 1))


def _smooth_field(rng: np.random.RandomState, size: int, cells: int) -> F64:
    """(size, size): normal values on a grid of `cells` a side, interpolated, deviation 1."""
    at = np.linspace(0, cells - 1, size)
    left = np.minimum(at.astype(np.int64), cells - 2)
    rows = np.arange(size)
    weights = np.zeros((size, cells))
    weights[rows, left] = 1 - (at - left)
    weights[rows, left + 1] = at - left
    field = weights @ rng.standard_normal((cells, cells)) @ weights.T
    return np.asarray(field / field.std())


def _grating(rng: np.random.RandomState, size: int) -> F64:
    """(size, size): a sine wave of random direction, period and phase, deviation near 1."""
    angle, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi)
    periods = 4 * (size / 28) ** rng.uniform(0, 1)
    at = 2 * np.pi * periods * np.arange(size) / size
    wave = np.sin(np.cos(angle) * at[None, :] + np.sin(angle) * at[:, None] + phase)
    return np.asarray(np.sqrt(2) * wave)
