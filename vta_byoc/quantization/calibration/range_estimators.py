"""From the values that a tensor takes in calibration to the threshold of its scale.

A threshold is the largest magnitude that int8 has to represent; values beyond it saturate.  Every
method but `minmax` reads a histogram of magnitudes.  Its bins are powers of two times whole
numbers, so that widening it merges bins exactly: the histogram depends on the values alone, not on
their order.  All methods scale with the values, and none returns more than the largest magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vta_byoc.base.choices import KL, MINMAX, MSE, PERCENTILE, SCALES
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.plugins import load_installed
from vta_byoc.hw.registry import Registry

BINS = 2048
POW2_STEPS = 8
"""Power-of-two scales that are tried: that of the largest magnitude, and this many smaller ones."""
MUL_STEPS = 100
"""Thresholds that are tried for a free scale: this many equal steps up to the largest magnitude."""
KL_LEVELS = 128
"""Magnitudes that int8 can tell apart."""
KL_FLOOR = 1e-6
"""The least probability that KL grants a bin, so that values beyond the threshold cost a finite
amount."""


class Histogram:
    """Counts of a tensor's values other than zero, by sign and magnitude.

    Attributes:
        counts: int64 (2, BINS); row 0 holds positive values, row 1 negative ones; bin i holds
            magnitudes from i * width to (i + 1) * width, the upper end excluded.
        zeros: how many values are exactly zero.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((2, BINS), "int64")
        self.zeros = 0
        self._exponent: int | None = None

    @property
    def width(self) -> float:
        """Of a bin; BINS times it is a power of two. 0 before there is a value."""
        return 0.0 if self._exponent is None else math.ldexp(1.0, self._exponent) / BINS

    @property
    def magnitudes(self) -> np.ndarray:
        """Counts without sign, int64 [BINS]."""
        return np.asarray(self.counts.sum(axis=0))

    @property
    def total(self) -> int:
        """How many values were counted."""
        return self.zeros + int(self.counts.sum())

    def add(self, values: np.ndarray, absmax: float) -> None:
        """Count finite float32 `values`; `absmax` is their largest magnitude."""
        flat = values.reshape(-1)
        zeros = flat.size - int(np.count_nonzero(flat))
        self.zeros += zeros
        if absmax == 0:
            return
        exponent = self._reach(math.frexp(absmax)[1])
        bins = np.ldexp(np.abs(flat), BINS.bit_length() - 1 - exponent).astype(np.intp)
        bins += (flat < 0) * np.intp(BINS)
        self.counts += np.bincount(bins, minlength=2 * BINS).reshape(2, BINS)
        self.counts[0, 0] -= zeros

    def _reach(self, exponent: int) -> int:
        """Double the range until it ends at 2**exponent or more; its exponent."""
        reached = exponent if self._exponent is None else self._exponent
        while reached < exponent:
            merged = self.counts.reshape(2, BINS // 2, 2).sum(axis=2)
            self.counts = np.concatenate([merged, np.zeros_like(merged)], axis=1)
            reached += 1
        self._exponent = reached
        return reached

    def join(self, other: Histogram) -> None:
        """Count what `other` has counted; its own range may double for it."""
        self.zeros += other.zeros
        if other._exponent is None:
            return
        exponent = self._reach(other._exponent)
        other._reach(exponent)
        self.counts += other.counts

    def beyond(self, threshold: float) -> int:
        """How many values lie in bins that begin at `threshold` or further out."""
        if self._exponent is None:
            return 0
        return int(self.magnitudes[math.ceil(threshold / self.width) :].sum())


# ---------------------------------------------------------------- the methods
def percentile_threshold(histogram: Histogram, absmax: float, percentile: float) -> float:
    """The smallest upper end of a bin below which `percentile` % of all values lie, zeros included.

    `absmax` if that is the first bin: a tensor that is nearly always zero needs its other values.
    """
    reached = histogram.zeros + np.cumsum(histogram.magnitudes)
    index = int(np.searchsorted(reached, math.ceil(histogram.total * percentile / 100)))
    return absmax if index == 0 else min((index + 1) * histogram.width, absmax)


def _candidates(absmax: float, scales: str) -> Iterator[tuple[float, float]]:
    """(threshold, scale) to try, the largest first."""
    if scales == "mul":
        for step in range(MUL_STEPS, 0, -1):
            threshold = absmax * step / MUL_STEPS
            yield threshold, threshold / 127
        return
    exponent = math.frexp(absmax)[1] - 7
    exponent += math.ldexp(127.0, exponent) < absmax
    for step in range(POW2_STEPS + 1):
        scale = math.ldexp(1.0, exponent - step)
        yield min(127 * scale, absmax), scale


def mse_threshold(histogram: Histogram, absmax: float, scales: str) -> float:
    """The threshold whose int8 values have the least squared error; of equal ones the largest.

    The values are -128 to 127 at the scale threshold / 127, or at a power of two.
    """
    errors = [(squared_error(histogram, s), -t) for t, s in _candidates(absmax, scales)]
    return -min(errors)[1]


def squared_error(histogram: Histogram, scale: float) -> float:
    """The sum of squared errors of int8 at `scale`; values lie evenly within a bin."""
    edges = np.arange(BINS + 1) * (histogram.width / scale)
    positive = np.diff(_error_integral(edges, 127))
    negative = np.diff(_error_integral(edges, 128))
    total = float(histogram.counts[0] @ positive + histogram.counts[1] @ negative)
    return total * scale**3 / histogram.width


def _error_integral(ends: np.ndarray, highest: int) -> np.ndarray:
    """The integral from 0 to each of `ends` of (x - q(x))**2, q rounding and saturating."""
    nearest = np.minimum(np.rint(ends), highest)
    return np.asarray(nearest / 12 + (ends - nearest) ** 3 / 3)


def kl_threshold(histogram: Histogram, absmax: float, scales: str) -> float:
    """The threshold whose 128 levels keep the distribution of magnitudes best; the largest of such.

    The measure is the Kullback-Leibler divergence; exact zeros do not count.

    After "8-bit inference with TensorRT" (Migacz, GTC 2017), with the candidates of `mse`
    that span at least 128 bins.
    """
    magnitudes = histogram.magnitudes.astype("float64")
    divergences = [
        (_divergence(magnitudes, max(bins, KL_LEVELS)), -threshold)
        for rank, (threshold, scale) in enumerate(_candidates(absmax, scales))
        if (bins := int(127 * scale / histogram.width) + 1) > KL_LEVELS or rank == 0
    ]
    return -min(divergences)[1]


def _divergence(magnitudes: np.ndarray, bins: int) -> float:
    """Of the first `bins` bins at 128 levels from the whole, saturated into the last of them."""
    inside = np.pad(magnitudes, (0, max(bins - BINS, 0)))[:bins]
    whole = inside.copy()
    whole[-1] += magnitudes[bins:].sum()
    starts = np.arange(KL_LEVELS) * bins // KL_LEVELS
    sizes = np.diff(starts, append=bins)
    filled = np.add.reduceat(inside > 0, starts, dtype="float64")
    level = np.add.reduceat(inside, starts) / np.maximum(filled, 1)
    levels = np.where(inside > 0, np.repeat(level, sizes), 0)
    if not levels.any():
        return math.inf
    share, kept = whole / whole.sum(), levels / levels.sum()
    seen = share > 0
    return float(share[seen] @ np.log(share[seen] / np.maximum(kept[seen], KL_FLOOR)))


# ---------------------------------------------------------------- the choice
@dataclass(frozen=True)
class Calibrator:
    """A method with its options.

    Attributes:
        method: "minmax", "percentile", "mse" or "kl".
        percentile: for `percentile`, in percent: above 0, at most 100.
        scales: for `mse` and `kl`: "pow2" or "mul", the scales that the threshold is for.

    Raises:
        VTAError: there is no such method, or an option is out of range.
    """

    method: str = "minmax"
    percentile: float = 99.99
    scales: str = "pow2"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            load_installed()
        _one_of("calibration method", self.method, METHODS)
        _one_of("scales", self.scales, SCALES)
        if not 0 < self.percentile <= 100:
            raise VTAError(
                f"calibration percentile {self.percentile:g}; it must be above 0 and at most 100; "
                "99.9 to 99.999 are usual"
            )

    @property
    def needs_histogram(self) -> bool:
        """Whether the method looks at more than the largest magnitude."""
        return self.method != "minmax"

    def threshold(self, histogram: Histogram | None, absmax: float) -> float:
        """For a tensor whose largest magnitude is `absmax`; `histogram` unless it is not needed."""
        if histogram is None or absmax == 0:
            return absmax
        found = METHODS[self.method](self, histogram, absmax)
        if not METHODS.is_built_in(self.method) and not 0 < found <= absmax:
            raise VTAError(
                f'calibrator "{self.method}" of {METHODS.by(self.method)} gives the threshold '
                f"{found}; it is above 0 and at most the largest magnitude, here {absmax:g}; "
                "repair it"
            )
        return found


Threshold = Callable[[Calibrator, Histogram, float], float]
METHODS: Registry[Threshold] = Registry("calibrator")
"""Name -> (choice, histogram, largest magnitude, which is not 0) -> threshold."""
METHODS.add(MINMAX, lambda _choice, _histogram, absmax: absmax)
METHODS.add(
    PERCENTILE, lambda choice, h, absmax: percentile_threshold(h, absmax, choice.percentile)
)
METHODS.add(MSE, lambda choice, h, absmax: mse_threshold(h, absmax, choice.scales))
METHODS.add(KL, lambda choice, h, absmax: kl_threshold(h, absmax, choice.scales))


def _one_of(what: str, value: str, known: object) -> None:
    names = [str(name) for name in known] if isinstance(known, dict | tuple) else []
    if value not in names:
        listed = ", ".join(f'"{name}"' for name in names)
        raise VTAError(f'{what} "{value}" is not known; {listed} are; choose one of them')
