"""Accuracy of a quantized classifier, and of what it is compared with, on a labelled dataset.

The prediction for a sample is the class with the highest score, the first of them if several are
equal. Both models see each batch once, one batch in memory at a time (`labelled_dataset`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import tvm
from tvm import relax

from vta_byoc.base.arrays import Spec
from vta_byoc.base.json_types import JsonObject
from vta_byoc.base.progress import Progress, shown
from vta_byoc.hw.config import VTAConfig
from vta_byoc.hw.errors import VTAError
from vta_byoc.hw.sim.devices import driver
from vta_byoc.importers.fixed_inputs import fixed_inputs
from vta_byoc.ir.bindings import static_shape
from vta_byoc.ir.reference import ReferenceMachine
from vta_byoc.pipeline import compile_module
from vta_byoc.runtime.execute import run_vm
from vta_byoc.runtime.pool import POOL, DevicePool, is_pool, opened_pool
from vta_byoc.runtime.profile import Compilation
from vta_byoc.validation.labelled_dataset import LabelledData, Signature

__all__ = ["Change", "Evaluation", "Runner", "evaluate", "measure", "measure_on_pool"]

Runner = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""From inputs by name, in order, to scores (batch, classes, ...)."""
REFERENCE = "reference"
"""The device that is the integer dialect on the host: the bits of "sim", and faster."""
LISTED = 20


@dataclass(frozen=True)
class Change:
    """A sample that one of the two gets right and the other wrong."""

    sample: int
    label: int
    quantized: int
    against: int


@dataclass
class Evaluation:
    """Counts of predictions over all samples.

    Attributes:
        samples: how many there are.
        correct, against_correct: right predictions of the quantized model and of the other.
        agreeing: equal predictions, right or wrong.
        lost: the other is right, the quantized model wrong.
        gained: the quantized model is right, the other wrong.
        seconds, against_seconds: in the two models.
        changes: the first LISTED samples of `lost` and `gained`.
    """

    samples: int = 0
    correct: int = 0
    against_correct: int = 0
    agreeing: int = 0
    lost: int = 0
    gained: int = 0
    seconds: float = 0.0
    against_seconds: float = 0.0
    changes: list[Change] = field(default_factory=list)

    def add(self, labels: np.ndarray, quantized: np.ndarray, against: np.ndarray) -> None:
        """Count the predictions for further samples."""
        right, before = quantized == labels, against == labels
        changed = np.flatnonzero(right != before)[: LISTED - len(self.changes)]
        self.changes += [
            Change(self.samples + int(i), int(labels[i]), int(quantized[i]), int(against[i]))
            for i in changed
        ]
        self.samples += len(labels)
        self.correct += int(right.sum())
        self.against_correct += int(before.sum())
        self.agreeing += int((quantized == against).sum())
        self.lost += int((before & ~right).sum())
        self.gained += int((right & ~before).sum())

    @property
    def net_loss(self) -> int:
        """Right predictions that quantization costs: `lost` less `gained`."""
        return self.lost - self.gained

    @property
    def drop_points(self) -> float:
        """The net loss in percent of all samples."""
        return 100 * self.net_loss / self.samples

    def to_json(self) -> JsonObject:
        """The figures of `--json`; docs/accuracy.md explains its keys, which do not change."""
        return {
            "samples": self.samples,
            "quantized": self._one(self.correct, self.seconds),
            "against": self._one(self.against_correct, self.against_seconds),
            "agreement": {"samples": self.agreeing, "percent": self.share(self.agreeing)},
            "right_to_wrong": self.lost,
            "wrong_to_right": self.gained,
            "net_loss": {"samples": self.net_loss, "points": self.drop_points},
            "changes": [vars(change) for change in self.changes],
        }

    def _one(self, correct: int, seconds: float) -> dict[str, float]:
        rate = self.samples / seconds if seconds else 0.0
        return {
            "correct": correct,
            "accuracy_percent": self.share(correct),
            "samples_per_second": rate,
        }

    def share(self, samples: int) -> float:
        """In percent of all samples."""
        return 100 * samples / self.samples


Measure = Callable[[Runner, LabelledData, Progress | None], Evaluation]
"""`measure` of a quantized model that is ready to run: the other model, samples, progress."""


# ---------------------------------------------------------------- measuring
def evaluate(
    qmod: tvm.IRModule,
    data: str | Path,
    *,
    against: tvm.IRModule | str | Path,
    config: VTAConfig | None = None,
    device: str = "sim",
    devices: int | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Accuracy of a quantized classifier beside that of another model on the same samples.

    Args:
        qmod: the result of :func:`vta_byoc.quantize`, with one result: scores (batch, classes).
        data: an `.npz` file of inputs and `labels` (see `labelled_dataset`).
        against: the float module, which runs on the host, or an ONNX file, which ONNX Runtime
            runs.
        config: the machine; the default preset when None.
        device: "sim" compiles for VTA and simulates; "reference" computes the same bits with the
            integer dialect on the host; others are devices as of :func:`vta_byoc.build`, or a pool
            of them as :func:`vta_byoc.runtime.pool.opened_pool` takes it.
        devices: how many devices share the samples: so many servers of `device` are started here,
            or so many are taken of a pool.
        limit: at most so many samples.
        progress: called after each batch with the samples done and their number; when None a
            terminal and a notebook show a bar.

    Raises:
        VTAError: the model is no classifier, the data do not fit it, or ONNX Runtime is missing.
    """
    samples = LabelledData(data, signature(qmod), limit)
    if isinstance(against, tvm.IRModule):
        other = host_runner(against)
    else:
        other = onnxruntime_runner(against, fixed_inputs(qmod))
    run = prepared(qmod, config, device, devices)
    with shown(progress, "evaluating") as told:
        return run(other, samples, told)


def prepared(
    qmod: tvm.IRModule, config: VTAConfig | None, device: str, devices: int | None = None
) -> Measure:
    """The quantized model compiled for a device or a pool of them: what measures it.

    Args:
        qmod: as of `evaluate`, and so are the others.
        config: the machine.
        device: where it runs.
        devices: how many of it.

    Raises:
        VTAError: there is no such device, or it computes nothing.
    """
    if devices is None and not is_pool(device):
        return functools.partial(measure, runner(qmod, config, device))
    check_device(device, pooled=True)
    exe = compile_module(qmod, config, POOL)

    def on_pool(against: Runner, data: LabelledData, progress: Progress | None) -> Evaluation:
        with opened_pool(device, devices) as pool:
            return measure_on_pool(pool, exe, against, data, progress)

    return on_pool


def measure(
    quantized: Runner, against: Runner, data: LabelledData, progress: Progress | None = None
) -> Evaluation:
    """Run both on all samples."""
    result, classes = Evaluation(), data.signature.classes
    for batch in data:
        count = len(batch.labels)
        begin = time.perf_counter()
        scores = quantized(batch.inputs)
        middle = time.perf_counter()
        others = against(batch.inputs)
        result.against_seconds += time.perf_counter() - middle
        result.seconds += middle - begin
        predicted, expected = (
            predictions(scores[:count], classes, data.first + result.samples),
            predictions(others[:count], classes, data.first + result.samples),
        )
        result.add(batch.labels, predicted, expected)
        if progress is not None:
            progress(result.samples, len(data))
    return result


def measure_on_pool(
    pool: DevicePool,
    exe: Compilation,
    against: Runner,
    data: LabelledData,
    progress: Progress | None = None,
) -> Evaluation:
    """Run the quantized model on a pool, and then the other one here, on all samples.

    Args:
        pool: the devices, which share the batches.
        exe: what `compile_module(..., device=POOL)` returned.
        against: the other model.
        data: the samples; the file is read twice. The scores of all of them are in memory.
        progress: as of `evaluate`; a sample counts half when the pool has done it.
    """
    rows, total = data.signature.rows, len(data)
    scores: list[np.ndarray] = []
    begin = time.perf_counter()
    for found in pool.imap(exe, (list(batch.inputs.values()) for batch in data)):
        scores.append(found.outputs[0])
        if progress is not None:
            progress(min(len(scores) * rows, total) // 2, total)
    seconds = time.perf_counter() - begin
    left = iter(scores)

    def told(done: int, _total: int | None) -> None:
        if progress is not None:
            progress((total + done) // 2, total)

    result = measure(lambda _inputs: next(left), against, data, told)
    result.seconds = seconds
    return result


def predictions(scores: np.ndarray, classes: int, first: int = 0) -> np.ndarray:
    """The class with the highest score for each row; `first` is the number of the first one.

    Raises:
        VTAError: not `classes` scores for each sample, or one that is NaN.
    """
    rows = scores.reshape(len(scores), -1)
    if rows.shape[1] != classes:
        raise VTAError(
            f"a model gives {rows.shape[1]} scores for a sample; the quantized one gives "
            f"{classes}; compare two forms of the same model"
        )
    if np.isnan(rows).any():
        bad = first + int(np.argmax(np.isnan(rows).any(axis=1)))
        raise VTAError(
            f"a score of sample {bad} is NaN; predictions need numbers; check the sample and the "
            "model in float"
        )
    return rows.argmax(axis=1)


# ---------------------------------------------------------------- models
def signature(mod: tvm.IRModule) -> Signature:
    """Inputs and number of classes of a classifier.

    Raises:
        VTAError: it has not one result of shape (batch, classes), or its inputs have different
            batches.
    """
    main = mod["main"]
    result = main.ret_ty
    if not isinstance(result, relax.TensorType):
        raise VTAError(
            f"the model has {len(result.fields)} outputs; a classifier has one, the scores; cut "
            "the model to it"
        )
    inputs = {
        str(param.name): Spec(static_shape(param), np.dtype(str(param.ty.dtype)))
        for param in main.params
    }
    batches = {spec.shape[0] if spec.shape else 0 for spec in inputs.values()}
    shape = static_shape(main.body.body)
    rows, classes = (shape[0], int(np.prod(shape[1:]))) if shape else (0, 0)
    if batches != {rows} or classes != max(shape[1:], default=0) or classes < 2:
        taken = ", ".join(f'"{name}" {spec.shape}' for name, spec in inputs.items())
        raise VTAError(
            f"the model takes {taken} and gives {shape}; a classifier takes n samples and gives "
            "(n, classes) scores with 2 classes or more; cut the model at its scores"
        )
    return Signature(inputs, classes)


def runner(qmod: tvm.IRModule, config: VTAConfig | None, device: str) -> Runner:
    """The quantized model on a device, or REFERENCE.

    Raises:
        VTAError: there is no such device, or it computes nothing.
    """
    check_device(device)
    if device == REFERENCE:
        return host_runner(qmod)
    compiled = relax.VirtualMachine(compile_module(qmod, config, device).exe, tvm.cpu())
    return lambda inputs: run_vm(compiled, inputs)[0]


def check_device(device: str, *, pooled: bool = False) -> None:
    """Refuse a device that accuracy cannot be measured on.

    Raises:
        VTAError: there is no such device, it computes nothing, or a pool is asked for of REFERENCE.
    """
    if device == REFERENCE and pooled:
        raise VTAError(
            f'several devices of "{REFERENCE}"; it is the host itself, once; choose "sim", or '
            "leave the number of devices out"
        )
    if device != REFERENCE and not driver(device).computes:
        raise VTAError(f'accuracy on device "{device}"; it computes nothing; choose "sim"')


def host_runner(mod: tvm.IRModule) -> Runner:
    """A float or integer module on the host."""
    machine = ReferenceMachine(mod)
    return lambda inputs: run_vm(machine.for_next_run(), inputs)[0]


FLOATS: Mapping[str, str] = {"tensor(float16)": "float16", "tensor(double)": "float64"}
"""Types of inputs, as ONNX Runtime spells them, that an imported model takes as float32."""


def onnxruntime_runner(
    path: str | Path, fixed: Mapping[str, np.ndarray] = MappingProxyType({})
) -> Runner:
    """An ONNX file in ONNX Runtime on the CPU, with values of its `fixed` inputs.

    Raises:
        VTAError: ONNX Runtime is not installed or refuses the file.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise VTAError(
            "onnxruntime is not installed; comparing with ONNX Runtime needs it; run: "
            "python -m pip install onnxruntime, or compare with float"
        ) from error
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base of their own
        message = " ".join(str(error).split())
        raise VTAError(
            f'ONNX Runtime cannot load "{path}": {message}; it runs the file as it is; '
            "compare with float"
        ) from error
    taken = {v.name: FLOATS.get(v.type) for v in session.get_inputs() if v.name not in fixed}

    def run(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        arrays = zip(taken, inputs.values(), strict=True)
        feed = {n: a.astype(taken[n] or a.dtype, copy=False) for n, a in arrays}
        feed |= fixed
        scores: np.ndarray = session.run(None, feed)[0]
        return scores

    return run
