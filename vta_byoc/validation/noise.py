"""What quantization does to one tensor and to one layer's weights, as numbers.

Sums over samples only: memory is two arrays of each tensor's size, whatever the number of samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vta_byoc.ir.bindings import op_name, static_shape
from vta_byoc.ir.quantization_record import TensorEntry
from vta_byoc.quantization.float_layers import FloatLayer
from vta_byoc.quantization.ops.anchors import ANCHORS, channel_absmax, int8_weight, per_weight
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW, WEIGHT_HIGH, Scale, scale_exponent
from vta_byoc.quantization.tensor_pairs import Pair, real

LEVELS = 256
BINS = 64
"""Of a histogram; each holds 4 of the 256 levels of int8."""
EXACT_DB = 120.0
"""From here on differences are those of float32 rounding: the tensors count as equal."""
TAIL = 0.001
"""The share of values that count as a tail."""


def decibels(signal: float, error: float) -> float:
    """SQNR: infinite for equal tensors, NaN where there is no signal."""
    if signal == 0:
        return math.nan
    ratio = 10 * math.log10(signal / error) if error else math.inf
    return ratio if ratio < EXACT_DB else math.inf


@dataclass(frozen=True)
class Levels:
    """How an int8 tensor uses its 256 levels.

    Attributes:
        used: levels that occur.
        reach: largest distance from the zero point that occurs, as a part of the largest there is.
        tail_start: the distance beyond which TAIL of the values lie, as a part of `reach`.
        saturated: share of values at -128 or 127 whose source is beyond that by more than half a
            step.
        source, int8: histograms: shares of values, BINS bins over the 256 levels; `source` has a
            bin more at each end for what is beyond.
    """

    used: int
    reach: float
    tail_start: float
    saturated: float
    source: tuple[float, ...]
    int8: tuple[float, ...]


@dataclass(frozen=True)
class Measures:
    """Of one tensor, over all samples.

    Attributes:
        sqnr: signal power over error power, in dB; infinite if nothing differs, NaN for a silent
            tensor.
        own_sqnr: the same for the operator on inputs without error (but rounded to their scales).
        own_noise: error power over signal power behind `own_sqnr`.
        cosine: of both tensors with the mean over samples taken off; None if there is one sample
            or nothing varies.
        mean_shift: the share of the own error's power that is a shift of channel means.
        silent: the source is zero on every sample.
        levels: None for a float32 tensor.
    """

    sqnr: float
    own_sqnr: float
    own_noise: float
    cosine: float | None
    mean_shift: float
    silent: bool
    levels: Levels | None


class Tally:
    """Sums over the samples for one pair."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        shape = static_shape(pair.quantized.var)
        self._axis = 1 if len(shape) > 1 else 0
        self._first: tuple[np.ndarray, np.ndarray] | None = None
        self._sums = np.zeros((2, *shape))
        self._products = np.zeros(3)
        self._shift = np.zeros(shape[self._axis] if shape else 1)
        self._signal = self._error = self._own = 0.0
        self._samples = self._values = 0
        self._int8 = np.zeros(LEVELS, "int64")
        self._source = np.zeros(BINS + 2, "int64")
        self._saturated = 0

    def add(self, source: np.ndarray, quantized: np.ndarray, alone: np.ndarray) -> None:
        """One sample's tensors as the modules have them."""
        pair = self.pair
        wanted, got = real(source, pair.source), real(quantized, pair.quantized)
        own = real(alone, pair.quantized) - wanted
        self._signal += float((wanted**2).sum())
        self._error += float(((got - wanted) ** 2).sum())
        self._own += float((own**2).sum())
        self._shift += _channel_sums(own, self._axis)
        self._vary(wanted, got)
        self._samples += 1
        self._values += wanted.size
        if pair.is_int8:
            self._count_levels(wanted, quantized)

    def _vary(self, wanted: np.ndarray, got: np.ndarray) -> None:
        """Sums for the cosine; differences from the first sample, so that they do not cancel."""
        if self._first is None:
            self._first = (wanted, got)
        change = np.stack([wanted - self._first[0], got - self._first[1]])
        self._sums += change
        one, other = change.reshape(2, -1)
        self._products += one @ one, one @ other, other @ other

    def _count_levels(self, wanted: np.ndarray, int8: np.ndarray) -> None:
        scale = self.pair.scale
        exact = wanted / scale.step + scale.zero
        high = (int8 == INT8_HIGH) & (exact > INT8_HIGH + 0.5)
        low = (int8 == INT8_LOW) & (exact < INT8_LOW - 0.5)
        self._saturated += int(high.sum() + low.sum())
        self._int8 += np.bincount(int8.reshape(-1).astype("int64") - INT8_LOW, minlength=LEVELS)
        width = LEVELS // BINS
        bins = np.floor((exact.reshape(-1) + 0.5 - INT8_LOW) / width).clip(-1, BINS)
        self._source += np.bincount(bins.astype("int64") + 1, minlength=BINS + 2)

    def measures(self) -> Measures:
        """The measures of all samples that were added."""
        mean_power = float((self._shift**2).sum()) * len(self._shift) / max(self._values, 1)
        return Measures(
            sqnr=decibels(self._signal, self._error),
            own_sqnr=decibels(self._signal, self._own),
            own_noise=self._own / self._signal if self._signal else 0.0,
            cosine=self._cosine(),
            mean_shift=min(mean_power / self._own, 1.0) if self._own else 0.0,
            silent=self._signal == 0,
            levels=self._levels() if self.pair.is_int8 else None,
        )

    def _cosine(self) -> float | None:
        sums = self._sums.reshape(2, -1)
        means = np.array([sums[0] @ sums[0], sums[0] @ sums[1], sums[1] @ sums[1]])
        one, both, other = self._products - means / max(self._samples, 1)
        least = 1e-12 * self._products
        if one <= least[0] or other <= least[2]:
            return None
        return float(np.clip(both / math.sqrt(one * other), -1, 1))

    def _levels(self) -> Levels:
        zero, counts = self.pair.scale.zero, self._int8
        distance = np.abs(np.arange(INT8_LOW, INT8_HIGH + 1) - zero)
        by_distance = np.bincount(distance, counts)
        used = np.flatnonzero(by_distance)
        reach = int(used[-1]) if len(used) else 0
        beyond = np.cumsum(by_distance[::-1])[::-1]
        tail = int(np.argmax(np.append(beyond, 0) <= TAIL * self._values)) - 1
        whole = max(INT8_HIGH - zero, zero - INT8_LOW) if zero else INT8_HIGH
        values = max(self._values, 1)
        return Levels(
            used=int(np.count_nonzero(counts)),
            reach=min(reach / whole, 1.0),
            tail_start=max(tail, 0) / reach if reach else 1.0,
            saturated=self._saturated / values,
            source=_shares(self._source, values),
            int8=_shares(counts.reshape(BINS, -1).sum(axis=1), values),
        )


def _shares(counts: np.ndarray, total: int) -> tuple[float, ...]:
    return tuple(float(share) for share in counts / total)


def _channel_sums(values: np.ndarray, axis: int) -> np.ndarray:
    if not values.ndim:
        return values.reshape(1)
    return np.asarray(values.sum(axis=tuple(i for i in range(values.ndim) if i != axis)))


# ---------------------------------------------------------------- weights
@dataclass(frozen=True)
class WeightMeasures:
    """Of the weights of one layer.

    Attributes:
        steps: the smallest and the largest scale.
        per_channel: whether channels have scales of their own.
        sqnr: in dB; infinite for a model that came quantized, whose weights are integers.
        per_tensor_sqnr, per_channel_sqnr: what one scale, and one for each channel, would give.
        channel_gain: by how much a scale for each channel would raise the mean of the channels'
            own SQNR, in dB.
        spread: the largest weight of all over the median of the channels' largest ones.
        histogram: shares of the weights over BINS bins of the 256 levels of the largest scale.
    """

    steps: tuple[float, float]
    per_channel: bool
    sqnr: float
    per_tensor_sqnr: float
    per_channel_sqnr: float
    channel_gain: float
    spread: float
    histogram: tuple[float, ...]


def weight_measures(layer: FloatLayer, entry: TensorEntry) -> WeightMeasures:
    """The noise of a layer's weights, quantized as the record's `entry` says.

    The entry has `scale`, and `scales` where the channels differ.
    """
    weight = layer.weight
    peaks = channel_absmax(ANCHORS[op_name(layer.call)], weight, layer.call.attrs)
    steps = np.asarray(entry.get("scales", entry["scale"]), np.float64)
    is_power = math.frexp(float(entry["scale"]))[0] == 0.5
    signal = _channel_power(layer, weight.astype(np.float64))
    alternatives = (steps, _steps(peaks.max(initial=0), is_power), _steps(peaks, is_power))
    now, one, each = (_channel_power(layer, _rounding(layer, found)) for found in alternatives)
    present = peaks[peaks > 0]
    bins = np.clip((weight / steps.max() - INT8_LOW + 0.5) // (LEVELS // BINS), 0, BINS - 1)
    counts = np.bincount(bins.reshape(-1).astype("int64"), minlength=BINS)
    return WeightMeasures(
        steps=(float(steps.min()), float(steps.max())),
        per_channel=bool(steps.ndim),
        sqnr=decibels(float(signal.sum()), float(now.sum())),
        per_tensor_sqnr=decibels(float(signal.sum()), float(one.sum())),
        per_channel_sqnr=decibels(float(signal.sum()), float(each.sum())),
        channel_gain=_mean_decibels(signal, each) - _mean_decibels(signal, now),
        spread=float(present.max() / np.median(present)) if len(present) else 1.0,
        histogram=_shares(counts, weight.size),
    )


def _rounding(layer: FloatLayer, steps: np.ndarray) -> np.ndarray:
    """The error of weights quantized at `steps`."""
    anchor, weight, attrs = ANCHORS[op_name(layer.call)], layer.weight, layer.call.attrs
    broad = per_weight(anchor, steps, weight.shape, attrs)
    return np.asarray(int8_weight(weight, broad) * broad - weight)


def _channel_power(layer: FloatLayer, values: np.ndarray) -> np.ndarray:
    """Sum of squares for each output channel; `values` has the shape of the weights."""
    anchor = ANCHORS[op_name(layer.call)]
    numbers = per_weight(anchor, np.arange(layer.channels), values.shape, layer.call.attrs)
    channels = np.broadcast_to(numbers, values.shape).reshape(-1)
    return np.bincount(channels, (values**2).reshape(-1), minlength=layer.channels)


def _mean_decibels(signal: np.ndarray, error: np.ndarray) -> float:
    """The mean SQNR of the channels that are not zero; EXACT_DB at most."""
    kept = signal > 0
    floor = signal[kept] * 10 ** (-EXACT_DB / 10)
    ratios = signal[kept] / np.maximum(error[kept], floor)
    return float(np.mean(10 * np.log10(ratios))) if kept.any() else 0.0


def _steps(peaks: np.ndarray, is_power: bool) -> np.ndarray:
    """Scales at which int8 reaches `peaks`."""
    if not is_power:
        return np.maximum(peaks / WEIGHT_HIGH, Scale.power(-60).step)
    exponents = [scale_exponent(float(peak), "weight") for peak in np.ravel(peaks)]
    return np.ldexp(1.0, np.reshape(exponents, np.shape(peaks)))


def layer_macs(layer: FloatLayer) -> int:
    """Multiply-accumulates of a layer on one run."""
    weight, result = layer.weight, static_shape(layer.var)
    if op_name(layer.call) == "relax.nn.conv2d_transpose":
        per_input = weight.size // weight.shape[0]
        return math.prod(static_shape(layer.call.args[0])) * per_input
    return math.prod(result) * (
        weight.size // weight.shape[ANCHORS[op_name(layer.call)].weight_axis]
    )
