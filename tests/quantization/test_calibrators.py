"""Thresholds obey their definitions; histograms depend on the values, not on their order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vta_byoc.hw.errors import VTAError
from vta_byoc.quantization.calibration.range_estimators import (
    BINS,
    METHODS,
    Calibrator,
    Histogram,
    kl_threshold,
    mse_threshold,
    percentile_threshold,
    squared_error,
)

QUICK = settings(max_examples=25)
VALUES = hnp.arrays(
    "float32",
    st.integers(1, 60),
    elements=st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False),
)


def peak_of(values: np.ndarray) -> float:
    return float(np.abs(values).max())


def histogram_of(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part, peak_of(part))
    return histogram


def thresholds(values: np.ndarray) -> dict[str, float]:
    histogram, peak = histogram_of(values), peak_of(values)
    choices = [
        *(Calibrator("percentile", percentile=p) for p in (50.0, 99.0, 100.0)),
        *(Calibrator(m, scales=s) for m in ("minmax", "mse", "kl") for s in ("pow2", "mul")),
    ]
    return {str(choice): choice.threshold(histogram, peak) for choice in choices}


def normal(seed: int = 0, size: int = 20_000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype("float32")


# ---------------------------------------------------------------- histograms
@QUICK
@given(VALUES, st.randoms(use_true_random=False))
def test_a_histogram_does_not_depend_on_the_order(values: np.ndarray, random: Any) -> None:
    whole = histogram_of(values)
    parts = [values[i : i + 7] for i in range(0, values.size, 7)]
    random.shuffle(parts)
    pieces = histogram_of(*parts)
    np.testing.assert_array_equal(whole.counts, pieces.counts)
    assert (whole.width, whole.zeros) == (pieces.width, pieces.zeros)


@QUICK
@given(VALUES)
def test_a_histogram_counts_every_value_in_its_bin(values: np.ndarray) -> None:
    histogram = histogram_of(values)
    assert histogram.total == values.size
    assert histogram.zeros == np.count_nonzero(values == 0)
    if not values.any():
        assert histogram.width == 0
        return
    for row, part in enumerate((values[values > 0], -values[values < 0])):
        bins = np.floor(np.float64(part) / histogram.width).astype(int)
        np.testing.assert_array_equal(histogram.counts[row], np.bincount(bins, minlength=BINS))
    assert BINS / 2 <= peak_of(values) / histogram.width < BINS


def test_values_of_very_different_size() -> None:
    tiny, huge = np.array([1e-44, -2e-38], "float32"), np.array([3e38], "float32")
    first, second = histogram_of(tiny, huge), histogram_of(huge, tiny)
    np.testing.assert_array_equal(first.counts, second.counts)
    assert (first.counts[0, 0], first.counts[1, 0], first.total) == (1, 1, 3)


# ---------------------------------------------------------------- definitions
@QUICK
@given(VALUES)
def test_no_threshold_is_beyond_the_largest_magnitude(values: np.ndarray) -> None:
    peak = peak_of(values)
    for choice, threshold in thresholds(values).items():
        assert 0 <= threshold <= peak, choice
        assert (threshold == 0) == (peak == 0), choice
    assert thresholds(values)[str(Calibrator("minmax"))] == peak
    assert thresholds(values)[str(Calibrator("percentile", percentile=100.0))] == peak


@QUICK
@given(VALUES, st.integers(-20, 20))
def test_thresholds_scale_with_the_values(values: np.ndarray, power: int) -> None:
    factor = 2.0**power
    scaled = thresholds(values * np.float32(factor))
    assert scaled == {choice: t * factor for choice, t in thresholds(values).items()}


@QUICK
@given(VALUES, st.floats(1, 100))
def test_percentile(values: np.ndarray, percentile: float) -> None:
    histogram, peak = histogram_of(values), peak_of(values)
    if peak == 0:
        return
    threshold = percentile_threshold(histogram, peak, percentile)
    magnitudes = np.abs(np.float64(values))
    needed = np.ceil(values.size * percentile / 100)
    assert np.count_nonzero(magnitudes <= threshold) >= needed
    inner = threshold - histogram.width
    if inner > 0 and threshold < peak:  # one bin less would be too few
        assert np.count_nonzero(magnitudes < inner) < needed
    assert histogram.beyond(threshold) <= values.size - needed or threshold == peak


def int8_error(values: np.ndarray, scale: float) -> float:
    real = np.float64(values)
    return float(np.sum((np.clip(np.rint(real / scale), -128, 127) * scale - real) ** 2))


@pytest.mark.parametrize("scales", ["pow2", "mul"])
@pytest.mark.parametrize("kind", ["normal", "relu", "outlier", "negative", "heavy"])
def test_mse_finds_the_least_error(kind: str, scales: str) -> None:
    values = {
        "normal": normal(),
        "relu": np.maximum(normal(1), 0),
        "outlier": np.append(normal(2), np.float32(40)),
        "negative": -np.abs(normal(3)),
        "heavy": normal(4) ** 5,
    }[kind]
    histogram, peak = histogram_of(values), peak_of(values)
    found = mse_threshold(histogram, peak, scales)
    top = 2.0 ** np.ceil(np.log2(peak / 127))
    tried = (
        [top / 2**k for k in range(9)]
        if scales == "pow2"
        else [peak * k / 100 / 127 for k in range(1, 101)]
    )
    best = min(int8_error(values, scale) for scale in tried)
    chosen = 2.0 ** np.ceil(np.log2(found / 127)) if scales == "pow2" else found / 127
    assert int8_error(values, chosen) <= best * (1.0001 if scales == "pow2" else 1.02)
    # Bins are finer than int8: the estimate is close unless most values share the first bin.
    close = 0.15 if kind == "heavy" else 0.03
    assert squared_error(histogram, chosen) == pytest.approx(int8_error(values, chosen), rel=close)


def test_a_rare_outlier_is_cut_by_all_but_minmax() -> None:
    found = thresholds(np.append(normal(size=400_000), np.array([20], "float32")))
    assert found[str(Calibrator("minmax"))] == 20
    assert found[str(Calibrator("percentile", percentile=99.0))] == pytest.approx(2.58, abs=0.02)
    for choice in (Calibrator("mse", scales="mul"), Calibrator("kl", scales="mul")):
        assert 3 < found[str(choice)] < 12, choice
    # The scales are 1/4, 1/8, 1/16 ...: a power of two never cuts just a little.
    for choice in (Calibrator("mse"), Calibrator("kl")):
        assert found[str(choice)] in {127 / 16, 127 / 32}, choice


def test_kl_against_its_definition() -> None:
    """The divergence of the chosen threshold, computed value by value, is the least."""
    values = np.append(normal(size=50_000), np.array([24], "float32"))
    histogram, peak = histogram_of(values), peak_of(values)
    counts, width = histogram.magnitudes.astype("float64"), histogram.width

    def divergence(threshold: float) -> float:
        bins = min(int(threshold / width) + 1, BINS)
        whole = [*counts[:bins]]
        whole[-1] += counts[bins:].sum()
        levels = np.zeros(bins)
        for level in range(128):
            part = range(level * bins // 128, (level + 1) * bins // 128)
            filled = [i for i in part if counts[i]]
            for i in filled:
                levels[i] = sum(counts[j] for j in part) / len(filled)
        p, q = np.array(whole) / sum(whole), levels / levels.sum()
        return sum(a * np.log(a / max(b, 1e-6)) for a, b in zip(p, q, strict=True) if a)

    candidates = [peak * k / 100 for k in range(100, 0, -1)]
    wide = [t for t in candidates if int(t / width) + 1 > 128]
    best = min(wide, key=divergence)
    assert best < peak
    assert kl_threshold(histogram, peak, "mul") == pytest.approx(best)


def test_a_tensor_that_is_nearly_always_zero_keeps_its_values() -> None:
    values = np.zeros(100_000, "float32")
    values[:3] = 1, 2, 3
    assert thresholds(values)[str(Calibrator("percentile", percentile=99.0))] == 3


@pytest.mark.parametrize("value", [1.0, 2.0**-30, -127.0])
def test_a_tensor_with_one_value(value: float) -> None:
    for choice, threshold in thresholds(np.full(100, value, "float32")).items():
        assert threshold == abs(value), choice


# ---------------------------------------------------------------- what is refused
def refused(text: str, **options: Any) -> None:
    with pytest.raises(VTAError) as caught:
        Calibrator(**options)
    assert str(caught.value) == text


def test_unknown_options() -> None:
    refused(
        'calibration method "entropy" is not known; "minmax", "percentile", "mse", "kl" are; '
        "choose one of them",
        method="entropy",
    )
    refused('scales "float" is not known; "pow2", "mul" are; choose one of them', scales="float")


@pytest.mark.parametrize("found", [math.nan, -0.5, 0.0, 1e-30, 4.0, 4.5])
def test_a_method_of_others_is_checked(found: float) -> None:
    """Its threshold is above 0, and the largest magnitude at most."""
    histogram = histogram_of(np.array([4.0], "float32"))
    METHODS.add("odd", lambda *_given: found, "a test")
    try:
        if 0 < found <= 4:
            assert Calibrator("odd").threshold(histogram, 4.0) == found
            return
        with pytest.raises(VTAError, match=f'"odd" of a test gives the threshold {found}; it is'):
            Calibrator("odd").threshold(histogram, 4.0)
    finally:
        METHODS.remove("odd")


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.1, float("nan")])
def test_percentile_out_of_range(percentile: float) -> None:
    refused(
        f"calibration percentile {percentile:g}; it must be above 0 and at most 100; "
        "99.9 to 99.999 are usual",
        percentile=percentile,
    )
