"""Where activations should lie, and the gamma and beta of BatchNorm that bring them there.

int8 quantization with power-of-two scales loses little, and a relu output can use more than 100
of its 128 values, if

- the largest magnitude of every layer lies just below ``127 * 2**k`` (FILL);
- channels differ, but none is an outlier, so that values near the largest are really used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from models._exact import F32, F64, channel_covariance, channel_moments, per_channel

GROUP = 8
"""Images that peaks are taken over: about as many as users calibrate with."""
FILL = 0.96
"""Where the peak of 8 images lies on average, as a share of the int8 range 127 * scale."""
FILL_LIMIT = 0.985
"""Where it lies at most for the images that users calibrate with: above 1 the scale doubles."""
AMAX = FILL * 127 * 2.0**-5
"""The peak that layers aim at."""
LOGIT_AMAX = 0.75 * 127 * 2.0**-3
"""The same for the last layer: signed, so with room for other images."""

REACH = (0.65, 1.0)
"""Range of the peaks of channels, as shares of the largest."""
SPREAD = (-0.25, 0.5)
"""Range of (mean / deviation) of channels before a relu: 31 to 60 % zeros."""
POOLED_REACH = (0.8, 1.0)
POOLED_BOTTOM = -0.8
"""The same before a global average pooling, where the upper end of SPREAD is fitted."""
LEAST_SHARE = 0.25
"""Smallest deviation that a residual branch adds, as a share of the identity's."""
TRUSTED = 20_000
"""Elements per channel for which half of the difference between channels' peaks is believed."""
BALANCE = ((0.0, 1), (0.2, 1), (-0.2, 1), (0.4, 1), (0.0, 2), (0.2, 2))
"""Shifts of the offsets and factors of the peak to try, until a residual branch uses"""
ENOUGH_VALUES = 150
"""int8 values: a branch that mostly subtracts, or just exceeds a power of two, uses few."""


def image_groups(values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Split along the first axis into groups of 8 images."""
    return np.array_split(values, max(1, len(values) // GROUP))


def peak(peaks: npt.NDArray[Any]) -> float:
    """From peaks (N, C) of images and channels, the height to place at AMAX.

    The mean over groups of images predicts other images best; but the first group, with which
    users calibrate, must stay below FILL_LIMIT.
    """
    tops = [float(group.max()) for group in image_groups(peaks)]
    return max(float(np.mean(tops)), tops[0] * FILL / FILL_LIMIT)


def channel_heights(peaks: npt.NDArray[Any], samples: int) -> F64:
    """How high each channel reaches, from its peaks in single images (N, C).

    The mean over groups of images, drawn towards the typical channel where `samples`, the elements
    per channel, are few: their peaks do not repeat on other images.
    """
    tops = [group.max(axis=0) for group in image_groups(peaks.astype(np.float64))]
    heights = np.mean(tops, axis=0)
    trust = samples / (samples + TRUSTED)
    return np.asarray(trust * heights + (1 - trust) * np.median(heights))


def channel_gains(reach: F64, heights: F64) -> F64:
    """Gains that bring channels to `reach`, in proportion; channels with rare high peaks lower."""
    return np.asarray(reach * np.median(heights) / heights**2)


def bisect(
    f: Callable[[float], float], target: float, low: float, high: float, *, steps: int
) -> float:
    """The positive x in [low, high] where the growing function `f` comes up to `target`."""
    for _ in range(steps):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if f(middle) <= target else (low, middle)
    return low


def octave_above(height: float) -> float:
    """The least AMAX * 2**k that is not below `height`."""
    return float(AMAX * 2.0 ** np.ceil(np.log2(height / AMAX)))


class ResidualFit:
    """Fits a BatchNorm whose output is added to `identity` and followed by a relu.

    `z` is the normalised branch, both are (N, C, H, W). `base` is AMAX times the power of two that
    `identity` fills.
    """

    def __init__(self, z: F32, identity: F32) -> None:
        self.z, self.identity = z, identity
        self.channels = z.shape[1]
        self.mean, self.var = channel_moments(identity)
        self.z_mean, _ = channel_moments(z)
        self.covariance = channel_covariance(identity, z)
        octaves = np.rint(np.log2(peak(identity.max(axis=(2, 3))) / AMAX))
        self.base = AMAX * 2.0 ** max(0.0, float(octaves))

    def balanced(self, offset: F64, reach: F64) -> tuple[F64, F64]:
        """The first fit, or else the best of a few, by the int8 values that the branch uses."""
        best, most = self.solve(offset, reach, self.base), -1
        for shift, factor in BALANCE:
            solution = self.solve(offset + shift, reach, factor * self.base)
            values = self.branch_values(*solution)
            if values > most:
                best, most = solution, values
            if values >= ENOUGH_VALUES:
                break
        return best

    def pooled(self, shape: Callable[[tuple[float, float]], tuple[F64, F64]]) -> tuple[F64, F64]:
        """The fit whose spatial means reach up to base / 4; `shape` maps a spread of offsets."""

        def solution(top: float) -> tuple[F64, F64]:
            return self.solve(*shape((POOLED_BOTTOM, top)), self.base)

        def pooled_peak(top: float) -> float:
            gamma, beta = solution(top)
            output = np.maximum(self.sum_of(gamma, beta), 0)
            return peak(output.mean(axis=(2, 3), dtype=np.float64))

        return solution(bisect(pooled_peak, self.base / 4, 0.2, 6.0, steps=8))

    def solve(self, offset: F64, reach: F64, amax: float) -> tuple[F64, F64]:
        """Gamma and beta for which the largest sum lies at `amax`.

        `offset` is mean / deviation of the sum per channel. Its peak is `reach` times a common
        factor, which is sought; a channel where `identity` alone is higher still gets
        LEAST_SHARE of its deviation from the branch.
        """
        gamma, beta = self._scaled(offset, reach, amax)
        peaks = (self._sum(gamma).max(axis=(2, 3)) + beta) / self._deviation(gamma)
        gains = channel_gains(reach, channel_heights(peaks, self.z[:, 0].size))
        return self._scaled(offset, gains, amax)

    def branch_values(self, gamma: F64, beta: F64) -> int:
        """How many int8 values the branch uses in 8 images, at the scale of its peak.

        The lesser count of two: a peak about a power of two may fall on either side of it.
        """
        branch = self.z[:GROUP] * per_channel(gamma) + per_channel(beta)
        counts = []
        for margin in (0.96, 1.04):
            scale = 2.0 ** np.ceil(np.log2(margin * np.abs(branch).max() / 127))
            values = np.clip(np.rint(branch / scale), -128, 127).astype(np.int16) + 128
            counts.append(int(np.count_nonzero(np.bincount(values.ravel()))))
        return min(counts)

    def _scaled(self, offset: F64, shape: F64, amax: float) -> tuple[F64, F64]:
        def peak_of_sum(factor: float) -> float:
            gamma, beta = self._parameters(offset, factor * shape)
            return peak(self._sum(gamma).max(axis=(2, 3)) + beta)

        factor = bisect(peak_of_sum, amax, amax / 256, amax * 8, steps=10)
        return self._parameters(offset, factor * shape)

    def _parameters(self, offset: F64, deviation: F64) -> tuple[F64, F64]:
        """Gamma and beta for a sum of the given deviation, per channel."""
        wanted = np.maximum(self.covariance**2 + deviation**2 - self.var, 0)
        gamma = np.maximum(np.sqrt(wanted) - self.covariance, LEAST_SHARE * np.sqrt(self.var))
        return gamma, offset * self._deviation(gamma) - self.mean - gamma * self.z_mean

    def _deviation(self, gamma: F64) -> F64:
        return np.asarray(np.sqrt(self.var + 2 * gamma * self.covariance + gamma**2))

    def sum_of(self, gamma: F64, beta: F64) -> F32:
        """What the BatchNorm of gamma and beta gives, plus the identity."""
        return np.asarray(self._sum(gamma) + per_channel(beta))

    def _sum(self, gamma: F64) -> F32:
        out = self.z * per_channel(gamma)
        out += self.identity
        return out
