"""How large every tensor gets on the samples of calibration, on this process or on workers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.jobs import run_in_order
from vta_byoc.base.progress import Progress
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import is_float32, source_name, static_shape, straight_bindings, vars_in
from vta_byoc.ir.observe import Observer
from vta_byoc.quantization.calibration.range_estimators import Calibrator, Histogram
from vta_byoc.quantization.calibration.samples import Sample, checked_samples

LEAST_SAMPLES = 8
"""Of a worker's part: below that it starts for longer than it runs."""
MOST_PARTS = 64


@dataclass(frozen=True)
class TensorStatistics:
    """What calibration says about one float32 tensor.

    Attributes:
        amax: the threshold: the largest magnitude that int8 has to represent; infinite for a
            tensor with values that are NaN or infinite, which stays float.
        low, high: the smallest and the largest value seen.
        count: values seen, over all samples.
        saturated: values beyond the threshold, to a bin of the histogram.
        histogram: of the values; None with `minmax`, which needs none.
    """

    amax: float
    low: float
    high: float
    count: int
    saturated: int = 0
    histogram: Histogram | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """`low` and `high`, cut at the threshold."""
        return max(self.low, -self.amax), min(self.high, self.amax)

    @property
    def saturation(self) -> float:
        """The share of values beyond the threshold."""
        return self.saturated / self.count

    @property
    def is_silent(self) -> bool:
        """Whether every value seen was zero."""
        return self.low == self.high == 0


class Statistics(dict[relax.Var, TensorStatistics]):
    """Every float32 tensor of `main`, in order of execution, inputs first."""

    @property
    def silent(self) -> list[str]:
        """Source names of the operators with a tensor that calibration only saw as zero.

        Nothing is known about the range of such a tensor.
        """
        names = (source_name(tensor) for tensor, seen in self.items() if seen.is_silent)
        return list(dict.fromkeys(names))


def tensor_statistics(
    mod: tvm.IRModule,
    calibration: Iterable[Sample],
    progress: Progress | None = None,
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    scales: str = "pow2",
    workers: int | None = None,
    scheduler: str | None = None,
) -> Statistics:
    """Range and threshold of every float32 tensor of `main`, over all samples.

    The samples are read once; one sample and one tensor of it are in memory at a time. Workers get
    all samples in parts, and what they count is put together without loss: the result is the same.

    Args:
        mod: the float module.
        calibration: the samples (`checked_samples`).
        progress: called after each sample.
        method: "minmax" (the largest magnitude), "percentile", "mse" or "kl" (`range_estimators`).
        percentile: of `percentile`, in percent.
        scales: "pow2" or "mul": the scales that `mse` and `kl` choose a threshold for.
        workers: processes of this computer that run parts of the samples; this one where neither
            they nor a scheduler are named.
        scheduler: the address of a Dask scheduler whose workers do.

    Raises:
        VTAError: no such scheduler, no samples, a sample that does not fit the model, a result
            that is NaN, or an unknown method or option.
    """
    choice = Calibrator(method, percentile, scales)
    tensors = _float_tensors(mod["main"])
    samples = checked_samples(mod, calibration, progress)
    if workers is None and scheduler is None:
        tallies = _tallied(mod, samples, choice.needs_histogram)
    else:
        parts = _parts(mod, list(samples), choice.needs_histogram)
        found = run_in_order(_Part.tallied, parts, scheduler, workers)
        tallies = functools.reduce(_joined, found)
    return Statistics(
        (tensor, tally.statistics(choice)) for tensor, tally in zip(tensors, tallies, strict=True)
    )


def _tallied(
    mod: tvm.IRModule,
    samples: Iterable[Mapping[str, np.ndarray]],
    needs_histogram: bool,
    first: int = 0,
) -> list[_Tally]:
    """What is seen of each float32 tensor of `main`; `first` is the number of the first sample."""
    tensors = _float_tensors(mod["main"])
    tallies = [_Tally(Histogram() if needs_histogram else None) for _ in tensors]
    observer = Observer(mod, tensors, lambda index, values: tallies[index].add(values))
    for index, sample in enumerate(samples, first):
        observer.run(sample.values())
        _check_results(mod["main"], dict(zip(tensors, tallies, strict=True)), index)
    return tallies


@dataclass(frozen=True)
class _Part:
    """Samples for one worker.

    Attributes:
        module: the float module as JSON.
        samples: arrays by the names of the inputs.
        first: the number of the first of them.
        needs_histogram: whether their values are counted by magnitude.
    """

    module: str
    samples: Sequence[Mapping[str, np.ndarray]]
    first: int
    needs_histogram: bool

    def tallied(self) -> list[_Tally]:
        """What is seen of each tensor."""
        mod = tvm.ir.load_json(self.module)
        return _tallied(mod, self.samples, self.needs_histogram, self.first)


def _parts(
    mod: tvm.IRModule, samples: Sequence[Mapping[str, np.ndarray]], needs_histogram: bool
) -> list[_Part]:
    text, size = tvm.ir.save_json(mod), max(LEAST_SAMPLES, -(-len(samples) // MOST_PARTS))
    return [
        _Part(text, samples[first : first + size], first, needs_histogram)
        for first in range(0, len(samples), size)
    ]


def _joined(one: list[_Tally], other: list[_Tally]) -> list[_Tally]:
    """What is seen in two parts."""
    return [a.joined(b) for a, b in zip(one, other, strict=True)]


@dataclass
class _Tally:
    """What has been seen of one tensor."""

    histogram: Histogram | None
    low: float = math.inf
    high: float = -math.inf
    count: int = 0
    is_broken: bool = False
    """Whether a value was NaN."""

    def add(self, values: np.ndarray) -> None:
        low, high = float(values.min()), float(values.max())
        if math.isnan(low):
            self.is_broken, low, high = True, -math.inf, math.inf
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += values.size
        if math.isfinite(self.high - self.low) and self.histogram is not None:
            self.histogram.add(values, max(abs(low), abs(high)))

    def joined(self, other: _Tally) -> _Tally:
        """What both have seen."""
        histogram = self.histogram
        if histogram is not None and other.histogram is not None:
            histogram.join(other.histogram)
        return _Tally(
            histogram,
            min(self.low, other.low),
            max(self.high, other.high),
            self.count + other.count,
            self.is_broken or other.is_broken,
        )

    def statistics(self, choice: Calibrator) -> TensorStatistics:
        absmax = max(abs(self.low), abs(self.high))
        if not math.isfinite(absmax):
            return TensorStatistics(math.inf, self.low, self.high, self.count)
        amax = choice.threshold(self.histogram, absmax)
        saturated = self.histogram.beyond(amax) if self.histogram and amax < absmax else 0
        return TensorStatistics(amax, self.low, self.high, self.count, saturated, self.histogram)


def _float_tensors(main: relax.Function) -> list[relax.Var]:
    variables = [*main.params, *(binding.var for binding in straight_bindings(main))]
    tensors = [variable for variable in variables if is_float32(variable)]
    for tensor in tensors:
        if 0 in static_shape(tensor):
            raise VTAError(
                f'tensor "{source_name(tensor)}" has the shape {static_shape(tensor)}; every '
                "dimension must be at least 1; correct the shapes or slices of the model"
            )
    return tensors


def _check_results(main: relax.Function, tallies: Mapping[relax.Var, _Tally], index: int) -> None:
    """Masks are infinite, and what they hide may be NaN; a result of the model may not."""
    results = list(vars_in(main.body.body))
    if not any(tensor in tallies and tallies[tensor].is_broken for tensor in results):
        return
    first = next(tensor for tensor, tally in tallies.items() if tally.is_broken)
    raise VTAError(
        f'tensor "{source_name(first)}" is NaN on calibration sample {index}, and so is a result '
        "of the model; results must be numbers; check the sample and the model in float"
    )
