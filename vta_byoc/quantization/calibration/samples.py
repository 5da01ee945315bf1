"""Calibration: which samples, and how large every tensor gets on them.

A sample is what `main` is called with once: an array for a model with one input, a tuple or list
of arrays in the order of the inputs, or a dict input name -> array. Arrays have exactly the input's
shape, batch dimension included, and its dtype; floats are finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base import arrays
from vta_byoc.base.progress import Progress
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.bindings import is_float32, source_name, static_shape, straight_bindings, vars_in
from vta_byoc.ir.observe import Observer
from vta_byoc.quantization.calibration.random_inputs import INPUT_DTYPES, random_sample
from vta_byoc.quantization.calibration.range_estimators import Calibrator, Histogram

Sample = np.ndarray | tuple[np.ndarray, ...] | list[np.ndarray] | Mapping[str, np.ndarray]


def input_shapes(mod: tvm.IRModule) -> dict[str, tuple[int, ...]]:
    """Input name -> shape, in the order of `main`'s parameters.

    Raises:
        VTAError: an input is not a tensor of static shape, or of no dtype in `INPUT_DTYPES`.
    """
    shapes = {}
    for param in mod["main"].params:
        if str(getattr(param.ty, "dtype", None)) not in INPUT_DTYPES:
            raise VTAError(
                f'input "{param.name}" has the type {param.ty}; inputs are tensors of '
                f"{', '.join(INPUT_DTYPES)}; load a model with one of these"
            )
        shapes[str(param.name)] = static_shape(param)
    return shapes


def input_dtypes(mod: tvm.IRModule) -> dict[str, str]:
    """Input name -> dtype, in the order of `main`'s parameters.

    Raises:
        VTAError: an input has a dtype that is not among `INPUT_DTYPES`.
    """
    found = {str(param.name): str(param.ty.dtype) for param in mod["main"].params}
    for name, dtype in found.items():
        if dtype not in INPUT_DTYPES:
            raise VTAError(
                f'input "{name}" has dtype {dtype}; inputs are {", ".join(INPUT_DTYPES)}; export '
                "the model with one of these"
            )
    return found


def load_calibration(path: str | Path, mod: tvm.IRModule) -> list[dict[str, np.ndarray]]:
    """Samples from an `.npz` file.

    The file holds one array per input, named like the input, of its dtype, with the samples stacked
    along the first axis: shape `(n * shape[0], *shape[1:])`, that is `(n, 3, 224, 224)` for n
    samples of an input `(1, 3, 224, 224)`.

    Raises:
        VTAError: the file cannot be read, or its arrays do not fit the model.
    """
    found = _read_npz(Path(path))
    shapes = input_shapes(mod)
    if set(found) != set(shapes):
        raise VTAError(
            f'calibration file "{path}" holds the arrays {_quoted(found)}; the inputs of the '
            f"model are {_quoted(shapes)}; save one array per input under its name"
        )
    stacks = {name: _split(found[name], name, shape) for name, shape in shapes.items()}
    counts = {name: len(stack) for name, stack in stacks.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f'"{name}" {count}' for name, count in counts.items())
        raise VTAError(
            f'calibration file "{path}" has different numbers of samples: {listed}; every input '
            "needs the same number; save the arrays together"
        )
    samples = [
        {name: stacks[name][i] for name in shapes} for i in range(next(iter(counts.values()), 0))
    ]
    return [_checked(sample, shapes, input_dtypes(mod), i) for i, sample in enumerate(samples)]


def default_calibration(
    mod: tvm.IRModule, n: int = 4, seed: int = 0
) -> list[dict[str, np.ndarray]]:
    """`n` samples of noise (`random_input`): for demonstrations, not for accuracy."""
    input_shapes(mod)
    rng = np.random.default_rng(seed)
    return [random_sample(mod, rng) for _ in range(n)]


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


def tensor_ranges(
    mod: tvm.IRModule,
    calibration: Iterable[Sample],
    progress: Progress | None = None,
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    scales: str = "pow2",
) -> dict[relax.Var, float]:
    """The threshold of every float32 tensor of `main`; see `tensor_statistics`."""
    statistics = tensor_statistics(
        mod, calibration, progress, method=method, percentile=percentile, scales=scales
    )
    return {tensor: seen.amax for tensor, seen in statistics.items()}


def tensor_statistics(
    mod: tvm.IRModule,
    calibration: Iterable[Sample],
    progress: Progress | None = None,
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    scales: str = "pow2",
) -> Statistics:
    """Range and threshold of every float32 tensor of `main`, over all samples.

    The samples are read once; one sample and one tensor of it are in memory at a time.

    Args:
        mod: the float module.
        calibration: the samples (`checked_samples`).
        progress: called after each sample.
        method: "minmax" (the largest magnitude), "percentile", "mse" or "kl" (`range_estimators`).
        percentile: of `percentile`, in percent.
        scales: "pow2" or "mul": the scales that `mse` and `kl` choose a threshold for.

    Raises:
        VTAError: no samples, a sample that does not fit the model, a result that is NaN, or an
            unknown method or option.
    """
    choice = Calibrator(method, percentile, scales)
    tensors = _float_tensors(mod["main"])
    tallies = [_Tally(Histogram() if choice.needs_histogram else None) for _ in tensors]
    observer = Observer(mod, tensors, lambda index, values: tallies[index].add(values))
    for index, sample in enumerate(checked_samples(mod, calibration, progress)):
        observer.run(sample.values())
        _check_results(mod["main"], dict(zip(tensors, tallies, strict=True)), index)
    return Statistics(
        (tensor, tally.statistics(choice)) for tensor, tally in zip(tensors, tallies, strict=True)
    )


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


# ---------------------------------------------------------------- samples
def checked_samples(
    mod: tvm.IRModule, calibration: Iterable[Sample], progress: Progress | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Each sample as a dict input name -> array, in the order of the inputs.

    `progress` is called when the caller asks for the next sample, that is after each one.

    Raises:
        VTAError: no samples, or one that does not fit the model.
    """
    if isinstance(calibration, Mapping | np.ndarray | str):
        raise VTAError(
            f"calibration is one {type(calibration).__name__}; it must be a list (or another "
            "iterable) of samples; put the sample in a list"
        )
    shapes, dtypes = input_shapes(mod), input_dtypes(mod)
    total = len(calibration) if isinstance(calibration, Sized) else None
    count = 0
    for sample in calibration:
        yield _checked(_named(sample, shapes, count), shapes, dtypes, count)
        count += 1
        if progress is not None:
            progress(count, total)
    if count == 0:
        raise VTAError(
            "calibration has 0 samples; at least 1 is needed; give it representative inputs"
        )


def _named(sample: Sample, shapes: dict[str, tuple[int, ...]], index: int) -> dict[str, np.ndarray]:
    """The sample as a dict in the order of the inputs."""
    names = list(shapes)
    if isinstance(sample, Mapping):
        if set(sample) != set(names):
            raise VTAError(
                f"calibration sample {index} has the inputs {_quoted(sample)}; the inputs of the "
                f"model are {_quoted(names)}; give an array for each of them"
            )
        return {name: sample[name] for name in names}
    arrays = list(sample) if isinstance(sample, tuple | list) else [sample]
    if len(arrays) != len(names):
        raise VTAError(
            f"calibration sample {index} has {len(arrays)} arrays; the model has {len(names)} "
            f"inputs: {_quoted(names)}; give an array for each of them"
        )
    return dict(zip(names, arrays, strict=True))


def _checked(
    sample: Mapping[str, np.ndarray],
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, str],
    index: int,
) -> dict[str, np.ndarray]:
    for name, shape in shapes.items():
        where = f'calibration sample {index}, input "{name}"'
        array = sample[name]
        if not isinstance(array, np.ndarray):
            raise VTAError(
                f"{where} is a {type(array).__name__}; samples are NumPy arrays; "
                "convert it with numpy.asarray"
            )
        if array.dtype != dtypes[name]:
            raise VTAError(
                f"{where} has dtype {array.dtype}; the input takes {dtypes[name]}; "
                f'convert it with .astype("{dtypes[name]}")'
            )
        if array.shape != shape:
            raise VTAError(
                f"{where} has shape {array.shape}; the input takes {shape}; "
                "reshape or crop the sample"
            )
        bad = int(array.size - np.count_nonzero(np.isfinite(array)))
        if bad:
            raise VTAError(
                f"{where} has {bad} values that are NaN or infinite; every value must be finite; "
                "remove or repair the sample"
            )
    return dict(sample)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise VTAError(
            f'calibration file "{path}" does not exist; an .npz file is needed; check the path'
        )
    try:
        return arrays.read_npz(path)
    except VTAError:
        raise
    except Exception as error:  # a broken archive fails in zipfile, zlib or NumPy
        raise VTAError(
            f'calibration file "{path}" is not an .npz archive of numeric arrays; save it with '
            "numpy.savez(path, **{input name: samples})"
        ) from error


def _split(stack: np.ndarray, name: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Samples of `shape` from their stack along the first axis."""
    rows = shape[0] if shape else 1
    fits = stack.ndim == max(len(shape), 1) and stack.shape[1:] == shape[1:]
    if not fits or stack.shape[0] % rows:
        wanted = ", ".join(["n" if rows == 1 else f"{rows}*n", *map(str, shape[1:])])
        raise VTAError(
            f'calibration array "{name}" has shape {stack.shape}; n samples of the input take '
            f"({wanted}); stack the samples along the first axis"
        )
    return [stack[i : i + rows].reshape(shape) for i in range(0, len(stack), rows)]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"
