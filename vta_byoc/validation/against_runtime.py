"""The first tensor where the integer model and another runtime part.

The integer reference of the quantized module runs beside another runtime on the same inputs, and
every tensor that both have is compared as real numbers.  Tensors are paired by the names of the
model's operators (`tensor_pairs`); the runtimes are in `runtimes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm

from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.progress import Progress
from vta_byoc.hw.errors import VTAError
from vta_byoc.ir.observe import Observer
from vta_byoc.quantization import qdq
from vta_byoc.quantization.calibration.samples import Sample, checked_samples
from vta_byoc.quantization.scales import INT8_HIGH, INT8_LOW
from vta_byoc.quantization.tensor_pairs import Pair, real, tensor_pairs
from vta_byoc.validation.noise import EXACT_DB

Runtime = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Inputs by name -> tensors by the name of the operator that makes them, in its own dtype."""
FLOAT_BOUND, QUANTIZED_BOUND = 10.0, 30.0
"""Default bounds in dB: for a float model, whose quantization is noise, and for a model that came
quantized, which another runtime computes alike."""
NOT_THERE = "the other runtime does not have it"


@dataclass(frozen=True)
class Bound:
    """What counts as diverging.

    It is an SQNR below `sqnr` dB, or, where `lsb` is given, an int8 value that is more than `lsb`
    steps away; float32 tensors are not judged then.
    """

    sqnr: float | None = None
    lsb: int | None = None

    def __str__(self) -> str:
        return f"{self.lsb} LSB" if self.lsb is not None else f"{self.sqnr:g} dB"

    def is_broken(self, tensor: Compared) -> bool:
        """Whether ``tensor`` diverges by more than the bound."""
        if self.lsb is not None:
            return tensor.lsb is not None and tensor.lsb > self.lsb
        assert self.sqnr is not None
        return tensor.sqnr < self.sqnr


def bound_for(mod: tvm.IRModule, sqnr: float | None = None, lsb: int | None = None) -> Bound:
    """The bound that is asked for, or the default.

    Raises:
        VTAError: both are given, or one makes no sense.
    """
    if sqnr is not None and lsb is not None:
        raise VTAError(
            f"a bound of {sqnr:g} dB and one of {lsb} LSB; one decides what diverges; leave one out"
        )
    if sqnr is not None and not (math.isfinite(sqnr) and sqnr < EXACT_DB):
        raise VTAError(
            f"a bound of {sqnr:g} dB; float32 tensors agree to less than {EXACT_DB:g} dB; give a "
            "smaller number, for example 20"
        )
    if lsb is not None and lsb < 0:
        raise VTAError(f"a bound of {lsb} LSB; differences are 0 or more; give 0, 1, 2 ...")
    if sqnr is None and lsb is None:
        sqnr = QUANTIZED_BOUND if qdq.is_quantized(mod) else FLOAT_BOUND
    return Bound(sqnr, lsb)


@dataclass(frozen=True)
class Compared:
    """One tensor, over all samples.

    Attributes:
        name: the operator that makes it; `operators`: all of its group.
        inputs: names of the operators whose results it reads.
        sqnr: of the integer model against the other runtime, in dB; infinite where nothing differs.
        lsb: the largest difference in steps of the int8 scale; None for float32.
        equal: share of int8 values that are equal.
    """

    name: str
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    sqnr: float
    lsb: int | None
    equal: float | None

    def to_json(self) -> JsonObject:
        """The tensor in `compare --json`; docs/quantization-report.md explains the keys."""
        sqnr: float | str = self.sqnr
        if not math.isfinite(self.sqnr):
            sqnr = "exact" if self.sqnr > 0 else "no signal"
        return {**vars(self), "sqnr": sqnr}


@dataclass(frozen=True)
class Comparison:
    """Tensors in the order of execution.

    Attributes:
        skipped: operator -> why its tensor was not compared.
    """

    tensors: tuple[Compared, ...]
    bound: Bound
    samples: int
    skipped: Mapping[str, str]

    @property
    def first(self) -> Compared | None:
        """The first tensor that diverges."""
        return next((tensor for tensor in self.tensors if self.bound.is_broken(tensor)), None)

    @property
    def neighbours(self) -> tuple[list[Compared], list[Compared]]:
        """What the first diverging operator reads, and what reads it."""
        first = self.first
        if first is None:
            return [], []
        before = [tensor for tensor in self.tensors if tensor.name in first.inputs]
        return before, [tensor for tensor in self.tensors if first.name in tensor.inputs]

    def to_json(self) -> JsonObject:
        """The object of `compare --json`, without what the command line adds."""
        first = self.first
        return {
            "bound": str(self.bound),
            "samples": self.samples,
            "first_divergence": None if first is None else first.to_json(),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "skipped": dict(self.skipped),
        }


def compare(
    mod: tvm.IRModule,
    qmod: tvm.IRModule,
    samples: Iterable[Sample],
    other: Runtime,
    bound: Bound,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the integer reference with another runtime, tensor by tensor.

    Args:
        mod: what was quantized.
        qmod: the result of `quantize`.
        samples: read once, one at a time.
        other: see `runtimes`.
        bound: what counts as diverging.
        progress: called after each sample.

    Raises:
        VTAError: no tensor can be compared, or a sample does not fit.
    """
    pairs = tensor_pairs(mod, qmod)
    tallies = [_Tally(pair) for pair in pairs]
    current: dict[str, np.ndarray] = {}

    def receive(index: int, values: np.ndarray) -> None:
        tallies[index].add(values, current.get(str(pairs[index].source.var.name)))

    observer, count = Observer(qmod, [pair.quantized.var for pair in pairs], receive), 0
    for arrays in checked_samples(mod, samples, progress):
        current.clear()
        current.update(other(arrays))
        observer.run(arrays.values())
        count += 1
    skipped = {t.pair.name: t.skipped for t in tallies if t.skipped}
    tensors = [t.compared(pairs) for t in tallies if not t.skipped]
    if not tensors:
        raise VTAError(
            f"none of {len(pairs)} tensors can be compared: {next(iter(skipped.values()))}; the "
            "other runtime must run the same model; check its file"
        )
    return Comparison(tuple(tensors), bound, count, skipped)


class _Tally:
    """Sums over the samples for one pair."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.skipped = ""
        self._signal = self._error = 0.0
        self._lsb = self._equal = self._values = 0

    def add(self, values: np.ndarray, other: np.ndarray | None) -> None:
        self.skipped = self.skipped or _problem(self.pair, values, other)
        if self.skipped or other is None:
            return
        pair = self.pair
        wanted = real(other.reshape(values.shape), pair.source)
        got = real(values, pair.quantized)
        self._signal += float((wanted**2).sum())
        self._error += float(((got - wanted) ** 2).sum())
        self._values += values.size
        if pair.is_int8:
            scale = pair.scale
            steps = (np.rint(each / scale.step) + scale.zero for each in (wanted, got))
            apart = np.abs(np.subtract(*(each.clip(INT8_LOW, INT8_HIGH) for each in steps)))
            self._lsb = max(self._lsb, int(apart.max(initial=0)))
            self._equal += int((apart == 0).sum())

    def compared(self, pairs: Sequence[Pair]) -> Compared:
        pair, is_int8 = self.pair, self.pair.is_int8
        return Compared(
            name=pair.name,
            operators=pair.operators,
            inputs=tuple(pairs[i].name for i in pair.inputs),
            sqnr=_decibels(self._signal, self._error),
            lsb=self._lsb if is_int8 else None,
            equal=self._equal / self._values if is_int8 and self._values else None,
        )


def _problem(pair: Pair, values: np.ndarray, other: np.ndarray | None) -> str:
    """Why two tensors cannot be compared, "" if they can."""
    if other is None:
        return NOT_THERE
    if _long_axes(other) != _long_axes(values):
        return f"its shape is {values.shape} here and {other.shape} there"
    dtype = str(pair.source.var.ty.dtype)
    if str(other.dtype) != dtype:
        return f"it is {dtype} here and {other.dtype} there"
    return "" if np.isfinite(other).all() else "it is NaN or infinite there"


def _long_axes(array: np.ndarray) -> tuple[int, ...]:
    """The shape without axes of size 1, which runtimes keep or drop."""
    return tuple(size for size in array.shape if size > 1)


def _decibels(signal: float, error: float) -> float:
    """Infinite where nothing differs but float32 rounding, minus infinite without a signal."""
    if error == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    ratio = 10 * math.log10(signal / error)
    return ratio if ratio < EXACT_DB else math.inf
