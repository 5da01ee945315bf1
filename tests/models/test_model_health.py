"""The model zoo as the integer networks that they are made for.

`python tests/models/test_model_health.py NAME ...` measures models at full size: docs/models.md has
the results. Here one is measured at a reduced size.
"""

from __future__ import annotations

import importlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
import tvm
from tvm import relax

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # models/ is not installed

from models import NAMES
from vta_byoc import load_model
from vta_byoc.ir.bindings import FunctionWriter, straight_bindings, substituted, with_main
from vta_byoc.ir.reference import build_reference
from vta_byoc.quantize import quantize

INPUTS = 8


@dataclass(frozen=True)
class Health:
    """What a model does with INPUTS inputs that neither builder nor calibration has seen.

    Attributes:
        values: int8 tensor -> how many int8 values it takes.
        saturated: int8 tensor -> share of -128 and 127.
        cosine: largest between two inputs, of int8 outputs less their mean; over all outputs.
        fidelity: smallest between the int8 and the float32 output of an input, likewise.
    """

    values: dict[str, int]
    saturated: dict[str, float]
    cosine: float
    fidelity: float

    def __str__(self) -> str:
        worst = min(self.values, key=lambda name: self.values[name])
        fullest = max(self.saturated, key=lambda name: self.saturated[name])
        return (
            f"{len(self.values)} int8 tensors, at least {self.values[worst]} values ({worst}), "
            f"saturated up to {100 * self.saturated[fullest]:.4f} % ({fullest}), cosine between "
            f"inputs up to {self.cosine:.2f}, between int8 and float32 from {self.fidelity:.3f}"
        )


def measure(path: Path, calibration: np.ndarray, inputs: np.ndarray) -> Health:
    """Quantize and run an ONNX model of one input."""
    qmod = quantize(load_model(path), calibration=[x[None] for x in calibration])
    names, module = every_tensor(qmod)
    machine = relax.VirtualMachine(build_reference(module), tvm.cpu())
    counts = np.zeros((len(names), 256), np.int64)
    outputs = []
    for x in inputs:
        tensors = [y.numpy() for y in machine["main"](tvm.runtime.tensor(x[None]))]
        for count, y in zip(counts, tensors, strict=False):
            count += np.bincount(y.ravel().astype(np.int64) + 128, minlength=256)
        outputs.append(tensors[len(names) :])
    session = ort.InferenceSession(path)
    source = session.get_inputs()[0].name
    wanted = [session.run(None, {source: x[None]}) for x in inputs]
    pairs = [
        (centred([y[i] for y in outputs]), centred([y[i] for y in wanted]))
        for i in range(len(wanted[0]))
    ]
    upper = np.triu_indices(len(inputs), 1)
    return Health(
        {name: int(np.count_nonzero(n)) for name, n in zip(names, counts, strict=True)},
        {name: float((n[0] + n[255]) / n.sum()) for name, n in zip(names, counts, strict=True)},
        max(float((got @ got.T)[upper].max()) for got, _ in pairs),
        min(float((got * want).sum(axis=1).min()) for got, want in pairs),
    )


def every_tensor(qmod: tvm.IRModule) -> tuple[list[str], tvm.IRModule]:
    """Names of all int8 tensors, and a module that returns them, then the outputs."""
    main, writer = qmod["main"], FunctionWriter()
    env: dict[relax.Var, relax.Expr] = {}
    tensors: dict[str, relax.Var] = {}
    for binding in straight_bindings(main):
        var = writer.emit(substituted(binding.value, env), binding.var.name)
        env[binding.var] = var
        if isinstance(var.ty, relax.TensorType) and var.ty.dtype == "int8":
            tensors[binding.var.name] = var
    body = substituted(main.body.body, env)
    outputs = list(body.fields) if isinstance(body, tvm.ir.Tuple) else [body]
    everything = relax.Tuple([*tensors.values(), *outputs])
    return list(tensors), with_main(qmod, writer.finish(main, everything))


def centred(outputs: list[np.ndarray]) -> np.ndarray:
    """One row per input: its output less the mean of all, at length 1."""
    rows = np.stack([y.ravel().astype("float64") for y in outputs])
    rows -= rows.mean(axis=0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_int8_squeezenet_means_something() -> None:
    module = importlib.import_module("models.squeezenet")
    inputs = module.sample_inputs(INPUTS, 1, size=64)
    health = measure(module.cached(size=64), module.calibration_inputs(size=64), inputs)
    print(health)
    assert len(health.values) >= 1 + 26 + 3 + 8 + 2  # input, convolutions, pools, concats, end
    assert min(health.values.values()) >= 80
    assert max(health.saturated.values()) <= 0.01
    assert health.cosine <= 0.9
    assert health.fidelity >= 0.9


def main(names: list[str]) -> None:
    for name in names or NAMES:
        module = importlib.import_module(f"models.{name}")
        start = time.process_time()
        size = len(module.build().SerializeToString())
        seconds = time.process_time() - start
        inputs = module.sample_inputs(INPUTS, 1)
        health = measure(module.cached(), module.calibration_inputs(), inputs)
        print(f"{name}: built in {seconds:.0f} s of processor time, {size / 1e6:.1f} MB; {health}")


if __name__ == "__main__":
    main(sys.argv[1:])
